// Repacking at load: raw tensors are copied as they are into a staging buffer, and one kernel per part (codes, scales)
// writes the packed form from there: a thread per output word, which gathers its bits code by code.

#include "cuda/packed_matrix.h"

#include "cuda/launch.h"
#include "cuda/ptx.cuh"
#include "engine/quant/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

namespace puna::cuda {

namespace {

std::int64_t divideUp(std::int64_t a, std::int64_t b)
{
    return (a + b - 1) / b;
}

std::size_t at(std::int64_t i)
{
    return static_cast<std::size_t>(i);
}

// ---- layout ----------------------------------------------------------------------------------------------------

// A band of one width, inputs begin ... end - 1; shift: of its scales.
void addBand(PackedLayout& layout, int bits, std::int64_t begin, std::int64_t end, int shift)
{
    const int run_units = bits == 16 ? 2 : 4;
    const std::int64_t units = divideUp(end - begin, kUnitInputs);
    for (std::int64_t unit = 0; unit < units; unit += run_units) {
        Run run {};
        run.line = static_cast<std::uint32_t>(layout.lines.size());
        run.scale = static_cast<std::uint16_t>(layout.scale_blocks.size() * at(layout.scale_pieces));
        run.block = static_cast<std::uint16_t>((begin + unit * kUnitInputs) / 32);
        run.bits = static_cast<std::uint8_t>(bits);
        run.units = static_cast<std::uint8_t>(std::min<std::int64_t>(run_units, units - unit));
        run.shift = static_cast<std::uint8_t>(shift);
        run.limit = static_cast<std::uint32_t>(divideUp(end, 32));
        for (int u = 0; u < run.units; ++u)
            for (int j = 0; j < bits; ++j)
                layout.lines.push_back({static_cast<std::uint16_t>(run.block + 2 * u),
                    static_cast<std::uint16_t>(divideUp(end, 32)), run.bits, static_cast<std::uint8_t>(j), 0});
        if (bits != 16) {
            const std::int64_t scales = divideUp(std::int64_t {run.units} * kUnitInputs, std::int64_t {1} << shift);
            for (std::int64_t s = 0; s < scales; ++s)
                layout.scale_blocks.push_back(static_cast<std::uint16_t>(run.block + (s << shift) / 32));
            run.scales = static_cast<std::uint8_t>(scales * layout.scale_pieces);
        }
        layout.runs.push_back(run);
    }
}

// The stripe's units dealt to the warps of the matvec, each a part of its own in one piece, cut into visits.
void addVisits(PackedLayout& layout)
{
    struct Unit {
        std::uint32_t line;
        std::uint16_t block, scale; // scale: 16-byte pieces
        std::uint8_t bits, shift;
        bool joined; // shares a scale with the unit before
    };
    std::vector<Unit> units;
    for (const Run& run : layout.runs)
        for (int u = 0; u < run.units; ++u) {
            const int scale = run.bits == 16 ? 0 : (u * kUnitInputs >> run.shift) * layout.scale_pieces;
            units.push_back({run.line + static_cast<std::uint32_t>(u * run.bits),
                static_cast<std::uint16_t>(run.block + 2 * u), static_cast<std::uint16_t>(run.scale + scale), run.bits,
                run.shift, run.bits != 16 && run.shift == 7 && u % 2 == 1});
        }
    const auto count = static_cast<std::int64_t>(units.size());
    const auto border = [&](std::int64_t warp) {
        std::int64_t u = count * warp / kMatvecWarps;
        while (u > 0 && u < count && units[at(u)].joined)
            --u;
        return u;
    };
    std::vector<Visit> visits[kMatvecWarps];
    std::size_t most = 1;
    for (int warp = 0; warp < kMatvecWarps; ++warp) {
        for (std::int64_t u = border(warp); u < border(warp + 1); ++u) {
            const Unit& unit = units[at(u)];
            std::vector<Visit>& own = visits[warp];
            Visit* visit = own.empty() ? nullptr : &own.back();
            int taken = 0;
            if (visit)
                for (int i = 0; i < visit->segments; ++i)
                    taken += visit->segment[i].units;
            Visit::Segment* last = visit ? &visit->segment[visit->segments - 1] : nullptr;
            const bool same = last && last->bits == unit.bits && last->shift == unit.shift
                && last->block + 2 * last->units == unit.block;
            const bool fits = visit && visit->lines + unit.bits <= 40 && (same || visit->segments < Visit::kSegments)
                && (taken < 7 || (taken < 8 && (unit.joined || unit.bits == 16 || unit.shift != 7)));
            if (!visit || (!fits && !unit.joined)) {
                Visit fresh {};
                fresh.line = unit.line;
                fresh.scale = unit.scale;
                own.push_back(fresh);
                visit = &own.back();
                last = nullptr;
            }
            if (!last || !same) {
                last = &visit->segment[visit->segments++];
                *last = {
                    unit.bits, 0, unit.shift, 0, unit.block, static_cast<std::uint16_t>(unit.scale - visit->scale)};
            }
            ++last->units;
            visit->lines = static_cast<std::uint8_t>(visit->lines + unit.bits);
            if (unit.bits != 16 && !unit.joined)
                visit->scales = static_cast<std::uint8_t>(
                    visit->scales + std::max(1, kUnitInputs >> unit.shift) * layout.scale_pieces);
        }
        most = std::max(most, visits[warp].size());
    }
    for (std::vector<Visit>& own : visits) {
        own.resize(most);
        layout.visits.insert(layout.visits.end(), own.begin(), own.end());
    }
}

// The longest of 128, 64, 32 inputs that never cross a group's border, counted from the band's begin.
int scaleShift(const std::vector<std::uint16_t>& group, std::int64_t begin, std::int64_t end)
{
    for (int shift = 7; shift > 5; --shift) {
        bool fits = true;
        for (std::int64_t block = begin / 32; block < end / 32; ++block) {
            const std::int64_t first = begin / 32 + ((block - begin / 32) >> (shift - 5) << (shift - 5));
            fits = fits && group[at(block)] == group[at(first)];
        }
        if (fits)
            return shift;
    }
    return 5;
}

void setPermutation(PackedLayout& layout, const std::vector<std::int32_t>& perm)
{
    if (std::is_sorted(perm.begin(), perm.end()))
        return;
    layout.perm.resize(perm.size());
    layout.place.resize(perm.size());
    for (std::size_t r = 0; r < perm.size(); ++r) {
        layout.perm[r] = static_cast<std::uint16_t>(perm[r]);
        layout.place[at(perm[r])] = static_cast<std::uint16_t>(r);
    }
}

constexpr std::int64_t kMostInputs = 65536; // what the 16-bit tables can name

void layoutExl2(PackedLayout& layout, const Exl2Linear& exl2)
{
    layout.source = PackedLayout::Source::exl2;
    std::vector<std::int32_t> perm(at(layout.k));
    for (std::int64_t i = 0; i < layout.k; ++i)
        perm[at(exl2.q_invperm.load<std::int32_t>(i))] = static_cast<std::int32_t>(i);
    setPermutation(layout, perm);
    for (std::size_t g = 0; g < exl2.groups.size(); ++g)
        for (std::int32_t row = 0; row < exl2.groups[g].rows; row += 32) {
            layout.group.push_back(static_cast<std::uint16_t>(g));
            layout.word_row.push_back(
                static_cast<std::uint32_t>(exl2.groups[g].word_row_begin + row / 32 * exl2.groups[g].bits));
        }
    for (std::size_t g = 0; g < exl2.groups.size();) {
        std::size_t end = g;
        while (end < exl2.groups.size() && exl2.groups[end].bits == exl2.groups[g].bits)
            ++end;
        const std::int64_t first = exl2.groups[g].row_begin;
        const std::int64_t last = exl2.groups[end - 1].row_begin + exl2.groups[end - 1].rows;
        addBand(layout, exl2.groups[g].bits, first, last, scaleShift(layout.group, first, last));
        g = end;
    }
}

// False where groups do not consist of whole blocks of 32 inputs.
bool layoutGptq(PackedLayout& layout, const GptqLinear& gptq)
{
    std::vector<std::int32_t> perm(at(layout.k));
    std::iota(perm.begin(), perm.end(), 0);
    const auto groupOf = [&](std::int32_t k) {
        return gptq.g_idx ? gptq.g_idx.load<std::int32_t>(k) : k / gptq.group_size;
    };
    std::stable_sort(perm.begin(), perm.end(), [&](auto a, auto b) { return groupOf(a) < groupOf(b); });
    if (layout.k % 32 != 0)
        return false;
    for (std::int64_t block = 0; block < layout.k; block += 32) {
        const std::int32_t first = groupOf(perm[at(block)]);
        if (first > 65535 || first != groupOf(perm[at(block + 31)]))
            return false;
        layout.group.push_back(static_cast<std::uint16_t>(first));
    }
    layout.source = PackedLayout::Source::gptq;
    setPermutation(layout, perm);
    layout.offset = Offset::zero_point;
    layout.scale_pieces = 4;
    addBand(layout, gptq.bits, 0, layout.k, scaleShift(layout.group, 0, layout.k));
    return true;
}

void layoutDense(PackedLayout& layout, const DenseLinear& dense)
{
    const DType type = dense.weight.dtype;
    if (type == DType::q4_0 || type == DType::q4_1 || type == DType::q8_0) {
        layout.source = PackedLayout::Source::gguf;
        for (std::int64_t block = 0; block < layout.k / 32; ++block)
            layout.group.push_back(static_cast<std::uint16_t>(block));
        if (type == DType::q4_1) {
            layout.offset = Offset::minimum;
            layout.scale_pieces = 4;
        }
        addBand(layout, type == DType::q8_0 ? 8 : 4, 0, layout.k, 5);
        return;
    }
    layout.source = PackedLayout::Source::dense;
    layout.has_row_scale = type != DType::f16;
    addBand(layout, 16, 0, layout.k, 7);
}

} // namespace

static PackedLayout layoutWithoutVisits(const Linear& linear)
{
    PackedLayout layout;
    layout.n = linear.out_features;
    layout.k = linear.in_features;
    layout.stripes = divideUp(layout.n, kStripeRows);
    layout.has_bias = static_cast<bool>(linear.bias);
    if (const auto* exl2 = std::get_if<Exl2Linear>(&linear.weight); exl2 && layout.k <= kMostInputs) {
        layoutExl2(layout, *exl2);
        return layout;
    }
    if (const auto* gptq = std::get_if<GptqLinear>(&linear.weight);
        gptq && layout.k <= kMostInputs && layoutGptq(layout, *gptq))
        return layout;
    if (const auto* dense = std::get_if<DenseLinear>(&linear.weight)) {
        layoutDense(layout, *dense);
        return layout;
    }
    // Rare shapes of quantised layers: decoded on the CPU, kept as halves.
    layout.group.clear();
    layout.source = PackedLayout::Source::decoded;
    layout.has_row_scale = true;
    addBand(layout, 16, 0, layout.k, 7);
    return layout;
}

PackedLayout layoutOf(const Linear& linear)
{
    PackedLayout layout = layoutWithoutVisits(linear);
    addVisits(layout);
    return layout;
}

std::int64_t PackedLayout::bytes() const
{
    const auto rounded = [](std::size_t b) { return Arena::rounded(static_cast<std::int64_t>(b)); };
    return Arena::rounded(codeBytes()) + Arena::rounded(scaleBytes()) + rounded(runs.size() * sizeof(Run))
        + rounded(visits.size() * sizeof(Visit)) + 2 * rounded(perm.size() * 2)
        + (has_row_scale ? rounded(at(n) * 4) : 0) + (has_bias ? rounded(at(n) * 4) : 0);
}

void* Arena::take(std::int64_t bytes)
{
    void* part = m_buffer.data() + m_used;
    m_used += rounded(bytes);
    assert(m_used <= m_buffer.bytes());
    return part;
}

// ---- kernels ---------------------------------------------------------------------------------------------------

namespace {

struct Source {
    PackedLayout::Source kind;
    DType dtype; // dense, gguf; gptq: of the scales
    const std::uint8_t* data; // codes, or rows
    const std::uint32_t* scale_codes; // exl2: q_scale; gptq: qzeros
    const void* scales; // exl2: q_scale_max; gptq: scales
    const std::uint32_t* word_row;
    const std::uint16_t* group;
    const std::uint16_t* perm; // gptq
    std::int64_t width; // columns of the words: padded N
    std::int64_t k, n;
    std::int64_t row_bytes; // gguf, dense
    std::int64_t first_row; // of the rows in `data` (dense, gguf)
    int bits, zero_offset;
};

__device__ std::uint32_t codeAt(const Source& s, int bits, std::int64_t k, std::int64_t n)
{
    if (s.kind == PackedLayout::Source::gguf) {
        const int block_bytes = s.dtype == DType::q4_0 ? 18 : s.dtype == DType::q4_1 ? 20 : 34;
        const std::uint8_t* block = s.data + (n - s.first_row) * s.row_bytes + k / 32 * block_bytes;
        const int i = static_cast<int>(k % 32);
        if (s.dtype == DType::q8_0)
            return block[2 + i] ^ 0x80u; // signed to offset by 128
        const std::uint32_t byte = block[(s.dtype == DType::q4_1 ? 4 : 2) + i % 16];
        return i < 16 ? byte & 15u : byte >> 4;
    }
    const auto* words = reinterpret_cast<const std::uint32_t*>(s.data);
    std::int64_t word;
    int bit;
    if (s.kind == PackedLayout::Source::exl2) {
        bit = static_cast<int>(k % 32) * bits;
        word = s.word_row[k / 32] + bit / 32;
    } else {
        const std::int64_t first = (s.perm ? s.perm[k] : k) * bits;
        word = first / 32;
        bit = static_cast<int>(first % 32);
    }
    bit %= 32;
    std::uint64_t value = words[word * s.width + n];
    if (bit + bits > 32)
        value |= static_cast<std::uint64_t>(words[(word + 1) * s.width + n]) << 32;
    return static_cast<std::uint32_t>(value >> bit) & ((1u << bits) - 1u);
}

// For each width and bit of a word: pair (bits 0-3), half (4), bit of the code (5-7).
struct BitTable {
    std::uint8_t at[8][32];
};
__constant__ BitTable bit_tables[9];

BitTable bitTable(int bits)
{
    BitTable table {};
    for (int i = 0; i < 16; ++i)
        for (int h = 0; h < 2; ++h)
            for (int c = 0; c < bits; ++c) {
                const BitPlace p = place(bits, i, h, c);
                table.at[p.word][p.bit] = static_cast<std::uint8_t>(i | h << 4 | c << 5);
            }
    return table;
}

// One block of 32 threads per line and y = stripe.
__global__ void packCodes(
    Source source, const PackedLayout::Line* lines, std::int64_t n_lines, std::int64_t first_stripe, std::uint32_t* out)
{
    const std::int64_t line_index = blockIdx.x * std::int64_t {blockDim.y} + threadIdx.y;
    if (line_index >= n_lines)
        return;
    const std::int64_t stripe = first_stripe + blockIdx.y;
    const PackedLayout::Line line = lines[line_index];
    const int lane = static_cast<int>(threadIdx.x);
    const int g = lane >> 2;
    const int t = lane & 3;
    const std::uint8_t* table = bit_tables[line.bits].at[line.word];
    std::uint32_t word = 0;
    int current = -1;
    std::uint32_t code = 0;
    for (int bit = 0; bit < 32; ++bit) {
        const int entry = table[bit];
        if ((entry & 31) != current) {
            current = entry & 31;
            const int i = current & 15;
            const std::int64_t k = line.block * 32 + 32 * (i >> 3) + 8 * t + 2 * (i & 3) + (current >> 4);
            const std::int64_t n = stripe * kStripeRows + g + 8 * (i >> 2 & 1);
            code = k < line.limit * 32 && k < source.k && n < source.n ? codeAt(source, line.bits, k, n)
                                                                       : 1u << (line.bits - 1);
        }
        word |= (code >> (entry >> 5) & 1u) << bit;
    }
    out[(stripe * n_lines + line_index) * 32 + lane] = word;
}

__device__ half halfAt(const std::uint8_t* p)
{
    return __ushort_as_half(static_cast<unsigned short>(p[0] | p[1] << 8));
}

__device__ void scaleAt(const Source& s, int block, std::int64_t n, half& scale, half& offset)
{
    offset = __float2half(0.0f);
    const std::int64_t group = s.group[block];
    if (s.kind == PackedLayout::Source::exl2) {
        // Both roundings to half are part of the format: exl2-format 2.5.
        const auto largest = static_cast<const half*>(s.scales)[group];
        const half unit = __float2half_rn(__half2float(largest) / 256.0f);
        const float c = static_cast<float>((s.scale_codes[group * (s.width / 8) + n / 8] >> (4 * (n % 8)) & 15u) + 1u);
        scale = __float2half_rn(c * c * __half2float(unit));
    } else if (s.kind == PackedLayout::Source::gptq) {
        scale = s.dtype == DType::f16 ? static_cast<const half*>(s.scales)[group * s.n + n]
                                      : __float2half_rn(static_cast<const float*>(s.scales)[group * s.n + n]);
        const std::int64_t bit = n * s.bits;
        const std::uint32_t* row = s.scale_codes + group * (s.n * s.bits / 32);
        std::uint64_t value = row[bit / 32];
        if (bit % 32 + s.bits > 32)
            value |= static_cast<std::uint64_t>(row[bit / 32 + 1]) << 32;
        const auto zero = static_cast<int>(value >> (bit % 32) & ((1u << s.bits) - 1u)) + s.zero_offset;
        offset = __int2half_rn(zero);
    } else {
        const int block_bytes = s.dtype == DType::q4_0 ? 18 : s.dtype == DType::q4_1 ? 20 : 34;
        const std::uint8_t* at = s.data + (n - s.first_row) * s.row_bytes + std::int64_t {block} * block_bytes;
        scale = halfAt(at);
        if (s.dtype == DType::q4_1)
            offset = halfAt(at + 2);
    }
}

// A thread per scale and lane group g; y = stripe. Without offsets 8 half2 per scale, with them 8 x (half2, half2).
__global__ void packScales(
    Source source, const std::uint16_t* blocks, int n_scales, std::int64_t first_stripe, int pieces, uint4* out)
{
    const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int s = index / 8;
    const int g = index % 8;
    if (s >= n_scales)
        return;
    const std::int64_t stripe = first_stripe + blockIdx.y;
    half scale[2], offset[2];
    for (int r = 0; r < 2; ++r) {
        scale[r] = offset[r] = __float2half(0.0f);
        const std::int64_t n = stripe * kStripeRows + g + 8 * r;
        if (n < source.n && blocks[s] * 32 < source.k)
            scaleAt(source, blocks[s], n, scale[r], offset[r]);
    }
    auto* to = reinterpret_cast<half2*>(out + (stripe * n_scales + s) * pieces);
    if (pieces == 2) {
        to[g] = half2(scale[0], scale[1]);
    } else {
        to[2 * g] = half2(scale[0], scale[1]);
        to[2 * g + 1] = half2(offset[0], offset[1]);
    }
}

__device__ float elementAt(const Source& s, std::int64_t row, std::int64_t k)
{
    const std::uint8_t* p = s.data + (row - s.first_row) * s.row_bytes;
    switch (s.dtype) {
    case DType::f16:
        return __half2float(reinterpret_cast<const half*>(p)[k]);
    case DType::bf16:
        return __uint_as_float(static_cast<std::uint32_t>(reinterpret_cast<const unsigned short*>(p)[k]) << 16);
    default:
        return reinterpret_cast<const float*>(p)[k];
    }
}

// The power of two that brings a row's largest element to 2^14 ... 2^15: then a half keeps 8-bit mantissas exactly and
// 40 powers of two of range.
__global__ void rowScales(Source source, std::int64_t rows, float* scales)
{
    const std::int64_t row = blockIdx.x * std::int64_t {blockDim.y} + threadIdx.y;
    if (row >= rows)
        return;
    float largest = 0.0f;
    for (std::int64_t k = threadIdx.x; k < source.k; k += 32)
        largest = fmaxf(largest, fabsf(elementAt(source, source.first_row + row, k)));
    largest = warpMax(largest);
    int exponent = 0;
    if (largest > 0.0f && largest < __int_as_float(0x7f800000))
        frexpf(largest, &exponent); // largest = m 2^exponent, m in [0.5, 1)
    else
        exponent = 15;
    if (threadIdx.x == 0)
        scales[source.first_row + row] = ldexpf(1.0f, exponent - 15);
}

__global__ void packHalves(Source source, const PackedLayout::Line* lines, std::int64_t n_lines,
    std::int64_t first_stripe, const float* row_scales, std::uint32_t* out)
{
    const std::int64_t line_index = blockIdx.x * std::int64_t {blockDim.y} + threadIdx.y;
    if (line_index >= n_lines)
        return;
    const std::int64_t stripe = first_stripe + blockIdx.y;
    const PackedLayout::Line line = lines[line_index];
    const int lane = static_cast<int>(threadIdx.x);
    const int i = line.word;
    const std::int64_t n = stripe * kStripeRows + (lane >> 2) + 8 * (i >> 2 & 1);
    const std::int64_t k = line.block * 32 + 32 * (i >> 3) + 8 * (lane & 3) + 2 * (i & 3);
    float v[2] = {0.0f, 0.0f};
    for (int h = 0; h < 2; ++h)
        if (n < source.n && k + h < source.k)
            v[h] = elementAt(source, n, k + h) * (row_scales ? 1.0f / row_scales[n] : 1.0f);
    out[(stripe * n_lines + line_index) * 32 + lane] = bits(__floats2half2_rn(v[0], v[1]));
}

__global__ void widen(Source source, std::int64_t count, float* out)
{
    const std::int64_t i = blockIdx.x * std::int64_t {blockDim.x} + threadIdx.x;
    if (i < count)
        out[i] = elementAt(source, 0, i);
}

constexpr std::int64_t kRowBytes = std::int64_t {64} << 20; // of dense rows staged at a time

} // namespace

// ---- uploading -------------------------------------------------------------------------------------------------

Result<Uploader> Uploader::make(cudaStream_t stream, std::int64_t staging_bytes)
{
    Uploader uploader;
    uploader.m_stream = stream;
    for (int i = 0; i < kBuffers; ++i) {
        uploader.m_pinned[i] = TRY(allocatePinned(kBufferBytes));
        uploader.m_done[i] = TRY(makeEvent());
    }
    uploader.m_staging = TRY(allocate(staging_bytes, "Buffers for loading"));
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
        const BitTable table = bitTable(bits);
        CUDA_TRY(cudaMemcpyToSymbolAsync(
            bit_tables, &table, sizeof table, sizeof table * at(bits), cudaMemcpyHostToDevice, stream));
        CUDA_TRY(cudaStreamSynchronize(stream)); // the table is on the stack
    }
    return Result<Uploader>(std::move(uploader));
}

Result<void> Uploader::copy(void* to, const void* from, std::int64_t bytes)
{
    constexpr std::int64_t kSlice = 4 << 20; // per thread
    for (std::int64_t done = 0; done < bytes;) {
        const std::int64_t part = std::min(kBufferBytes, bytes - done);
        const int b = m_next;
        m_next = (m_next + 1) % kBuffers;
        CUDA_TRY(cudaEventSynchronize(m_done[b].get())); // at once if never recorded
        std::byte* pinned = m_pinned[b].data();
        const std::byte* source = static_cast<const std::byte*>(from) + done;
        const std::int64_t slices = divideUp(part, kSlice);
        {
            std::vector<std::jthread> helpers;
            const auto slice = [&](std::int64_t i) {
                std::memcpy(pinned + i * kSlice, source + i * kSlice, at(std::min(kSlice, part - i * kSlice)));
            };
            for (std::int64_t i = 1; i < slices; ++i)
                helpers.emplace_back([&slice, i] { slice(i); });
            slice(0);
        }
        CUDA_TRY(
            cudaMemcpyAsync(static_cast<std::byte*>(to) + done, pinned, at(part), cudaMemcpyHostToDevice, m_stream));
        CUDA_TRY(cudaEventRecord(m_done[b].get(), m_stream));
        done += part;
    }
    return {};
}

std::int64_t Uploader::stagingBytes(const Linear& linear, const PackedLayout& layout)
{
    std::int64_t bytes = Arena::rounded(static_cast<std::int64_t>(layout.lines.size() * sizeof(PackedLayout::Line)))
        + Arena::rounded(static_cast<std::int64_t>(layout.scale_blocks.size() * 2))
        + Arena::rounded(static_cast<std::int64_t>(layout.group.size() * 2))
        + Arena::rounded(static_cast<std::int64_t>(layout.word_row.size() * 4));
    if (const auto* exl2 = std::get_if<Exl2Linear>(&linear.weight))
        bytes += Arena::rounded(exl2->q_weight.bytes()) + Arena::rounded(exl2->q_scale.bytes())
            + Arena::rounded(exl2->q_scale_max.bytes());
    if (const auto* gptq = std::get_if<GptqLinear>(&linear.weight))
        bytes += Arena::rounded(gptq->qweight.bytes()) + Arena::rounded(gptq->qzeros.bytes())
            + Arena::rounded(gptq->scales.bytes());
    const std::int64_t row = layout.k * 4;
    return bytes + std::max(kRowBytes, Arena::rounded(row * kStripeRows)) + 4096;
}

Result<const float*> Uploader::floats(const TensorView& tensor, Arena& arena)
{
    auto* out = arena.take<float>(tensor.elements());
    TRY(copy(m_staging.data(), tensor.data, tensor.bytes()));
    Source source {};
    source.dtype = tensor.dtype;
    source.data = m_staging.as<std::uint8_t>();
    const auto blocks = static_cast<unsigned>(divideUp(tensor.elements(), 256));
    CUDA_TRY(launch(Overlap::no, widen, blocks, 256, 0, m_stream, source, tensor.elements(), out));
    return out;
}

Result<PackedMatrix> Uploader::pack(const Linear& linear, const PackedLayout& layout, Arena& arena)
{
    // Small tables and raw tensors go one after the other into the staging buffer.
    std::int64_t used = 0;
    const auto stage = [&](const void* data, std::int64_t bytes) -> Result<std::uint8_t*> {
        auto* to = m_staging.as<std::uint8_t>() + used;
        used += Arena::rounded(bytes);
        assert(used <= m_staging.bytes());
        if (bytes > 0)
            TRY(copy(to, data, bytes));
        return to;
    };
    const auto table = [&](const auto& values) {
        return stage(values.data(), static_cast<std::int64_t>(values.size() * sizeof(values[0])));
    };
    const auto keep = [&](const auto& values) -> Result<const void*> {
        const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(values[0]));
        void* to = arena.take(bytes);
        TRY(copy(to, values.data(), bytes));
        return static_cast<const void*>(to);
    };

    PackedMatrix m {};
    m.n = static_cast<std::int32_t>(layout.n);
    m.k = static_cast<std::int32_t>(layout.k);
    m.stripes = static_cast<std::int32_t>(layout.stripes);
    m.offset = layout.offset;
    m.n_runs = static_cast<std::int32_t>(layout.runs.size());
    m.stripe_lines = static_cast<std::uint32_t>(layout.lines.size());
    m.stripe_scales =
        static_cast<std::uint32_t>(layout.scale_blocks.size()) * static_cast<std::uint32_t>(layout.scale_pieces);
    m.n_visits = static_cast<std::int32_t>(layout.visits.size()) / kMatvecWarps;
    for (const Visit& visit : layout.visits) {
        m.code_bytes = std::max(m.code_bytes, visit.lines * kLineBytes);
        m.scale_bytes = std::max(m.scale_bytes, visit.scales * 16);
    }
    m.visits = static_cast<const Visit*>(TRY(keep(layout.visits)));
    m.runs = static_cast<const Run*>(TRY(keep(layout.runs)));
    if (!layout.perm.empty()) {
        m.perm = static_cast<const std::uint16_t*>(TRY(keep(layout.perm)));
        m.place = static_cast<const std::uint16_t*>(TRY(keep(layout.place)));
    }
    auto* row_scale = layout.has_row_scale ? arena.take<float>(layout.n) : nullptr;
    m.row_scale = row_scale;
    if (layout.has_bias)
        m.bias = TRY(floats(linear.bias, arena));
    auto* codes = static_cast<std::uint32_t*>(arena.take(layout.codeBytes()));
    m.codes = codes;
    uint4* scales = nullptr;
    if (layout.scaleBytes() > 0)
        m.scales = scales = static_cast<uint4*>(arena.take(layout.scaleBytes()));

    const auto* lines = reinterpret_cast<const PackedLayout::Line*>(TRY(table(layout.lines)));
    const auto* blocks = reinterpret_cast<const std::uint16_t*>(TRY(table(layout.scale_blocks)));
    Source source {};
    source.kind = layout.source;
    source.k = layout.k;
    source.n = layout.n;
    source.group = reinterpret_cast<const std::uint16_t*>(TRY(table(layout.group)));
    const auto n_lines = static_cast<std::int64_t>(layout.lines.size());
    const auto line_blocks = static_cast<unsigned>(divideUp(n_lines, 8));
    const auto n_scales = static_cast<int>(layout.scale_blocks.size());
    const auto scale_blocks = static_cast<unsigned>(divideUp(n_scales * 8, 128));
    // Stripes first ... first + count - 1, 32,768 at a time (the limit of a grid's y).
    const auto packQuantised = [&](std::int64_t first, std::int64_t count) -> Result<void> {
        for (std::int64_t done = 0; done < count; done += 32768) {
            const auto part = static_cast<unsigned>(std::min<std::int64_t>(32768, count - done));
            packCodes<<<dim3(line_blocks, part), dim3(32, 8), 0, m_stream>>>(
                source, lines, n_lines, first + done, codes);
            CUDA_TRY(cudaGetLastError());
            packScales<<<dim3(scale_blocks, part), 128, 0, m_stream>>>(
                source, blocks, n_scales, first + done, layout.scale_pieces, scales);
            CUDA_TRY(cudaGetLastError());
        }
        return {};
    };

    if (const auto* exl2 = std::get_if<Exl2Linear>(&linear.weight);
        exl2 && layout.source == PackedLayout::Source::exl2) {
        source.word_row = reinterpret_cast<const std::uint32_t*>(TRY(table(layout.word_row)));
        source.scale_codes =
            reinterpret_cast<const std::uint32_t*>(TRY(stage(exl2->q_scale.data, exl2->q_scale.bytes())));
        source.scales = TRY(stage(exl2->q_scale_max.data, exl2->q_scale_max.bytes()));
        source.data = TRY(stage(exl2->q_weight.data, exl2->q_weight.bytes()));
        source.width = exl2->padded_out;
        TRY(packQuantised(0, layout.stripes));
        return m;
    }
    if (const auto* gptq = std::get_if<GptqLinear>(&linear.weight);
        gptq && layout.source == PackedLayout::Source::gptq) {
        source.dtype = gptq->scales.dtype;
        source.bits = gptq->bits;
        source.zero_offset = gptq->zero_offset;
        source.perm = m.perm;
        source.width = layout.n;
        source.scale_codes =
            reinterpret_cast<const std::uint32_t*>(TRY(stage(gptq->qzeros.data, gptq->qzeros.bytes())));
        source.scales = TRY(stage(gptq->scales.data, gptq->scales.bytes()));
        source.data = TRY(stage(gptq->qweight.data, gptq->qweight.bytes()));
        TRY(packQuantised(0, layout.stripes));
        return m;
    }

    // The rest are rows [N, K], taken in slices of whole stripes.
    const auto* dense = std::get_if<DenseLinear>(&linear.weight);
    const bool decoded = layout.source == PackedLayout::Source::decoded;
    source.dtype = decoded ? DType::f32 : dense->weight.dtype;
    const DTypeInfo type = info(source.dtype);
    source.row_bytes = layout.k / type.block_elements * type.block_bytes;
    const std::int64_t slice = std::max<std::int64_t>(1, kRowBytes / (source.row_bytes * kStripeRows));
    const std::int64_t tables = used;
    std::vector<float> rows;
    for (std::int64_t stripe = 0; stripe < layout.stripes; stripe += slice) {
        const std::int64_t count = std::min(slice, layout.stripes - stripe);
        source.first_row = stripe * kStripeRows;
        const std::int64_t n_rows = std::min(count * kStripeRows, layout.n - source.first_row);
        used = tables;
        if (decoded) {
            rows.resize(at(n_rows * layout.k));
            decodeRows(linear, source.first_row, n_rows, rows);
            source.data = TRY(stage(rows.data(), n_rows * source.row_bytes));
        } else {
            source.data =
                TRY(stage(dense->weight.data + at(source.first_row * source.row_bytes), n_rows * source.row_bytes));
        }
        if (layout.source == PackedLayout::Source::gguf) {
            TRY(packQuantised(stripe, count));
            continue;
        }
        if (row_scale)
            rowScales<<<static_cast<unsigned>(divideUp(n_rows, 8)), dim3(32, 8), 0, m_stream>>>(
                source, n_rows, row_scale);
        for (std::int64_t done = 0; done < count; done += 32768) {
            const auto part = static_cast<unsigned>(std::min<std::int64_t>(32768, count - done));
            packHalves<<<dim3(line_blocks, part), dim3(32, 8), 0, m_stream>>>(
                source, lines, n_lines, stripe + done, row_scale, codes);
        }
        CUDA_TRY(cudaGetLastError());
    }
    return m;
}

} // namespace puna::cuda
