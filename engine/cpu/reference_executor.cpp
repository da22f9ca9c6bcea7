// The reference executor: a whole Llama in float32, from weights to logits, in the order of the paper.
//
// Weights are decoded to float32 at load, the KV cache is float32: K and V of page p, layer l, key/value head h are
// [kPageSize, head_dim] at ((p * n_layers + l) * n_kv_heads + h). Slow: a decoded token reads every weight as four
// bytes. Exact: see reference.h; the same bits on every machine and for every way of cutting a prompt into batches.

#include "engine/base/rope.h"
#include "engine/cpu/cpu_executor.h"
#include "engine/cpu/cpu_features.h"
#include "engine/cpu/parallel_for.h"
#include "engine/cpu/reference.h"
#include "engine/cpu/system_memory.h"
#include "engine/quant/decode.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>
#include <utility>

namespace puna {

namespace {

namespace ref = reference;

std::size_t at(std::int64_t i)
{
    return static_cast<std::size_t>(i);
}

std::string gib(std::int64_t bytes)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", Bytes {bytes}.gib());
    return text;
}

// Float32 memory that is not touched before it is written.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::int64_t size)
        : m_data(std::make_unique_for_overwrite<float[]>(at(size)))
        , m_size(size)
    {
    }
    float* data() { return m_data.get(); }
    const float* data() const { return m_data.get(); }
    float* row(std::int64_t r, std::int64_t width) { return m_data.get() + r * width; }
    std::int64_t bytes() const { return m_size * static_cast<std::int64_t>(sizeof(float)); }

private:
    std::unique_ptr<float[]> m_data;
    std::int64_t m_size = 0;
};

Buffer decoded(const TensorView& tensor)
{
    Buffer out(tensor.elements());
    decodeTensor(tensor, 0, tensor.elements(), out.data());
    return out;
}

// y = W x + bias
struct Matrix {
    std::int64_t in = 0, out = 0;
    Buffer weight; // [out, in]
    Buffer bias; // [out] or none
};

struct Layer {
    Buffer input_norm, post_attention_norm;
    Matrix q, k, v, o, gate, up, down;
};

class ReferenceExecutor final : public Executor {
public:
    ReferenceExecutor(const ModelConfig& config, const MemoryPlan& plan)
        : m_config(config)
        , m_plan(plan)
        , m_parallel(plan.threads > 0 ? plan.threads : cpuFeatures().physical_cores)
        , m_frequencies(ropeFrequencies(config.rope))
    {
    }

    Result<void> load(const ModelWeights& weights, const LoadProgress& progress, std::stop_token stop);

    Result<void> forward(const Batch& batch, ForwardResult& result) override;
    Result<void> copyPages(std::span<const PageCopy> copies) override;
    MemoryReport memory() const override;
    DeviceInfo device() const override;
    Result<void> fillPages(std::span<const PageId> pages, std::uint64_t seed) override;

private:
    struct Row { // of the batch: one new token
        TokenId token;
        std::int64_t position;
        std::span<const PageId> pages;
    };

    Matrix decodedLinear(const Linear& linear);
    Result<void> collectRows(const Batch& batch);
    void apply(const Matrix& matrix, const float* x, std::int64_t rows, float* y);
    void normRows(const float* x, const Buffer& weight, std::int64_t rows, float* y);
    void add(const float* y, std::int64_t rows);
    void attention(const Layer& layer, std::int64_t index);

    std::int64_t headSize() const { return std::int64_t {kPageSize} * m_config.head_dim; }
    std::int64_t layerStride() const { return headSize() * m_config.n_kv_heads; }
    std::int64_t pageStride() const { return layerStride() * m_config.n_layers; }
    bool isPage(PageId page) const { return page >= 0 && page < m_plan.kv_pages; }

    ModelConfig m_config;
    MemoryPlan m_plan;
    ParallelFor m_parallel;
    std::vector<double> m_frequencies; // of the rotary pairs

    TensorView m_embedding; // decoded row by row
    std::vector<Layer> m_layers;
    Buffer m_final_norm;
    Matrix m_head;
    std::int64_t m_weight_bytes = 0;

    Buffer m_keys, m_values;
    // Of the batch, [max_rows, width]:
    std::vector<Row> m_rows;
    Buffer m_residual, m_normed, m_query, m_key, m_value, m_attended, m_gate, m_up, m_cosines, m_sines;
    Buffer m_scores; // [threads, max_context]
};

Matrix ReferenceExecutor::decodedLinear(const Linear& linear)
{
    Matrix matrix {linear.in_features, linear.out_features, Buffer(linear.in_features * linear.out_features), {}};
    m_parallel(matrix.out, 64, [&](std::int64_t begin, std::int64_t end, int) {
        const std::int64_t size = (end - begin) * matrix.in;
        decodeRows(linear, begin, end - begin, {matrix.weight.row(begin, matrix.in), at(size)});
    });
    if (linear.bias)
        matrix.bias = decoded(linear.bias);
    m_weight_bytes += matrix.weight.bytes() + matrix.bias.bytes();
    return matrix;
}

Result<void> ReferenceExecutor::load(const ModelWeights& weights, const LoadProgress& progress, std::stop_token stop)
{
    const ModelConfig& c = m_config;
    const double steps = c.n_layers + 1.0;
    m_embedding = weights.embedding;
    for (const LayerWeights& source : weights.layers) {
        if (stop.stop_requested())
            return Error {ErrorCode::cancelled, "Loading was stopped."};
        Layer& layer = m_layers.emplace_back();
        layer.input_norm = decoded(source.input_norm);
        layer.post_attention_norm = decoded(source.post_attention_norm);
        for (auto [to, from] :
            {std::pair {&layer.q, &source.q}, {&layer.k, &source.k}, {&layer.v, &source.v}, {&layer.o, &source.o},
                {&layer.gate, &source.gate}, {&layer.up, &source.up}, {&layer.down, &source.down}})
            *to = decodedLinear(*from);
        m_weight_bytes += layer.input_norm.bytes() + layer.post_attention_norm.bytes();
        if (progress)
            progress(static_cast<double>(m_layers.size()) / steps);
    }
    m_final_norm = decoded(weights.final_norm);
    m_head = decodedLinear(weights.head);
    m_weight_bytes += m_final_norm.bytes();

    m_keys = Buffer(m_plan.kv_pages * pageStride());
    m_values = Buffer(m_plan.kv_pages * pageStride());
    const std::int64_t rows = m_plan.max_rows;
    m_rows.reserve(at(rows));
    m_residual = Buffer(rows * c.hidden_size);
    m_normed = Buffer(rows * c.hidden_size);
    m_query = Buffer(rows * m_layers[0].q.out);
    m_key = Buffer(rows * m_layers[0].k.out);
    m_value = Buffer(rows * m_layers[0].v.out);
    m_attended = Buffer(rows * m_layers[0].q.out);
    m_gate = Buffer(rows * c.intermediate_size);
    m_up = Buffer(rows * c.intermediate_size);
    m_cosines = Buffer(rows * static_cast<std::int64_t>(m_frequencies.size()));
    m_sines = Buffer(rows * static_cast<std::int64_t>(m_frequencies.size()));
    m_scores = Buffer(m_parallel.threads() * m_plan.max_context);
    if (progress)
        progress(1.0);
    return {};
}

Result<void> ReferenceExecutor::collectRows(const Batch& batch)
{
    const auto refused = [](const std::string& what) {
        return Error {ErrorCode::argument, "The batch cannot be run: " + what + "."};
    };
    m_rows.clear();
    if (batch.decode_steps != 1)
        return refused("the reference executor decodes one step at a time");
    for (const Sequence& sequence : batch.sequences) {
        const auto count = static_cast<std::int64_t>(sequence.tokens.size());
        if (count < 1 || count + static_cast<std::int64_t>(m_rows.size()) > m_plan.max_rows)
            return refused("it has no tokens or more than " + std::to_string(m_plan.max_rows));
        if (sequence.start < 0 || sequence.start > m_plan.max_context - count)
            return refused("it reaches beyond the context of " + std::to_string(m_plan.max_context) + " tokens");
        const std::int64_t pages = (sequence.start + count + kPageSize - 1) / kPageSize;
        if (static_cast<std::int64_t>(sequence.pages.size()) < pages
            || !std::all_of(
                sequence.pages.begin(), sequence.pages.begin() + pages, [&](PageId p) { return isPage(p); }))
            return refused("its pages do not cover its tokens");
        if (sequence.sampling)
            return refused("the reference executor does not sample");
        for (std::int64_t i = 0; i < count; ++i) {
            const TokenId token = sequence.tokens[at(i)];
            if (token < 0 || token >= m_config.vocab_size)
                return refused("token " + std::to_string(token) + " is not in the vocabulary of "
                    + std::to_string(m_config.vocab_size));
            m_rows.push_back({token, sequence.start + i, sequence.pages});
        }
    }
    return {};
}

void ReferenceExecutor::apply(const Matrix& m, const float* x, std::int64_t rows, float* y)
{
    m_parallel(m.out, 16, [&](std::int64_t begin, std::int64_t end, int) {
        ref::linear(x, rows, m.in, m.weight.data(), m.bias.data(), m.out, begin, end, y);
    });
}

void ReferenceExecutor::normRows(const float* x, const Buffer& weight, std::int64_t rows, float* y)
{
    const std::int64_t n = m_config.hidden_size;
    for (std::int64_t r = 0; r < rows; ++r)
        ref::rmsNorm(x + r * n, weight.data(), n, m_config.norm_eps, y + r * n);
}

void ReferenceExecutor::add(const float* y, std::int64_t rows)
{
    float* x = m_residual.data();
    for (std::int64_t i = 0; i < rows * m_config.hidden_size; ++i)
        x[i] += y[i];
}

// From m_normed to m_attended; the new keys and values go into the pages.
void ReferenceExecutor::attention(const Layer& layer, std::int64_t index)
{
    const ModelConfig& c = m_config;
    const auto rows = static_cast<std::int64_t>(m_rows.size());
    const int pairs = static_cast<int>(m_frequencies.size());
    apply(layer.q, m_normed.data(), rows, m_query.data());
    apply(layer.k, m_normed.data(), rows, m_key.data());
    apply(layer.v, m_normed.data(), rows, m_value.data());

    for (std::int64_t r = 0; r < rows; ++r) {
        const Row& row = m_rows[at(r)];
        const float* cosines = m_cosines.row(r, pairs);
        const float* sines = m_sines.row(r, pairs);
        for (int h = 0; h < c.n_heads; ++h)
            ref::rope(m_query.row(r, layer.q.out) + h * c.head_dim, cosines, sines, pairs, c.rope.style);
        for (int h = 0; h < c.n_kv_heads; ++h) {
            float* key = m_key.row(r, layer.k.out) + h * c.head_dim;
            const float* value = m_value.row(r, layer.v.out) + h * c.head_dim;
            ref::rope(key, cosines, sines, pairs, c.rope.style);
            const std::int64_t place = row.pages[at(row.position / kPageSize)] * pageStride() + index * layerStride()
                + h * headSize() + row.position % kPageSize * c.head_dim;
            std::copy_n(key, c.head_dim, m_keys.data() + place);
            std::copy_n(value, c.head_dim, m_values.data() + place);
        }
    }

    const int group = c.n_heads / c.n_kv_heads; // query heads that share a key/value head
    m_parallel(rows * c.n_heads, c.n_heads, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t r = i / c.n_heads;
            const std::int64_t h = i % c.n_heads;
            const Row& row = m_rows[at(r)];
            const std::int64_t first = index * layerStride() + h / group * headSize();
            const ref::Attention shared {m_keys.data() + first, m_values.data() + first, pageStride(), row.pages,
                row.position + 1, c.head_dim, c.attention_scale};
            ref::attend(m_query.row(r, layer.q.out) + h * c.head_dim, shared, m_scores.row(thread, m_plan.max_context),
                m_attended.row(r, layer.q.out) + h * c.head_dim);
        }
    });
}

Result<void> ReferenceExecutor::forward(const Batch& batch, ForwardResult& result)
{
    TRY(collectRows(batch));
    const ModelConfig& c = m_config;
    const auto rows = static_cast<std::int64_t>(m_rows.size());
    const auto pairs = static_cast<std::int64_t>(m_frequencies.size());
    for (std::int64_t r = 0; r < rows; ++r) {
        decodeTensor(m_embedding, m_rows[at(r)].token * std::int64_t {c.hidden_size}, c.hidden_size,
            m_residual.row(r, c.hidden_size));
        for (std::int64_t j = 0; j < pairs; ++j) {
            const double angle = static_cast<double>(m_rows[at(r)].position) * m_frequencies[at(j)];
            m_cosines.row(r, pairs)[j] = static_cast<float>(std::cos(angle));
            m_sines.row(r, pairs)[j] = static_cast<float>(std::sin(angle));
        }
    }

    const auto finite = [](const float* x, std::int64_t n) {
        return std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
    };
    const auto notFinite = [](const std::string& where) {
        return Error {ErrorCode::format,
            where
                + " computed a value that is not a finite number; the model's weights are "
                  "damaged. Import the model again."};
    };
    for (std::int64_t l = 0; l < c.n_layers; ++l) {
        if (batch.stop.stop_requested())
            return Error {ErrorCode::cancelled, "The computation was stopped."};
        const Layer& layer = m_layers[at(l)];
        // h += o(attention(norm(h)))
        normRows(m_residual.data(), layer.input_norm, rows, m_normed.data());
        attention(layer, l);
        apply(layer.o, m_attended.data(), rows, m_normed.data());
        add(m_normed.data(), rows);
        // h += down(silu(gate(norm(h))) * up(norm(h)))
        normRows(m_residual.data(), layer.post_attention_norm, rows, m_normed.data());
        apply(layer.gate, m_normed.data(), rows, m_gate.data());
        apply(layer.up, m_normed.data(), rows, m_up.data());
        m_parallel(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
            const std::int64_t first = begin * c.intermediate_size;
            ref::siluMultiply(
                m_gate.data() + first, m_up.data() + first, (end - begin) * c.intermediate_size, m_gate.data() + first);
        });
        apply(layer.down, m_gate.data(), rows, m_normed.data());
        add(m_normed.data(), rows);
        if (!finite(m_residual.data(), rows * c.hidden_size))
            return notFinite("Layer " + std::to_string(l));
    }

    // logits = head(norm(h)) of the rows that are asked for
    std::int64_t asked = 0;
    std::int64_t end = 0;
    for (const Sequence& sequence : batch.sequences) {
        const auto count = static_cast<std::int64_t>(sequence.tokens.size());
        end += count;
        const std::int64_t wanted = sequence.logits == LogitRows::none ? 0
            : sequence.logits == LogitRows::last                       ? 1
                                                                       : count;
        normRows(m_residual.row(end - wanted, c.hidden_size), m_final_norm, wanted, m_normed.row(asked, c.hidden_size));
        asked += wanted;
    }
    result.tokens.clear();
    result.logits.resize(at(asked * c.vocab_size));
    apply(m_head, m_normed.data(), asked, result.logits.data());
    if (!finite(result.logits.data(), asked * c.vocab_size))
        return notFinite("The head");
    return {};
}

Result<void> ReferenceExecutor::copyPages(std::span<const PageCopy> copies)
{
    for (const PageCopy& copy : copies) {
        if (!isPage(copy.from) || !isPage(copy.to) || copy.tokens < 0 || copy.tokens > kPageSize)
            return Error {ErrorCode::argument, "A page outside of the KV cache cannot be copied."};
        for (std::int64_t head = 0; head < std::int64_t {m_config.n_layers} * m_config.n_kv_heads; ++head)
            for (Buffer* pool : {&m_keys, &m_values})
                std::copy_n(pool->data() + copy.from * pageStride() + head * headSize(),
                    copy.tokens * m_config.head_dim, pool->data() + copy.to * pageStride() + head * headSize());
    }
    return {};
}

Result<void> ReferenceExecutor::fillPages(std::span<const PageId> pages, std::uint64_t seed)
{
    for (const PageId page : pages) {
        if (!isPage(page))
            return Error {ErrorCode::argument, "A page outside of the KV cache cannot be filled."};
        std::uint64_t state = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(page) + 1;
        for (Buffer* pool : {&m_keys, &m_values})
            for (std::int64_t i = 0; i < pageStride(); ++i) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                pool->data()[page * pageStride() + i] = static_cast<float>(state >> 40) * 0x1p-23f - 1.0f;
            }
    }
    return {};
}

MemoryReport ReferenceExecutor::memory() const
{
    MemoryReport report;
    report.weights = Bytes {m_weight_bytes};
    report.kv = Bytes {m_keys.bytes() + m_values.bytes()};
    for (const Buffer* buffer : {&m_residual, &m_normed, &m_query, &m_key, &m_value, &m_attended, &m_gate, &m_up,
             &m_cosines, &m_sines, &m_scores})
        report.workspace += Bytes {buffer->bytes()};
    return report;
}

DeviceInfo ReferenceExecutor::device() const
{
    DeviceInfo info;
    info.kind = "reference";
    info.name = cpuFeatures().name;
    info.detail = "float32 throughout";
    info.total = systemMemory("MemTotal");
    info.free = systemMemory("MemAvailable");
    info.threads = m_parallel.threads();
    return info;
}

// Weights and cache as float32.
std::int64_t bytesNeeded(const ModelConfig& c, const ModelWeights& weights, const MemoryPlan& plan)
{
    std::int64_t elements = weights.head.in_features * weights.head.out_features;
    for (const LayerWeights& layer : weights.layers)
        for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
            elements += linear->in_features * linear->out_features;
    elements += 2 * plan.kv_pages * kPageSize * c.n_layers * c.n_kv_heads * c.head_dim;
    return elements * static_cast<std::int64_t>(sizeof(float));
}

} // namespace

Result<std::unique_ptr<Executor>> loadReferenceExecutor(const ModelConfig& config, const ModelWeights& weights,
    const MemoryPlan& plan, const LoadProgress& progress, std::stop_token stop)
{
    if (plan.max_context < 1 || plan.kv_pages < 1 || plan.max_rows < 1)
        return Error {ErrorCode::argument, "The memory plan has no context, no pages or no rows."};
    const std::int64_t needed = bytesNeeded(config, weights, plan);
    const Bytes available = systemMemory("MemAvailable");
    if (needed > available.count)
        return Error {ErrorCode::memory,
            "The model needs " + gib(needed) + " of memory in float32, and " + gib(available.count)
                + " are available; choose a shorter context or another device."};
    try {
        auto executor = std::make_unique<ReferenceExecutor>(config, plan);
        TRY(executor->load(weights, progress, stop));
        return std::unique_ptr<Executor>(std::move(executor));
    } catch (const std::bad_alloc&) {
        return Error {ErrorCode::memory,
            "The model needs " + gib(needed)
                + " of memory in float32, which is not to be had; choose a shorter context."};
    }
}

} // namespace puna
