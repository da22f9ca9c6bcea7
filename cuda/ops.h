// The small operations around the matrices: embedding, norm, gated product, sampling, pages.
#pragma once

#include "cuda/attention.h"
#include "engine/base/view.h"

#include <cuda_fp16.h>

namespace puna::cuda {

// residual[r, :] = embedding[tokens[r], :]; zeroes what the step's kernels accumulate into.
struct EmbedArguments {
    const std::uint8_t* table; // as in the file
    DType dtype;
    std::int64_t row_bytes;
    int hidden;
    const std::int32_t* tokens;
    float* residual;
    unsigned* clear; // of row r: clear[i * clear_stride + r], i < clear_count
    int clear_count, clear_stride;
    unsigned long long* best; // [rows]
};
cudaError_t embed(const EmbedArguments& a, int rows, cudaStream_t stream);

// out[r, i] = half(x[rows[r], perm[i]] / rms * gamma[perm[i]]), zeros from k to out_stride; rows null: r.
cudaError_t normRows(const float* x, int x_stride, const std::int32_t* source_rows, int rows, int k, const float* gamma,
    float eps, const std::uint16_t* perm, __half* out, int out_stride, cudaStream_t stream);

// out[r, place[i]] = half(silu(gate[r, i]) * up[r, i] / 2^e), e from row_max[r], which it computes.
cudaError_t gatedRows(const float* gate, const float* up, int stride, int rows, int k, const std::uint16_t* place,
    __half* out, int out_stride, unsigned* row_max, cudaStream_t stream);

// Sampling. Of each row; greedy where the temperature is 0.
struct SamplingRow {
    float temperature, top_p, min_p;
    std::int32_t top_k;
    std::uint64_t seed, step;
    std::int32_t done; // tokens drawn so far: where the next one goes
    std::int32_t enabled;
};
// tokens[r], drawn from logits [rows, stride], becomes the next input at position + 1 and goes to out[r, done]; -1
// where the logits are not finite. best: the largest logit and its index, from the head's epilogue.
struct SampleArguments {
    const float* logits;
    int stride, vocab;
    const unsigned long long* best;
    SamplingRow* rows;
    std::int32_t* tokens;
    std::int32_t* positions;
    std::int32_t* out;
    int out_stride;
};
cudaError_t sample(const SampleArguments& a, int rows, cudaStream_t stream);
// best[r] of given logits, for heads that did not compute it.
cudaError_t largestLogits(
    const float* logits, int stride, int vocab, int rows, unsigned long long* best, cudaStream_t stream);

// Pages: the first `tokens` of each layer and head; made-up numbers in -1 ... 1.
cudaError_t copyPage(const KvCache& cache, PageId from, PageId to, int tokens, cudaStream_t stream);
cudaError_t fillPage(const KvCache& cache, PageId page, std::uint64_t seed, cudaStream_t stream);

} // namespace puna::cuda
