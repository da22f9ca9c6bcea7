// The hot loops of the CPU executor, once per instruction set.
//
// kernels.inl is written on 16 floats, 64 codes and a dot product; kernels_avx512.cpp, kernels_avx2.cpp and
// kernels_portable.cpp say what those are. Every sum has an order that depends neither on how many rows or queries
// run beside it nor on threads, so that a token's logits are the same in a prompt, alone and in a batch.
#pragma once

#include "engine/cpu/cpu_features.h"
#include "engine/cpu/packed.h"

#include <cstdint>

namespace puna {

inline constexpr int kKeyTile = 16; // keys whose elements lie side by side in a page: [head_dim][16] halves
inline constexpr int kKeySplit = 128; // keys that one attend() looks at; divides kPageSize

// A piece of attention: `queries` vectors against up to kKeySplit keys of one head.
struct Attend {
    int queries;
    const float* const* query; // [queries] of [head_dim], already times the attention scale
    const int* keys; // [queries] how many of the keys each may see, 0 ... kKeySplit
    const std::uint16_t* k; // [key tiles][head_dim][16]
    const std::uint16_t* v; // [keys][value_stride]
    int head_dim;
    int value_stride; // head_dim rounded up to 16
    float* scores; // scratch [queries][kKeySplit]
    float* const* out; // [queries] of [2 + value_stride]: largest score, sum of exponentials, unnormalised values.
                       // At 0 keys only the sum is written.
};

struct Kernels {
    SimdLevel level;
    int row_tile; // largest RowTile

    // Stripes first ... first + count - 1 of `weights` times all rows of `input`: out [count][rows][16].
    void (*matmul)(const PackedLinear& weights, std::int64_t first, std::int64_t count, const Input& input, float* out);

    // Row `row` of `input` from x, `features` values; gather as in PackedLinear (may be null), scratch [blocks * 32].
    void (*quantise)(const float* x, const std::int32_t* gather, std::int64_t row, const Input& input, float* scratch);
    // out = x / sqrt(mean(x^2) + eps) * weight. Returns the sum of squares.
    float (*norm)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
    void (*siluTimes)(const float* gate, const float* up, std::int64_t n, float* out); // n a multiple of 16

    void (*attend)(const Attend& a);
    // Adds one result of attend() to another: into = into + from. Both [2 + value_stride].
    void (*merge)(float* into, const float* from, int value_stride);

    void (*toHalf)(const float* x, std::int64_t n, std::uint16_t* out); // n a multiple of 16
    std::uint64_t (*readAll)(const std::byte* data, std::int64_t bytes); // xor of all; measures bandwidth
};

const Kernels& kernels(SimdLevel level); // the widest of at most this level that the build has

} // namespace puna
