// Attention over the paged KV cache, and what brings new keys and values into it.
//
// The cache: keys and values are halves, [256 tokens, head_dim] for each page, layer, kind (keys, values) and key/value
// head, in this order; see KvCache::head. Scores and sums are float32.
//   decode   one new token per sequence: split over the context (split-KV), RoPE and the append fused in, one launch
//   prefill  many: rope(), then FlashAttention-2 on tensor cores (Dao 2023)
//   plain    head sizes that the tensor-core kernels do not know
// Cost of decode: the bytes of the context's keys and values, once.
#pragma once

#include "cuda/device.h"
#include "engine/base/model.h"
#include "engine/base/types.h"

#include <cuda_fp16.h>

namespace puna::cuda {

struct KvCache {
    __half* data;
    std::int32_t n_layers, n_kv_heads, head_dim;

    __host__ __device__ std::int64_t headSize() const { return std::int64_t {kPageSize} * head_dim; }
    __host__ __device__ std::int64_t pageSize() const { return headSize() * n_kv_heads * 2 * n_layers; }
    // kind: 0 keys, 1 values
    __host__ __device__ __half* head(PageId page, int layer, int kind, int h) const
    {
        return data + page * pageSize() + ((std::int64_t {layer} * 2 + kind) * n_kv_heads + h) * headSize();
    }
};

struct AttentionArguments {
    KvCache cache;
    int layer;
    int rows; // new tokens
    int n_heads;
    float scale; // of the scores
    // Of each row:
    const float* qkv; // [rows, qkv_stride]: queries, keys at key_base, values at value_base, not yet rotated
    int qkv_stride, key_base, value_base;
    const std::int32_t* positions;
    const std::int32_t* sequence; // index into tables
    const PageId* tables; // [sequences, max_pages]
    int max_pages;
    // RoPE:
    const double* frequencies; // [pairs]
    int pairs;
    RopeStyle style;
    // Output, one of the two: [rows, out_stride], element i of the heads at place[i] (null: i).
    float* out;
    __half* out16;
    int out_stride;
    const std::uint16_t* place;
    // Workspaces:
    __half* q; // [rows, n_heads * head_dim], rotated and scaled (prefill, plain)
    float* partials; // decode: partialFloats()
    unsigned* counters; // decode: rows x key/value heads x tiles, zero between launches
};

bool hasTensorAttention(int head_dim);
int splitKeys(int head_dim); // keys of one split in decode
int mostSplits(int head_dim); // that one launch can add up
std::int64_t partialFloats(int rows, std::int64_t splits, int n_heads, int head_dim);
cudaError_t prepareAttention(int head_dim);

cudaError_t decodeAttention(const AttentionArguments& a, int splits, cudaStream_t stream);

// Rotates queries and keys, writes keys and values into their pages.
cudaError_t rope(const AttentionArguments& a, cudaStream_t stream);

// Up to 64 consecutive rows of one sequence.
struct QueryTile {
    std::int32_t row, count, position; // of the first
};
cudaError_t prefillAttention(const AttentionArguments& a, const QueryTile* tiles, int n_tiles, cudaStream_t stream);
cudaError_t plainAttention(const AttentionArguments& a, cudaStream_t stream);

} // namespace puna::cuda
