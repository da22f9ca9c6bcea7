#include "engine/tools/tool.h"

#include "engine/base/foreign_text.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace puna::tool {

namespace {

std::string oneLine(std::string_view sentence)
{
    std::string line(sentence);
    for (char& c : line)
        if (c == '\n' || c == '\r')
            c = ' ';
    return line;
}

// The work that Ctrl+C would stop.
struct Work {
    std::mutex mutex;
    bool active = false;
    Engine* engine = nullptr;
    std::stop_source stop;
};

Work& work()
{
    static Work instance;
    return instance;
}

bool progress_shown = false;

} // namespace

int fail(std::string_view sentence)
{
    note(sentence);
    return kFailed;
}

void note(std::string_view sentence)
{
    std::fflush(stdout);
    std::fprintf(stderr, "puna-engine: %s\n", oneLine(sentence).c_str());
}

bool interactiveErrors()
{
    static const bool terminal = isatty(STDERR_FILENO) == 1;
    return terminal;
}

void showProgress(std::string_view what, double fraction)
{
    if (!interactiveErrors() || (fraction >= 1.0 && !progress_shown))
        return;
    progress_shown = fraction < 1.0;
    if (progress_shown)
        std::fprintf(stderr, "\r%.*s %3.0f %%", static_cast<int>(what.size()), what.data(), 100.0 * fraction);
    else
        std::fprintf(stderr, "\r\x1b[K");
    std::fflush(stderr);
}

void watchInterrupts()
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([signals] {
        for (;;) {
            int signal = 0;
            if (sigwait(&signals, &signal) != 0)
                continue;
            const std::lock_guard lock(work().mutex);
            if (!work().active || work().stop.stop_requested())
                std::_Exit(128 + SIGINT);
            work().stop.request_stop();
            if (work().engine)
                work().engine->requestStop();
        }
    }).detach();
}

Interruptible::Interruptible(Engine* engine)
{
    const std::lock_guard lock(work().mutex);
    work().active = true;
    work().engine = engine;
    work().stop = std::stop_source();
}

Interruptible::~Interruptible()
{
    const std::lock_guard lock(work().mutex);
    work().active = false;
    work().engine = nullptr;
}

bool Interruptible::interrupted() const
{
    return token().stop_requested();
}

std::stop_token Interruptible::token() const
{
    const std::lock_guard lock(work().mutex);
    return work().stop.get_token();
}

bool load(Engine& engine, const Common& options)
{
    const Interruptible loading;
    const auto loaded = engine.load(
        options.model, options.load, [](double fraction) { showProgress("Loading", fraction); }, loading.token());
    showProgress("Loading", 1.0);
    if (!loaded)
        fail(loaded.error().message);
    return loaded.has_value();
}

Result<std::string> readFile(const std::filesystem::path& path)
{
    constexpr std::size_t kMax = std::size_t {1} << 28;
    const std::string where = printable(path.string(), 300);
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed))
        return Error {ErrorCode::io, where + ": it is a folder, expected a file."};
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return Error {ErrorCode::io, where + ": it cannot be read (" + std::strerror(errno) + ")."};
    std::string text;
    std::vector<char> piece(1 << 16);
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
        text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
        if (text.size() > kMax)
            return Error {ErrorCode::unsupported, where + ": it has more than 256 MiB."};
    }
    return text;
}

} // namespace puna::tool
