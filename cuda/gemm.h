// Packed matrices times many tokens (prefill, and decode of more than 8): y = W x on tensor cores.
//
// A block computes 128 outputs for 32, 64 or 128 tokens; every warp unpacks its own weights in registers, once for all
// of the block's tokens, and rounds them to half as the format defines them. Sums are float32. Cost: 2 n k rows
// operations; weights are read once per 128 tokens.
#pragma once

#include "cuda/packed_matrix.h"

#include <cuda_fp16.h>

namespace puna::cuda {

struct GemmArguments {
    PackedMatrix m[3];
    int matrices;
    const __half* x[3]; // of each matrix: [rows, x_stride], in stored order, zeros behind k up to gemmInputs(k)
    int x_stride;
    int rows;
    const unsigned* row_max; // set: x was divided by powers of two that follow from these
    float* out; // [rows, out_stride]
    int base[3]; // first column of each matrix
    int out_stride;
    bool add; // to what is there
};

constexpr std::int64_t gemmInputs(std::int64_t k)
{
    return (k + 63) / 64 * 64 + 64;
}

cudaError_t prepareGemm();
cudaError_t gemm(const GemmArguments& arguments, cudaStream_t stream);

} // namespace puna::cuda
