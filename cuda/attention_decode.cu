// Split-KV decode attention. A block: one new token, one key/value head (and up to 16 of the query heads that share
// it: the rows of the MMA), one split of the context; its four warps take a quarter of the split each. Splits have a
// fixed size, so that sums do not depend on what runs beside. The last block of a head adds the splits up, in order.
// A split is read with all its copies in flight at once: 128 KiB at head size 128.
// Source: kernel-design 10; Flash-Decoding (Dao et al. 2023).

#include "cuda/attention.h"
#include "cuda/launch.h"
#include "cuda/ptx.cuh"
#include "cuda/rope.cuh"

#include <algorithm>

namespace puna::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kRows = 16; // query heads of a block

template <int D> struct Shape {
    static constexpr int keys = D > 128 ? 32 : 64; // of a warp
    static constexpr int split = keys * kWarps;
    static constexpr int stride = D + 8; // halves: rows of 8 x 8 matrices in different banks
    static constexpr int q_at = 0;
    static constexpr int turns_at = kRows * stride * 2;
    static constexpr int raw_at = turns_at + D / 2 * 8; // queries, key and value of the new token, as they come
    static constexpr int tile_at = (raw_at + (kRows + 2) * D * 4 + 127) / 128 * 128;
    static constexpr int tile = keys * stride * 2; // bytes of a warp's keys or values
    static constexpr int bytes = tile_at + kWarps * 2 * tile;
    static_assert(kWarps * kRows * (D + 2) * 4 <= kWarps * 2 * tile); // partial results, over the tiles
};

template <int D>
__global__ void __launch_bounds__(kWarps * 32, 1)
    decodeKernel(const __grid_constant__ AttentionArguments a, int max_splits)
{
    using S = Shape<D>;
    extern __shared__ __align__(128) char shared[];
    const int tid = static_cast<int>(threadIdx.x);
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int g = lane >> 2;
    const int t = lane & 3;
    const int group = a.n_heads / a.cache.n_kv_heads;
    const int tiles = (group + kRows - 1) / kRows;
    const int kv_head = static_cast<int>(blockIdx.y) / tiles;
    const int first_head = static_cast<int>(blockIdx.y) % tiles * kRows; // in the group
    const int heads = min(group - first_head, kRows);
    const int row = static_cast<int>(blockIdx.z);
    const int split = static_cast<int>(blockIdx.x);
    startDependents();
    waitForPredecessors();

    const int position = a.positions[row];
    const int splits = position / S::split + 1;
    if (split >= splits)
        return;
    const int first_key = split * S::split + warp * S::keys;
    const int keys = min(max(position + 1 - first_key, 0), S::keys);
    const PageId page =
        a.tables[static_cast<std::int64_t>(a.sequence[row]) * a.max_pages + split * S::split / kPageSize];
    auto* k_tile = reinterpret_cast<__half*>(shared + S::tile_at + warp * 2 * S::tile);
    auto* v_tile = k_tile + S::keys * S::stride;
    const int in_page = first_key % kPageSize;
    const __half* k_from = a.cache.head(page, a.layer, 0, kv_head) + in_page * D;
    const __half* v_from = a.cache.head(page, a.layer, 1, kv_head) + in_page * D;
    const int fresh = position - first_key; // the new token's key, if it is in this warp's part
    constexpr int kPieces = D / 8;
    for (int i = lane; i < keys * kPieces; i += 32)
        if (i / kPieces != fresh)
            copyAsync16(sharedAddress(k_tile + i / kPieces * S::stride + i % kPieces * 8), k_from + i * 8);
    commitCopies();
    for (int i = lane; i < keys * kPieces; i += 32)
        if (i / kPieces != fresh)
            copyAsync16(sharedAddress(v_tile + i / kPieces * S::stride + i % kPieces * 8), v_from + i * 8);
    commitCopies();
    // Values that no key belongs to are multiplied by zero, and must be finite.
    for (int i = keys * kPieces + lane; i < (keys + 15) / 16 * 16 * kPieces; i += 32)
        *reinterpret_cast<uint4*>(v_tile + i / kPieces * S::stride + i % kPieces * 8) = make_uint4(0, 0, 0, 0);

    auto* turns = reinterpret_cast<float2*>(shared + S::turns_at);
    auto* raw = reinterpret_cast<float*>(shared + S::raw_at);
    const float* qkv = a.qkv + static_cast<std::int64_t>(row) * a.qkv_stride;
    const float* queries = qkv + (kv_head * group + first_head) * D;
    const float* key = qkv + a.key_base + kv_head * D;
    const float* value = qkv + a.value_base + kv_head * D;
#pragma unroll 6
    for (int i = tid; i < (heads + 2) * D; i += kWarps * 32)
        raw[i] = i < heads * D ? queries[i] : i < (heads + 1) * D ? key[i - heads * D] : value[i - (heads + 1) * D];
    for (int i = tid; i < a.pairs; i += kWarps * 32)
        turns[i] = rotation(position, a.frequencies[i]);
    __syncthreads();
    const bool interleaved = a.style == RopeStyle::interleaved;
    auto* q = reinterpret_cast<__half*>(shared + S::q_at);
    constexpr float kLog2e = 1.4426950408889634f;
    const float scale = a.scale * kLog2e;
    for (int i = tid; i < kRows * D; i += kWarps * 32) {
        const int r = i / D;
        float v = 0.0f;
        if (r < heads)
            v = rotated([&](int d) { return raw[r * D + d]; }, turns, a.pairs, interleaved, i % D) * scale;
        q[r * S::stride + i % D] = __float2half_rn(v);
    }
    if (fresh >= 0 && fresh < S::keys) {
        __half* k_to = const_cast<__half*>(k_from) + fresh * D;
        __half* v_to = const_cast<__half*>(v_from) + fresh * D;
        const float* raw_key = raw + heads * D;
        for (int d = lane; d < D; d += 32) {
            const __half k =
                __float2half_rn(rotated([&](int e) { return raw_key[e]; }, turns, a.pairs, interleaved, d));
            const __half v = __float2half_rn(raw_key[D + d]);
            k_tile[fresh * S::stride + d] = k;
            v_tile[fresh * S::stride + d] = v;
            if (first_head == 0) {
                k_to[d] = k;
                v_to[d] = v;
            }
        }
    }
    __syncthreads();

    float out[D / 8][4] = {};
    float largest[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0.0f, 0.0f};
    waitCopies<1>();
    __syncwarp();
    float s[S::keys / 8][4] = {};
    const int matrix = lane >> 3;
    if (keys > 0) {
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            uint32_t qa[4];
            // A: rows 0-7 | 8-15, then the other 8 dimensions
            ldmatrix4(qa, sharedAddress(q + ((matrix & 1) * 8 + (lane & 7)) * S::stride + d + (matrix >> 1) * 8));
#pragma unroll
            for (int n = 0; n < S::keys / 16; ++n) {
                uint32_t kb[4];
                ldmatrix4(kb,
                    sharedAddress(
                        k_tile + (n * 16 + (matrix >> 1) * 8 + (lane & 7)) * S::stride + d + (matrix & 1) * 8));
                mma(s[2 * n], qa[0], qa[1], qa[2], qa[3], kb[0], kb[1]);
                mma(s[2 * n + 1], qa[0], qa[1], qa[2], qa[3], kb[2], kb[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < S::keys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (n * 8 + 2 * t + (i & 1) >= keys)
                    s[n][i] = -INFINITY;
                largest[i >> 1] = fmaxf(largest[i >> 1], s[n][i]);
            }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 1));
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 2));
        }
#pragma unroll
        for (int n = 0; n < S::keys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                s[n][i] = exp2f(s[n][i] - largest[i >> 1]);
                sum[i >> 1] += s[n][i];
            }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
            sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        }
        waitCopies<0>();
        __syncwarp();
#pragma unroll
        for (int n = 0; n < S::keys / 16; ++n) {
            if (n * 16 >= keys)
                break;
            const uint32_t p0 = bits(__floats2half2_rn(s[2 * n][0], s[2 * n][1]));
            const uint32_t p1 = bits(__floats2half2_rn(s[2 * n][2], s[2 * n][3]));
            const uint32_t p2 = bits(__floats2half2_rn(s[2 * n + 1][0], s[2 * n + 1][1]));
            const uint32_t p3 = bits(__floats2half2_rn(s[2 * n + 1][2], s[2 * n + 1][3]));
#pragma unroll
            for (int d = 0; d < D; d += 16) {
                uint32_t vb[4];
                ldmatrix4Transposed(vb,
                    sharedAddress(
                        v_tile + (n * 16 + (matrix & 1) * 8 + (lane & 7)) * S::stride + d + (matrix >> 1) * 8));
                mma(out[d / 8], p0, p1, p2, p3, vb[0], vb[1]);
                mma(out[d / 8 + 1], p0, p1, p2, p3, vb[2], vb[3]);
            }
        }
    }
    waitCopies<0>();
    __syncthreads(); // the tiles are free

    // [warp][16][D + 2]: output, largest score, sum
    auto* partial = reinterpret_cast<float*>(shared + S::tile_at);
    float* mine = partial + warp * kRows * (D + 2);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float* to = mine + (g + 8 * h) * (D + 2);
#pragma unroll
        for (int d = 0; d < D / 8; ++d) {
            to[d * 8 + 2 * t] = out[d][2 * h];
            to[d * 8 + 2 * t + 1] = out[d][2 * h + 1];
        }
        if (t == 0) {
            to[D] = largest[h];
            to[D + 1] = sum[h];
        }
    }
    __syncthreads();
    // [row][head][split][D + 2]
    const auto place = [&](int r) {
        const std::int64_t head = kv_head * group + first_head + r;
        return a.partials + ((static_cast<std::int64_t>(row) * a.n_heads + head) * max_splits + split) * (D + 2);
    };
    const auto write = [&](int r, int d, float v) {
        const int i = (kv_head * group + first_head + r) * D + d;
        const std::int64_t to = static_cast<std::int64_t>(row) * a.out_stride + (a.place ? a.place[i] : i);
        if (a.out16)
            a.out16[to] = __float2half_rn(v);
        else
            a.out[to] = v;
    };
    for (int i = tid; i < heads * D; i += kWarps * 32) {
        const int r = i / D;
        const int d = i % D;
        float top = -INFINITY;
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
            top = fmaxf(top, partial[(w * kRows + r) * (D + 2) + D]);
        float total = 0.0f;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const float* from = partial + (w * kRows + r) * (D + 2);
            const float weight = exp2f(from[D] - top);
            total = fmaf(from[D + 1], weight, total);
            v = fmaf(from[d], weight, v);
        }
        if (splits == 1) {
            write(r, d, v / total);
            continue;
        }
        float* to = place(r);
        to[d] = v;
        if (d == 0) {
            to[D] = top;
            to[D + 1] = total;
        }
    }
    if (splits == 1)
        return;
    __threadfence();
    __syncthreads();
    __shared__ bool last;
    unsigned* counter = a.counters + row * gridDim.y + blockIdx.y;
    if (tid == 0)
        last = atomicAdd(counter, 1u) == static_cast<unsigned>(splits) - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    if (tid == 0)
        *counter = 0;
    // Weights of the splits, then their sum, both in order.
    const float* from =
        a.partials + (static_cast<std::int64_t>(row) * a.n_heads + kv_head * group + first_head) * max_splits * (D + 2);
    auto* weights = reinterpret_cast<float*>(shared + S::tile_at); // [heads][splits]
    for (int i = tid; i < heads * splits; i += kWarps * 32)
        weights[i] = __ldcg(from + (static_cast<std::int64_t>(i / splits) * max_splits + i % splits) * (D + 2) + D);
    __syncthreads();
    for (int r = warp; r < heads; r += kWarps) {
        float top = -INFINITY;
        for (int i = lane; i < splits; i += 32)
            top = fmaxf(top, weights[r * splits + i]);
        top = warpMax(top);
        float total = 0.0f;
        for (int i = lane; i < splits; i += 32) {
            const float weight = exp2f(weights[r * splits + i] - top);
            weights[r * splits + i] = weight;
            total =
                fmaf(__ldcg(from + (static_cast<std::int64_t>(r) * max_splits + i) * (D + 2) + D + 1), weight, total);
        }
        total = warpSum(total);
        for (int i = lane; i < splits; i += 32)
            weights[r * splits + i] /= total;
    }
    __syncthreads();
    for (int i = tid; i < heads * D; i += kWarps * 32) {
        const float* column = from + static_cast<std::int64_t>(i / D) * max_splits * (D + 2) + i % D;
        const float* weight = weights + i / D * splits;
        float v = 0.0f;
#pragma unroll 16
        for (int j = 0; j < splits; ++j)
            v = fmaf(__ldcg(column + j * (D + 2)), weight[j], v);
        write(i / D, i % D, v);
    }
}

template <class F> auto withHeadSize(int head_dim, const F& f)
{
    switch (head_dim) {
    case 32:
        return f(Shape<32> {}, decodeKernel<32>);
    case 64:
        return f(Shape<64> {}, decodeKernel<64>);
    case 80:
        return f(Shape<80> {}, decodeKernel<80>);
    case 96:
        return f(Shape<96> {}, decodeKernel<96>);
    case 128:
        return f(Shape<128> {}, decodeKernel<128>);
    default:
        return f(Shape<256> {}, decodeKernel<256>);
    }
}

} // namespace

int splitKeys(int head_dim)
{
    return withHeadSize(head_dim, [](auto shape, auto) { return decltype(shape)::split; });
}

int mostSplits(int head_dim)
{
    return withHeadSize(head_dim, [](auto shape, auto) {
        using S = decltype(shape);
        return kWarps * 2 * S::tile / 4 / kRows;
    });
}

std::int64_t partialFloats(int rows, std::int64_t splits, int n_heads, int head_dim)
{
    return std::int64_t {rows} * n_heads * splits * (head_dim + 2);
}

cudaError_t prepareDecodeAttention(int head_dim)
{
    return withHeadSize(head_dim, [](auto shape, auto kernel) {
        return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, decltype(shape)::bytes);
    });
}

cudaError_t decodeAttention(const AttentionArguments& a, int splits, cudaStream_t stream)
{
    const int group = a.n_heads / a.cache.n_kv_heads;
    const int heads = a.cache.n_kv_heads * ((group + kRows - 1) / kRows);
    return withHeadSize(a.cache.head_dim, [&](auto shape, auto kernel) {
        return launch(Overlap::yes, kernel,
            dim3(static_cast<unsigned>(splits), static_cast<unsigned>(heads), static_cast<unsigned>(a.rows)),
            kWarps * 32, decltype(shape)::bytes, stream, a, splits);
    });
}

} // namespace puna::cuda
