// Blocks of 8 warps; each block owns consecutive stripes (16 outputs x all inputs). The runs of a block's stripes form
// one list, dealt round-robin to its warps; each warp streams its runs through its own ring of asynchronous copies,
// whose first copies are requested before the kernel waits for its predecessor: weights depend on nothing.
// Partial sums of the warps meet in shared memory and are added in warp order. Source: kernel-design 6 (path B).

#include "cuda/launch.h"
#include "cuda/matvec.h"
#include "cuda/unpack.cuh"

#include <algorithm>

namespace puna::cuda {

namespace {

constexpr int kWarps = kMatvecWarps;
constexpr int kThreads = kWarps * 32;
constexpr int kMostDepth = 4;
constexpr int kPartials = 32; // stripes x rows whose sums are kept at a time
constexpr int kPad = 32; // halves between the tokens of x: so that two tokens' 64 bytes lie in different banks
constexpr int kSharedPerProcessor = 227 * 1024;

// A stripe of the block's list.
struct Stripe {
    const char* codes;
    const char* scales;
    const Visit* visits; // of the first warp, in shared memory
    std::int32_t n_visits;
    Offset offset;
};
constexpr int kMostStripes = 256; // of a block

// Shared memory: reduction and barriers | visits | stripes | partial sums, before them the raw input | x (halves) |
// block sums of x | ring.
struct Geometry {
    int slot, depth; // bytes of a ring slot, slots of a warp
    int code_area; // of a slot
    int x_stride; // halves
    int visits_at, stripes_at, partial_at, x_at, sums_at, ring_at, bytes;
    uint32_t magic;
};

__host__ __device__ inline int aligned(int bytes)
{
    return (bytes + 127) & ~127;
}

Geometry geometry(const MatvecArguments& a)
{
    Geometry s {};
    s.magic = kMagicHalves;
    int scale = 0;
    int visits = 0;
    bool sums = false;
    for (int i = 0; i < a.matrices; ++i) {
        s.code_area = std::max(s.code_area, a.m[i].code_bytes);
        scale = std::max(scale, a.m[i].scale_bytes);
        visits += a.m[i].n_visits;
        sums = sums || a.m[i].offset != Offset::none;
    }
    const int k = a.m[0].k;
    s.slot = aligned(s.code_area + scale);
    s.x_stride = (k + 63) / 64 * 64 + 64 + kPad;
    int at = 128 + kWarps * kMostDepth * 8;
    s.visits_at = at, at += aligned(visits * kWarps * static_cast<int>(sizeof(Visit)));
    s.stripes_at = at, at += a.stripes_of_block * static_cast<int>(sizeof(Stripe));
    s.partial_at = at, at += std::max(kWarps * kPartials * kStripeRows * 4, a.gamma ? aligned(k * 4) : 0);
    s.x_at = at, at += aligned(a.rows * s.x_stride * 2);
    s.sums_at = at, at += sums ? aligned(a.rows * (s.x_stride / 32) * 4) : 0;
    s.ring_at = at;
    const int left = kSharedPerProcessor - at;
    s.depth = std::clamp(8192 / s.code_area, 2, kMostDepth);
    while (s.depth > 1 && s.depth * kWarps * s.slot > left)
        --s.depth;
    s.bytes = s.depth * kWarps * s.slot > left ? 0 : at + s.depth * kWarps * s.slot;
    return s;
}

__device__ __forceinline__ uint32_t load32(const char* p)
{
    return *reinterpret_cast<const uint32_t*>(p);
}

// acc += a segment's part of 16 outputs x 8 tokens.
template <int Bits>
__device__ __forceinline__ void multiplyAny(const Visit::Segment& run, const char* codes, const char* scales,
    const __half* x, const float* sums0, const float* sums1, Offset offset, uint32_t magic, float (&acc)[4])
{
    const int lane = static_cast<int>(threadIdx.x) & 31;
    codes += lane * 4;
    float c[2][4] = {};
    for (int u = 0; u < run.units; ++u, codes += Bits * kLineBytes, x += kUnitInputs) {
        uint32_t w[Bits];
#pragma unroll
        for (int j = 0; j < Bits; ++j)
            w[j] = load32(codes + j * kLineBytes);
        uint32_t a[16];
        unpack<Bits>(w, a, magic);
        const uint4 x0 = *reinterpret_cast<const uint4*>(x);
        const uint4 x1 = *reinterpret_cast<const uint4*>(x + 32);
        mma(c[0], a[0], a[4], a[1], a[5], x0.x, x0.y);
        mma(c[1], a[8], a[12], a[9], a[13], x1.x, x1.y);
        mma(c[0], a[2], a[6], a[3], a[7], x0.z, x0.w);
        mma(c[1], a[10], a[14], a[11], a[15], x1.z, x1.w);
        if constexpr (Bits == 16) {
            continue;
        } else {
            if (run.shift == 7 && !(u & 1) && u + 1 < run.units)
                continue;
            const int g = lane >> 2;
            const bool both = run.shift != 5;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (h == 1 && both)
                    break;
                const int index = run.shift == 7 ? u >> 1 : run.shift == 6 ? u : 2 * u + h;
                float d[4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    d[i] = both ? c[0][i] + c[1][i] : c[h][i];
                if (offset == Offset::none) {
                    const float2 s = __half22float2(asHalf2(load32(scales + index * 32 + g * 4)));
                    acc[0] = fmaf(s.x, d[0], acc[0]), acc[1] = fmaf(s.x, d[1], acc[1]);
                    acc[2] = fmaf(s.y, d[2], acc[2]), acc[3] = fmaf(s.y, d[3], acc[3]);
                } else {
                    constexpr float zero = 1 << (Bits - 1);
                    const float2 s = __half22float2(asHalf2(load32(scales + index * 64 + g * 8)));
                    const float2 o = __half22float2(asHalf2(load32(scales + index * 64 + g * 8 + 4)));
                    const float o0 = offset == Offset::minimum ? fmaf(zero, s.x, o.x) : s.x * (zero - o.x);
                    const float o1 = offset == Offset::minimum ? fmaf(zero, s.y, o.y) : s.y * (zero - o.y);
                    // Sums of x over the inputs of this scale, of tokens 2t and 2t + 1.
                    float x0sum = 0.0f;
                    float x1sum = 0.0f;
                    const int first = run.block + (run.shift == 7 ? (u & ~1) * 2 : run.shift == 6 ? 2 * u : 2 * u + h);
                    const int last = run.shift == 5 ? first : run.block + 2 * u + 1;
                    for (int b = first; b <= last; ++b) {
                        x0sum += sums0[b];
                        x1sum += sums1[b];
                    }
                    acc[0] += fmaf(s.x, d[0], o0 * x0sum), acc[1] += fmaf(s.x, d[1], o0 * x1sum);
                    acc[2] += fmaf(s.y, d[2], o1 * x0sum), acc[3] += fmaf(s.y, d[3], o1 * x1sum);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                c[0][i] = c[1][i] = 0.0f;
        }
    }
    if constexpr (Bits == 16) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            acc[i] += c[0][i] + c[1][i];
    }
}

// The same without offsets, two units at a time.
template <int Bits, int Shift>
__device__ __forceinline__ void multiplyPairs(
    int units, const char* codes, const char* scales, const __half* x, uint32_t magic, float (&acc)[4])
{
    const int lane = static_cast<int>(threadIdx.x) & 31;
    codes += lane * 4;
    scales += lane / 4 * 4;
    const auto flush = [&](int index, const float(&d)[4]) {
        const float2 s = __half22float2(asHalf2(load32(scales + index * 32)));
        acc[0] = fmaf(s.x, d[0], acc[0]), acc[1] = fmaf(s.x, d[1], acc[1]);
        acc[2] = fmaf(s.y, d[2], acc[2]), acc[3] = fmaf(s.y, d[3], acc[3]);
    };
    for (; units > 0; units -= 2, codes += 2 * Bits * kLineBytes, x += 2 * kUnitInputs) {
        float c[2][4] = {};
#pragma unroll
        for (int u = 0; u < 2; ++u) {
            uint32_t w[Bits];
#pragma unroll
            for (int j = 0; j < Bits; ++j)
                w[j] = load32(codes + (u * Bits + j) * kLineBytes);
            uint32_t a[16];
            unpack<Bits>(w, a, magic);
            const uint4 x0 = *reinterpret_cast<const uint4*>(x + u * kUnitInputs);
            const uint4 x1 = *reinterpret_cast<const uint4*>(x + u * kUnitInputs + 32);
            mma(c[0], a[0], a[4], a[1], a[5], x0.x, x0.y);
            mma(c[1], a[8], a[12], a[9], a[13], x1.x, x1.y);
            mma(c[0], a[2], a[6], a[3], a[7], x0.z, x0.w);
            mma(c[1], a[10], a[14], a[11], a[15], x1.z, x1.w);
            if constexpr (Shift == 5) {
                flush(2 * u, c[0]);
                flush(2 * u + 1, c[1]);
            } else if (Shift == 6 || u == 1) {
                const float d[4] = {c[0][0] + c[1][0], c[0][1] + c[1][1], c[0][2] + c[1][2], c[0][3] + c[1][3]};
                flush(Shift == 6 ? u : 0, d);
            } else {
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                c[0][i] = c[1][i] = 0.0f;
        }
        scales += (256 >> Shift) / 2 * 32;
    }
}

__device__ __forceinline__ void multiply(const Visit::Segment& segment, Offset offset, const char* codes,
    const char* scales, const __half* x, const float* sums0, const float* sums1, uint32_t magic, float (&acc)[4])
{
    // clang-format off
    if (segment.units % 2 == 0 && offset == Offset::none)
        switch (segment.bits * 8 + segment.shift) {
        case 2 * 8 + 5: return multiplyPairs<2, 5>(segment.units, codes, scales, x, magic, acc);
        case 2 * 8 + 6: return multiplyPairs<2, 6>(segment.units, codes, scales, x, magic, acc);
        case 2 * 8 + 7: return multiplyPairs<2, 7>(segment.units, codes, scales, x, magic, acc);
        case 3 * 8 + 5: return multiplyPairs<3, 5>(segment.units, codes, scales, x, magic, acc);
        case 3 * 8 + 6: return multiplyPairs<3, 6>(segment.units, codes, scales, x, magic, acc);
        case 3 * 8 + 7: return multiplyPairs<3, 7>(segment.units, codes, scales, x, magic, acc);
        case 4 * 8 + 5: return multiplyPairs<4, 5>(segment.units, codes, scales, x, magic, acc);
        case 4 * 8 + 6: return multiplyPairs<4, 6>(segment.units, codes, scales, x, magic, acc);
        case 4 * 8 + 7: return multiplyPairs<4, 7>(segment.units, codes, scales, x, magic, acc);
        case 5 * 8 + 5: return multiplyPairs<5, 5>(segment.units, codes, scales, x, magic, acc);
        case 5 * 8 + 6: return multiplyPairs<5, 6>(segment.units, codes, scales, x, magic, acc);
        case 5 * 8 + 7: return multiplyPairs<5, 7>(segment.units, codes, scales, x, magic, acc);
        case 6 * 8 + 5: return multiplyPairs<6, 5>(segment.units, codes, scales, x, magic, acc);
        case 6 * 8 + 6: return multiplyPairs<6, 6>(segment.units, codes, scales, x, magic, acc);
        case 6 * 8 + 7: return multiplyPairs<6, 7>(segment.units, codes, scales, x, magic, acc);
        case 8 * 8 + 5: return multiplyPairs<8, 5>(segment.units, codes, scales, x, magic, acc);
        case 8 * 8 + 6: return multiplyPairs<8, 6>(segment.units, codes, scales, x, magic, acc);
        case 8 * 8 + 7: return multiplyPairs<8, 7>(segment.units, codes, scales, x, magic, acc);
        default: break;
        }
    switch (segment.bits) {
    case 2: return multiplyAny<2>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    case 3: return multiplyAny<3>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    case 4: return multiplyAny<4>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    case 5: return multiplyAny<5>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    case 6: return multiplyAny<6>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    case 8: return multiplyAny<8>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    default: return multiplyAny<16>(segment, codes, scales, x, sums0, sums1, offset, magic, acc);
    }
    // clang-format on
}

// Which stripe of which matrix the block's s-th stripe is.
struct Where {
    int matrix, stripe;
};
__device__ __forceinline__ Where whereIs(const MatvecArguments& a, int s)
{
    if (a.epilogue == Epilogue::gated)
        return {s & 1, s >> 1};
    int m = 0;
    while (m + 1 < a.matrices && s >= a.m[m].stripes)
        s -= a.m[m].stripes, ++m;
    return {m, s};
}

// A warp's way through the block's stripes, visit by visit.
struct Cursor {
    int stripe, visit; // of the block; of the stripe
    int n_visits;
    const Visit* visits; // of this warp in the stripe
    const char *codes, *scales;
    __device__ __forceinline__ void enter(const Stripe* stripes, int warp)
    {
        const Stripe s = stripes[stripe];
        codes = s.codes;
        scales = s.scales;
        n_visits = s.n_visits;
        visits = s.visits + warp * n_visits;
        visit = 0;
    }
    // To the next visit with something to do.
    __device__ __forceinline__ void advance(const Stripe* stripes, int warp, int end)
    {
        do {
            if (++visit == n_visits) {
                if (++stripe >= end)
                    return;
                enter(stripes, warp);
            }
        } while (visits[visit].lines == 0);
    }
};

// One lane asks for a visit's codes and scales.
__device__ __forceinline__ void request(const Cursor& at, uint32_t slot, int code_area, uint32_t barrier)
{
    const uint4 head = *reinterpret_cast<const uint4*>(at.visits + at.visit); // line, scale, lines, scales
    const uint32_t codes = (head.y >> 16 & 0xffu) * kLineBytes;
    const uint32_t scales = (head.y >> 24) * 16;
    expectBytes(barrier, codes + scales);
    copyBulk(slot, at.codes + head.x * std::uint64_t {kLineBytes}, codes, barrier);
    if (scales > 0)
        copyBulk(slot + code_area, at.scales + (head.y & 0xffffu) * 16, scales, barrier);
}

__device__ __forceinline__ uint4 eightHalves(const float (&v)[8])
{
    return make_uint4(bits(__floats2half2_rn(v[0], v[1])), bits(__floats2half2_rn(v[2], v[3])),
        bits(__floats2half2_rn(v[4], v[5])), bits(__floats2half2_rn(v[6], v[7])));
}

// The input of all tokens as halves in stored order, zeros behind; sums of 32.
__device__ void stageInput(
    const MatvecArguments& a, const Geometry& s, const std::uint16_t* perm, bool sums, char* shared)
{
    const int tid = static_cast<int>(threadIdx.x);
    const int k = a.m[0].k;
    const bool vectors = k % 8 == 0 && a.x_stride % 4 == 0;
    auto* reduction = reinterpret_cast<float*>(shared);
    auto* raw = reinterpret_cast<float*>(shared + s.partial_at);
    for (int row = 0; row < a.rows; ++row) {
        const float* x = a.x + static_cast<std::int64_t>(row) * a.x_stride;
        auto* to = reinterpret_cast<__half*>(shared + s.x_at) + row * s.x_stride;
        if (a.gamma) {
            float squares = 0.0f;
            if (vectors) {
#pragma unroll 4
                for (int i = tid; i < k / 4; i += kThreads) {
                    const float4 v = reinterpret_cast<const float4*>(x)[i];
                    const float4 w = reinterpret_cast<const float4*>(a.gamma)[i];
                    squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
                    reinterpret_cast<float4*>(raw)[i] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
                }
            } else {
                for (int i = tid; i < k; i += kThreads) {
                    const float v = x[i];
                    squares = fmaf(v, v, squares);
                    raw[i] = v * a.gamma[i];
                }
            }
            squares = warpSum(squares);
            if ((tid & 31) == 0)
                reduction[tid >> 5] = squares;
            __syncthreads();
            float total = 0.0f;
#pragma unroll
            for (int i = 0; i < kWarps; ++i)
                total += reduction[i];
            const float inverse = rsqrtf(total / static_cast<float>(k) + a.eps);
            if (vectors) {
#pragma unroll 2
                for (int i = tid; i < k / 8; i += kThreads) {
                    float v[8];
                    if (perm) {
                        const uint4 p = __ldg(reinterpret_cast<const uint4*>(perm) + i);
                        const uint32_t pairs[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
                        for (int j = 0; j < 8; ++j)
                            v[j] = raw[pairs[j / 2] >> (j % 2 * 16) & 0xffffu] * inverse;
                    } else {
#pragma unroll
                        for (int j = 0; j < 8; ++j)
                            v[j] = raw[8 * i + j] * inverse;
                    }
                    reinterpret_cast<uint4*>(to)[i] = eightHalves(v);
                }
            } else {
                for (int i = tid; i < k; i += kThreads)
                    to[i] = __float2half_rn(raw[perm ? perm[i] : i] * inverse);
            }
            if (row + 1 < a.rows)
                __syncthreads(); // before raw and reduction are written again
        } else {
            const float scale = a.row_max ? scaleDown(a.row_max[row]) : 1.0f;
            if (vectors) {
#pragma unroll 4
                for (int i = tid; i < k / 8; i += kThreads) {
                    const float4 b = reinterpret_cast<const float4*>(x)[2 * i];
                    const float4 c = reinterpret_cast<const float4*>(x)[2 * i + 1];
                    const float v[8] = {b.x * scale, b.y * scale, b.z * scale, b.w * scale, c.x * scale, c.y * scale,
                        c.z * scale, c.w * scale};
                    reinterpret_cast<uint4*>(to)[i] = eightHalves(v);
                }
            } else {
                for (int i = tid; i < k; i += kThreads)
                    to[i] = __float2half_rn(x[i] * scale);
            }
        }
        for (int i = k + tid; i < s.x_stride; i += kThreads)
            to[i] = __float2half_rn(0.0f);
    }
    __syncthreads();
    if (sums) {
        const int blocks = s.x_stride / 32;
        auto* to = reinterpret_cast<float*>(shared + s.sums_at);
        for (int i = tid; i < a.rows * blocks; i += kThreads) {
            const auto* x =
                reinterpret_cast<const half2*>(shared + s.x_at) + (i / blocks * s.x_stride + i % blocks * 32) / 2;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                const float2 v = __half22float2(x[j]);
                sum += v.x + v.y;
            }
            to[i] = sum;
        }
        __syncthreads();
    }
}

// The power of two that stageInput divided by.
__device__ __forceinline__ float inputScale(const MatvecArguments& a, int row)
{
    return a.row_max ? scaleUp(a.row_max[row]) : 1.0f;
}

__device__ __forceinline__ float finished(const MatvecArguments& a, int matrix, int n, float sum)
{
    const PackedMatrix& m = a.m[matrix];
    if (m.row_scale)
        sum *= m.row_scale[n];
    return m.bias ? sum + m.bias[n] : sum;
}

__global__ void __launch_bounds__(kThreads, 3)
    matvecKernel(const __grid_constant__ MatvecArguments a, const __grid_constant__ Geometry s)
{
    extern __shared__ __align__(128) char shared[];
    const int tid = static_cast<int>(threadIdx.x);
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int g = lane >> 2;
    const int t = lane & 3;
    startDependents();

    auto* visits = reinterpret_cast<Visit*>(shared + s.visits_at);
    int total_stripes = 0;
    bool sums = false;
    {
        auto* to = reinterpret_cast<uint4*>(visits);
        for (int i = 0; i < a.matrices; ++i) {
            const int pieces = a.m[i].n_visits * kWarps * static_cast<int>(sizeof(Visit) / 16);
            for (int p = tid; p < pieces; p += kThreads)
                to[p] = reinterpret_cast<const uint4*>(a.m[i].visits)[p];
            to += pieces;
            total_stripes += a.m[i].stripes;
            sums = sums || a.m[i].offset != Offset::none;
        }
    }
    const uint32_t barriers = sharedAddress(shared) + 128 + warp * kMostDepth * 8;
    if (lane == 0) {
        for (int i = 0; i < s.depth; ++i)
            initBarrier(barriers + i * 8);
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }
    const int step = a.epilogue == Epilogue::gated ? 2 : 1; // gate and up stay together
    const auto edge = [&](int block) {
        return static_cast<int>(static_cast<std::int64_t>(total_stripes / step) * block / gridDim.x) * step;
    };
    const int begin = edge(static_cast<int>(blockIdx.x)); // of all
    const int end = edge(static_cast<int>(blockIdx.x) + 1) - begin; // of the block
    auto* stripes = reinterpret_cast<Stripe*>(shared + s.stripes_at);
    for (int i = tid; i < end; i += kThreads) {
        const Where w = whereIs(a, begin + i);
        const PackedMatrix& m = a.m[w.matrix];
        const int before = (w.matrix > 0 ? a.m[0].n_visits : 0) + (w.matrix > 1 ? a.m[1].n_visits : 0);
        stripes[i] = {
            reinterpret_cast<const char*>(m.codes) + static_cast<std::int64_t>(w.stripe) * m.stripe_lines * kLineBytes,
            reinterpret_cast<const char*>(m.scales) + static_cast<std::int64_t>(w.stripe) * m.stripe_scales * 16,
            visits + before * kWarps, m.n_visits, m.offset};
    }
    __syncthreads();

    char* ring = shared + s.ring_at + warp * s.depth * s.slot;
    Cursor ahead {};
    ahead.enter(stripes, warp);
    if (ahead.visits[0].lines == 0)
        ahead.advance(stripes, warp, end);
    Cursor at = ahead;
    for (int i = 0; i < s.depth && ahead.stripe < end; ++i) {
        if (lane == 0)
            request(ahead, sharedAddress(ring + i * s.slot), s.code_area, barriers + i * 8);
        ahead.advance(stripes, warp, end);
    }

    if (a.gamma) { // on their way to the second-level cache, as nothing before this kernel writes them
        const char* gamma = reinterpret_cast<const char*>(a.gamma);
        const char* perm = reinterpret_cast<const char*>(a.m[whereIs(a, begin).matrix].perm);
        for (int i = tid * 128; i < a.m[0].k * 4; i += kThreads * 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(gamma + i));
        for (int i = tid * 128; perm && i < a.m[0].k * 2; i += kThreads * 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(perm + i));
    }
    waitForPredecessors();
    const std::uint16_t* staged = a.m[whereIs(a, begin).matrix].perm;
    stageInput(a, s, staged, sums, shared);

    const uint32_t magic = s.magic;
    const auto* x = reinterpret_cast<const __half*>(shared + s.x_at) + (g < a.rows ? g : 0) * s.x_stride + 8 * t;
    const auto* block_sums = reinterpret_cast<const float*>(shared + s.sums_at);
    const float* sums0 = block_sums + (2 * t < a.rows ? 2 * t : 0) * (s.x_stride / 32);
    const float* sums1 = block_sums + (2 * t + 1 < a.rows ? 2 * t + 1 : 0) * (s.x_stride / 32);
    auto* partial = reinterpret_cast<float*>(shared + s.partial_at);
    const int row_shift = a.rows > 4 ? 3 : a.rows > 2 ? 2 : a.rows > 1 ? 1 : 0;
    const int batch = kPartials >> row_shift;
    int slot = 0;
    uint32_t parity = 0;

    for (int first = 0; first < end;) { // of the block
        int last = min(first + batch, end);
        // A matrix with another permutation of the same input (the format does not promise one for q, k and v).
        for (int i = first + 1; i < last; ++i)
            if (a.m[whereIs(a, begin + i).matrix].perm != a.m[whereIs(a, begin + first).matrix].perm)
                last = i - (step == 2 ? i & 1 : 0);
        if (const std::uint16_t* perm = a.m[whereIs(a, begin + first).matrix].perm; perm != staged) {
            staged = perm;
            stageInput(a, s, staged, sums, shared);
        }
        float* mine = partial + warp * kPartials * kStripeRows;
        for (int i = lane; i < (last - first) * kStripeRows << row_shift; i += 32)
            mine[i] = 0.0f;
        __syncwarp();
        while (at.stripe < last) {
            const int stripe = at.stripe;
            float acc[4] = {};
            do {
                waitBarrier(barriers + slot * 8, parity);
                const Visit& visit = at.visits[at.visit];
                const char* codes = ring + slot * s.slot;
                const char* scales = codes + s.code_area;
                const Offset offset = stripes[stripe].offset;
                for (int i = 0; i < visit.segments; ++i) {
                    const Visit::Segment segment = visit.segment[i];
                    multiply(segment, offset, codes, scales + segment.scale * 16, x + segment.block * 32, sums0, sums1,
                        magic, acc);
                    codes += segment.units * segment.bits * kLineBytes;
                }
                __syncwarp();
                if (ahead.stripe < end) {
                    if (lane == 0)
                        request(ahead, sharedAddress(ring + slot * s.slot), s.code_area, barriers + slot * 8);
                    ahead.advance(stripes, warp, end);
                }
                if (++slot == s.depth) {
                    slot = 0;
                    parity ^= 1;
                }
                at.advance(stripes, warp, end);
            } while (at.stripe == stripe);
            // [stripe][token][16]
            float* to = mine + ((stripe - first) * kStripeRows << row_shift);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = 2 * t + (i & 1);
                if (column < a.rows)
                    to[column * kStripeRows + g + (i & 2 ? 8 : 0)] = acc[i];
            }
        }
        __syncthreads();

        const auto sumOf = [&](int stripe, int row, int r) {
            const int index = ((stripe * kStripeRows) << row_shift) + row * kStripeRows + r;
            float v = 0.0f;
#pragma unroll
            for (int w = 0; w < kWarps; ++w)
                v += partial[w * kPartials * kStripeRows + index];
            return v * inputScale(a, row);
        };
        const int outputs = (last - first) / step * kStripeRows << row_shift;
        for (int base = 0; base < outputs; base += kThreads) { // 16 neighbouring threads share stripe and token
            const int o = base + tid;
            const int r = o % kStripeRows;
            const int row = o / kStripeRows & ((1 << row_shift) - 1);
            const int local = (o / kStripeRows >> row_shift) * step;
            const bool valid = o < outputs && row < a.rows;
            const Where w = valid ? whereIs(a, begin + first + local) : Where {0, 0};
            const int n = w.stripe * kStripeRows + r;
            const bool real = valid && n < a.m[w.matrix].n;
            float v = valid ? sumOf(local, row, r) : 0.0f;
            float* out = a.out + static_cast<std::int64_t>(valid ? row : 0) * a.out_stride;
            switch (a.epilogue) {
            case Epilogue::store:
                if (real)
                    out[a.base[w.matrix] + n] = finished(a, w.matrix, n, v);
                break;
            case Epilogue::add:
                if (real)
                    out[n] += finished(a, w.matrix, n, v);
                break;
            case Epilogue::gated: {
                float y = 0.0f;
                if (real) {
                    const float gate = finished(a, 0, n, v);
                    y = gate / (1.0f + __expf(-gate)) * finished(a, 1, n, sumOf(local + 1, row, r));
                    out[a.place ? a.place[n] : n] = y;
                }
                unsigned largest = __float_as_uint(fabsf(y));
#pragma unroll
                for (int i = 8; i; i >>= 1)
                    largest = max(largest, __shfl_xor_sync(~0u, largest, i));
                if (valid && r == 0)
                    atomicMax(a.out_max + row, largest);
                break;
            }
            case Epilogue::logits: {
                unsigned long long key = 0;
                if (real) {
                    v = finished(a, w.matrix, n, v);
                    out[n] = v;
                    key = static_cast<unsigned long long>(ordered(v)) << 32 | ~static_cast<unsigned>(n);
                }
#pragma unroll
                for (int i = 8; i; i >>= 1)
                    key = max(key, __shfl_xor_sync(~0u, key, i));
                if (a.best && valid && r == 0)
                    atomicMax(a.best + row, key);
                break;
            }
            }
        }
        __syncthreads();
        first = last;
    }
}

} // namespace

int matvecRows(std::int64_t k, bool normed, int code_bytes, int scale_bytes)
{
    for (int rows = kMatvecRows; rows > 0; --rows) {
        MatvecArguments a {};
        a.matrices = 1;
        a.rows = rows;
        a.stripes_of_block = kMostStripes;
        static const float gamma = 0.0f;
        a.gamma = normed ? &gamma : nullptr;
        a.m[0].k = static_cast<std::int32_t>(k);
        a.m[0].code_bytes = code_bytes;
        a.m[0].scale_bytes = scale_bytes;
        a.m[0].n_visits = static_cast<std::int32_t>(k / (kUnitInputs * kWarps)) + 2;
        a.m[0].offset = Offset::minimum;
        if (geometry(a).bytes > 0)
            return rows;
    }
    return 0;
}

cudaError_t prepareMatvec()
{
    return cudaFuncSetAttribute(matvecKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
}

cudaError_t matvec(MatvecArguments a, int processors, cudaStream_t stream)
{
    int parts = 0;
    for (int i = 0; i < a.matrices; ++i)
        parts += a.m[i].stripes;
    const int step = a.epilogue == Epilogue::gated ? 2 : 1;
    parts /= step;
    // As many blocks per multiprocessor as fit, up to three; the stripes of one block then take less room.
    a.stripes_of_block = (parts + processors - 1) / processors * step;
    Geometry s = geometry(a);
    if (s.bytes == 0)
        return cudaErrorInvalidValue;
    processors *= std::clamp(kSharedPerProcessor / (s.bytes + 1024), 1, 3);
    return launch(Overlap::yes, matvecKernel, static_cast<unsigned>(std::min(parts, processors)), kThreads, s.bytes,
        stream, a, s);
}

} // namespace puna::cuda
