// Four warps; each owns two stripes (32 outputs) and all of the block's tokens. x comes in tiles of 64 inputs through a
// ring of asynchronous copies, swizzled so that the 16-byte reads of B operands meet no bank twice; the next unit's
// weights are on their way to registers meanwhile. Source: kernel-design 11.

#include "cuda/gemm.h"
#include "cuda/launch.h"
#include "cuda/weights.cuh"

namespace puna::cuda {

namespace {

constexpr int kWarps = 4; // 8 share the tile of x, and were slower: 8,100 against 9,400 tokens/s at 512 rows of 8B
constexpr int kThreads = kWarps * 32;
constexpr int kTileStripes = 2 * kWarps;
constexpr int kStages = 4;

struct Unit {
    std::uint32_t line;
    std::uint16_t scale, block;
    std::uint8_t bits, shift;
};

// A unit's words and scales of two stripes, as loaded.
struct Weights {
    uint32_t w[2][8]; // those of 16-bit units are not fetched ahead
    uint32_t scale[2][2], offset[2][2]; // [stripe][input half]: rows g, g + 8
};

template <int Bits> __device__ __forceinline__ void loadWords(const uint32_t* const (&from)[2], Weights& v)
{
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int j = 0; j < Bits; ++j)
            v.w[s][j] = __ldg(from[s] + j * 32);
}

template <int Bits>
__device__ __forceinline__ void unpackWeights(const Weights& v, Offset offset, uint32_t magic, uint32_t (&a)[2][16])
{
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        uint32_t w[Bits];
#pragma unroll
        for (int j = 0; j < Bits; ++j)
            w[j] = v.w[s][j];
        unpackScaled<Bits>(w, v.scale[s], v.offset[s], offset, magic, a[s]);
    }
}

template <int Tiles> // of 8 tokens
__global__ void __launch_bounds__(kThreads, 2) gemmKernel(const __grid_constant__ GemmArguments p, uint32_t magic)
{
    constexpr int kTokens = Tiles * 8;
    constexpr int kStage = kTokens * 128; // bytes
    extern __shared__ __align__(128) char shared[];
    const int tid = static_cast<int>(threadIdx.x);
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int g = lane >> 2;
    const int t = lane & 3;
    int which = 0;
    int tile = static_cast<int>(blockIdx.y);
    while (which + 1 < p.matrices && tile >= (p.m[which].stripes + kTileStripes - 1) / kTileStripes)
        tile -= (p.m[which].stripes + kTileStripes - 1) / kTileStripes, ++which;
    const PackedMatrix& m = p.m[which];
    const __half* x = p.x[which];
    const int first_row = static_cast<int>(blockIdx.x) * kTokens;
    const int rows = min(p.rows - first_row, kTokens);

    auto* units = reinterpret_cast<Unit*>(shared + kStages * kStage);
    int n_units = 0;
    for (int r = 0; r < m.n_runs; ++r) {
        const Run run = m.runs[r];
        if (r % kThreads == tid) {
            const int pieces = m.offset == Offset::none ? 2 : 4;
            for (int u = 0; u < run.units; ++u)
                units[n_units + u] = {run.line + static_cast<std::uint32_t>(u * run.bits),
                    static_cast<std::uint16_t>(run.scale + ((u * kUnitInputs) >> run.shift) * pieces),
                    static_cast<std::uint16_t>(run.block + 2 * u), run.bits, run.shift};
        }
        n_units += run.units;
    }
    __syncthreads();

    const auto requestInput = [&](int i) {
        if (i < n_units) {
            const uint32_t to = sharedAddress(shared + i % kStages * kStage);
            const __half* from = x + static_cast<std::int64_t>(first_row) * p.x_stride + units[i].block * 32;
#pragma unroll
            for (int c = tid; c < kTokens * 8; c += kThreads) {
                const int row = c >> 3;
                const int piece = c & 7;
                copyAsync16(to + row * 128 + ((piece ^ (row & 1) << 2) << 4),
                    from + static_cast<std::int64_t>(min(row, rows - 1)) * p.x_stride + piece * 8);
            }
        }
        commitCopies();
    };
    int stripe[2];
    const uint32_t* codes[2];
    const uint32_t* scales[2];
    const int pair_words = m.offset == Offset::none ? 1 : 2;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        stripe[s] = tile * kTileStripes + warp * 2 + s;
        const std::int64_t at = min(stripe[s], m.stripes - 1);
        codes[s] = m.codes + at * m.stripe_lines * 32 + lane;
        scales[s] = reinterpret_cast<const uint32_t*>(m.scales + at * m.stripe_scales) + g * pair_words;
    }
    Weights weights;
    const auto requestWeights = [&](int i) {
        if (i >= n_units)
            return;
        const Unit u = units[i];
        const uint32_t* const from[2] = {codes[0] + u.line * 32, codes[1] + u.line * 32};
        switch (u.bits) {
        case 2:
            loadWords<2>(from, weights);
            break;
        case 3:
            loadWords<3>(from, weights);
            break;
        case 4:
            loadWords<4>(from, weights);
            break;
        case 5:
            loadWords<5>(from, weights);
            break;
        case 6:
            loadWords<6>(from, weights);
            break;
        case 8:
            loadWords<8>(from, weights);
            break;
        default:
            return;
        }
        const int second = u.shift == 5 ? 8 * pair_words : 0;
#pragma unroll
        for (int s = 0; s < 2; ++s)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t* at = scales[s] + u.scale * 4 + h * second;
                weights.scale[s][h] = __ldg(at);
                if (pair_words == 2)
                    weights.offset[s][h] = __ldg(at + 1);
            }
    };

#pragma unroll
    for (int i = 0; i < kStages - 1; ++i)
        requestInput(i);
    requestWeights(0);
    float acc[2][Tiles][4] = {};
    for (int i = 0; i < n_units; ++i) {
        waitCopies<kStages - 2>();
        __syncthreads();
        requestInput(i + kStages - 1);
        uint32_t a[2][16];
        switch (units[i].bits) {
        case 2:
            unpackWeights<2>(weights, m.offset, magic, a);
            break;
        case 3:
            unpackWeights<3>(weights, m.offset, magic, a);
            break;
        case 4:
            unpackWeights<4>(weights, m.offset, magic, a);
            break;
        case 5:
            unpackWeights<5>(weights, m.offset, magic, a);
            break;
        case 6:
            unpackWeights<6>(weights, m.offset, magic, a);
            break;
        case 8:
            unpackWeights<8>(weights, m.offset, magic, a);
            break;
        default:
#pragma unroll
            for (int s = 0; s < 2; ++s)
#pragma unroll
                for (int j = 0; j < 16; ++j)
                    a[s][j] = __ldg(codes[s] + (units[i].line + j) * 32);
            break;
        }
        requestWeights(i + 1);
        const char* from = shared + i % kStages * kStage + g * 128;
        const int flip = (g & 1) << 2;
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int n = 0; n < Tiles; n += 2) { // two MMAs of the same sums stand apart
                uint4 b[2];
#pragma unroll
                for (int j = 0; j < 2; ++j)
                    b[j] = *reinterpret_cast<const uint4*>(from + (n + j) * 1024 + (((h * 4 + t) ^ flip) << 4));
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int s = 0; s < 2; ++s)
                        mma(acc[s][n + j], a[s][8 * h], a[s][8 * h + 4], a[s][8 * h + 1], a[s][8 * h + 5], b[j].x,
                            b[j].y);
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int s = 0; s < 2; ++s)
                        mma(acc[s][n + j], a[s][8 * h + 2], a[s][8 * h + 6], a[s][8 * h + 3], a[s][8 * h + 7], b[j].z,
                            b[j].w);
            }
    }

#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int n = stripe[s] * kStripeRows + g + 8 * r;
            if (n >= m.n)
                continue;
            const float factor = m.row_scale ? m.row_scale[n] : 1.0f;
            const float bias = m.bias ? m.bias[n] : 0.0f;
#pragma unroll
            for (int tiles = 0; tiles < Tiles; ++tiles)
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int row = tiles * 8 + 2 * t + j;
                    if (row >= rows)
                        continue;
                    float v = acc[s][tiles][2 * r + j] * factor;
                    if (p.row_max)
                        v *= scaleUp(p.row_max[first_row + row]);
                    float* to = p.out + static_cast<std::int64_t>(first_row + row) * p.out_stride + p.base[which] + n;
                    *to = p.add ? *to + v + bias : v + bias;
                }
        }
}

template <int Tiles> cudaError_t run(const GemmArguments& p, cudaStream_t stream)
{
    int tiles = 0;
    int units = 0;
    for (int i = 0; i < p.matrices; ++i) {
        tiles += (p.m[i].stripes + kTileStripes - 1) / kTileStripes;
        units = std::max(units, p.m[i].n_runs * 4);
    }
    const int bytes = kStages * Tiles * 1024 + units * static_cast<int>(sizeof(Unit));
    return launch(Overlap::no, gemmKernel<Tiles>,
        dim3(static_cast<unsigned>((p.rows + Tiles * 8 - 1) / (Tiles * 8)), static_cast<unsigned>(tiles)), kThreads,
        bytes, stream, p, kMagicHalves);
}

} // namespace

cudaError_t prepareGemm()
{
    for (auto* kernel : {gemmKernel<4>, gemmKernel<8>, gemmKernel<16>})
        if (const cudaError_t error =
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 112 * 1024);
            error != cudaSuccess)
            return error;
    return cudaSuccess;
}

cudaError_t gemm(const GemmArguments& p, cudaStream_t stream)
{
    return p.rows <= 32 ? run<4>(p, stream) : p.rows <= 64 ? run<8>(p, stream) : run<16>(p, stream);
}

} // namespace puna::cuda
