// What the subcommands of puna-engine share. The contract of the program is `cli.md`: human text or one JSON document
// on stdout, progress and messages on stderr, exit 0 on success, 1 when the work failed, 2 on wrong usage.
// Only main.cpp knows the option parser; each subcommand is a function of its options.
#pragma once

#include "engine/engine.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace puna::tool {

inline constexpr int kOk = 0, kFailed = 1;

struct Common {
    std::filesystem::path model;
    LoadOptions load;
    bool json = false;
};

struct RunOptions {
    Common common;
    std::string prompt;
    std::string system;
    std::filesystem::path messages;
    bool chat = false;
    bool interactive = false;
    GenerationRequest request; // sampling, limits, stop strings
};

struct TokenizeOptions {
    Common common;
    std::optional<std::string> text;
    std::filesystem::path text_file;
    std::optional<std::vector<TokenId>> decode;
    bool no_special = false; // control tokens are text
    bool add_special = false; // BOS and the like, as the model wants them
};

struct RenderOptions {
    Common common; // model may be empty
    std::filesystem::path chat_template;
    std::filesystem::path context;
};

struct LogitsOptions {
    Common common;
    std::vector<TokenId> tokens;
    std::filesystem::path out;
    bool one_by_one = false;
};

struct PerplexityOptions {
    Common common; // load.context: the window, 0: 2048
    std::filesystem::path text_file;
    int windows = 0; // 0: all
    std::filesystem::path save_logits, against;
};

struct BenchOptions {
    Common common;
    int runs = 5;
    std::vector<std::int64_t> prefill, decode, batch; // empty: the device's default lists
};

int inspect(const Common& options);
int run(const RunOptions& options);
int tokenize(const TokenizeOptions& options);
int render(const RenderOptions& options);
int logits(const LogitsOptions& options);
int perplexity(const PerplexityOptions& options);
int bench(const BenchOptions& options);

// --- messages ---

int fail(std::string_view sentence); // to stderr; returns kFailed
void note(std::string_view sentence); // to stderr
bool interactiveErrors(); // stderr is a terminal: progress may be drawn there
void showProgress(std::string_view what, double fraction); // only there; 1 clears the line

// --- Ctrl+C ---

// Makes Ctrl+C stop the work in progress: a load through the token, an answer through requestStop(). Where nothing is
// in progress, or when pressed twice, it ends the program. To be called before any thread is started.
void watchInterrupts();
class Interruptible { // work in progress, for as long as it lives
public:
    explicit Interruptible(Engine* engine = nullptr);
    ~Interruptible();
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;
    bool interrupted() const;
    std::stop_token token() const;
};

// --- work ---

// Loads with progress on stderr. On failure the sentence is out already.
bool load(Engine& engine, const Common& options);

Result<std::string> readFile(const std::filesystem::path& path); // a file or pipe of at most 256 MiB

} // namespace puna::tool
