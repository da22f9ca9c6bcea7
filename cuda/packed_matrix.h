// PackedMatrix: a linear layer's weights in the order in which the tensor cores take them; and how to make one.
//
// The weights are the A operand of mma.m16n8k16 (16 output features x 16 inputs); up to 8 tokens are its B columns, so
// that 1 to 8 tokens cost the same and what a lane unpacks from its own loads are its A registers.
//
//     stripe   16 output features, all of K; contiguous
//     band     the inputs of one bit width: 8, 6, 5, 4, 3, 2 in this order (EXL2), one band otherwise. A multiple of 32
//     unit     16 outputs x 64 inputs of a band: `bits` lines of 128 bytes; lane l has word l of each line
//     run      up to 4 units (2 at 16 bits): what one warp takes at a time, at most 4 KiB
//     scale    one half per output and 32, 64 or 128 inputs of a band (2^shift), stored as pairs (row g, row g + 8);
//              where zero points are not the middle of the codes, followed by a second such pair
//
// Lane 4g + t holds of a unit, for input half h (32 inputs), row r (g or g + 8) and pair p the two inputs
// 32h + 8t + 2p and the next one: pair number 8h + 4r + p, in the low and high 16 bits of one register after unpacking.
// So a lane's B operands for two MMA steps are 16 contiguous bytes of x. Where the bits of pair i lie in the words is
// told by place(); unpack.cuh undoes it. Inputs are in "stored" order: input r of the matrix is feature perm[r].
//
// A code q stands for s * (q - 2^(bits-1)), plus an offset: o + 2^(bits-1) * s (minimum: GGUF's Q4_1), or
// s * (2^(bits-1) - o) (zero_point: GPTQ). 16-bit "codes" are halves, times a power of two per output.
// Source of the layout: kernel-design 3, with 16 x 64 units instead of runs of 32 x 128.
#pragma once

#include "cuda/device.h"
#include "engine/base/model.h"

#include <cstdint>
#include <stop_token>
#include <vector>

namespace puna::cuda {

constexpr int kStripeRows = 16;
constexpr int kUnitInputs = 64;
constexpr int kLineBytes = 128;

struct Run {
    std::uint32_t line; // first line, in the stripe
    std::uint16_t scale; // first 16 bytes of its scales, in the stripe
    std::uint16_t block; // first input / 32
    std::uint8_t bits;
    std::uint8_t units;
    std::uint8_t shift; // of a scale: 5, 6, 7
    std::uint8_t scales; // 16-byte pieces of scales
    std::uint32_t limit; // end of the band: input / 32, rounded up
};
static_assert(sizeof(Run) == 16);

// What one warp of the matvec takes at a time: up to 8 units that follow each other in a stripe, whatever their widths.
struct Visit {
    static constexpr int kSegments = 4;
    struct Segment { // units of one band
        std::uint8_t bits, units, shift, unused;
        std::uint16_t block; // first input / 32
        std::uint16_t scale; // first 16 bytes of its scales, in the visit
    };
    std::uint32_t line; // in the stripe
    std::uint16_t scale; // first 16 bytes of its scales, in the stripe
    std::uint8_t lines, scales, segments, unused[3]; // lines 0: nothing to do
    Segment segment[kSegments];
    std::uint32_t padding;
};
static_assert(sizeof(Visit) == 48);
constexpr int kMatvecWarps = 8;

enum class Offset : std::int32_t { none, minimum, zero_point };

// What kernels see; pointers into device memory.
struct PackedMatrix {
    const std::uint32_t* codes;
    const uint4* scales;
    const Run* runs; // [n_runs], the same for every stripe
    const std::uint16_t* perm; // [k] stored -> natural; null: identity
    const std::uint16_t* place; // [k] natural -> stored; null: identity
    const float* bias; // [n] or null
    const float* row_scale; // [n] or null
    const Visit* visits; // [kMatvecWarps, n_visits]
    std::int32_t n_runs, n_visits;
    std::uint32_t stripe_lines;
    std::uint32_t stripe_scales; // 16-byte pieces
    std::int32_t n, k, stripes;
    Offset offset;
    std::int32_t code_bytes, scale_bytes; // of the largest visit
};

// Where bit c of the code at half h (0 low, 1 high) of pair i lies in a lane's words of a unit.
struct BitPlace {
    int word, bit;
};
constexpr BitPlace place(int bits, int i, int h, int c)
{
    const int high = 16 * h;
    switch (bits) {
    case 2:
        return {i / 8, high + 2 * (i % 8) + c};
    case 4:
        return {i / 4, high + 4 * (i % 4) + c};
    case 8:
        return {i / 2, 16 * (i % 2) + 8 * h + c};
    case 3: // 5 codes a half word; the 16th pair is in the spare top bits
        if (i < 15)
            return {i / 5, high + 3 * (i % 5) + c};
        return {c == 0 ? 0 : c == 1 ? 2 : 1, high + 15};
    case 5: // 3 codes a half word, the 16th in the spare top bits
        if (i < 15)
            return {i / 3, high + 5 * (i % 3) + c};
        return {4 - c, high + 15};
    case 6: { // 3 words hold 8 pairs; 7th and 8th in the spare top nibbles
        const int first = i / 8 * 3;
        const int f = i % 8;
        if (f < 6)
            return {first + f / 2, high + 6 * (f % 2) + c};
        if (c >= 2)
            return {first + f - 6, high + 12 + c - 2};
        return {first + 2, high + 12 + 2 * (f - 6) + c};
    }
    default:
        return {i, high + c}; // 16
    }
}

// Everything about a packed layer that follows from its description, before any weight is read.
struct PackedLayout {
    struct Line { // of a stripe
        std::uint16_t block; // of the unit: input / 32
        std::uint16_t limit; // end of the band, input / 32 rounded up
        std::uint8_t bits;
        std::uint8_t word;
        std::uint16_t unused;
    };
    enum class Source { exl2, gptq, gguf, dense, decoded } source;
    std::vector<Run> runs;
    std::vector<Visit> visits;
    std::vector<Line> lines;
    std::vector<std::uint16_t> scale_blocks; // input / 32 of each scale
    std::vector<std::uint16_t> group; // of each 32 inputs
    std::vector<std::uint32_t> word_row; // EXL2: first row of q_weight of each 32 inputs
    std::vector<std::uint16_t> perm, place; // empty: identity
    Offset offset = Offset::none;
    bool has_row_scale = false;
    bool has_bias = false;
    std::int64_t n = 0, k = 0, stripes = 0;
    int scale_pieces = 2; // 16-byte pieces per scale of a stripe: 2, with offsets 4

    std::int64_t codeBytes() const { return stripes * static_cast<std::int64_t>(lines.size()) * kLineBytes; }
    std::int64_t scaleBytes() const
    {
        return stripes * static_cast<std::int64_t>(scale_blocks.size()) * scale_pieces * 16;
    }
    // Of all parts, each on a line of its own.
    std::int64_t bytes() const;
};

PackedLayout layoutOf(const Linear& linear);

// Hands out parts of one allocation.
class Arena {
public:
    Arena() = default;
    explicit Arena(DeviceBuffer buffer)
        : m_buffer(std::move(buffer))
    {
    }
    static std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
    void* take(std::int64_t bytes);
    template <class T> T* take(std::int64_t count)
    {
        return static_cast<T*>(take(count * static_cast<std::int64_t>(sizeof(T))));
    }
    std::int64_t bytes() const { return m_buffer.bytes(); }
    std::int64_t used() const { return m_used; }

private:
    DeviceBuffer m_buffer;
    std::int64_t m_used = 0;
};

// Brings weights onto the device: file pages -> locked memory -> device, several copies in flight, repacking behind
// them on the same stream.
class Uploader {
public:
    static Result<Uploader> make(cudaStream_t stream, std::int64_t staging_bytes);

    // Raw bytes, complete on the stream's later work.
    Result<void> copy(void* to, const void* from, std::int64_t bytes);
    Result<PackedMatrix> pack(const Linear& linear, const PackedLayout& layout, Arena& arena);
    // A norm weight or bias as float32.
    Result<const float*> floats(const TensorView& tensor, Arena& arena);

    // Staging that a layer needs at once.
    static std::int64_t stagingBytes(const Linear& linear, const PackedLayout& layout);

private:
    static constexpr int kBuffers = 3;
    static constexpr std::int64_t kBufferBytes = 32 << 20;

    cudaStream_t m_stream = nullptr;
    PinnedBuffer m_pinned[kBuffers];
    Event m_done[kBuffers];
    int m_next = 0;
    DeviceBuffer m_staging;
};

} // namespace puna::cuda
