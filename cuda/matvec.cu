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

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kMostRuns = 512; // per stripe, all matrices: K / 256 each, and one more per band
constexpr int kPartials = 32; // stripes x rows whose sums are kept at a time
constexpr int kPad = 32; // halves between the tokens of x: so that two tokens' 64 bytes lie in different banks

// Shared memory: runs | reduction | partial sums | x (halves) | block sums of x | raw input or ring.
struct Geometry {
    int slot, depth; // bytes of a ring slot, slots
    int x_stride; // halves
    int runs_at, partial_at, x_at, sums_at, raw_at, ring_at, bytes;
};

__host__ __device__ inline int aligned(int bytes)
{
    return (bytes + 127) & ~127;
}

Geometry geometry(const MatvecArguments& a)
{
    Geometry s {};
    int code = 0;
    int scale = 0;
    int runs = 0;
    bool sums = false;
    for (int i = 0; i < a.matrices; ++i) {
        code = std::max(code, a.m[i].code_bytes);
        scale = std::max(scale, a.m[i].scale_bytes);
        runs += a.m[i].n_runs;
        sums = sums || a.m[i].offset != Offset::none;
    }
    const int k = a.m[0].k;
    s.slot = aligned(code + scale);
    s.x_stride = (k + 63) / 64 * 64 + 64 + kPad;
    int at = aligned(256);
    s.runs_at = at, at += aligned(runs * static_cast<int>(sizeof(Run)));
    s.partial_at = at, at += kWarps * kPartials * kStripeRows * 4;
    s.x_at = at, at += aligned(a.rows * s.x_stride * 2);
    s.sums_at = at, at += sums ? aligned(a.rows * (s.x_stride / 32) * 4) : 0;
    s.raw_at = at, at += a.gamma ? aligned(k * 4) : 0;
    s.ring_at = at;
    constexpr int kMost = 227 * 1024;
    const int left = kMost - at;
    s.depth = std::clamp(8192 / code, 2, 8);
    while (s.depth > 1 && s.depth * kWarps * s.slot > left)
        --s.depth;
    s.bytes = s.depth * kWarps * s.slot > left ? 0 : at + s.depth * kWarps * s.slot;
    return s;
}

__device__ __forceinline__ uint32_t load32(uint32_t address)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}

// acc += the run's part of 16 outputs x 8 tokens.
template <int Bits>
__device__ __forceinline__ void multiplyRun(const Run& run, uint32_t codes, uint32_t scales, const __half* x,
    const float* sums0, const float* sums1, Offset offset, uint32_t magic, float (&acc)[4])
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

// A warp's way through the list of runs: stripe by stripe, every kWarps-th run.
struct Cursor {
    int stripe, run; // of the block's list
    int matrix, runs, run_base, in_matrix;
    __device__ __forceinline__ void enter(const MatvecArguments& a, int end)
    {
        for (;;) {
            if (stripe >= end)
                return;
            const Where w = whereIs(a, stripe);
            matrix = w.matrix;
            in_matrix = w.stripe;
            runs = a.m[matrix].n_runs;
            run_base = (matrix > 0 ? a.m[0].n_runs : 0) + (matrix > 1 ? a.m[1].n_runs : 0);
            if (run < runs)
                return;
            run -= runs;
            ++stripe;
        }
    }
};

__device__ __forceinline__ void request(
    const MatvecArguments& a, const Run* runs, const Cursor& at, int end, uint32_t slot, int code_area, int lane)
{
    if (at.stripe < end) {
        const PackedMatrix& m = a.m[at.matrix];
        const Run run = runs[at.run_base + at.run];
        const auto* codes = reinterpret_cast<const uint4*>(m.codes)
            + (static_cast<std::int64_t>(at.in_matrix) * m.stripe_lines + run.line) * (kLineBytes / 16);
        const int pieces = run.units * run.bits * (kLineBytes / 16);
        for (int i = lane; i < pieces; i += 32)
            copyAsync16(slot + i * 16, codes + i);
        if (lane < run.scales)
            copyAsync16(slot + code_area + lane * 16,
                m.scales + static_cast<std::int64_t>(at.in_matrix) * m.stripe_scales + run.scale + lane);
    }
    commitCopies();
}

// The input of all tokens as halves in stored order, zeros behind; sums of 32.
__device__ void stageInput(
    const MatvecArguments& a, const Geometry& s, const std::uint16_t* perm, bool sums, char* shared)
{
    const int tid = static_cast<int>(threadIdx.x);
    const int k = a.m[0].k;
    auto* reduction = reinterpret_cast<float*>(shared);
    auto* raw = reinterpret_cast<float*>(shared + s.raw_at);
    for (int row = 0; row < a.rows; ++row) {
        const float* x = a.x + static_cast<std::int64_t>(row) * a.x_stride;
        auto* to = reinterpret_cast<__half*>(shared + s.x_at) + row * s.x_stride;
        if (a.gamma) {
            float squares = 0.0f;
            for (int i = tid; i < k; i += kThreads) {
                const float v = x[i];
                squares = fmaf(v, v, squares);
                raw[i] = v * a.gamma[i];
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
            for (int i = tid; i < k; i += kThreads)
                to[i] = __float2half_rn(raw[perm ? perm[i] : i] * inverse);
            __syncthreads(); // before raw and reduction are written again
        } else {
            const float scale = a.row_max ? scaleDown(a.row_max[row]) : 1.0f;
            for (int i = tid; i < k; i += kThreads)
                to[i] = __float2half_rn(x[i] * scale);
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

__global__ void __launch_bounds__(kThreads, 1)
    matvecKernel(const __grid_constant__ MatvecArguments a, const __grid_constant__ Geometry s)
{
    extern __shared__ __align__(128) char shared[];
    const int tid = static_cast<int>(threadIdx.x);
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int g = lane >> 2;
    const int t = lane & 3;
    startDependents();

    auto* runs = reinterpret_cast<Run*>(shared + s.runs_at);
    int total_stripes = 0;
    int total_runs = 0;
    int code_area = 0;
    bool sums = false;
    for (int i = 0; i < a.matrices; ++i) {
        for (int r = tid; r < a.m[i].n_runs; r += kThreads)
            runs[total_runs + r] = a.m[i].runs[r];
        total_runs += a.m[i].n_runs;
        total_stripes += a.m[i].stripes;
        code_area = max(code_area, a.m[i].code_bytes);
        sums = sums || a.m[i].offset != Offset::none;
    }
    __syncthreads();

    const int step = a.epilogue == Epilogue::gated ? 2 : 1; // gate and up stay together
    const auto edge = [&](int block) {
        return static_cast<int>(static_cast<std::int64_t>(total_stripes / step) * block / gridDim.x) * step;
    };
    const int begin = edge(static_cast<int>(blockIdx.x));
    const int end = edge(static_cast<int>(blockIdx.x) + 1);
    if (begin >= end)
        return; // its completion counts for the next kernel, too

    const uint32_t ring = sharedAddress(shared + s.ring_at) + warp * s.depth * s.slot;
    Cursor ahead {begin, warp, 0, 0, 0, 0};
    ahead.enter(a, end);
    Cursor at = ahead;
    for (int i = 0; i < s.depth; ++i) {
        request(a, runs, ahead, end, ring + i * s.slot, code_area, lane);
        ahead.run += kWarps;
        ahead.enter(a, end);
    }

    waitForPredecessors();
    const std::uint16_t* staged = a.m[whereIs(a, begin).matrix].perm;
    stageInput(a, s, staged, sums, shared);

    const uint32_t magic = magicHalves();
    const auto* x = reinterpret_cast<const __half*>(shared + s.x_at) + (g < a.rows ? g : 0) * s.x_stride + 8 * t;
    const auto* block_sums = reinterpret_cast<const float*>(shared + s.sums_at);
    const float* sums0 = block_sums + (2 * t < a.rows ? 2 * t : 0) * (s.x_stride / 32);
    const float* sums1 = block_sums + (2 * t + 1 < a.rows ? 2 * t + 1 : 0) * (s.x_stride / 32);
    auto* partial = reinterpret_cast<float*>(shared + s.partial_at);
    const int row_shift = a.rows > 4 ? 3 : a.rows > 2 ? 2 : a.rows > 1 ? 1 : 0;
    const int batch = kPartials >> row_shift;
    int slot = 0;

    for (int first = begin; first < end;) {
        int last = min(first + batch, end);
        // A matrix with another permutation of the same input (the format does not promise one for q, k and v).
        for (int i = first + 1; i < last; ++i)
            if (a.m[whereIs(a, i).matrix].perm != a.m[whereIs(a, first).matrix].perm)
                last = i - (step == 2 ? i & 1 : 0);
        if (const std::uint16_t* perm = a.m[whereIs(a, first).matrix].perm; perm != staged) {
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
                waitCopies(s.depth - 1);
                __syncwarp();
                const Run run = runs[at.run_base + at.run];
                const uint32_t codes = ring + slot * s.slot;
                const uint32_t scales = codes + code_area;
                const __half* from = x + run.block * 32;
                const Offset offset = a.m[at.matrix].offset;
                switch (run.bits) {
                case 2:
                    multiplyRun<2>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                case 3:
                    multiplyRun<3>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                case 4:
                    multiplyRun<4>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                case 5:
                    multiplyRun<5>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                case 6:
                    multiplyRun<6>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                case 8:
                    multiplyRun<8>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                default:
                    multiplyRun<16>(run, codes, scales, from, sums0, sums1, offset, magic, acc);
                    break;
                }
                __syncwarp();
                request(a, runs, ahead, end, codes, code_area, lane);
                ahead.run += kWarps;
                ahead.enter(a, end);
                slot = slot + 1 == s.depth ? 0 : slot + 1;
                at.run += kWarps;
                at.enter(a, end);
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
        const int outputs = (last - first) / step * a.rows * kStripeRows;
        for (int base = 0; base < outputs; base += kThreads) { // 16 neighbouring threads share stripe and token
            const int o = base + tid;
            const bool valid = o < outputs;
            const int r = o % kStripeRows;
            const int row = o / kStripeRows % a.rows;
            const int local = o / kStripeRows / a.rows * step;
            const Where w = valid ? whereIs(a, first + local) : Where {0, 0};
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
        static const float gamma = 0.0f;
        a.gamma = normed ? &gamma : nullptr;
        a.m[0].k = static_cast<std::int32_t>(k);
        a.m[0].code_bytes = code_bytes;
        a.m[0].scale_bytes = scale_bytes;
        a.m[0].n_runs = kMostRuns;
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

cudaError_t matvec(const MatvecArguments& a, int processors, cudaStream_t stream)
{
    const Geometry s = geometry(a);
    if (s.bytes == 0)
        return cudaErrorInvalidValue;
    int stripes = 0;
    for (int i = 0; i < a.matrices; ++i)
        stripes += a.m[i].stripes;
    const int parts = a.epilogue == Epilogue::gated ? stripes / 2 : stripes;
    return launch(Overlap::yes, matvecKernel, static_cast<unsigned>(std::min(parts, processors)), kThreads, s.bytes,
        stream, a, s);
}

} // namespace puna::cuda
