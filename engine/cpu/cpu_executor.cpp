// The fast CPU executor: a whole Llama, from weights to logits, in the order of the paper.
//
// All threads walk through run() together (thread_pool.h); a stage's work is dealt out in chunks, five stages per
// layer: q, k and v (with rotary embedding and the append to the KV cache); attention; o; gate and up (with SiLU);
// down. Up to kOwnRows rows every thread makes its own quantised copy of a stage's input, which costs less than a stage
// of its own; more rows are shared out.
//
// Cost of a token: the packed weights are read once, at the speed of the memory. The residual and all sums are
// float32; activations are rounded to 16 bits per 32 values before quantised matrices, not at all before dense ones.
//
// KV cache: [layer][page][kv head] of the keys, in tiles of 16 (kernels.h), and then the values [256][value_stride],
// all halves.

#include "engine/cpu/cpu_executor.h"
#include "engine/base/rope.h"
#include "engine/cpu/buffer.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/pack.h"
#include "engine/cpu/system_memory.h"
#include "engine/cpu/thread_pool.h"
#include "engine/quant/decode.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <system_error>
#include <type_traits>

namespace puna {

namespace {

constexpr std::int64_t kOwnRows = 4; // up to so many rows are prepared by every thread for itself
constexpr int kQueries = 32; // query vectors that share a piece of the cache in a prompt
constexpr int kMaxForms = 3; // different inputs of one stage: q, k and v could each have their own
constexpr std::int64_t kPair = 2; // stripes that a kernel takes together
constexpr std::int64_t kLine = 64;

std::size_t at(std::int64_t i)
{
    return static_cast<std::size_t>(i);
}

std::int64_t roundedUp(std::int64_t n, std::int64_t to)
{
    return (n + to - 1) / to * to;
}

// Hands out aligned pieces of one buffer; without a buffer it only counts.
class Arena {
public:
    explicit Arena(std::byte* data = nullptr)
        : m_data(data)
    {
    }
    template <class T> T* take(std::int64_t count)
    {
        T* piece = m_data ? reinterpret_cast<T*>(m_data + m_used) : nullptr;
        m_used += roundedUp(count * static_cast<std::int64_t>(sizeof(T)), kLine);
        return piece;
    }
    std::int64_t used() const { return m_used; }

private:
    std::byte* m_data;
    std::int64_t m_used = 0;
};

// Matrices that multiply the same rows. A form is one way to prepare these: matrices of one kind and one order of
// inputs share it.
struct Stage {
    std::vector<PackedLinear> matrices;
    std::vector<int> form_of; // by matrix
    std::vector<int> forms; // a matrix of each form

    void add(PackedLinear packed)
    {
        const auto same = std::find_if(forms.begin(), forms.end(), [&](int i) {
            const PackedLinear& other = matrices[at(i)];
            return (other.kind == WeightKind::codes) == (packed.kind == WeightKind::codes)
                && other.blocks == packed.blocks && other.gather == packed.gather;
        });
        form_of.push_back(static_cast<int>(same - forms.begin()));
        if (same == forms.end())
            forms.push_back(static_cast<int>(matrices.size()));
        matrices.push_back(std::move(packed));
    }
};

struct Layer {
    std::vector<float> input_norm, post_attention_norm;
    Stage qkv, o, gate_up, down;
};

struct InputMemory {
    std::byte* form[kMaxForms];
};

// use(row, first column, values, how many) for the rows of one stripe's outputs.
template <class Use>
void eachRow(const PackedLinear& m, std::int64_t stripe, std::int64_t rows, const float* tile, Use use)
{
    const std::int64_t column = stripe * kStripe;
    const int width = static_cast<int>(std::min<std::int64_t>(kStripe, m.out_features - column));
    for (std::int64_t row = 0; row < rows; ++row, tile += kStripe) {
        if (width == kStripe)
            use(row, column, tile, std::integral_constant<int, kStripe>());
        else
            use(row, column, tile, width);
    }
}

// What one thread writes on its own.
struct Scratch {
    InputMemory inputs; // for kOwnRows rows
    float* normed; // one row of any stage's input
    float* gathered; // the same in the order of a matrix
    float* tile[2]; // a matmul's outputs, [stripes][rows][16]
    float* head; // one head of a row
    std::uint16_t* half;
    float* scores; // [queries][kKeySplit]
    float* states; // [2][queries][2 + value_stride]
    std::vector<const float*> query;
    std::vector<int> keys;
    std::vector<float*> out[2];
};

class CpuExecutor final : public Executor {
public:
    CpuExecutor(const ModelConfig& config, const MemoryPlan& plan, int threads)
        : m_config(config)
        , m_plan(plan)
        , m_kernels(kernels(cpuFeatures().simd))
        , m_pool(threads)
    {
    }

    Result<void> load(const ModelWeights& weights, const LoadProgress& progress, const std::stop_token& stop);

    Result<void> forward(const Batch& batch, ForwardResult& result) override;
    Result<void> copyPages(std::span<const PageCopy> copies) override;
    MemoryReport memory() const override;
    DeviceInfo device() const override;
    Result<void> fillPages(std::span<const PageId> pages, std::uint64_t seed) override;

private:
    struct Row {
        TokenId token;
        std::int64_t position;
        std::span<const PageId> pages;
    };
    struct Span { // rows of one sequence
        std::int64_t first, count;
    };
    struct HeadItem { // columns of q, k or v that hold whole heads and fill whole stripes
        int matrix;
        std::int64_t first_stripe, stripes;
    };

    Result<void> pack(const ModelWeights& weights, const LoadProgress& progress, const std::stop_token& stop);
    void layOut(Arena& arena);
    std::int64_t inputBytes(const Stage& stage, std::int64_t rows) const;
    Input input(const InputMemory& memory, const Stage& stage, int form, std::int64_t rows) const;
    void fill(const Stage& stage, int form, const Input& input, std::int64_t row, const float* x, Scratch& scratch);

    Result<void> collectRows(const Batch& batch);
    void run(int thread, const std::stop_token& stop, float* logits);
    template <class Produce, class Body>
    void runStage(const Stage& stage, std::int64_t rows, Scratch& scratch, Produce produce, std::int64_t items,
        std::int64_t step, Body body);
    template <class Produce> void addProduct(const Stage& stage, std::int64_t rows, Scratch& scratch, Produce produce);
    std::int64_t chunk(std::int64_t items) const { return std::max<std::int64_t>(1, items / (8 * m_pool.size())); }
    std::int64_t stripeChunk(std::int64_t stripes) const { return roundedUp(chunk(stripes), kPair); }
    void multiply(const PackedLinear& m, std::int64_t first, std::int64_t count, const Input& in, float* tile) const;

    void embed();
    void projectHeads(std::int64_t index, Scratch& scratch);
    void placeHeads(const HeadItem& item, std::int64_t layer, Scratch& scratch);
    void attendPrompt(std::int64_t layer, std::int64_t unit, Scratch& scratch);
    void attendSplit(std::int64_t layer, std::int64_t unit, Scratch& scratch);
    void attention(std::int64_t layer, Scratch& scratch);
    const float* normed(const float* row, const std::vector<float>& weight, Scratch& scratch);
    const float* attended(std::int64_t row, Scratch& scratch);
    void finishHead(const float* state, float* out) const;

    std::uint16_t* keys(std::int64_t layer, PageId page, std::int64_t head) const
    {
        return m_kv.as<std::uint16_t>() + ((layer * m_plan.kv_pages + page) * m_config.n_kv_heads + head) * m_head_size;
    }
    std::uint16_t* values(std::int64_t layer, PageId page, std::int64_t head) const
    {
        return keys(layer, page, head) + std::int64_t {kPageSize} * m_config.head_dim;
    }
    bool isPage(PageId page) const { return page >= 0 && page < m_plan.kv_pages; }
    float* residual(std::int64_t row) { return m_residual + row * m_config.hidden_size; }
    std::int64_t splitsOf(std::int64_t row) const { return m_rows[at(row)].position / kKeySplit + 1; }
    float* partial(std::int64_t row, std::int64_t head, std::int64_t split) const
    {
        return m_partials + ((row * m_config.n_heads + head) * m_max_splits + split) * m_state;
    }

    ModelConfig m_config;
    MemoryPlan m_plan;
    const Kernels& m_kernels;
    ThreadPool m_pool;

    TensorView m_embedding; // decoded row by row
    std::vector<Layer> m_layers;
    std::vector<float> m_final_norm;
    Stage m_head;
    std::vector<HeadItem> m_head_items;
    std::vector<double> m_frequencies; // of the rotary pairs
    int m_group = 1; // query heads that share a key/value head
    int m_value_stride = 16;
    int m_state = 18; // floats of an attention state
    std::int64_t m_head_size = 0; // halves of a page's head, keys and values
    std::int64_t m_max_splits = 1; // pieces of kKeySplit keys in the longest context

    Buffer m_weights, m_kv, m_workspace;
    float *m_residual = nullptr, *m_query = nullptr, *m_attended = nullptr, *m_product = nullptr;
    float *m_cosines = nullptr, *m_sines = nullptr, *m_partials = nullptr;
    InputMemory m_inputs {}; // for all rows
    std::vector<Scratch> m_scratch;

    // Of the batch:
    std::vector<Row> m_rows;
    std::vector<Span> m_spans;
    std::vector<std::int64_t> m_asked; // rows whose logits are wanted
    std::vector<std::pair<std::int64_t, std::int64_t>> m_prompt_units; // first row, rows
    std::vector<std::pair<std::int64_t, std::int64_t>> m_split_units; // row, split
    bool m_split = false;
    std::atomic<bool> m_not_finite = false, m_stopped = false;
};

// --- loading ---------------------------------------------------------------------------------------------------

std::vector<float> decoded(const TensorView& tensor)
{
    std::vector<float> out(at(tensor.elements()));
    decodeTensor(tensor, 0, tensor.elements(), out.data());
    return out;
}

std::string gib(std::int64_t bytes)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", Bytes {bytes}.gib());
    return text;
}

Error noMemory(std::int64_t needed, const char* what)
{
    return {ErrorCode::memory,
        "The model needs " + gib(needed) + " of memory for its " + what + ", and "
            + gib(systemMemory("MemAvailable").count)
            + " are available; close other programs, or choose a smaller model or a shorter context."};
}

Result<void> CpuExecutor::pack(const ModelWeights& weights, const LoadProgress& progress, const std::stop_token& stop)
{
    struct Job {
        const Linear* from;
        PackedLinear* to;
    };
    std::vector<Job> jobs;
    const auto plan = [](Stage& stage, std::initializer_list<const Linear*> linears) {
        for (const Linear* linear : linears)
            stage.add(planPacked(*linear));
    };
    m_layers.resize(weights.layers.size());
    for (std::size_t i = 0; i < m_layers.size(); ++i) {
        const LayerWeights& from = weights.layers[i];
        Layer& layer = m_layers[i];
        layer.input_norm = decoded(from.input_norm);
        layer.post_attention_norm = decoded(from.post_attention_norm);
        plan(layer.qkv, {&from.q, &from.k, &from.v});
        plan(layer.o, {&from.o});
        plan(layer.gate_up, {&from.gate, &from.up});
        plan(layer.down, {&from.down});
        jobs.insert(jobs.end(),
            {{&from.q, &layer.qkv.matrices[0]}, {&from.k, &layer.qkv.matrices[1]}, {&from.v, &layer.qkv.matrices[2]},
                {&from.o, &layer.o.matrices[0]}, {&from.gate, &layer.gate_up.matrices[0]},
                {&from.up, &layer.gate_up.matrices[1]}, {&from.down, &layer.down.matrices[0]}});
        if (stop.stop_requested())
            return Error {ErrorCode::cancelled, "Loading was stopped."};
    }
    plan(m_head, {&weights.head});
    jobs.push_back({&weights.head, &m_head.matrices[0]});
    m_final_norm = decoded(weights.final_norm);
    m_embedding = weights.embedding;

    std::int64_t total = 0;
    for (const Job& job : jobs)
        total += job.to->stripes * job.to->stripe_bytes;
    if (total > systemMemory("MemAvailable").count)
        return noMemory(total, "weights");
    m_weights = Buffer(total);
    if (!m_weights)
        return noMemory(total, "weights");

    // In pieces of some megabytes, so that progress moves and a stop is soon seen.
    constexpr std::int64_t kPiece = 16 << 20;
    std::int64_t done = 0;
    for (const Job& job : jobs) {
        PackedLinear& packed = *job.to;
        std::byte* data = m_weights.data() + done;
        packed.data = data;
        const std::int64_t step = std::max<std::int64_t>(m_pool.size(), kPiece / packed.stripe_bytes);
        for (std::int64_t first = 0; first < packed.stripes; first += step) {
            if (stop.stop_requested())
                return Error {ErrorCode::cancelled, "Loading was stopped."};
            const std::int64_t count = std::min(step, packed.stripes - first);
            m_pool.run([&](int) {
                m_pool.stage(count, std::max<std::int64_t>(1, count / (4 * m_pool.size())),
                    [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = first + begin; i < first + end; ++i)
                            packStripe(*job.from, packed, i, data + i * packed.stripe_bytes);
                    });
            });
            done += count * packed.stripe_bytes;
            if (progress)
                progress(static_cast<double>(done) / static_cast<double>(total));
        }
    }
    return {};
}

std::int64_t CpuExecutor::inputBytes(const Stage& stage, std::int64_t rows) const
{
    std::int64_t most = 0;
    for (int i : stage.forms) {
        const PackedLinear& m = stage.matrices[at(i)];
        const std::int64_t places = rows * m.blocks;
        most = std::max(most,
            m.kind == WeightKind::codes ? roundedUp(2 * places * kBlock, kLine) + 3 * roundedUp(places * 4, kLine)
                                        : rows * m.in_features * 4);
    }
    return most;
}

// Twice, first to count.
void CpuExecutor::layOut(Arena& arena)
{
    const ModelConfig& c = m_config;
    const std::int64_t rows = m_plan.max_rows;
    const auto pairs = static_cast<std::int64_t>(m_frequencies.size());
    m_residual = arena.take<float>(rows * c.hidden_size);
    m_query = arena.take<float>(rows * c.n_heads * c.head_dim);
    m_attended = arena.take<float>(rows * c.n_heads * c.head_dim);
    m_product = arena.take<float>(rows * c.intermediate_size);
    m_cosines = arena.take<float>(rows * pairs);
    m_sines = arena.take<float>(rows * pairs);
    m_partials = arena.take<float>(m_plan.max_sequences * c.n_heads * m_max_splits * m_state);

    std::int64_t row = c.hidden_size; // longest input row, padded
    const auto bytes = [&](std::int64_t n) {
        std::int64_t most = inputBytes(m_head, n);
        for (const Layer& layer : m_layers)
            for (const Stage* stage : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
                most = std::max(most, inputBytes(*stage, n));
                for (const PackedLinear& m : stage->matrices)
                    row = std::max({row, m.in_features, m.blocks * kBlock});
            }
        return most;
    };
    const std::int64_t all_bytes = bytes(rows), own_bytes = bytes(kOwnRows);
    row = roundedUp(row, kBlock);
    for (std::byte*& form : m_inputs.form)
        form = arena.take<std::byte>(all_bytes);

    std::int64_t stripes = 1;
    for (const HeadItem& item : m_head_items)
        stripes = std::max(stripes, item.stripes);
    const int queries = std::max(kQueries, m_group);
    m_scratch.resize(at(m_pool.size()));
    for (Scratch& s : m_scratch) {
        for (std::byte*& form : s.inputs.form)
            form = arena.take<std::byte>(own_bytes);
        s.normed = arena.take<float>(row);
        s.gathered = arena.take<float>(row);
        s.tile[0] = arena.take<float>(std::max(stripes, kPair) * rows * kStripe);
        s.tile[1] = arena.take<float>(kPair * rows * kStripe);
        s.head = arena.take<float>(m_value_stride);
        s.half = arena.take<std::uint16_t>(m_value_stride);
        s.scores = arena.take<float>(std::int64_t {queries} * kKeySplit);
        s.states = arena.take<float>(std::int64_t {2} * queries * m_state);
        s.query.resize(at(queries));
        s.keys.resize(at(queries));
        for (int i = 0; i < 2; ++i) {
            s.out[i].resize(at(queries));
            for (int q = 0; q < queries; ++q)
                s.out[i][at(q)] = s.states ? s.states + (i * queries + q) * m_state : nullptr;
        }
    }
}

Result<void> CpuExecutor::load(const ModelWeights& weights, const LoadProgress& progress, const std::stop_token& stop)
{
    const ModelConfig& c = m_config;
    m_frequencies = ropeFrequencies(c.rope);
    m_group = c.n_heads / c.n_kv_heads;
    m_value_stride = static_cast<int>(roundedUp(c.head_dim, 16));
    m_state = 2 + m_value_stride;
    m_head_size = std::int64_t {kPageSize} * (c.head_dim + m_value_stride);
    m_max_splits = (m_plan.max_context + kKeySplit - 1) / kKeySplit;
    TRY(pack(weights, progress, stop));

    // q, k and v in items of whole heads and whole stripes.
    const std::int64_t columns = std::lcm(c.head_dim, kStripe);
    for (int m = 0; m < 3; ++m) {
        const std::int64_t stripes = m_layers[0].qkv.matrices[at(m)].stripes;
        for (std::int64_t first = 0; first < stripes; first += columns / kStripe)
            m_head_items.push_back({m, first, std::min(columns / kStripe, stripes - first)});
    }

    const std::int64_t kv = m_plan.kv_pages * c.n_layers * c.n_kv_heads * m_head_size * 2;
    Arena counting;
    layOut(counting);
    if (kv + counting.used() > systemMemory("MemAvailable").count)
        return noMemory(kv + counting.used(), "context");
    m_kv = Buffer(kv);
    m_workspace = Buffer(counting.used());
    if (!m_kv || !m_workspace)
        return noMemory(kv + counting.used(), "context");
    Arena arena(m_workspace.data());
    layOut(arena);
    m_rows.reserve(at(m_plan.max_rows));
    m_asked.reserve(at(m_plan.max_rows));
    m_spans.reserve(at(m_plan.max_sequences));
    m_prompt_units.reserve(at(m_plan.max_rows));
    m_split_units.reserve(at(m_plan.max_sequences * m_max_splits));
    return {};
}

// --- one batch -------------------------------------------------------------------------------------------------

Result<void> CpuExecutor::collectRows(const Batch& batch)
{
    const auto refused = [](const std::string& what) {
        return Error {ErrorCode::argument, "The batch cannot be run: " + what + "."};
    };
    m_rows.clear();
    m_spans.clear();
    m_asked.clear();
    m_prompt_units.clear();
    m_split_units.clear();
    if (batch.decode_steps != 1)
        return refused("the CPU executor decodes one step at a time");
    if (static_cast<std::int64_t>(batch.sequences.size()) > m_plan.max_sequences)
        return refused("it has more than " + std::to_string(m_plan.max_sequences) + " sequences");
    for (const Sequence& sequence : batch.sequences) {
        const auto count = static_cast<std::int64_t>(sequence.tokens.size());
        const auto first = static_cast<std::int64_t>(m_rows.size());
        if (count < 1 || first + count > m_plan.max_rows)
            return refused("it has no tokens or more than " + std::to_string(m_plan.max_rows));
        if (sequence.start < 0 || sequence.start > m_plan.max_context - count)
            return refused("it reaches beyond the context of " + std::to_string(m_plan.max_context) + " tokens");
        const std::int64_t pages = (sequence.start + count + kPageSize - 1) / kPageSize;
        if (static_cast<std::int64_t>(sequence.pages.size()) < pages
            || !std::all_of(
                sequence.pages.begin(), sequence.pages.begin() + pages, [&](PageId page) { return isPage(page); }))
            return refused("its pages do not cover its tokens");
        if (sequence.sampling)
            return refused("the CPU executor does not sample");
        for (std::int64_t i = 0; i < count; ++i) {
            const TokenId token = sequence.tokens[at(i)];
            if (token < 0 || token >= m_config.vocab_size)
                return refused("token " + std::to_string(token) + " is not in the vocabulary of "
                    + std::to_string(m_config.vocab_size));
            m_rows.push_back({token, sequence.start + i, sequence.pages});
        }
        m_spans.push_back({first, count});
        if (sequence.logits == LogitRows::all)
            for (std::int64_t i = 0; i < count; ++i)
                m_asked.push_back(first + i);
        else if (sequence.logits == LogitRows::last)
            m_asked.push_back(first + count - 1);
    }

    // One token per sequence: the cache is cut into pieces, so that all threads read it. Else whole rows are dealt out.
    m_split = static_cast<std::int64_t>(m_rows.size()) == static_cast<std::int64_t>(m_spans.size())
        && static_cast<std::int64_t>(m_spans.size()) * m_config.n_kv_heads < 8 * m_pool.size();
    if (m_split) {
        for (std::int64_t row = 0; row < static_cast<std::int64_t>(m_rows.size()); ++row)
            for (std::int64_t split = 0; split < splitsOf(row); ++split)
                m_split_units.emplace_back(row, split);
    } else {
        const std::int64_t step = std::max(1, kQueries / m_group);
        for (const Span& span : m_spans)
            for (std::int64_t i = 0; i < span.count; i += step)
                m_prompt_units.emplace_back(span.first + i, std::min(step, span.count - i));
    }
    return {};
}

Result<void> CpuExecutor::forward(const Batch& batch, ForwardResult& result)
{
    TRY(collectRows(batch));
    result.tokens.clear();
    result.logits.resize(m_asked.size() * at(m_config.vocab_size));
    if (m_rows.empty())
        return {};
    m_not_finite = false;
    m_stopped = batch.stop.stop_requested();
    m_pool.run([&](int thread) { run(thread, batch.stop, result.logits.data()); });
    if (m_stopped)
        return Error {ErrorCode::cancelled, "The computation was stopped."};
    if (m_not_finite)
        return Error {ErrorCode::format,
            "The model computed a value that is not a finite number; its weights are damaged. Import the model again."};
    return {};
}

// Every thread, from the first to the last stage.
void CpuExecutor::run(int thread, const std::stop_token& stop, float* logits)
{
    const auto rows = static_cast<std::int64_t>(m_rows.size());
    Scratch& s = m_scratch[at(thread)];
    embed();
    for (std::size_t l = 0; l < m_layers.size(); ++l) {
        const Layer& layer = m_layers[l];
        const auto index = static_cast<std::int64_t>(l);
        if (stop.stop_requested()) {
            m_stopped.store(true, std::memory_order_relaxed);
            return;
        }
        projectHeads(index, s);
        attention(index, s);
        addProduct(layer.o, rows, s, [&](std::int64_t row) { return attended(row, s); });

        const PackedLinear &gate = layer.gate_up.matrices[0], &up = layer.gate_up.matrices[1];
        runStage(
            layer.gate_up, rows, s,
            [&](std::int64_t row) { return normed(residual(row), layer.post_attention_norm, s); }, gate.stripes,
            stripeChunk(gate.stripes),
            [&](const Input* inputs, std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; i += kPair) {
                    const std::int64_t n = std::min(kPair, end - i);
                    multiply(gate, i, n, inputs[layer.gate_up.form_of[0]], s.tile[0]);
                    multiply(up, i, n, inputs[layer.gate_up.form_of[1]], s.tile[1]);
                    m_kernels.siluTimes(s.tile[0], s.tile[1], n * rows * kStripe, s.tile[0]);
                    for (std::int64_t j = 0; j < n; ++j)
                        eachRow(gate, i + j, rows, s.tile[0] + j * rows * kStripe,
                            [&](std::int64_t row, std::int64_t column, const float* from, auto width) {
                                float* to = m_product + row * gate.out_features + column;
                                for (int e = 0; e < width; ++e)
                                    to[e] = from[e];
                            });
                }
            });
        addProduct(layer.down, rows, s, [&](std::int64_t row) { return m_product + row * gate.out_features; });
    }

    const auto asked = static_cast<std::int64_t>(m_asked.size());
    if (asked == 0)
        return;
    const PackedLinear& head = m_head.matrices[0];
    runStage(
        m_head, asked, s, [&](std::int64_t i) { return normed(residual(m_asked[at(i)]), m_final_norm, s); },
        head.stripes, stripeChunk(head.stripes),
        [&](const Input* inputs, std::int64_t begin, std::int64_t end) {
            std::uint32_t largest = 0; // magnitude, as bits
            for (std::int64_t i = begin; i < end; i += kPair) {
                const std::int64_t n = std::min(kPair, end - i);
                multiply(head, i, n, inputs[0], s.tile[0]);
                for (std::int64_t j = 0; j < n; ++j)
                    eachRow(head, i + j, asked, s.tile[0] + j * asked * kStripe,
                        [&](std::int64_t row, std::int64_t column, const float* from, auto width) {
                            float* to = logits + row * head.out_features + column;
                            for (int e = 0; e < width; ++e) {
                                to[e] = from[e];
                                largest = std::max(largest, std::bit_cast<std::uint32_t>(from[e]) & 0x7fffffffu);
                            }
                        });
            }
            if (largest >= 0x7f800000u)
                m_not_finite.store(true, std::memory_order_relaxed);
        });
}

// --- stages ----------------------------------------------------------------------------------------------------

void CpuExecutor::embed()
{
    const auto rows = static_cast<std::int64_t>(m_rows.size());
    const auto pairs = static_cast<std::int64_t>(m_frequencies.size());
    m_pool.stage(rows, chunk(rows), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const Row& row = m_rows[at(i)];
            decodeTensor(
                m_embedding, row.token * std::int64_t {m_config.hidden_size}, m_config.hidden_size, residual(i));
            for (std::int64_t j = 0; j < pairs; ++j) {
                const double angle = static_cast<double>(row.position) * m_frequencies[at(j)];
                m_cosines[i * pairs + j] = static_cast<float>(std::cos(angle));
                m_sines[i * pairs + j] = static_cast<float>(std::sin(angle));
            }
        }
    });
}

Input CpuExecutor::input(const InputMemory& memory, const Stage& stage, int form, std::int64_t rows) const
{
    const PackedLinear& m = stage.matrices[at(stage.forms[at(form)])];
    Input in;
    in.rows = rows;
    in.blocks = m.blocks;
    Arena arena(memory.form[form]);
    if (m.kind == WeightKind::codes) {
        const std::int64_t places = in.rows * m.blocks;
        in.codes = arena.take<std::int8_t>(2 * places * kBlock);
        in.scales = arena.take<float>(places);
        in.sums = arena.take<std::int32_t>(places);
        in.scaled_sums = arena.take<float>(places);
    } else {
        in.values = arena.take<float>(rows * m.in_features);
    }
    return in;
}

void CpuExecutor::fill(
    const Stage& stage, int form, const Input& in, std::int64_t row, const float* x, Scratch& scratch)
{
    const PackedLinear& m = stage.matrices[at(stage.forms[at(form)])];
    if (m.kind == WeightKind::codes) {
        m_kernels.quantise(x, m.gather.empty() ? nullptr : m.gather.data(), row, in, scratch.gathered);
        return;
    }
    const RowTile tile = tileOfRow(row, in.rows, m_kernels.row_tile);
    float* to = in.values + tile.first * m.in_features + (row - tile.first);
    for (std::int64_t k = 0; k < m.in_features; ++k)
        to[k * tile.rows] = x[k];
}

// Outputs of some stripes, bias included: tile [count][rows][16].
void CpuExecutor::multiply(
    const PackedLinear& m, std::int64_t first, std::int64_t count, const Input& in, float* tile) const
{
    m_kernels.matmul(m, first, count, in, tile);
    if (m.bias.empty())
        return;
    for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t row = 0; row < in.rows; ++row, tile += kStripe)
            for (std::int64_t n = 0; n < kStripe; ++n)
                tile[n] += m.bias[at((first + i) * kStripe + n)];
}

// body(inputs by form, begin, end) over all items, after the rows of the stage's input, produce(row), have been put
// into every form that its matrices want.
template <class Produce, class Body>
void CpuExecutor::runStage(const Stage& stage, std::int64_t rows, Scratch& scratch, Produce produce, std::int64_t items,
    std::int64_t step, Body body)
{
    bool ready = rows > kOwnRows; // else by each thread for itself, once it has an item
    const int forms = static_cast<int>(stage.forms.size());
    Input inputs[kMaxForms];
    for (int f = 0; f < forms; ++f)
        inputs[f] = input(ready ? m_inputs : scratch.inputs, stage, f, rows);
    const auto fillRows = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const float* x = produce(row);
            for (int f = 0; f < forms; ++f)
                fill(stage, f, inputs[f], row, x, scratch);
        }
    };
    if (ready)
        m_pool.stage(rows, chunk(rows), fillRows);
    m_pool.stage(items, step, [&](std::int64_t begin, std::int64_t end) {
        if (!ready)
            fillRows(0, rows);
        ready = true;
        body(inputs, begin, end);
    });
}

const float* CpuExecutor::normed(const float* row, const std::vector<float>& weight, Scratch& scratch)
{
    const float squares = m_kernels.norm(row, weight.data(), m_config.norm_eps, m_config.hidden_size, scratch.normed);
    if (!(squares <= std::numeric_limits<float>::max()))
        m_not_finite.store(true, std::memory_order_relaxed);
    return scratch.normed;
}

void CpuExecutor::projectHeads(std::int64_t index, Scratch& scratch)
{
    const Layer& layer = m_layers[at(index)];
    const auto rows = static_cast<std::int64_t>(m_rows.size());
    runStage(
        layer.qkv, rows, scratch, [&](std::int64_t row) { return normed(residual(row), layer.input_norm, scratch); },
        static_cast<std::int64_t>(m_head_items.size()), 1,
        [&](const Input* inputs, std::int64_t begin, std::int64_t) {
            const HeadItem& item = m_head_items[at(begin)];
            const PackedLinear& matrix = layer.qkv.matrices[at(item.matrix)];
            multiply(
                matrix, item.first_stripe, item.stripes, inputs[layer.qkv.form_of[at(item.matrix)]], scratch.tile[0]);
            placeHeads(item, index, scratch);
        });
}

void turn(float* __restrict head, const float* __restrict cosines, const float* __restrict sines, std::int64_t pairs,
    RopeStyle style)
{
    const auto turnPair = [&](float& x, float& y, std::int64_t j) {
        const float turned = x * cosines[j] - y * sines[j];
        y = y * cosines[j] + x * sines[j];
        x = turned;
    };
    if (style == RopeStyle::half)
        for (std::int64_t j = 0; j < pairs; ++j)
            turnPair(head[j], head[j + pairs], j);
    else
        for (std::int64_t j = 0; j < pairs; ++j)
            turnPair(head[2 * j], head[2 * j + 1], j);
}

// From the tile of an item: rotary embedding; queries to m_query, keys and values into the cache.
void CpuExecutor::placeHeads(const HeadItem& item, std::int64_t layer, Scratch& scratch)
{
    const ModelConfig& c = m_config;
    const auto rows = static_cast<std::int64_t>(m_rows.size());
    const auto pairs = static_cast<std::int64_t>(m_frequencies.size());
    const PackedLinear& matrix = m_layers[at(layer)].qkv.matrices[at(item.matrix)];
    const std::int64_t first = item.first_stripe * kStripe;
    const std::int64_t end = std::min(first + item.stripes * kStripe, matrix.out_features);
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t position = m_rows[at(row)].position;
        const PageId page = m_rows[at(row)].pages[at(position / kPageSize)];
        const std::int64_t slot = position % kPageSize;
        for (std::int64_t column = first; column < end; column += c.head_dim) {
            float* head = scratch.head;
            for (std::int64_t d = 0; d < c.head_dim;) { // a head may begin and end within a stripe
                const std::int64_t from = column - first + d;
                const std::int64_t n = std::min(kStripe - from % kStripe, c.head_dim - d);
                const float* tile = scratch.tile[0] + (from / kStripe * rows + row) * kStripe + from % kStripe;
                if (n == kStripe)
                    std::copy_n(tile, kStripe, head + d);
                else
                    std::copy_n(tile, n, head + d);
                d += n;
            }
            if (item.matrix < 2)
                turn(head, m_cosines + row * pairs, m_sines + row * pairs, pairs, c.rope.style);
            if (item.matrix == 0) {
                float* to = m_query + row * matrix.out_features + column;
                for (int d = 0; d < c.head_dim; ++d)
                    to[d] = head[d] * c.attention_scale;
                continue;
            }
            m_kernels.toHalf(head, m_value_stride, scratch.half); // the padding of a value stays what it is: 0
            if (item.matrix == 1) {
                std::uint16_t* to =
                    keys(layer, page, column / c.head_dim) + slot / kKeyTile * kKeyTile * c.head_dim + slot % kKeyTile;
                for (int d = 0; d < c.head_dim; ++d)
                    to[d * kKeyTile] = scratch.half[d];
            } else {
                std::copy_n(
                    scratch.half, m_value_stride, values(layer, page, column / c.head_dim) + slot * m_value_stride);
            }
        }
    }
}

void CpuExecutor::finishHead(const float* state, float* out) const
{
    const float inverse = 1.0f / state[1];
    for (int d = 0; d < m_config.head_dim; ++d)
        out[d] = state[2 + d] * inverse;
}

// Some rows of one sequence and the heads that share a key/value head, over the whole cache.
void CpuExecutor::attendPrompt(std::int64_t layer, std::int64_t unit, Scratch& s)
{
    const ModelConfig& c = m_config;
    // The last rows, which have the most to read, first.
    const auto [first, count] = m_prompt_units[m_prompt_units.size() - 1 - at(unit / c.n_kv_heads)];
    const std::int64_t kv_head = unit % c.n_kv_heads;
    const std::int64_t width = std::int64_t {c.n_heads} * c.head_dim;
    const int queries = static_cast<int>(count) * m_group;
    for (int q = 0; q < queries; ++q)
        s.query[at(q)] = m_query + (first + q / m_group) * width + (kv_head * m_group + q % m_group) * c.head_dim;
    const Row& last = m_rows[at(first + count - 1)];
    for (std::int64_t split = 0; split * kKeySplit <= last.position; ++split) {
        for (int q = 0; q < queries; ++q)
            s.keys[at(q)] = static_cast<int>(std::clamp<std::int64_t>(
                m_rows[at(first + q / m_group)].position + 1 - split * kKeySplit, 0, kKeySplit));
        const PageId page = last.pages[at(split * kKeySplit / kPageSize)];
        const std::int64_t slot = split * kKeySplit % kPageSize;
        m_kernels.attend({.queries = queries,
            .query = s.query.data(),
            .keys = s.keys.data(),
            .k = keys(layer, page, kv_head) + slot * c.head_dim,
            .v = values(layer, page, kv_head) + slot * m_value_stride,
            .head_dim = c.head_dim,
            .value_stride = m_value_stride,
            .scores = s.scores,
            .out = s.out[split > 0].data()});
        for (int q = 0; split > 0 && q < queries; ++q)
            m_kernels.merge(s.out[0][at(q)], s.out[1][at(q)], m_value_stride);
    }
    for (int q = 0; q < queries; ++q)
        finishHead(s.out[0][at(q)],
            m_attended + (first + q / m_group) * width + (kv_head * m_group + q % m_group) * c.head_dim);
}

// One row and the heads that share a key/value head, over one piece of the cache.
void CpuExecutor::attendSplit(std::int64_t layer, std::int64_t unit, Scratch& s)
{
    const ModelConfig& c = m_config;
    const auto [row, split] = m_split_units[at(unit / c.n_kv_heads)];
    const std::int64_t kv_head = unit % c.n_kv_heads;
    for (int q = 0; q < m_group; ++q) {
        const std::int64_t head = kv_head * m_group + q;
        s.query[at(q)] = m_query + (row * c.n_heads + head) * c.head_dim;
        s.keys[at(q)] =
            static_cast<int>(std::min<std::int64_t>(kKeySplit, m_rows[at(row)].position + 1 - split * kKeySplit));
        s.out[0][at(q)] = partial(row, head, split);
    }
    const PageId page = m_rows[at(row)].pages[at(split * kKeySplit / kPageSize)];
    const std::int64_t slot = split * kKeySplit % kPageSize;
    m_kernels.attend({.queries = m_group,
        .query = s.query.data(),
        .keys = s.keys.data(),
        .k = keys(layer, page, kv_head) + slot * c.head_dim,
        .v = values(layer, page, kv_head) + slot * m_value_stride,
        .head_dim = c.head_dim,
        .value_stride = m_value_stride,
        .scores = s.scores,
        .out = s.out[0].data()});
}

void CpuExecutor::attention(std::int64_t layer, Scratch& scratch)
{
    const auto units = static_cast<std::int64_t>(m_split ? m_split_units.size() : m_prompt_units.size());
    if (!m_split)
        for (std::size_t q = 0; q < scratch.out[0].size(); ++q)
            scratch.out[0][q] = scratch.states + static_cast<std::int64_t>(q) * m_state;
    m_pool.stage(units * m_config.n_kv_heads, 1, [&](std::int64_t begin, std::int64_t) {
        if (m_split)
            attendSplit(layer, begin, scratch);
        else
            attendPrompt(layer, begin, scratch);
    });
}

// Row `row` of the input of o.
const float* CpuExecutor::attended(std::int64_t row, Scratch& scratch)
{
    const std::int64_t width = std::int64_t {m_config.n_heads} * m_config.head_dim;
    if (!m_split)
        return m_attended + row * width;
    for (std::int64_t head = 0; head < m_config.n_heads; ++head) {
        std::copy_n(partial(row, head, 0), m_state, scratch.states);
        for (std::int64_t split = 1; split < splitsOf(row); ++split)
            m_kernels.merge(scratch.states, partial(row, head, split), m_value_stride);
        finishHead(scratch.states, scratch.normed + head * m_config.head_dim);
    }
    return scratch.normed;
}

// residual += matrix times the rows produce(row)
template <class Produce>
void CpuExecutor::addProduct(const Stage& stage, std::int64_t rows, Scratch& scratch, Produce produce)
{
    const PackedLinear& matrix = stage.matrices[0];
    runStage(stage, rows, scratch, produce, matrix.stripes, stripeChunk(matrix.stripes),
        [&](const Input* inputs, std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; i += kPair) {
                const std::int64_t n = std::min(kPair, end - i);
                multiply(matrix, i, n, inputs[0], scratch.tile[0]);
                for (std::int64_t j = 0; j < n; ++j)
                    eachRow(matrix, i + j, rows, scratch.tile[0] + j * rows * kStripe,
                        [&](std::int64_t row, std::int64_t column, const float* from, auto width) {
                            float* to = residual(row) + column;
                            for (int e = 0; e < width; ++e)
                                to[e] += from[e];
                        });
            }
        });
}

// --- the rest --------------------------------------------------------------------------------------------------

Result<void> CpuExecutor::copyPages(std::span<const PageCopy> copies)
{
    const std::int64_t heads = std::int64_t {m_config.n_layers} * m_config.n_kv_heads;
    for (const PageCopy& copy : copies) {
        if (!isPage(copy.from) || !isPage(copy.to) || copy.tokens < 0 || copy.tokens > kPageSize)
            return Error {ErrorCode::argument, "A page outside of the KV cache cannot be copied."};
        if (copy.from == copy.to)
            continue;
        const std::int64_t key_count = roundedUp(copy.tokens, kKeyTile) * m_config.head_dim; // whole tiles
        for (std::int64_t i = 0; i < heads; ++i) {
            const std::int64_t layer = i / m_config.n_kv_heads, head = i % m_config.n_kv_heads;
            std::copy_n(keys(layer, copy.from, head), key_count, keys(layer, copy.to, head));
            std::copy_n(values(layer, copy.from, head), std::int64_t {copy.tokens} * m_value_stride,
                values(layer, copy.to, head));
        }
    }
    return {};
}

Result<void> CpuExecutor::fillPages(std::span<const PageId> pages, std::uint64_t seed)
{
    for (const PageId page : pages) {
        if (!isPage(page))
            return Error {ErrorCode::argument, "A page outside of the KV cache cannot be filled."};
        std::uint64_t state = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(page) + 1;
        for (std::int64_t layer = 0; layer < m_config.n_layers; ++layer)
            for (std::int64_t head = 0; head < m_config.n_kv_heads; ++head) {
                std::uint16_t* to = keys(layer, page, head);
                for (std::int64_t i = 0; i < m_head_size; ++i) {
                    state = state * 6364136223846793005u + 1442695040888963407u;
                    to[i] = floatToHalf(static_cast<float>(state >> 40) * 0x1p-23f - 1.0f);
                }
            }
    }
    return {};
}

MemoryReport CpuExecutor::memory() const
{
    MemoryReport report;
    report.weights = Bytes {m_weights.bytes()};
    report.kv = Bytes {m_kv.bytes()};
    report.workspace = Bytes {m_workspace.bytes()};
    for (const Layer& layer : m_layers) {
        report.other +=
            Bytes {static_cast<std::int64_t>((layer.input_norm.size() + layer.post_attention_norm.size()) * 4)};
        for (const Stage* stage : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
            for (const PackedLinear& m : stage->matrices)
                report.other += Bytes {static_cast<std::int64_t>((m.gather.size() + m.bias.size()) * 4)};
    }
    return report;
}

DeviceInfo CpuExecutor::device() const
{
    DeviceInfo info;
    info.kind = "cpu";
    info.name = cpuFeatures().name;
    info.detail = simdName(m_kernels.level);
    info.total = systemMemory("MemTotal");
    info.free = systemMemory("MemAvailable");
    info.threads = m_pool.size();
    return info;
}

} // namespace

Result<std::unique_ptr<Executor>> loadCpuExecutor(const ModelConfig& config, const ModelWeights& weights,
    const MemoryPlan& plan, const LoadProgress& progress, std::stop_token stop)
{
    if (plan.max_context < 1 || plan.kv_pages < 1 || plan.max_rows < 1 || plan.max_sequences < 1)
        return Error {ErrorCode::argument, "The memory plan has no context, no pages, no rows or no sequences."};
    if (plan.kv_type != KvType::fp16)
        return Error {ErrorCode::unsupported,
            "On the CPU keys and values are kept as halves; a quantised cache (q8, q4) needs a CUDA device."};
    try {
        const int threads = std::clamp(plan.threads > 0 ? plan.threads : cpuFeatures().physical_cores, 1, 256);
        auto executor = std::make_unique<CpuExecutor>(config, plan, threads);
        TRY(executor->load(weights, progress, stop));
        return std::unique_ptr<Executor>(std::move(executor));
    } catch (const std::bad_alloc&) {
        return noMemory(weights.bytes, "weights");
    } catch (const std::system_error& error) {
        return Error {ErrorCode::device, std::string("The system refused a thread: ") + error.what() + "."};
    }
}

} // namespace puna
