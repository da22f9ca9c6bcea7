#include "engine/model/model_files.h"
#include "engine/tools/json_writer.h"
#include "engine/tools/tool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <thread>

namespace puna::tool {

namespace {

using Clock = std::chrono::steady_clock;
using Speeds = std::map<std::int64_t, double>; // tokens/s by what was asked for

double since(Clock::time_point start)
{
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values)
{
    if (values.empty())
        return std::nan("");
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<TokenId> randomTokens(std::int64_t count, int vocab_size, std::uint64_t seed)
{
    std::mt19937_64 random(seed);
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    for (TokenId& token : tokens)
        token = static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab_size));
    return tokens;
}

// Default sampling, as in the window; the answer has exactly max_tokens.
GenerationRequest request(std::vector<TokenId> prompt, int max_tokens)
{
    GenerationRequest r;
    r.prompt = TokenPrompt {std::move(prompt)};
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    return r;
}

Result<Statistics> runOne(Engine& engine, GenerationRequest r)
{
    TRY(engine.submit(std::move(r)));
    Statistics statistics;
    while (engine.busy())
        for (const Event& event : engine.step())
            if (const auto* finished = std::get_if<FinishedEvent>(&event.what)) {
                if (finished->reason == FinishReason::failed)
                    return finished->error;
                statistics = finished->statistics;
            }
    return statistics;
}

// All jobs have begun to answer, none has finished: tokens of all, per second.
Result<double> runBatch(Engine& engine, std::int64_t jobs, std::int64_t context, int tokens, std::uint64_t seed)
{
    for (std::int64_t i = 0; i < jobs; ++i)
        TRY(engine.submit(
            request(randomTokens(context, engine.model().vocab_size, seed + static_cast<std::uint64_t>(i)),
                tokens + 2 * static_cast<int>(jobs))));
    std::int64_t begun = 0;
    std::int64_t drawn = 0;
    bool finished = false;
    Clock::time_point start;
    double elapsed = 0.0;
    while (engine.busy()) {
        const bool measured = begun == jobs && !finished;
        if (measured && drawn == 0)
            start = Clock::now();
        for (const Event& event : engine.step()) {
            if (const auto* text = std::get_if<TextEvent>(&event.what); text && measured)
                drawn += static_cast<std::int64_t>(text->tokens.size());
            if (std::holds_alternative<PrefillEvent>(event.what))
                ++begun; // prompts are short: one chunk each
            if (const auto* end = std::get_if<FinishedEvent>(&event.what)) {
                finished = true;
                if (end->reason == FinishReason::failed)
                    return end->error;
            }
        }
        if (measured)
            elapsed = since(start);
    }
    return static_cast<double>(drawn) / elapsed;
}

__attribute__((target_clones("avx2", "default"))) std::uint64_t sum(const std::uint64_t* data, std::size_t count)
{
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < count; ++i)
        total += data[i];
    return total;
}

// The best of several passes over memory that no cache holds, by as many threads as compute.
double hostBandwidth(int threads)
{
    constexpr std::size_t kBytes = std::size_t {1} << 29;
    constexpr std::size_t kCount = kBytes / sizeof(std::uint64_t);
    constexpr int kPasses = 6;
    const auto buffer = std::make_unique<std::uint64_t[]>(kCount);
    std::fill_n(buffer.get(), kCount, std::uint64_t {1});
    double best = 0.0;
    for (int pass = 0; pass < kPasses; ++pass) {
        std::vector<std::uint64_t> totals(static_cast<std::size_t>(threads) * 8); // a cache line each
        const auto start = Clock::now();
        {
            std::vector<std::jthread> workers;
            const std::size_t share = kCount / static_cast<std::size_t>(threads);
            for (std::size_t t = 0; t < static_cast<std::size_t>(threads); ++t)
                workers.emplace_back([&, t] { totals[t * 8] = sum(buffer.get() + t * share, share); });
        }
        const double elapsed = since(start);
        std::uint64_t total = 0;
        for (const std::uint64_t part : totals)
            total += part;
        if (total > 0) // always; keeps the sums alive
            best = std::max(best, static_cast<double>(kBytes) / elapsed);
    }
    return best;
}

std::int64_t peakMemory()
{
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:"))
            return std::atoll(line.c_str() + 6) * 1024;
    return 0;
}

// Weights that one decoded token reads: all but the embedding's other rows, and those too where it is the head.
std::int64_t bytesPerToken(const ModelFiles& files)
{
    const auto* head = std::get_if<DenseLinear>(&files.weights.head.weight);
    const bool tied = head && head->weight.data == files.weights.embedding.data;
    return files.weights.bytes - (tied ? 0 : files.weights.embedding.bytes());
}

JsonObject json(const Speeds& speeds)
{
    JsonObject object;
    for (const auto& [size, speed] : speeds)
        object.add(std::to_string(size), speed);
    return object;
}

void print(const char* what, const Speeds& speeds)
{
    for (const auto& [size, speed] : speeds)
        std::printf("  %-8s %6lld   %10.1f tokens/s\n", what, static_cast<long long>(size), speed);
}

std::int64_t largest(const std::vector<std::int64_t>& values)
{
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

} // namespace

int bench(const BenchOptions& options)
{
    // What is worth measuring depends on the device, which is known once a model is loaded.
    Common common = options.common;
    common.load.tokens_only = true;
    common.load.max_sequences = 1;
    common.load.context = 0;
    Engine engine;
    std::vector<double> loads;
    const auto timedLoad = [&] {
        const auto start = Clock::now();
        const bool loaded = load(engine, common);
        loads.push_back(since(start));
        return loaded;
    };
    if (!timedLoad())
        return kFailed;
    const DeviceInfo device = engine.device();
    const bool gpu = device.kind.starts_with("cuda");
    const int vocab_size = engine.model().vocab_size;
    const int decode_tokens = gpu ? 128 : 32;

    BenchOptions sizes = options;
    if (sizes.prefill.empty())
        sizes.prefill =
            gpu ? std::vector<std::int64_t> {128, 512, 2048, 8192} : std::vector<std::int64_t> {128, 512, 2048};
    if (sizes.decode.empty())
        sizes.decode =
            gpu ? std::vector<std::int64_t> {64, 1024, 4096, 8192, 32768} : std::vector<std::int64_t> {64, 1024, 4096};
    if (sizes.batch.empty())
        sizes.batch = {1, 2, 4, 8, 16, 32};
    const std::int64_t limit = options.common.load.context > 0
        ? std::min(options.common.load.context, engine.model().max_context)
        : engine.model().max_context;
    std::erase_if(sizes.prefill, [&](std::int64_t n) { return n + 1 > limit; });
    std::erase_if(sizes.decode, [&](std::int64_t n) { return n + decode_tokens + 1 > limit; });

    // One job: with the context that the longest needs; load times until there are enough or they take too long.
    common.load.context = std::max(
        {largest(sizes.prefill) + 1, largest(sizes.decode) + decode_tokens + 1, std::min<std::int64_t>(limit, 256)});
    constexpr double kLoadSeconds = 10.0;
    do {
        if (!timedLoad())
            return kFailed;
    } while (
        static_cast<int>(loads.size()) < options.runs && loads[0] * static_cast<double>(loads.size()) < kLoadSeconds);

    Speeds prefill, decode, batch;
    std::uint64_t seed = 1;
    const auto failed = [](const Error& error) { return fail(error.message); };
    for (const std::int64_t n : sizes.prefill) {
        std::vector<double> speeds;
        for (int run = 0; run < options.runs; ++run) {
            const auto statistics = runOne(engine, request(randomTokens(n, vocab_size, ++seed), 1));
            if (!statistics)
                return failed(statistics.error());
            speeds.push_back(statistics->prefillTokensPerSecond());
        }
        prefill[n] = median(speeds);
    }
    for (const std::int64_t n : sizes.decode) {
        std::vector<double> speeds;
        for (int run = 0; run < options.runs; ++run) {
            std::vector<TokenId> tokens = randomTokens(n, vocab_size, ++seed);
            if (n > 1)
                if (const auto done = engine.pretendComputed({tokens.begin(), tokens.end() - 1}); !done)
                    return failed(done.error());
            const auto statistics = runOne(engine, request(std::move(tokens), decode_tokens));
            if (!statistics)
                return failed(statistics.error());
            speeds.push_back(statistics->decodeTokensPerSecond());
        }
        decode[n] = median(speeds);
    }
    const MemoryReport memory = engine.memory();

    constexpr std::int64_t kBatchContext = 64;
    std::erase_if(
        sizes.batch, [&](std::int64_t n) { return n > 256 || kBatchContext + decode_tokens + 2 * n > limit; });
    if (!sizes.batch.empty()) {
        common.load.max_sequences = static_cast<int>(largest(sizes.batch));
        common.load.context = kBatchContext + decode_tokens + 2 * largest(sizes.batch);
        if (!load(engine, common))
            return kFailed;
    }
    for (const std::int64_t n : sizes.batch) {
        std::vector<double> speeds;
        for (int run = 0; run < options.runs; ++run) {
            const auto speed = runBatch(engine, n, kBatchContext, decode_tokens, seed += 1000);
            if (!speed)
                return failed(speed.error());
            speeds.push_back(*speed);
        }
        batch[n] = median(speeds);
    }
    engine.unload();

    const std::int64_t peak = peakMemory(); // before the buffer that measures bandwidth
    const double bandwidth = gpu ? std::nan("") : hostBandwidth(std::max(1, device.threads));
    std::int64_t bytes_per_token = memory.weights.count;
    if (device.kind != "reference")
        if (const auto files = openModelFiles(options.common.model))
            bytes_per_token = bytesPerToken(*files);
    const double share =
        decode.empty() ? std::nan("") : static_cast<double>(bytes_per_token) * decode.begin()->second / bandwidth;
    if (options.common.json) {
        JsonObject()
            .add("device", device.kind)
            .add("device_name", device.name)
            .add("device_detail", device.detail)
            .add("threads", device.threads)
            .add("bandwidth_gbps", bandwidth / 1e9)
            .add("load_s", median(loads))
            .add("prefill", json(prefill))
            .add("decode", json(decode))
            .add("batch", json(batch))
            .add("bytes_per_token", bytes_per_token)
            .add("bandwidth_share", share)
            .add("memory",
                JsonObject()
                    .add("weights", memory.weights.count)
                    .add("kv", memory.kv.count)
                    .add("workspace", memory.workspace.count)
                    .add("other", memory.other.count)
                    .add("peak", peak))
            .print();
        return kOk;
    }
    std::printf(
        "%s, %s (%s), %d threads\n", device.kind.c_str(), device.name.c_str(), device.detail.c_str(), device.threads);
    std::printf("  load %.2f s; weights %.0f MiB, cache %.0f MiB, workspace %.0f MiB\n", median(loads),
        memory.weights.mib(), memory.kv.mib(), (memory.workspace + memory.other).mib());
    print("prefill", prefill);
    print("decode", decode);
    print("batch", batch);
    if (std::isfinite(share))
        std::printf("  memory %.1f GB/s, %.1f MB per token: decode uses %.0f %% of it\n", bandwidth / 1e9,
            static_cast<double>(bytes_per_token) / 1e6, 100 * share);
    return kOk;
}

} // namespace puna::tool
