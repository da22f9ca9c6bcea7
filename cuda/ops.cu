#include "cuda/ops.h"

#include "cuda/launch.h"
#include "cuda/ptx.cuh"

namespace puna::cuda {

namespace {

constexpr int kThreads = 256;

__device__ float decoded(const EmbedArguments& a, const std::uint8_t* row, int i)
{
    switch (a.dtype) {
    case DType::f32:
        return reinterpret_cast<const float*>(row)[i];
    case DType::f16:
        return __half2float(reinterpret_cast<const __half*>(row)[i]);
    case DType::bf16:
        return __uint_as_float(static_cast<std::uint32_t>(reinterpret_cast<const unsigned short*>(row)[i]) << 16);
    default:
        break;
    }
    const int bytes = a.dtype == DType::q4_0 ? 18 : a.dtype == DType::q4_1 ? 20 : 34;
    const std::uint8_t* block = row + i / 32 * bytes;
    const auto halfAt = [&](int at) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(block[at] | block[at + 1] << 8)));
    };
    const float scale = halfAt(0);
    if (a.dtype == DType::q8_0)
        return scale * static_cast<float>(static_cast<signed char>(block[2 + i % 32]));
    const std::uint8_t byte = block[(a.dtype == DType::q4_1 ? 4 : 2) + i % 16];
    const int code = i % 32 < 16 ? byte & 15 : byte >> 4;
    return a.dtype == DType::q4_1 ? scale * static_cast<float>(code) + halfAt(2) : scale * static_cast<float>(code - 8);
}

__global__ void embedKernel(const __grid_constant__ EmbedArguments a)
{
    startDependents();
    waitForPredecessors();
    const int row = static_cast<int>(blockIdx.x);
    const std::int64_t token = max(a.tokens[row], 0); // -1: the row has failed already
    for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += kThreads)
        a.residual[static_cast<std::int64_t>(row) * a.hidden + i] = decoded(a, a.table + token * a.row_bytes, i);
    for (int i = static_cast<int>(threadIdx.x); i < a.clear_count; i += kThreads)
        a.clear[i * a.clear_stride + row] = 0;
    if (threadIdx.x == 0 && a.best)
        a.best[row] = 0;
}

__device__ float blockSum(float v, float* shared)
{
    v = warpSum(v);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    float total = 0.0f;
    for (int i = 0; i < kThreads / 32; ++i)
        total += shared[i];
    __syncthreads();
    return total;
}

__global__ void normKernel(const float* x, int x_stride, const std::int32_t* source_rows, int k, const float* gamma,
    float eps, const std::uint16_t* perm, __half* out, int out_stride)
{
    extern __shared__ float raw[]; // [k]
    __shared__ float reduction[kThreads / 32];
    const int row = static_cast<int>(blockIdx.x);
    const float* from = x + static_cast<std::int64_t>(source_rows ? source_rows[row] : row) * x_stride;
    float squares = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) {
        const float v = from[i];
        squares = fmaf(v, v, squares);
        raw[i] = v * gamma[i];
    }
    const float inverse = rsqrtf(blockSum(squares, reduction) / static_cast<float>(k) + eps);
    __half* to = out + static_cast<std::int64_t>(row) * out_stride;
    for (int i = static_cast<int>(threadIdx.x); i < out_stride; i += kThreads)
        to[i] = __float2half_rn(i < k ? raw[perm ? perm[i] : i] * inverse : 0.0f);
}

__global__ void gatedKernel(const float* gate, const float* up, int stride, int k, const std::uint16_t* place,
    __half* out, int out_stride, unsigned* row_max)
{
    __shared__ unsigned largest;
    const std::int64_t row = blockIdx.x;
    const auto product = [&](int i) {
        const float v = gate[row * stride + i];
        return v / (1.0f + __expf(-v)) * up[row * stride + i];
    };
    if (threadIdx.x == 0)
        largest = 0;
    __syncthreads();
    unsigned mine = 0;
    for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads)
        mine = max(mine, __float_as_uint(fabsf(product(i))));
    atomicMax(&largest, __reduce_max_sync(~0u, mine));
    __syncthreads();
    const float scale = scaleDown(largest);
    __half* to = out + row * out_stride;
    for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads)
        to[place ? place[i] : i] = __float2half_rn(product(i) * scale);
    for (int i = k + static_cast<int>(threadIdx.x); i < out_stride; i += kThreads)
        to[i] = __float2half_rn(0.0f);
    if (threadIdx.x == 0)
        row_max[row] = largest;
}

// ---- sampling ------------------------------------------------------------------------------------------------------
// Order of the filters as in engine/sample/sampler.h. A filter is a lowest logit; it is found digit by digit (8 bits of
// the ordered float at a time) from a histogram of counts or of probabilities in fixed point: exact, and independent of
// the order of the additions. The draw is the largest of logit / T plus Gumbel noise, which is a sample of the softmax.

constexpr int kSampleThreads = 1024;
using Mass = unsigned long long;

__device__ Mass mass(float logit, float top, float temperature)
{
    return static_cast<Mass>(exp2f(38.0f + (logit - top) / temperature * 1.4426950408889634f));
}

// splitmix64
__device__ std::uint64_t mixed(std::uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// The lowest ordered logit such that those at or above it, within `floor`, reach `wanted` of `weight`.
template <class Weight>
__device__ std::uint32_t lowest(const float* logits, int vocab, std::uint32_t floor, Mass wanted, const Weight& weight,
    Mass* histogram, std::uint32_t* found)
{
    std::uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = static_cast<int>(threadIdx.x); i < 256; i += kSampleThreads)
            histogram[i] = 0;
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kSampleThreads) {
            const std::uint32_t key = ordered(logits[i]);
            if (key >= floor && (shift == 24 || key >> (shift + 8) == prefix))
                atomicAdd(histogram + (key >> shift & 255u), weight(logits[i]));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = 255;
            while (bin > 0 && histogram[bin] < wanted)
                wanted -= histogram[bin--];
            found[0] = prefix << 8 | static_cast<std::uint32_t>(bin);
            *reinterpret_cast<Mass*>(found + 2) = wanted;
        }
        __syncthreads();
        prefix = found[0];
        wanted = *reinterpret_cast<Mass*>(found + 2);
        __syncthreads();
    }
    return max(prefix, floor);
}

__global__ void __launch_bounds__(kSampleThreads) sampleKernel(const __grid_constant__ SampleArguments a)
{
    __shared__ Mass histogram[256];
    __shared__ __align__(16) std::uint32_t found[4];
    __shared__ unsigned long long chosen;
    startDependents();
    waitForPredecessors();
    const int row = static_cast<int>(blockIdx.x);
    const SamplingRow p = a.rows[row];
    const unsigned long long best = a.best[row];
    const float* logits = a.logits + static_cast<std::int64_t>(row) * a.stride;
    auto token = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
    const auto top_key = static_cast<std::uint32_t>(best >> 32);
    const bool finite = top_key < 0xff800000u; // +infinity and NaN order at or above this
    if (finite && p.temperature > 0.0f) {
        const float top = logits[token];
        std::uint32_t floor = 0;
        if (p.top_k > 0 && p.top_k < a.vocab)
            floor = lowest(
                logits, a.vocab, 0, static_cast<Mass>(p.top_k), [](float) { return Mass {1}; }, histogram, found);
        if (p.top_p < 1.0f) {
            const auto weight = [&](float logit) { return mass(logit, top, p.temperature); };
            if (threadIdx.x == 0)
                histogram[0] = 0;
            __syncthreads();
            Mass total = 0;
            for (int i = static_cast<int>(threadIdx.x); i < a.vocab; i += kSampleThreads)
                if (ordered(logits[i]) >= floor)
                    total += weight(logits[i]);
            atomicAdd(histogram, total);
            __syncthreads();
            total = histogram[0];
            __syncthreads();
            const auto wanted = static_cast<Mass>(static_cast<double>(p.top_p) * static_cast<double>(total));
            floor = lowest(logits, a.vocab, floor, max(wanted, Mass {1}), weight, histogram, found);
        }
        if (p.min_p > 0.0f)
            floor = max(floor, ordered(top + p.temperature * logf(p.min_p)));
        floor = min(floor, top_key);
        if (threadIdx.x == 0)
            chosen = 0;
        __syncthreads();
        unsigned long long mine = 0;
        const std::uint64_t key = mixed(p.seed ^ mixed(p.step));
        for (int i = static_cast<int>(threadIdx.x); i < a.vocab; i += kSampleThreads) {
            if (ordered(logits[i]) < floor)
                continue;
            const std::uint64_t random = mixed(key + static_cast<std::uint64_t>(i));
            const float u = (static_cast<float>(random >> 40) + 0.5f) * 0x1p-24f; // in (0, 1)
            const float v = (logits[i] - top) / p.temperature - logf(-logf(u));
            mine = max(mine, static_cast<unsigned long long>(ordered(v)) << 32 | ~static_cast<std::uint32_t>(i));
        }
        atomicMax(&chosen, mine);
        __syncthreads();
        token = static_cast<std::int32_t>(~static_cast<std::uint32_t>(chosen));
    }
    if (threadIdx.x == 0) {
        if (!finite)
            token = -1;
        a.out[row * a.out_stride + p.done] = token;
        a.tokens[row] = token;
        a.positions[row] += 1;
        a.rows[row].step = p.step + 1;
        a.rows[row].done = p.done + 1;
    }
}

__global__ void largestKernel(const float* logits, int stride, int vocab, unsigned long long* best)
{
    unsigned long long mine = 0;
    const std::int64_t row = blockIdx.y;
    for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < vocab;
         i += static_cast<int>(gridDim.x) * kThreads)
        mine = max(
            mine, static_cast<unsigned long long>(ordered(logits[row * stride + i])) << 32 | ~static_cast<unsigned>(i));
#pragma unroll
    for (int i = 16; i; i >>= 1)
        mine = max(mine, __shfl_xor_sync(~0u, mine, i));
    if (threadIdx.x % 32 == 0)
        atomicMax(best + row, mine);
}

// ---- pages ---------------------------------------------------------------------------------------------------------

// y: layer, kind and head; elements in pairs
__global__ void copyPageKernel(half2* to, const half2* from, std::int64_t head_pairs, std::int64_t pairs)
{
    const std::int64_t i = blockIdx.x * std::int64_t {kThreads} + threadIdx.x;
    if (i < pairs)
        to[blockIdx.y * head_pairs + i] = from[blockIdx.y * head_pairs + i];
}

__global__ void fillPageKernel(__half* to, std::int64_t count, std::uint64_t seed)
{
    for (std::int64_t i = blockIdx.x * std::int64_t {kThreads} + threadIdx.x; i < count;
         i += std::int64_t {gridDim.x} * kThreads)
        to[i] =
            __float2half_rn(static_cast<float>(mixed(seed + static_cast<std::uint64_t>(i)) >> 40) * 0x1p-23f - 1.0f);
}

unsigned blocks(std::int64_t count, std::int64_t per)
{
    return static_cast<unsigned>((count + per - 1) / per);
}

} // namespace

cudaError_t embed(const EmbedArguments& a, int rows, cudaStream_t stream)
{
    return launch(Overlap::yes, embedKernel, static_cast<unsigned>(rows), kThreads, 0, stream, a);
}

cudaError_t normRows(const float* x, int x_stride, const std::int32_t* source_rows, int rows, int k, const float* gamma,
    float eps, const std::uint16_t* perm, __half* out, int out_stride, cudaStream_t stream)
{
    if (const cudaError_t error =
            cudaFuncSetAttribute(normKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024);
        error != cudaSuccess)
        return error;
    return launch(Overlap::no, normKernel, static_cast<unsigned>(rows), kThreads, std::int64_t {k} * 4, stream, x,
        x_stride, source_rows, k, gamma, eps, perm, out, out_stride);
}

cudaError_t gatedRows(const float* gate, const float* up, int stride, int rows, int k, const std::uint16_t* place,
    __half* out, int out_stride, unsigned* row_max, cudaStream_t stream)
{
    return launch(Overlap::no, gatedKernel, static_cast<unsigned>(rows), kThreads, 0, stream, gate, up, stride, k,
        place, out, out_stride, row_max);
}

cudaError_t sample(const SampleArguments& a, int rows, cudaStream_t stream)
{
    return launch(Overlap::yes, sampleKernel, static_cast<unsigned>(rows), kSampleThreads, 0, stream, a);
}

cudaError_t largestLogits(
    const float* logits, int stride, int vocab, int rows, unsigned long long* best, cudaStream_t stream)
{
    if (const cudaError_t error = cudaMemsetAsync(best, 0, static_cast<std::size_t>(rows) * 8, stream);
        error != cudaSuccess)
        return error;
    return launch(Overlap::no, largestKernel, dim3(32, static_cast<unsigned>(rows)), kThreads, 0, stream, logits,
        stride, vocab, best);
}

cudaError_t copyPage(const KvCache& cache, PageId from, PageId to, int tokens, cudaStream_t stream)
{
    if (tokens == 0)
        return cudaSuccess;
    const std::int64_t pairs = std::int64_t {tokens} * cache.head_dim / 2;
    return launch(Overlap::no, copyPageKernel,
        dim3(blocks(pairs, kThreads), static_cast<unsigned>(cache.n_layers * 2 * cache.n_kv_heads)), kThreads, 0,
        stream, reinterpret_cast<half2*>(cache.data + to * cache.pageSize()),
        reinterpret_cast<const half2*>(cache.data + from * cache.pageSize()), cache.headSize() / 2, pairs);
}

cudaError_t fillPage(const KvCache& cache, PageId page, std::uint64_t seed, cudaStream_t stream)
{
    return launch(Overlap::no, fillPageKernel, 1024u, kThreads, 0, stream, cache.data + page * cache.pageSize(),
        cache.pageSize(), seed * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(page) * 0x100000000ull);
}

} // namespace puna::cuda
