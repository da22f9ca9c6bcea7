// One stage of a layer for 1 to 8 tokens: input -> matrix (or two, or three) -> epilogue, one launch.
//
// Cost: the bytes of the packed weights, read once; the input (4 bytes per element) once per block from L2. Sums have a
// fixed order for a given grid, and a token's column does not see the others: its result does not depend on how many
// tokens run beside it.
#pragma once

#include "cuda/packed_matrix.h"

namespace puna::cuda {

constexpr int kMatvecRows = 8;

enum class Epilogue : std::int32_t {
    store, // out[row, n + base] = y
    add, // out[row, n] += y
    gated, // matrices gate and up: out[row, place[n]] = silu(gate) * up; row_max: the largest of |out| as bits
    logits, // out = y; best[row] = max of (ordered y, ~n)
};

struct MatvecArguments {
    PackedMatrix m[3];
    int matrices;
    int base[3]; // store: first column of each in `out`
    int rows; // 1 ... 8
    const float* x; // [rows, x_stride]
    int x_stride;
    const float* gamma; // set: x is normalised (RMSNorm, weight gamma), then permuted. Null: x is in stored order
    float eps;
    const unsigned* row_max; // set: x is divided by a power of two near this before it is rounded to half
    Epilogue epilogue;
    float* out;
    int out_stride;
    const std::uint16_t* place; // gated: stored position of output n in the next matrix; null: n
    unsigned* out_max; // gated, [rows]
    unsigned long long* best; // logits, [rows]
    int stripes_of_block; // set by matvec()
};

// Rows that one launch can take of these matrices: their inputs have to fit into shared memory.
int matvecRows(std::int64_t k, bool normed, int code_bytes, int scale_bytes);

cudaError_t prepareMatvec(); // once per device
cudaError_t matvec(MatvecArguments arguments, int processors, cudaStream_t stream);

} // namespace puna::cuda
