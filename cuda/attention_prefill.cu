// Prefill attention: RoPE and the append to the cache as a pass of their own, then FlashAttention-2 (Dao 2023): a block
// takes 64 queries of one head, 16 per warp, and walks over the keys 64 at a time with a running softmax, the next
// tile's copies in flight. And the plain kernel: one block per query and head, any head size.

#include "cuda/attention.h"
#include "cuda/launch.h"
#include "cuda/ptx.cuh"
#include "cuda/rope.cuh"

namespace puna::cuda {

cudaError_t prepareDecodeAttention(int head_dim);

namespace {

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kKeys = 64; // of a tile

__global__ void ropeKernel(const __grid_constant__ AttentionArguments a)
{
    extern __shared__ float2 turns[];
    const int row = static_cast<int>(blockIdx.x);
    const int position = a.positions[row];
    const int d_head = a.cache.head_dim;
    for (int i = static_cast<int>(threadIdx.x); i < a.pairs; i += static_cast<int>(blockDim.x))
        turns[i] = rotation(position, a.frequencies[i]);
    __syncthreads();
    const bool interleaved = a.style == RopeStyle::interleaved;
    const float* qkv = a.qkv + static_cast<std::int64_t>(row) * a.qkv_stride;
    const PageId page = a.tables[static_cast<std::int64_t>(a.sequence[row]) * a.max_pages + position / kPageSize];
    const int kv = a.cache.n_kv_heads;
    for (int i = static_cast<int>(threadIdx.x); i < (a.n_heads + 2 * kv) * d_head; i += static_cast<int>(blockDim.x)) {
        const int h = i / d_head;
        const int d = i % d_head;
        if (h < a.n_heads) {
            const float* head = qkv + h * d_head;
            const float v = rotated([&](int e) { return head[e]; }, turns, a.pairs, interleaved, d);
            a.q[static_cast<std::int64_t>(row) * a.n_heads * d_head + i] = __float2half_rn(v * (a.scale * kLog2e));
        } else if (h < a.n_heads + kv) {
            const float* head = qkv + a.key_base + (h - a.n_heads) * d_head;
            const float v = rotated([&](int e) { return head[e]; }, turns, a.pairs, interleaved, d);
            a.cache.head(page, a.layer, 0, h - a.n_heads)[position % kPageSize * d_head + d] = __float2half_rn(v);
        } else {
            const int v_head = h - a.n_heads - kv;
            a.cache.head(page, a.layer, 1, v_head)[position % kPageSize * d_head + d] =
                __float2half_rn(qkv[a.value_base + v_head * d_head + d]);
        }
    }
}

template <int D> constexpr int kStride = D + 8;
template <int D> constexpr int kPrefillBytes = 2 * 2 * kKeys* kStride<D> * 2;

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    prefillKernel(const __grid_constant__ AttentionArguments a, const QueryTile* tiles)
{
    extern __shared__ __align__(128) char shared[];
    const int tid = static_cast<int>(threadIdx.x);
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int g = lane >> 2;
    const int t = lane & 3;
    const int matrix = lane >> 3;
    const QueryTile tile = tiles[blockIdx.x];
    const int h = static_cast<int>(blockIdx.y);
    const int kv_head = h / (a.n_heads / a.cache.n_kv_heads);
    const PageId* pages = a.tables + static_cast<std::int64_t>(a.sequence[tile.row]) * a.max_pages;
    const int length = tile.position + tile.count; // keys that the last query sees
    const int n_tiles = (length + kKeys - 1) / kKeys;

    const auto keyTile = [&](int i) { return reinterpret_cast<__half*>(shared) + (i & 1) * 2 * kKeys * kStride<D>; };
    const auto requestTile = [&](int i) {
        if (i < n_tiles) {
            const int key = i * kKeys;
            const PageId page = pages[key / kPageSize];
            __half* k_to = keyTile(i);
            __half* v_to = k_to + kKeys * kStride<D>;
            const __half* k_from = a.cache.head(page, a.layer, 0, kv_head) + key % kPageSize * D;
            const __half* v_from = a.cache.head(page, a.layer, 1, kv_head) + key % kPageSize * D;
            constexpr int kPieces = D / 8;
            for (int p = tid; p < kKeys * kPieces; p += kThreads) {
                const int r = p / kPieces;
                const int at = r * kStride<D> + p % kPieces * 8;
                if (key + r < length) {
                    copyAsync16(sharedAddress(k_to + at), k_from + p * 8);
                    copyAsync16(sharedAddress(v_to + at), v_from + p * 8);
                } else {
                    *reinterpret_cast<uint4*>(v_to + at) = make_uint4(0, 0, 0, 0);
                }
            }
        }
        commitCopies();
    };
    requestTile(0);

    // Rows g and g + 8 of the warp's 16 queries, straight into registers.
    uint32_t q[D / 16][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int index = min(warp * 16 + g + 8 * r, tile.count - 1);
        const __half* from = a.q + (static_cast<std::int64_t>(tile.row + index) * a.n_heads + h) * D;
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            q[d][r] = *reinterpret_cast<const uint32_t*>(from + d * 16 + 2 * t);
            q[d][r + 2] = *reinterpret_cast<const uint32_t*>(from + d * 16 + 8 + 2 * t);
        }
    }

    float out[D / 8][4] = {};
    float largest[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0.0f, 0.0f};
    for (int i = 0; i < n_tiles; ++i) {
        requestTile(i + 1);
        waitCopies<1>();
        __syncthreads();
        const __half* k_tile = keyTile(i);
        const __half* v_tile = k_tile + kKeys * kStride<D>;
        float s[kKeys / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
#pragma unroll
            for (int n = 0; n < kKeys / 16; ++n) {
                uint32_t kb[4];
                ldmatrix4(kb,
                    sharedAddress(
                        k_tile + (n * 16 + (matrix >> 1) * 8 + (lane & 7)) * kStride<D> + d * 16 + (matrix & 1) * 8));
                mma(s[2 * n], q[d][0], q[d][1], q[d][2], q[d][3], kb[0], kb[1]);
                mma(s[2 * n + 1], q[d][0], q[d][1], q[d][2], q[d][3], kb[2], kb[3]);
            }
        const int key = i * kKeys;
        const int seen = tile.position + warp * 16 + g; // last key that row g sees
        if (key + kKeys > tile.position + warp * 16 + 1 || key + kKeys > length) {
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int at = key + n * 8 + 2 * t + (j & 1);
                    if (at > seen + (j & 2 ? 8 : 0) || at >= length)
                        s[n][j] = -INFINITY;
                }
        }
        float scale[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float top = largest[r];
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
                top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            scale[r] = exp2f(largest[r] - top); // every row sees its first key in the first tile, so top is finite
            largest[r] = top;
            sum[r] *= scale[r];
        }
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                s[n][j] = exp2f(s[n][j] - largest[j >> 1]);
                sum[j >> 1] += s[n][j];
            }
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                out[d][j] *= scale[j >> 1];
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
            const uint32_t p0 = bits(__floats2half2_rn(s[2 * n][0], s[2 * n][1]));
            const uint32_t p1 = bits(__floats2half2_rn(s[2 * n][2], s[2 * n][3]));
            const uint32_t p2 = bits(__floats2half2_rn(s[2 * n + 1][0], s[2 * n + 1][1]));
            const uint32_t p3 = bits(__floats2half2_rn(s[2 * n + 1][2], s[2 * n + 1][3]));
#pragma unroll
            for (int d = 0; d < D / 16; ++d) {
                uint32_t vb[4];
                ldmatrix4Transposed(vb,
                    sharedAddress(
                        v_tile + (n * 16 + (matrix & 1) * 8 + (lane & 7)) * kStride<D> + d * 16 + (matrix >> 1) * 8));
                mma(out[2 * d], p0, p1, p2, p3, vb[0], vb[1]);
                mma(out[2 * d + 1], p0, p1, p2, p3, vb[2], vb[3]);
            }
        }
        __syncthreads(); // before the tile is overwritten
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
        sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
        const int index = warp * 16 + g + 8 * r;
        if (index >= tile.count)
            continue;
        __half* to = a.out16 + static_cast<std::int64_t>(tile.row + index) * a.out_stride;
        const float inverse = 1.0f / sum[r];
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int e = h * D + d * 8 + 2 * t + j;
                to[a.place ? a.place[e] : e] = __float2half_rn(out[d][2 * r + j] * inverse);
            }
    }
}

__global__ void __launch_bounds__(kThreads) plainKernel(const __grid_constant__ AttentionArguments a)
{
    extern __shared__ float plain[]; // scores [kThreads], reduction [kWarps], q [head_dim], out [head_dim]
    const int tid = static_cast<int>(threadIdx.x);
    const int d_head = a.cache.head_dim;
    const int row = static_cast<int>(blockIdx.x);
    const int h = static_cast<int>(blockIdx.y);
    const int kv_head = h / (a.n_heads / a.cache.n_kv_heads);
    float* reduction = plain + kThreads;
    float* q = reduction + kWarps;
    float* out = q + d_head;
    const int length = a.positions[row] + 1;
    const PageId* pages = a.tables + static_cast<std::int64_t>(a.sequence[row]) * a.max_pages;
    for (int d = tid; d < d_head; d += kThreads) {
        q[d] = __half2float(a.q[(static_cast<std::int64_t>(row) * a.n_heads + h) * d_head + d]);
        out[d] = 0.0f;
    }
    __syncthreads();
    float largest = -INFINITY;
    float total = 0.0f;
    for (int first = 0; first < length; first += kThreads) { // a tile lies in one page
        const PageId page = pages[first / kPageSize];
        float s = -INFINITY;
        if (first + tid < length) {
            const __half* k = a.cache.head(page, a.layer, 0, kv_head) + (first + tid) % kPageSize * d_head;
            s = 0.0f;
            for (int d = 0; d < d_head; ++d)
                s = fmaf(q[d], __half2float(k[d]), s);
        }
        const float top_of_warp = warpMax(s);
        if ((tid & 31) == 0)
            reduction[tid >> 5] = top_of_warp;
        __syncthreads();
        float top = largest;
        for (int w = 0; w < kWarps; ++w)
            top = fmaxf(top, reduction[w]);
        plain[tid] = exp2f(s - top);
        __syncthreads();
        const float scale = exp2f(largest - top);
        largest = top;
        float sum = 0.0f; // the same in every thread
        for (int i = 0; i < kThreads; ++i)
            sum += plain[i];
        total = total * scale + sum;
        const __half* v = a.cache.head(page, a.layer, 1, kv_head) + first % kPageSize * d_head;
        const int count = min(kThreads, length - first);
        for (int d = tid; d < d_head; d += kThreads) {
            float o = out[d] * scale;
            for (int i = 0; i < count; ++i)
                o = fmaf(plain[i], __half2float(v[i * d_head + d]), o);
            out[d] = o;
        }
        __syncthreads();
    }
    for (int d = tid; d < d_head; d += kThreads) {
        const int e = h * d_head + d;
        const std::int64_t to = static_cast<std::int64_t>(row) * a.out_stride + (a.place ? a.place[e] : e);
        if (a.out16)
            a.out16[to] = __float2half_rn(out[d] / total);
        else
            a.out[to] = out[d] / total;
    }
}

template <class F> cudaError_t withHeadSize(int head_dim, const F& f)
{
    switch (head_dim) {
    case 32:
        return f(prefillKernel<32>, kPrefillBytes<32>);
    case 64:
        return f(prefillKernel<64>, kPrefillBytes<64>);
    case 80:
        return f(prefillKernel<80>, kPrefillBytes<80>);
    case 96:
        return f(prefillKernel<96>, kPrefillBytes<96>);
    case 128:
        return f(prefillKernel<128>, kPrefillBytes<128>);
    default:
        return f(prefillKernel<256>, kPrefillBytes<256>);
    }
}

} // namespace

bool hasTensorAttention(int head_dim)
{
    return head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

cudaError_t prepareAttention(int head_dim)
{
    if (!hasTensorAttention(head_dim))
        return cudaSuccess;
    const cudaError_t error = prepareDecodeAttention(head_dim);
    if (error != cudaSuccess)
        return error;
    return withHeadSize(head_dim, [](auto kernel, int bytes) {
        return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    });
}

cudaError_t rope(const AttentionArguments& a, cudaStream_t stream)
{
    return launch(Overlap::no, ropeKernel, static_cast<unsigned>(a.rows), 256, a.pairs * 8, stream, a);
}

cudaError_t prefillAttention(const AttentionArguments& a, const QueryTile* tiles, int n_tiles, cudaStream_t stream)
{
    return withHeadSize(a.cache.head_dim, [&](auto kernel, int bytes) {
        return launch(Overlap::no, kernel, dim3(static_cast<unsigned>(n_tiles), static_cast<unsigned>(a.n_heads)),
            kThreads, bytes, stream, a, tiles);
    });
}

cudaError_t plainAttention(const AttentionArguments& a, cudaStream_t stream)
{
    return launch(Overlap::no, plainKernel, dim3(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.n_heads)),
        kThreads, (kThreads + kWarps + 2 * a.cache.head_dim) * 4, stream, a);
}

} // namespace puna::cuda
