// The CPU executor's forward pass as llama-bench measures it: a prompt of 512 tokens in an empty context, and 128
// tokens one by one from an empty context; then 32 tokens behind 4,096 made-up ones. One JSON line per case.
//     bench_forward MODEL [threads] [runs] [prefill|decode|decode-4096]
#include "engine/cpu/cpu_executor.h"
#include "engine/model/model_files.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

using namespace puna;

namespace {

double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T> T orExit(Result<T> result)
{
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().message.c_str());
        std::exit(1);
    }
    return std::move(result).value();
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: bench_forward MODEL [threads] [runs] [prefill|decode|decode-4096]\n");
        return 2;
    }
    const int runs = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5;
    const ModelFiles files = orExit(openModelFiles(argv[1]));
    MemoryPlan plan;
    plan.max_context = 8192;
    plan.kv_pages = 32;
    plan.threads = argc > 2 ? std::atoi(argv[2]) : 0;
    const double start = seconds();
    const auto executor = orExit(loadCpuExecutor(files.config, files.weights, plan, {}, {}));
    const DeviceInfo device = executor->device();
    std::printf("{\"op\": \"load\", \"s\": %.3f, \"weights_mib\": %.1f, \"device\": \"%s, %s\", \"threads\": %d}\n",
        seconds() - start, executor->memory().weights.mib(), device.name.c_str(), device.detail.c_str(),
        device.threads);

    std::vector<PageId> pages(32);
    std::iota(pages.begin(), pages.end(), 0);
    std::vector<TokenId> tokens(512);
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<TokenId>((i * 7919 + 13) % static_cast<std::size_t>(files.config.vocab_size));
    ForwardResult result;
    const auto forward = [&](std::size_t first, std::size_t count, std::int64_t behind = 0) {
        Sequence sequence;
        sequence.tokens = std::span(tokens).subspan(first, count);
        sequence.start = behind + static_cast<std::int64_t>(first);
        sequence.pages = pages;
        Batch batch;
        batch.sequences = {&sequence, 1};
        if (const Result<void> done = executor->forward(batch, result); !done) {
            std::fprintf(stderr, "%s\n", done.error().message.c_str());
            std::exit(1);
        }
    };
    const auto report = [&](const char* op, std::size_t count, auto&& body) {
        if (argc > 4 && std::strcmp(argv[4], op) != 0)
            return;
        std::vector<double> speeds;
        body();
        for (int i = 0; i < runs; ++i) {
            const double begin = seconds();
            body();
            speeds.push_back(static_cast<double>(count) / (seconds() - begin));
        }
        std::sort(speeds.begin(), speeds.end());
        std::printf("{\"op\": \"%s\", \"tokens\": %zu, \"tokens_per_s\": %.1f, \"best\": %.1f, \"worst\": %.1f}\n", op,
            count, speeds[speeds.size() / 2], speeds.back(), speeds.front());
    };
    report("prefill", 512, [&] { forward(0, 512); });
    report("decode", 128, [&] {
        for (std::size_t i = 0; i < 128; ++i)
            forward(i, 1);
    });
    if (!executor->fillPages(pages, 1))
        return 1;
    report("decode-4096", 32, [&] {
        for (std::size_t i = 0; i < 32; ++i)
            forward(i, 1, 4096);
    });
    return 0;
}
