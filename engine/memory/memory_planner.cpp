#include "engine/memory/memory_planner.h"

#include "engine/kv/block_table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace puna {

namespace {

constexpr std::int64_t kDefaultContext = 8192;
constexpr int kMaxSequences = 256;
constexpr int kMaxThreads = 1024;

std::string shown(Bytes bytes)
{
    char text[32];
    if (bytes.count < (std::int64_t {1} << 30))
        std::snprintf(text, sizeof text, "%.0f MiB", bytes.mib());
    else
        std::snprintf(text, sizeof text, "%.1f GiB", bytes.gib());
    return text;
}

// As float32, which is what the reference executor keeps.
Bytes decodedWeights(const ModelWeights& weights)
{
    std::int64_t elements = weights.head.in_features * weights.head.out_features;
    for (const LayerWeights& layer : weights.layers)
        for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
            elements += linear->in_features * linear->out_features;
    return {elements * 4};
}

} // namespace

Result<MemoryNeeds> planMemory(const ModelConfig& config, const ModelWeights& weights, DeviceKind device,
    const LoadOptions& options, Bytes available)
{
    const auto refused = [](const std::string& what) { return Error {ErrorCode::argument, what}; };
    if (options.context < 0 || options.context > config.max_context)
        return refused("A context of " + std::to_string(options.context)
            + " tokens was asked for; the model allows 1 to " + std::to_string(config.max_context) + ".");
    if (options.max_sequences < 1 || options.max_sequences > kMaxSequences)
        return refused(std::to_string(options.max_sequences) + " jobs at once were asked for; 1 to "
            + std::to_string(kMaxSequences) + " are possible.");
    if (options.threads < 0 || options.threads > kMaxThreads)
        return refused(std::to_string(options.threads) + " threads were asked for; 1 to " + std::to_string(kMaxThreads)
            + " are possible, 0 means one per physical core.");

    MemoryNeeds needs;
    MemoryPlan& plan = needs.plan;
    plan.max_context = options.context > 0 ? options.context : std::min(config.max_context, kDefaultContext);
    plan.max_sequences = options.max_sequences;
    plan.max_rows = std::max(512, options.max_sequences);
    plan.kv_type = options.kv_type;
    plan.threads = options.threads;

    const bool reference = device == DeviceKind::reference;
    needs.weights = reference ? decodedWeights(weights) : Bytes {weights.bytes};
    const std::int64_t widths = 6 * std::int64_t {config.hidden_size} + 3 * std::int64_t {config.intermediate_size}
        + 2 * std::int64_t {config.n_heads + 2 * config.n_kv_heads} * config.head_dim;
    needs.workspace = {plan.max_rows * widths * 4 + std::int64_t {plan.max_sequences} * config.vocab_size * 4};

    const std::int64_t page_bytes =
        std::int64_t {kPageSize} * config.n_layers * 2 * config.n_kv_heads * config.head_dim * (reference ? 4 : 2);
    const std::int64_t pages_min = pagesFor(plan.max_context);
    constexpr double kUnreasonable = 0x1p50; // bytes; no product below overflows under it
    if (static_cast<double>(page_bytes) * static_cast<double>(pages_min) * plan.max_sequences > kUnreasonable)
        return Error {ErrorCode::memory,
            "A context of " + std::to_string(plan.max_context) + " tokens needs more memory than any machine has ("
                + shown({page_bytes}) + " for every " + std::to_string(kPageSize) + " tokens); choose a shorter one."};
    plan.kv_pages = pages_min * plan.max_sequences;
    if (available.count > 0) { // one context has to fit; more of them only while an eighth stays free
        const std::int64_t left = available.count - available.count / 8 - needs.weights.count - needs.workspace.count;
        plan.kv_pages = std::clamp(left / page_bytes, pages_min, plan.kv_pages);
    }
    needs.kv = {plan.kv_pages * page_bytes};
    if (available.count > 0 && needs.total() > available)
        return Error {ErrorCode::memory,
            "The model needs " + shown(needs.total()) + " of memory (weights " + shown(needs.weights) + ", "
                + shown(needs.kv) + " for a context of " + std::to_string(plan.max_context) + " tokens), and "
                + shown(available) + " are available; choose a shorter context or a smaller model."};
    return needs;
}

Bytes availableHostMemory()
{
    std::ifstream meminfo("/proc/meminfo");
    constexpr std::string_view kField = "MemAvailable:";
    for (std::string line; std::getline(meminfo, line);)
        if (line.starts_with(kField))
            return {std::atoll(line.c_str() + kField.size()) * 1024};
    return {};
}

} // namespace puna
