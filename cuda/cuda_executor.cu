// The forward pass on one GPU, from top to bottom: load() packs the weights, forward() runs a batch, decodeStep() and
// prefill() are the two ways through a layer.
//
// decodeStep: up to 32 sequences with one new token each. Five launches a layer (qkv, attention, o, gate+up, down), the
// norms, RoPE, permutations and the gated product fused into them, captured into a graph per number of rows and split
// of the context; nothing in it depends on the host, so several steps run without it.
// prefill: everything else, with tokens side by side through the tensor cores.
// The residual and all sums are float32; matrices take halves, the gated product scaled by a power of two per token.

#include "cuda/cuda_executor.h"

#include "cuda/attention.h"
#include "cuda/blas.h"
#include "cuda/gemm.h"
#include "cuda/launch.h"
#include "cuda/matvec.h"
#include "cuda/ops.h"
#include "engine/base/rope.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

namespace puna {

namespace cuda {

namespace {

std::size_t at(std::int64_t i)
{
    return static_cast<std::size_t>(i);
}

constexpr int kLogitRows = 32; // computed and copied to the host at a time
constexpr int kMostSteps = 64; // of one forward()
constexpr int kDecodeRows = 32; // at most, by the decode kernels, kMatvecRows at a time

struct Layer {
    const float *input_norm, *post_attention_norm;
    PackedMatrix q, k, v, o, gate, up, down;
};

// Written by the host for each batch, copied to the device in one piece.
struct Control {
    std::int32_t *tokens, *positions, *sequence; // [max_rows]
    PageId* tables; // [max_sequences, max_pages]
    QueryTile* tiles; // [max_rows]
    std::int32_t* logit_rows; // [max_rows]
    SamplingRow* sampling; // [max_sequences]
    std::int64_t bytes;

    static Control over(void* memory, std::int64_t rows, std::int64_t sequences, std::int64_t pages)
    {
        Control c {};
        auto* next = static_cast<std::byte*>(memory);
        const auto take = [&]<class T>(T*& to, std::int64_t count) {
            to = reinterpret_cast<T*>(next);
            const std::int64_t size = (count * static_cast<std::int64_t>(sizeof(T)) + 15) / 16 * 16;
            next += size;
            c.bytes += size;
        };
        take(c.sampling, sequences);
        take(c.tokens, rows);
        take(c.positions, rows);
        take(c.sequence, rows);
        take(c.tables, sequences * pages);
        take(c.tiles, rows);
        take(c.logit_rows, rows);
        return c;
    }
};

class CudaExecutor final : public Executor {
public:
    CudaExecutor(int device, const ModelConfig& config, const MemoryPlan& plan)
        : m_device(device)
        , m_config(config)
        , m_plan(plan)
        , m_max_pages((plan.max_context + kPageSize - 1) / kPageSize)
    {
    }
    ~CudaExecutor() override
    {
        cudaSetDevice(m_device);
        if (m_stream)
            cudaStreamSynchronize(m_stream.get());
    }

    Result<void> load(const ModelWeights& weights, const LoadProgress& progress, std::stop_token stop);

    Result<void> forward(const Batch& batch, ForwardResult& result) override;
    Result<void> copyPages(std::span<const PageCopy> copies) override;
    MemoryReport memory() const override;
    DeviceInfo device() const override;
    Result<void> fillPages(std::span<const PageId> pages, std::uint64_t seed) override;

private:
    Result<void> allocateWorkspace();
    Result<void> checkBatch(const Batch& batch) const;
    void describeBatch(const Batch& batch);
    Result<void> decode(const Batch& batch, ForwardResult& result);
    Result<void> enqueueDecodeStep(int rows, int splits, bool sampling);
    Result<void> prefill(const Batch& batch, ForwardResult& result);
    Result<void> enqueuePrefillLayer(int index, int rows, int tiles, int splits);
    Result<void> logitsOf(const Batch& batch, ForwardResult& result);
    AttentionArguments attentionArguments(int layer, int rows) const;
    Result<void> matvecRows(MatvecArguments a, int rows);
    Result<void> matrices(const GemmArguments& a, bool prompt);

    bool isPage(PageId page) const { return page >= 0 && page < m_plan.kv_pages; }
    int queryWidth() const { return m_config.n_heads * m_config.head_dim; }
    int keyWidth() const { return m_config.n_kv_heads * m_config.head_dim; }
    int qkvWidth() const { return queryWidth() + 2 * keyWidth(); }
    bool tensorAttention() const { return hasTensorAttention(m_config.head_dim); }

    int m_device;
    ModelConfig m_config;
    MemoryPlan m_plan;
    std::int64_t m_max_pages;
    int m_processors = 0;
    std::string m_name, m_detail;
    Stream m_stream;

    Arena m_weights;
    EmbedArguments m_embed {};
    std::vector<Layer> m_layers;
    const float* m_final_norm = nullptr;
    PackedMatrix m_head {};
    bool m_matvec = true; // the matrices suit the decode kernels

    std::unique_ptr<Blas> m_blas; // null: not installed

    DeviceBuffer m_pages;
    KvCache m_cache {};

    Arena m_workspace;
    PinnedBuffer m_control_memory;
    Control m_host {}, m_control {};
    double* m_frequencies = nullptr;
    float *m_residual = nullptr, *m_qkv = nullptr, *m_attended = nullptr, *m_gated = nullptr, *m_logits = nullptr;
    __half *m_normed[3] = {}, *m_queries = nullptr, *m_attended16 = nullptr, *m_product = nullptr;
    unsigned* m_row_max = nullptr; // [n_layers, kDecodeRows] in decode, [max_rows] in prefill
    unsigned long long* m_best = nullptr;
    float* m_partials = nullptr;
    unsigned* m_counters = nullptr;
    std::int32_t *m_drawn = nullptr, *m_scratch = nullptr;
    PinnedBuffer m_result_memory; // tokens, best keys, logits
    int m_max_splits = 1;

    std::map<std::tuple<int, int, bool>, GraphExec> m_graphs; // rows, splits, sampling
};

// ---- loading -----------------------------------------------------------------------------------------------------

Result<void> CudaExecutor::load(const ModelWeights& weights, const LoadProgress& progress, std::stop_token stop)
{
    const ModelConfig& c = m_config;
    CUDA_TRY(cudaSetDevice(m_device));
    cudaDeviceProp properties {};
    CUDA_TRY(cudaGetDeviceProperties(&properties, m_device));
    m_processors = properties.multiProcessorCount;
    m_name = properties.name;
    int driver = 0;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    m_detail = "compute capability " + std::to_string(properties.major) + "." + std::to_string(properties.minor)
        + ", driver for CUDA " + std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
    m_stream = TRY(makeStream());
    CUDA_TRY(prepareMatvec());
    CUDA_TRY(prepareGemm());
    CUDA_TRY(prepareAttention(c.head_dim));

    // Everything that will be needed, before anything is copied.
    std::vector<std::pair<const Linear*, PackedLayout>> layouts;
    std::int64_t bytes = Arena::rounded(weights.embedding.bytes());
    std::int64_t staging = 0;
    const auto add = [&](const Linear& linear) {
        layouts.emplace_back(&linear, layoutOf(linear));
        bytes += layouts.back().second.bytes();
        staging = std::max(staging, Uploader::stagingBytes(linear, layouts.back().second));
    };
    const std::int64_t norm_bytes = Arena::rounded(std::int64_t {c.hidden_size} * 4);
    for (const LayerWeights& layer : weights.layers) {
        for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
            add(*linear);
        bytes += 2 * norm_bytes;
    }
    add(weights.head);
    bytes += norm_bytes;
    m_weights = Arena(TRY(allocate(bytes, "The weights")));
    m_cache = {nullptr, c.n_layers, c.n_kv_heads, c.head_dim};
    m_pages = TRY(allocate(m_plan.kv_pages * m_cache.pageSize() * 2, "The pages of the KV cache"));
    m_cache.data = m_pages.as<__half>();
    CUDA_TRY(cudaMemsetAsync(m_cache.data, 0, at(m_pages.bytes()), m_stream.get()));
    TRY(allocateWorkspace());

    Uploader uploader = TRY(Uploader::make(m_stream.get(), staging));
    std::int64_t loaded = 0;
    const auto next = [&]() -> Result<PackedMatrix> {
        if (stop.stop_requested())
            return Error {ErrorCode::cancelled, "Loading was stopped."};
        const auto& [linear, layout] = layouts[at(loaded++)];
        PackedMatrix m = TRY(uploader.pack(*linear, layout, m_weights));
        if (progress)
            progress(static_cast<double>(m_weights.used()) / static_cast<double>(bytes));
        return m;
    };
    // Equal permutations become one, so that kernels can compare pointers.
    const auto share = [&](PackedMatrix& m, const PackedMatrix& with, std::int64_t back) {
        if (layouts[at(loaded - 1)].second.perm == layouts[at(loaded - 1 - back)].second.perm) {
            m.perm = with.perm;
            m.place = with.place;
        }
    };
    auto* embedding = m_weights.take<std::uint8_t>(weights.embedding.bytes());
    TRY(uploader.copy(embedding, weights.embedding.data, weights.embedding.bytes()));
    const DTypeInfo type = info(weights.embedding.dtype);
    m_embed = {embedding, weights.embedding.dtype, c.hidden_size / type.block_elements * type.block_bytes,
        c.hidden_size, m_control.tokens, m_residual, m_row_max, c.n_layers, kDecodeRows, m_best};
    for (const LayerWeights& source : weights.layers) {
        Layer layer {};
        layer.input_norm = TRY(uploader.floats(source.input_norm, m_weights));
        layer.post_attention_norm = TRY(uploader.floats(source.post_attention_norm, m_weights));
        layer.q = TRY(next());
        layer.k = TRY(next());
        share(layer.k, layer.q, 1);
        layer.v = TRY(next());
        share(layer.v, layer.q, 2);
        layer.o = TRY(next());
        layer.gate = TRY(next());
        layer.up = TRY(next());
        share(layer.up, layer.gate, 1);
        layer.down = TRY(next());
        m_matvec = m_matvec && layer.gate.perm == layer.up.perm;
        for (const auto& [m, normed] :
            {std::pair {layer.q, true}, {layer.o, false}, {layer.gate, true}, {layer.down, false}})
            m_matvec = m_matvec && cuda::matvecRows(m.k, normed, m.code_bytes, m.scale_bytes) > 0;
        m_layers.push_back(layer);
    }
    m_final_norm = TRY(uploader.floats(weights.final_norm, m_weights));
    m_head = TRY(next());
    m_matvec =
        m_matvec && tensorAttention() && cuda::matvecRows(m_head.k, true, m_head.code_bytes, m_head.scale_bytes) > 0;
    const std::vector<double> frequencies = ropeFrequencies(c.rope);
    if (!frequencies.empty())
        TRY(uploader.copy(
            m_frequencies, frequencies.data(), static_cast<std::int64_t>(frequencies.size() * sizeof(double))));
    m_blas = Blas::open(m_stream.get());
    CUDA_TRY(cudaStreamSynchronize(m_stream.get()));
    if (progress)
        progress(1.0);
    return {};
}

Result<void> CudaExecutor::allocateWorkspace()
{
    const ModelConfig& c = m_config;
    const std::int64_t rows = m_plan.max_rows;
    const std::int64_t few = std::max<std::int64_t>(kDecodeRows, m_plan.max_sequences); // rows of a decode step
    const std::int64_t wide = std::max(rows, few);
    const std::int64_t logit_rows = std::max<std::int64_t>(kLogitRows, few);
    const std::int64_t control = Control::over(nullptr, wide, m_plan.max_sequences, m_max_pages).bytes;
    if (tensorAttention())
        m_max_splits = static_cast<int>(std::bit_ceil(
            static_cast<std::uint64_t>((m_plan.max_context + splitKeys(c.head_dim) - 1) / splitKeys(c.head_dim))));
    const std::int64_t partials =
        tensorAttention() ? partialFloats(static_cast<int>(few), m_max_splits, c.n_heads, c.head_dim) : 0;
    // Taken twice in the same order: once to measure, once to hand out.
    std::int64_t bytes = 0;
    for (const bool measure : {true, false}) {
        const auto take = [&]<class T>(T*& to, std::int64_t count) {
            if (measure)
                bytes += Arena::rounded(count * static_cast<std::int64_t>(sizeof(T)));
            else
                to = m_workspace.take<T>(count);
        };
        if (!measure)
            m_workspace = Arena(TRY(allocate(bytes, "The workspaces")));
        std::byte* control_memory = nullptr;
        take(control_memory, control);
        if (!measure)
            m_control = Control::over(control_memory, wide, m_plan.max_sequences, m_max_pages);
        take(m_frequencies, std::max(1, c.rope.rotary_dim / 2));
        take(m_residual, wide * c.hidden_size);
        take(m_qkv, wide * qkvWidth());
        take(m_attended, few * queryWidth());
        take(m_gated, wide * 2 * c.intermediate_size);
        take(m_logits, logit_rows * c.vocab_size);
        for (__half*& normed : m_normed)
            take(normed, wide * gemmInputs(c.hidden_size));
        take(m_queries, wide * queryWidth());
        take(m_attended16, wide * gemmInputs(queryWidth()));
        take(m_product, wide * gemmInputs(c.intermediate_size));
        take(m_row_max, std::max<std::int64_t>(std::int64_t {c.n_layers} * kDecodeRows, wide));
        take(m_best, logit_rows);
        take(m_partials, partials);
        take(m_counters, few * c.n_heads);
        take(m_drawn, few * kMostSteps);
        take(m_scratch, few * 2);
    }
    CUDA_TRY(cudaMemsetAsync(m_control.sampling, 0, at(bytes), m_stream.get())); // the first part
    m_control_memory = TRY(allocatePinned(control));
    m_host = Control::over(m_control_memory.data(), wide, m_plan.max_sequences, m_max_pages);
    m_result_memory = TRY(allocatePinned(logit_rows * c.vocab_size * 4 + logit_rows * 8 + few * kMostSteps * 4));
    return {};
}

// ---- a batch -----------------------------------------------------------------------------------------------------

Result<void> CudaExecutor::checkBatch(const Batch& batch) const
{
    const auto refused = [](const std::string& what) {
        return Error {ErrorCode::argument, "The batch cannot be run: " + what + "."};
    };
    if (batch.sequences.empty() || static_cast<int>(batch.sequences.size()) > m_plan.max_sequences)
        return refused("it has no sequences or more than " + std::to_string(m_plan.max_sequences));
    if (batch.decode_steps < 1 || batch.decode_steps > kMostSteps)
        return refused("it asks for " + std::to_string(batch.decode_steps) + " steps, and 1 to "
            + std::to_string(kMostSteps) + " can be run");
    std::int64_t rows = 0;
    for (const Sequence& sequence : batch.sequences) {
        const auto count = static_cast<std::int64_t>(sequence.tokens.size());
        rows += count;
        if (count < 1 || rows > std::max(m_plan.max_rows, m_plan.max_sequences))
            return refused("it has no tokens or more than " + std::to_string(m_plan.max_rows));
        if (batch.decode_steps > 1 && (count != 1 || !sequence.sampling))
            return refused("several steps need one token and sampling for every sequence");
        const std::int64_t end = count + batch.decode_steps - 1;
        if (sequence.start < 0 || sequence.start > m_plan.max_context - end)
            return refused("it reaches beyond the context of " + std::to_string(m_plan.max_context) + " tokens");
        const std::int64_t pages = (sequence.start + end + kPageSize - 1) / kPageSize;
        if (static_cast<std::int64_t>(sequence.pages.size()) < pages
            || !std::all_of(
                sequence.pages.begin(), sequence.pages.begin() + pages, [&](PageId p) { return isPage(p); }))
            return refused("its pages do not cover its tokens");
        for (const TokenId token : sequence.tokens)
            if (token < 0 || token >= m_config.vocab_size)
                return refused("token " + std::to_string(token) + " is not in the vocabulary of "
                    + std::to_string(m_config.vocab_size));
    }
    return {};
}

void CudaExecutor::describeBatch(const Batch& batch)
{
    std::int32_t row = 0;
    std::int32_t index = 0;
    for (const Sequence& sequence : batch.sequences) {
        for (std::size_t i = 0; i < sequence.tokens.size(); ++i, ++row) {
            m_host.tokens[row] = sequence.tokens[i];
            m_host.positions[row] = static_cast<std::int32_t>(sequence.start + static_cast<std::int64_t>(i));
            m_host.sequence[row] = index;
        }
        const auto pages = std::min(sequence.pages.size(), at(m_max_pages));
        std::copy_n(sequence.pages.data(), pages, m_host.tables + index * m_max_pages);
        SamplingRow sampling {};
        if (const DeviceSampling* s = sequence.sampling)
            sampling = {s->temperature, s->top_p, s->min_p, s->top_k, s->seed, s->step, 0, 1};
        m_host.sampling[index++] = sampling;
    }
}

Result<void> CudaExecutor::forward(const Batch& batch, ForwardResult& result)
{
    result.logits.clear();
    result.tokens.clear();
    TRY(checkBatch(batch));
    if (batch.stop.stop_requested())
        return Error {ErrorCode::cancelled, "The computation was stopped."};
    CUDA_TRY(cudaSetDevice(m_device));
    describeBatch(batch);
    const auto single = [](const Sequence& s) {
        return s.tokens.size() == 1 && (s.sampling || s.logits != LogitRows::none);
    };
    const auto sampled = std::count_if(
        batch.sequences.begin(), batch.sequences.end(), [](const Sequence& s) { return s.sampling != nullptr; });
    const bool alike = sampled == 0 || sampled == static_cast<std::ptrdiff_t>(batch.sequences.size());
    if (alike && std::all_of(batch.sequences.begin(), batch.sequences.end(), single))
        return decode(batch, result);
    return prefill(batch, result);
}

AttentionArguments CudaExecutor::attentionArguments(int layer, int rows) const
{
    AttentionArguments a {};
    a.cache = m_cache;
    a.layer = layer;
    a.rows = rows;
    a.n_heads = m_config.n_heads;
    a.scale = m_config.attention_scale;
    a.qkv = m_qkv;
    a.qkv_stride = qkvWidth();
    a.key_base = queryWidth();
    a.value_base = queryWidth() + keyWidth();
    a.positions = m_control.positions;
    a.sequence = m_control.sequence;
    a.tables = m_control.tables;
    a.max_pages = static_cast<int>(m_max_pages);
    a.frequencies = m_frequencies;
    a.pairs = m_config.rope.rotary_dim / 2;
    a.style = m_config.rope.style;
    a.place = m_layers[at(layer)].o.place;
    a.q = m_queries;
    a.partials = m_partials;
    a.counters = m_counters;
    return a;
}

Error notFinite()
{
    return {ErrorCode::format,
        "The model computed a value that is not a finite number; its weights are damaged. Import the model again."};
}

// ---- decode ------------------------------------------------------------------------------------------------------

// As many launches as the input's room in shared memory asks for.
Result<void> CudaExecutor::matvecRows(MatvecArguments a, int rows)
{
    int code = 0;
    int scale = 0;
    for (int i = 0; i < a.matrices; ++i) {
        code = std::max(code, a.m[i].code_bytes);
        scale = std::max(scale, a.m[i].scale_bytes);
    }
    const int most = cuda::matvecRows(a.m[0].k, a.gamma != nullptr, code, scale);
    for (int row = 0; row < rows; row += a.rows) {
        a.rows = std::min(most, rows - row);
        CUDA_TRY(matvec(a, m_processors, m_stream.get()));
        a.x += std::int64_t {a.rows} * a.x_stride;
        a.out += std::int64_t {a.rows} * a.out_stride;
        a.row_max = a.row_max ? a.row_max + a.rows : nullptr;
        a.out_max = a.out_max ? a.out_max + a.rows : nullptr;
        a.best = a.best ? a.best + a.rows : nullptr;
    }
    return {};
}

Result<void> CudaExecutor::enqueueDecodeStep(int rows, int splits, bool sampling)
{
    const ModelConfig& c = m_config;
    const cudaStream_t stream = m_stream.get();
    CUDA_TRY(embed(m_embed, rows, stream));
    for (int l = 0; l < c.n_layers; ++l) {
        if (!m_matvec || rows > kDecodeRows) {
            TRY(enqueuePrefillLayer(l, rows, 0, splits));
            continue;
        }
        const Layer& layer = m_layers[at(l)];
        MatvecArguments qkv {};
        qkv.m[0] = layer.q, qkv.m[1] = layer.k, qkv.m[2] = layer.v;
        qkv.matrices = 3;
        qkv.base[1] = queryWidth(), qkv.base[2] = queryWidth() + keyWidth();
        qkv.x = m_residual, qkv.x_stride = c.hidden_size;
        qkv.gamma = layer.input_norm, qkv.eps = c.norm_eps;
        qkv.epilogue = Epilogue::store;
        qkv.out = m_qkv, qkv.out_stride = qkvWidth();
        TRY(matvecRows(qkv, rows));

        AttentionArguments attention = attentionArguments(l, rows);
        attention.out = m_attended, attention.out_stride = queryWidth();
        CUDA_TRY(decodeAttention(attention, splits, stream));

        MatvecArguments o {};
        o.m[0] = layer.o, o.matrices = 1;
        o.x = m_attended, o.x_stride = queryWidth();
        o.epilogue = Epilogue::add;
        o.out = m_residual, o.out_stride = c.hidden_size;
        TRY(matvecRows(o, rows));

        unsigned* row_max = m_row_max + l * kDecodeRows;
        MatvecArguments gated {};
        gated.m[0] = layer.gate, gated.m[1] = layer.up, gated.matrices = 2;
        gated.x = m_residual, gated.x_stride = c.hidden_size;
        gated.gamma = layer.post_attention_norm, gated.eps = c.norm_eps;
        gated.epilogue = Epilogue::gated;
        gated.out = m_gated, gated.out_stride = c.intermediate_size;
        gated.place = layer.down.place, gated.out_max = row_max;
        TRY(matvecRows(gated, rows));

        MatvecArguments down {};
        down.m[0] = layer.down, down.matrices = 1;
        down.x = m_gated, down.x_stride = c.intermediate_size, down.row_max = row_max;
        down.epilogue = Epilogue::add;
        down.out = m_residual, down.out_stride = c.hidden_size;
        TRY(matvecRows(down, rows));
    }
    if (m_matvec && rows <= kDecodeRows) {
        MatvecArguments head {};
        head.m[0] = m_head, head.matrices = 1;
        head.x = m_residual, head.x_stride = c.hidden_size;
        head.gamma = m_final_norm, head.eps = c.norm_eps;
        head.epilogue = Epilogue::logits;
        head.out = m_logits, head.out_stride = c.vocab_size;
        head.best = m_best;
        TRY(matvecRows(head, rows));
    } else {
        const int stride = static_cast<int>(gemmInputs(c.hidden_size));
        CUDA_TRY(normRows(m_residual, c.hidden_size, nullptr, rows, c.hidden_size, m_final_norm, c.norm_eps,
            m_head.perm, m_normed[0], stride, stream));
        GemmArguments head {};
        head.m[0] = m_head, head.matrices = 1;
        head.x[0] = m_normed[0], head.x_stride = stride, head.rows = rows;
        head.out = m_logits, head.out_stride = c.vocab_size;
        CUDA_TRY(gemm(head, stream));
        CUDA_TRY(largestLogits(m_logits, c.vocab_size, c.vocab_size, rows, m_best, stream));
    }
    if (sampling)
        CUDA_TRY(sample({m_logits, c.vocab_size, c.vocab_size, m_best, m_control.sampling, m_control.tokens,
                            m_control.positions, m_drawn, kMostSteps},
            rows, stream));
    return {};
}

Result<void> CudaExecutor::decode(const Batch& batch, ForwardResult& result)
{
    const cudaStream_t stream = m_stream.get();
    const auto rows = static_cast<int>(batch.sequences.size());
    const bool sampling = batch.sequences[0].sampling != nullptr;
    std::int64_t longest = 0;
    for (const Sequence& sequence : batch.sequences)
        longest = std::max(longest, sequence.start + batch.decode_steps);
    int splits = 1;
    if (tensorAttention())
        splits = static_cast<int>(std::bit_ceil(
            static_cast<std::uint64_t>((longest + splitKeys(m_config.head_dim) - 1) / splitKeys(m_config.head_dim))));
    GraphExec& graph = m_graphs[{rows, splits, sampling}];
    if (!graph) {
        CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        const Result<void> enqueued = enqueueDecodeStep(rows, splits, sampling);
        cudaGraph_t captured = nullptr;
        const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
        const Owner<cudaGraph_t, cudaGraphDestroy> owner(captured);
        if (!enqueued)
            return enqueued.error();
        CUDA_TRY(ended);
        cudaGraphExec_t executable = nullptr;
        CUDA_TRY(cudaGraphInstantiate(&executable, captured, 0));
        graph = GraphExec(executable);
    }
    CUDA_TRY(cudaMemcpyAsync(m_control.sampling, m_host.sampling, at(m_control.bytes), cudaMemcpyHostToDevice, stream));
    for (int step = 0; step < batch.decode_steps; ++step) {
        if (batch.stop.stop_requested()) {
            CUDA_TRY(cudaStreamSynchronize(stream));
            return Error {ErrorCode::cancelled, "The computation was stopped."};
        }
        CUDA_TRY(cudaGraphLaunch(graph.get(), stream));
    }
    if (sampling) {
        auto* drawn = m_result_memory.as<std::int32_t>();
        CUDA_TRY(cudaMemcpyAsync(drawn, m_drawn, at(rows * kMostSteps * 4), cudaMemcpyDeviceToHost, stream));
        CUDA_TRY(cudaStreamSynchronize(stream));
        for (int row = 0; row < rows; ++row)
            for (int step = 0; step < batch.decode_steps; ++step) {
                const std::int32_t token = drawn[row * kMostSteps + step];
                if (token < 0)
                    return notFinite();
                result.tokens.push_back(token);
            }
        return {};
    }
    auto* best = m_result_memory.as<unsigned long long>();
    auto* logits = reinterpret_cast<float*>(best + std::max(kLogitRows, rows));
    const std::size_t count = at(rows) * at(m_config.vocab_size);
    CUDA_TRY(cudaMemcpyAsync(best, m_best, at(rows) * 8, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaMemcpyAsync(logits, m_logits, count * 4, cudaMemcpyDeviceToHost, stream));
    CUDA_TRY(cudaStreamSynchronize(stream));
    for (int row = 0; row < rows; ++row)
        if (best[row] >> 32 >= 0xff800000u) // infinity, NaN
            return notFinite();
    result.logits.assign(logits, logits + count);
    return {};
}

// ---- prefill -----------------------------------------------------------------------------------------------------

// Long prompts through the vendor's library where it is installed.
Result<void> CudaExecutor::matrices(const GemmArguments& a, bool prompt)
{
    if (prompt && m_blas && m_blas->takes(a))
        return m_blas->multiply(a, m_gated); // m_gated: free whenever the input is a scaled product
    CUDA_TRY(gemm(a, m_stream.get()));
    return {};
}

// tiles > 0: of queries, for prefill attention; 0: one new token per sequence, `splits` of the context.
Result<void> CudaExecutor::enqueuePrefillLayer(int index, int rows, int tiles, int splits)
{
    const ModelConfig& c = m_config;
    const cudaStream_t stream = m_stream.get();
    const Layer& layer = m_layers[at(index)];
    const int hidden = static_cast<int>(gemmInputs(c.hidden_size));
    // The normalised input of up to three matrices, once per permutation.
    const auto normed = [&](GemmArguments& a, const float* gamma) -> Result<void> {
        for (int i = 0; i < a.matrices; ++i) {
            int same = 0;
            while (a.m[same].perm != a.m[i].perm)
                ++same;
            a.x[i] = m_normed[same];
            if (same == i)
                CUDA_TRY(normRows(m_residual, c.hidden_size, nullptr, rows, c.hidden_size, gamma, c.norm_eps,
                    a.m[i].perm, m_normed[i], hidden, stream));
        }
        a.x_stride = hidden;
        a.rows = rows;
        return {};
    };
    GemmArguments qkv {};
    qkv.m[0] = layer.q, qkv.m[1] = layer.k, qkv.m[2] = layer.v, qkv.matrices = 3;
    qkv.base[1] = queryWidth(), qkv.base[2] = queryWidth() + keyWidth();
    qkv.out = m_qkv, qkv.out_stride = qkvWidth();
    TRY(normed(qkv, layer.input_norm));
    TRY(matrices(qkv, tiles > 0));

    AttentionArguments attention = attentionArguments(index, rows);
    attention.out16 = m_attended16, attention.out_stride = static_cast<int>(gemmInputs(queryWidth()));
    if (!tensorAttention()) {
        CUDA_TRY(rope(attention, stream));
        CUDA_TRY(plainAttention(attention, stream));
    } else if (tiles == 0) {
        CUDA_TRY(decodeAttention(attention, splits, stream));
    } else {
        CUDA_TRY(rope(attention, stream));
        CUDA_TRY(prefillAttention(attention, m_control.tiles, tiles, stream));
    }

    GemmArguments o {};
    o.m[0] = layer.o, o.matrices = 1;
    o.x[0] = m_attended16, o.x_stride = attention.out_stride, o.rows = rows;
    o.out = m_residual, o.out_stride = c.hidden_size, o.add = true;
    TRY(matrices(o, tiles > 0));

    GemmArguments gated {};
    gated.m[0] = layer.gate, gated.m[1] = layer.up, gated.matrices = 2;
    gated.base[1] = c.intermediate_size;
    gated.out = m_gated, gated.out_stride = 2 * c.intermediate_size;
    TRY(normed(gated, layer.post_attention_norm));
    TRY(matrices(gated, tiles > 0));
    const int product = static_cast<int>(gemmInputs(c.intermediate_size));
    CUDA_TRY(gatedRows(m_gated, m_gated + c.intermediate_size, 2 * c.intermediate_size, rows, c.intermediate_size,
        layer.down.place, m_product, product, m_row_max, stream));

    GemmArguments down {};
    down.m[0] = layer.down, down.matrices = 1;
    down.x[0] = m_product, down.x_stride = product, down.rows = rows, down.row_max = m_row_max;
    down.out = m_residual, down.out_stride = c.hidden_size, down.add = true;
    TRY(matrices(down, tiles > 0));
    return {};
}

Result<void> CudaExecutor::prefill(const Batch& batch, ForwardResult& result)
{
    const cudaStream_t stream = m_stream.get();
    std::int32_t rows = 0;
    int tiles = 0;
    for (const Sequence& sequence : batch.sequences) {
        const auto count = static_cast<std::int32_t>(sequence.tokens.size());
        for (std::int32_t i = 0; i < count; i += 64)
            m_host.tiles[tiles++] = {rows + i, std::min(64, count - i), static_cast<std::int32_t>(sequence.start) + i};
        rows += count;
    }
    CUDA_TRY(cudaMemcpyAsync(m_control.sampling, m_host.sampling, at(m_control.bytes), cudaMemcpyHostToDevice, stream));
    EmbedArguments first = m_embed;
    first.clear_count = 0;
    first.best = nullptr;
    CUDA_TRY(embed(first, rows, stream));
    for (int l = 0; l < m_config.n_layers; ++l) {
        if (batch.stop.stop_requested()) {
            CUDA_TRY(cudaStreamSynchronize(stream));
            return Error {ErrorCode::cancelled, "The computation was stopped."};
        }
        TRY(enqueuePrefillLayer(l, rows, tiles, 0));
    }
    return logitsOf(batch, result);
}

// Of the rows that are asked for, a block at a time; and the draws of sequences that sample.
Result<void> CudaExecutor::logitsOf(const Batch& batch, ForwardResult& result)
{
    const ModelConfig& c = m_config;
    const cudaStream_t stream = m_stream.get();
    struct Asked {
        std::int32_t row, sequence; // sequence: draws, or -1
    };
    std::vector<Asked> asked;
    std::int32_t end = 0;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
        const Sequence& sequence = batch.sequences[i];
        const auto count = static_cast<std::int32_t>(sequence.tokens.size());
        end += count;
        if (sequence.sampling)
            asked.push_back({end - 1, static_cast<std::int32_t>(i)});
        else
            for (std::int32_t r = sequence.logits == LogitRows::all ? 0 : count - 1;
                 r < count && sequence.logits != LogitRows::none; ++r)
                asked.push_back({end - count + r, -1});
    }
    const int stride = static_cast<int>(gemmInputs(c.hidden_size));
    for (std::size_t done = 0; done < asked.size();) {
        const auto count = static_cast<int>(std::min<std::size_t>(kLogitRows, asked.size() - done));
        for (int i = 0; i < count; ++i)
            m_host.logit_rows[i] = asked[done + at(i)].row;
        CUDA_TRY(
            cudaMemcpyAsync(m_control.logit_rows, m_host.logit_rows, at(count) * 4, cudaMemcpyHostToDevice, stream));
        CUDA_TRY(normRows(m_residual, c.hidden_size, m_control.logit_rows, count, c.hidden_size, m_final_norm,
            c.norm_eps, m_head.perm, m_normed[0], stride, stream));
        GemmArguments head {};
        head.m[0] = m_head, head.matrices = 1;
        head.x[0] = m_normed[0], head.x_stride = stride, head.rows = count;
        head.out = m_logits, head.out_stride = c.vocab_size;
        CUDA_TRY(gemm(head, stream));
        CUDA_TRY(largestLogits(m_logits, c.vocab_size, c.vocab_size, count, m_best, stream));
        auto* best = m_result_memory.as<unsigned long long>();
        auto* drawn = reinterpret_cast<std::int32_t*>(best + kLogitRows);
        auto* logits = reinterpret_cast<float*>(drawn + kLogitRows);
        const std::int64_t width = c.vocab_size;
        for (int i = 0; i < count; ++i) {
            const std::int32_t sequence = asked[done + at(i)].sequence;
            if (sequence < 0) {
                CUDA_TRY(cudaMemcpyAsync(
                    logits + i * width, m_logits + i * width, at(width) * 4, cudaMemcpyDeviceToHost, stream));
                continue;
            }
            CUDA_TRY(
                sample({m_logits + i * width, c.vocab_size, c.vocab_size, m_best + i, m_control.sampling + sequence,
                           m_scratch, m_scratch + 1, m_drawn + sequence * kMostSteps, kMostSteps},
                    1, stream));
            CUDA_TRY(cudaMemcpyAsync(drawn + i, m_drawn + sequence * kMostSteps, 4, cudaMemcpyDeviceToHost, stream));
        }
        CUDA_TRY(cudaMemcpyAsync(best, m_best, at(count) * 8, cudaMemcpyDeviceToHost, stream));
        CUDA_TRY(cudaStreamSynchronize(stream));
        for (int i = 0; i < count; ++i) {
            if (best[i] >> 32 >= 0xff800000u)
                return notFinite();
            if (asked[done + at(i)].sequence >= 0)
                result.tokens.push_back(drawn[i]);
            else
                result.logits.insert(result.logits.end(), logits + i * width, logits + (i + 1) * width);
        }
        done += at(count);
    }
    CUDA_TRY(cudaStreamSynchronize(stream));
    return {};
}

// ---- pages, reports ----------------------------------------------------------------------------------------------

Result<void> CudaExecutor::copyPages(std::span<const PageCopy> copies)
{
    CUDA_TRY(cudaSetDevice(m_device));
    for (const PageCopy& copy : copies) {
        if (!isPage(copy.from) || !isPage(copy.to) || copy.tokens < 0 || copy.tokens > kPageSize)
            return Error {ErrorCode::argument, "A page outside of the KV cache cannot be copied."};
        CUDA_TRY(copyPage(m_cache, copy.from, copy.to, copy.tokens, m_stream.get()));
    }
    CUDA_TRY(cudaStreamSynchronize(m_stream.get()));
    return {};
}

Result<void> CudaExecutor::fillPages(std::span<const PageId> pages, std::uint64_t seed)
{
    CUDA_TRY(cudaSetDevice(m_device));
    for (const PageId page : pages) {
        if (!isPage(page))
            return Error {ErrorCode::argument, "A page outside of the KV cache cannot be filled."};
        CUDA_TRY(fillPage(m_cache, page, seed, m_stream.get()));
    }
    CUDA_TRY(cudaStreamSynchronize(m_stream.get()));
    return {};
}

MemoryReport CudaExecutor::memory() const
{
    return {{m_weights.bytes()}, {m_pages.bytes()}, {m_workspace.bytes() + (m_blas ? m_blas->bytes() : 0)}, {0}};
}

DeviceInfo CudaExecutor::device() const
{
    DeviceInfo info;
    info.kind = "cuda:" + std::to_string(m_device);
    info.name = m_name;
    info.detail = m_detail;
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaSetDevice(m_device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
        info.free = {static_cast<std::int64_t>(free)};
        info.total = {static_cast<std::int64_t>(total)};
    }
    info.samples = true;
    return info;
}

} // namespace

} // namespace cuda

Result<std::unique_ptr<Executor>> loadCudaExecutor(int device, const ModelConfig& config, const ModelWeights& weights,
    const MemoryPlan& plan, const LoadProgress& progress, std::stop_token stop)
{
    if (plan.max_context < 1 || plan.kv_pages < 1 || plan.max_rows < 1 || plan.max_sequences < 1)
        return Error {ErrorCode::argument, "The memory plan has no context, no pages, no rows or no sequences."};
    if (plan.kv_type != KvType::fp16)
        return Error {ErrorCode::unsupported, "The GPU keeps its KV cache in FP16 only; choose FP16 for the cache."};
    const CudaDevices devices = cudaDevices();
    const auto usable = [&](const CudaDevice& d) { return d.index == device; };
    if (std::none_of(devices.devices.begin(), devices.devices.end(), usable))
        return Error {ErrorCode::device,
            devices.problem.empty() ? "There is no GPU number " + std::to_string(device) + " that this program can use."
                                    : devices.problem};
    auto executor = std::make_unique<cuda::CudaExecutor>(device, config, plan);
    TRY(executor->load(weights, progress, stop));
    return std::unique_ptr<Executor>(std::move(executor));
}

} // namespace puna
