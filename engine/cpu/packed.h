// Weights and activations in the form in which the CPU kernels multiply them.
//
// Weights: a matrix of N outputs and K inputs is cut into stripes of 16 outputs; a stripe is contiguous, so that
// one output vector costs one sequential read. Dense stripes hold [K][16] elements. Quantised stripes hold, per
// block of 32 inputs, `bits` vectors of 64 bytes; byte 4n + p of the code vector v (0 ... 7) that is unpacked from
// them is the unsigned code of output n and input 4v + p. Widths that do not divide 8 are bit planes (3 = 2 + 1,
// 5 = 4 + 1, 6 = 4 + 2), low bits first:
//     8 bit   vector v is code vector v
//     4 bit   vector j holds code vectors 2j (low nibbles) and 2j + 1 (high nibbles)
//     2 bit   vector j holds code vectors 4j ... 4j + 3, lowest bits first
//     1 bit   bit v of each byte belongs to code vector v
// Then follow the scales of the stripe's groups [groups][16], halves, and, where the zero point is not the middle
// of the codes, minima (halves) or zero points (int16) of the same shape. A group is a whole number of blocks.
//     weight = (code - 2^(bits-1)) * scale    middle     GGUF Q4_0, Q8_0; EXL2; symmetric GPTQ
//            = code * scale + minimum         minimum    GGUF Q4_1
//            = (code - zero) * scale          zero       other GPTQ
//
// Activations: each 32 values are rounded to 16 bits, whole multiples -32,512 ... 32,512 of a scale of their own, and
// these written as 256 high + low, signed bytes both. (8 bits are not enough: logits of the quantised reference
// models were off by 0.7 to 1.7; with 16 by less than 0.04.) Rows lie in tiles of 4, 2 and 1: as many of the kernels'
// row_tile as there are, then what is left, halving. A tile holds per block the high bytes [rows of the tile][32]
// and then the low ones, so that a kernel needs one pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace puna {

inline constexpr int kStripe = 16; // outputs
inline constexpr int kBlock = 32; // inputs

enum class WeightKind : std::uint8_t { codes, f16, bf16, f32 };
enum class Offset : std::uint8_t { middle, minimum, zero };

// Neighbouring groups of equal width and size.
struct Run {
    int bits;
    int blocks_per_group;
    std::int32_t groups;
    std::int32_t first_block;
    std::int32_t first_group;
    std::int64_t codes; // bytes from the stripe's begin
};

struct PackedLinear {
    WeightKind kind = WeightKind::codes;
    Offset offset = Offset::middle;
    std::int64_t in_features = 0;
    std::int64_t out_features = 0;
    std::int64_t stripes = 0;
    std::int64_t blocks = 0; // of inputs, padding included
    std::int64_t groups = 0;
    std::vector<Run> runs;
    std::int64_t scales = 0; // bytes from the stripe's begin
    std::int64_t offsets = 0; // same
    std::int64_t stripe_bytes = 0;
    std::vector<std::int32_t> gather; // [blocks * 32] input feature at each position, -1: none; empty: 0, 1, 2 ...
    std::vector<float> bias; // [stripes * 16] or empty
    const std::byte* data = nullptr; // [stripes][stripe_bytes], aligned to 64

    const std::byte* stripe(std::int64_t i) const { return data + i * stripe_bytes; }
};

// One set of rows, ready for one or more matrices that read it alike. Either codes and what belongs to them, or values.
struct Input {
    std::int64_t rows = 0;
    std::int64_t blocks = 0;
    std::int8_t* codes = nullptr; // [tile][block][2][row][32]
    float* scales = nullptr; // [tile][block][row]
    std::int32_t* sums = nullptr; // same: -128 times the sum of the multiples
    float* scaled_sums = nullptr; // same: scale times the sum of the multiples
    float* values = nullptr; // [tile][feature][row]
};

struct RowTile {
    std::int64_t first;
    int rows; // a power of two
};

// The tile that begins at row `first` of `rows`.
inline RowTile rowTile(std::int64_t first, std::int64_t rows, int row_tile)
{
    int n = row_tile;
    while (n > rows - first)
        n /= 2;
    return {first, n};
}

// The tile that holds row `row`.
inline RowTile tileOfRow(std::int64_t row, std::int64_t rows, int row_tile)
{
    const std::int64_t first = row / row_tile * row_tile;
    RowTile tile = rowTile(first, rows, row_tile);
    while (row >= tile.first + tile.rows)
        tile = rowTile(tile.first + tile.rows, rows, row_tile);
    return tile;
}

} // namespace puna
