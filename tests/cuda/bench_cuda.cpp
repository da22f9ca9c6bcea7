// Times the CUDA executor on a model: bench_cuda MODEL [contexts...]. One JSON line per case, median of 7.
// Share: of the read-only bandwidth given in GB/s by PUNA_BANDWIDTH (default 4,667, measured on an H200).

#include "cuda/cuda_executor.h"
#include "engine/model/model_files.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

using namespace puna;

namespace {

double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(int repetitions, const std::function<void()>& run)
{
    run();
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
        const double start = seconds();
        run();
        times.push_back(seconds() - start);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void need(const Result<void>& result)
{
    if (!result) {
        std::printf("{\"error\":\"%s\"}\n", result.error().message.c_str());
        std::exit(1);
    }
}

} // namespace

int main(int count, char** arguments)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (count < 2)
        return 2;
    auto files = openModelFiles(arguments[1]);
    if (!files) {
        std::printf("{\"error\":\"%s\"}\n", files.error().message.c_str());
        return 1;
    }
    const char* given = std::getenv("PUNA_BANDWIDTH");
    const double bandwidth = (given ? std::atof(given) : 4667.0) * 1e9;
    std::vector<int> contexts;
    for (int i = 2; i < count; ++i)
        contexts.push_back(std::atoi(arguments[i]));
    if (contexts.empty())
        contexts = {64, 4096};
    MemoryPlan plan;
    plan.max_context = *std::max_element(contexts.begin(), contexts.end()) + 512;
    plan.max_context = std::max<std::int64_t>(plan.max_context, 4096);
    plan.kv_pages = std::max<std::int64_t>(plan.max_context / kPageSize + 2, 32 * 4);
    plan.max_sequences = 32;
    plan.max_rows = 2048;
    const double start = seconds();
    auto loaded = loadCudaExecutor(0, files->config, files->weights, plan, {}, {});
    if (!loaded) {
        std::printf("{\"error\":\"%s\"}\n", loaded.error().message.c_str());
        return 1;
    }
    Executor& executor = **loaded;
    const MemoryReport memory = executor.memory();
    std::printf("{\"load_s\":%.2f,\"weights_gb\":%.3f,\"kv_mib\":%.0f,\"workspace_mib\":%.0f}\n", seconds() - start,
        static_cast<double>(memory.weights.count) * 1e-9, memory.kv.mib(), memory.workspace.mib());
    const std::int64_t row_bytes = files->weights.embedding.bytes() / files->config.vocab_size;
    const double weight_bytes = static_cast<double>(memory.weights.count - row_bytes * files->config.vocab_size);
    const double kv_bytes = 4.0 * files->config.n_layers * files->config.n_kv_heads * files->config.head_dim;

    std::vector<PageId> all(static_cast<std::size_t>(plan.kv_pages));
    std::iota(all.begin(), all.end(), 0);
    need(executor.fillPages(all, 1));
    ForwardResult result;
    for (const int rows : {128, 512, 2048}) {
        std::vector<TokenId> tokens(static_cast<std::size_t>(rows));
        for (int i = 0; i < rows; ++i)
            tokens[static_cast<std::size_t>(i)] = i * 7919 % files->config.vocab_size;
        const Sequence s {tokens, 0, all, LogitRows::last, nullptr};
        const double t = median(5, [&] { need(executor.forward({{&s, 1}, 1, {}}, result)); });
        std::printf("{\"prefill\":%d,\"ms\":%.2f,\"tokens_per_s\":%.0f}\n", rows, t * 1e3, rows / t);
    }
    const DeviceSampling greedy {};
    const DeviceSampling warm {0.8f, 40, 0.95f, 0.05f, 1, 1};
    const auto decode = [&](int sequences, int context, int steps, const DeviceSampling& sampling, const char* name) {
        std::vector<TokenId> token = {1};
        std::vector<Sequence> batch;
        const auto pages = static_cast<std::size_t>((context + steps) / kPageSize + 1);
        for (int i = 0; i < sequences; ++i)
            batch.push_back({token, context, std::span(all).subspan(static_cast<std::size_t>(i) * pages, pages),
                LogitRows::last, &sampling});
        const double t = median(7,
                             [&] {
                                 for (int i = 0; i < 4; ++i)
                                     need(executor.forward({batch, steps, {}}, result));
                             })
            / 4 / steps;
        const double bytes = weight_bytes + kv_bytes * sequences * (context + steps / 2);
        std::printf("{\"decode\":%d,\"context\":%d,\"steps\":%d,\"sampling\":\"%s\",\"ms\":%.3f,\"tokens_per_s\":%.1f,"
                    "\"gb_per_s\":%.0f,\"share\":%.3f}\n",
            sequences, context, steps, name, t * 1e3, sequences / t, bytes / t * 1e-9, bytes / t / bandwidth);
    };
    for (const int context : contexts) {
        decode(1, context, 8, greedy, "greedy");
        decode(1, context, 1, greedy, "greedy");
    }
    decode(1, contexts[0], 8, warm, "T 0.8, k 40, p 0.95, min 0.05");
    for (const int sequences : {2, 4, 8, 16, 32})
        decode(sequences, 512, 8, greedy, "greedy");
    return 0;
}
