#include "cuda/blas.h"

#include "cuda/launch.h"
#include "cuda/unpack.cuh"
#include "cuda/weights.cuh"

#include <algorithm>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <string>
#include <type_traits>

namespace puna::cuda {

namespace {

constexpr std::int64_t kScratchBytes = std::int64_t {64} << 20; // of unpacked weights
constexpr std::int64_t kLibraryBytes = std::int64_t {32} << 20; // cuBLAS's own workspace
constexpr int kFewestRows = 64;
constexpr int kUnpackWarps = 8;

// out [count stripes x 16, stride] halves, in stored order. A warp per unit; x: units, y: stripes.
__global__ void __launch_bounds__(kUnpackWarps * 32)
    unpackKernel(const __grid_constant__ PackedMatrix m, int first_stripe, __half* out, int stride, uint32_t magic)
{
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int index = static_cast<int>(blockIdx.x) * kUnpackWarps + static_cast<int>(threadIdx.x >> 5);
    const int r = index >> 2; // run, and unit in it
    const int u = index & 3;
    if (r >= m.n_runs)
        return;
    const Run run = m.runs[r];
    if (u >= run.units)
        return;
    const std::int64_t stripe = first_stripe + static_cast<int>(blockIdx.y);
    const uint32_t* codes = m.codes + (stripe * m.stripe_lines + run.line + u * run.bits) * 32 + lane;
    const int g = lane >> 2;
    const int t = lane & 3;
    uint32_t a[16];
    if (run.bits == 16) {
#pragma unroll
        for (int j = 0; j < 16; ++j)
            a[j] = __ldcs(codes + j * 32);
    } else {
        const int pair_words = m.offset == Offset::none ? 1 : 2;
        const int pieces = 2 * pair_words;
        const auto* scales = reinterpret_cast<const uint32_t*>(m.scales + stripe * m.stripe_scales + run.scale
                                 + (u * kUnitInputs >> run.shift) * pieces)
            + g * pair_words;
        uint32_t scale[2], offset[2] = {};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const uint32_t* at = scales + (run.shift == 5 ? h * 8 * pair_words : 0);
            scale[h] = __ldg(at);
            if (pair_words == 2)
                offset[h] = __ldg(at + 1);
        }
        const auto load = [&]<int Bits>(std::integral_constant<int, Bits>) {
            uint32_t w[Bits];
#pragma unroll
            for (int j = 0; j < Bits; ++j)
                w[j] = __ldcs(codes + j * 32);
            unpackScaled<Bits>(w, scale, offset, m.offset, magic, a);
        };
        switch (run.bits) {
        case 2:
            load(std::integral_constant<int, 2> {});
            break;
        case 3:
            load(std::integral_constant<int, 3> {});
            break;
        case 4:
            load(std::integral_constant<int, 4> {});
            break;
        case 5:
            load(std::integral_constant<int, 5> {});
            break;
        case 6:
            load(std::integral_constant<int, 6> {});
            break;
        default:
            load(std::integral_constant<int, 8> {});
            break;
        }
    }
    const int block = run.block + 2 * u;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        if (block + h >= static_cast<int>(run.limit))
            break; // padding: the next band begins here
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            const std::int64_t row = static_cast<int>(blockIdx.y) * kStripeRows + g + 8 * s;
            *reinterpret_cast<uint4*>(out + row * stride + (block + h) * 32 + 8 * t) =
                make_uint4(a[8 * h + 4 * s], a[8 * h + 4 * s + 1], a[8 * h + 4 * s + 2], a[8 * h + 4 * s + 3]);
        }
    }
}

// out[r, i] (+)= y[r, i] * 2^e of the row
__global__ void addScaled(const float* y, int n, const unsigned* row_max, float* out, int stride, bool add)
{
    const std::int64_t row = blockIdx.y;
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    const float v = y[row * n + i] * scaleUp(row_max[row]);
    float* to = out + row * stride + i;
    *to = add ? *to + v : v;
}

class Library final : public Blas {
public:
    ~Library() override
    {
        if (m_handle)
            m_destroy(m_handle);
    }

    bool load(cudaStream_t stream)
    {
        m_stream = stream;
        const std::string name = "libcublas.so." + std::to_string(CUDART_VERSION / 1000);
        m_library = Owner<void*, dlclose>(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
        if (!m_library)
            return false;
        const auto find = [&]<class F>(F& function, const char* symbol) {
            function = reinterpret_cast<F>(dlsym(m_library.get(), symbol));
            return function != nullptr;
        };
        decltype(&cublasCreate_v2) create = nullptr;
        decltype(&cublasSetStream_v2) set_stream = nullptr;
        decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
        if (!find(create, "cublasCreate_v2") || !find(m_destroy, "cublasDestroy_v2")
            || !find(set_stream, "cublasSetStream_v2") || !find(set_workspace, "cublasSetWorkspace_v2")
            || !find(m_gemm, "cublasGemmEx"))
            return false;
        auto memory = allocate(kScratchBytes + kLibraryBytes, "Buffers for prompts");
        if (!memory)
            return false;
        m_memory = std::move(memory).value();
        return create(&m_handle) == CUBLAS_STATUS_SUCCESS && set_stream(m_handle, stream) == CUBLAS_STATUS_SUCCESS
            && set_workspace(m_handle, m_memory.data() + kScratchBytes, static_cast<std::size_t>(kLibraryBytes))
            == CUBLAS_STATUS_SUCCESS;
    }

    bool takes(const GemmArguments& a) const override
    {
        bool takes = a.rows >= kFewestRows;
        for (int i = 0; i < a.matrices; ++i)
            takes = takes && !a.m[i].bias && !a.m[i].row_scale && a.m[i].k % 8 == 0
                && stride(a.m[i]) * kStripeRows * 2 <= kScratchBytes;
        return takes;
    }

    Result<void> multiply(const GemmArguments& a, float* scratch) override
    {
        for (int i = 0; i < a.matrices; ++i) {
            const PackedMatrix& m = a.m[i];
            const std::int64_t width = stride(m);
            const auto slice =
                static_cast<int>(std::min<std::int64_t>(kScratchBytes / (width * kStripeRows * 2), 32768));
            auto* weights = m_memory.as<__half>();
            for (int first = 0; first < m.stripes; first += slice) {
                const int count = std::min(slice, m.stripes - first);
                CUDA_TRY(launch(Overlap::no, unpackKernel,
                    dim3(static_cast<unsigned>((m.n_runs * 4 + kUnpackWarps - 1) / kUnpackWarps),
                        static_cast<unsigned>(count)),
                    kUnpackWarps * 32, 0, m_stream, m, first, weights, static_cast<int>(width), kMagicHalves));
                const int n = std::min(count * kStripeRows, m.n - first * kStripeRows);
                const float one = 1.0f;
                const float beta = a.add && !a.row_max ? 1.0f : 0.0f;
                float* out = a.row_max ? scratch + first * kStripeRows : a.out + a.base[i] + first * kStripeRows;
                const cublasStatus_t status = m_gemm(m_handle, CUBLAS_OP_T, CUBLAS_OP_N, n, a.rows, m.k, &one, weights,
                    CUDA_R_16F, static_cast<int>(width), a.x[i], CUDA_R_16F, a.x_stride, &beta, out, CUDA_R_32F,
                    a.row_max ? m.n : a.out_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
                if (status != CUBLAS_STATUS_SUCCESS)
                    return Error {ErrorCode::device,
                        "The GPU's matrix library failed with status " + std::to_string(status)
                            + "; load the model again."};
            }
            if (a.row_max)
                CUDA_TRY(launch(Overlap::no, addScaled,
                    dim3(static_cast<unsigned>((m.n + 255) / 256), static_cast<unsigned>(a.rows)), 256, 0, m_stream,
                    scratch, m.n, a.row_max, a.out + a.base[i], a.out_stride, a.add));
        }
        return {};
    }

    std::int64_t bytes() const override { return m_memory.bytes(); }

private:
    static std::int64_t stride(const PackedMatrix& m) { return (std::int64_t {m.k} + 63) / 64 * 64; }

    Owner<void*, dlclose> m_library;
    DeviceBuffer m_memory; // freed before the library goes, after the handle
    cudaStream_t m_stream = nullptr;
    cublasHandle_t m_handle = nullptr;
    decltype(&cublasDestroy_v2) m_destroy = nullptr;
    cublasStatus_t (*m_gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
        const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*, cudaDataType, int,
        cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
};

} // namespace

std::unique_ptr<Blas> Blas::open(cudaStream_t stream)
{
    auto library = std::make_unique<Library>();
    if (!library->load(stream))
        return nullptr;
    return library;
}

} // namespace puna::cuda
