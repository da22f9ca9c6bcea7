#include "cuda/device.h"

#include "cuda/cuda_executor.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace puna {

namespace cuda {

Error failure(cudaError_t error, const char* call)
{
    cudaGetLastError(); // not to be reported twice
    const std::string name = cudaGetErrorName(error);
    switch (error) {
    case cudaErrorMemoryAllocation:
        return {ErrorCode::memory, "The GPU has not enough free memory; choose a shorter context or a smaller model."};
    case cudaErrorNoKernelImageForDevice:
        return {ErrorCode::unsupported, "This program was not built for this GPU; choose the CPU."};
    default:
        return {ErrorCode::device,
            std::string("The GPU failed with ") + name + " (" + cudaGetErrorString(error) + ") in " + call
                + "; load the model again."};
    }
}

Result<Stream> makeStream()
{
    cudaStream_t stream = nullptr;
    CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return Stream(stream);
}

Result<Event> makeEvent()
{
    cudaEvent_t event = nullptr;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return Event(event);
}

Result<DeviceBuffer> allocate(std::int64_t bytes, std::string_view what)
{
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        std::size_t free = 0;
        std::size_t total = 0;
        cudaMemGetInfo(&free, &total);
        char sizes[96];
        std::snprintf(sizes, sizeof sizes, "%.2f GiB, and %.2f GiB of %.2f GiB", static_cast<double>(bytes) * 0x1p-30,
            static_cast<double>(free) * 0x1p-30, static_cast<double>(total) * 0x1p-30);
        return Error {ErrorCode::memory,
            std::string(what) + " need " + sizes
                + " are free on the GPU; choose a shorter context or a smaller model, or close other programs that "
                  "use the GPU."};
    }
    CUDA_TRY(error);
    return DeviceBuffer(data, bytes);
}

Result<PinnedBuffer> allocatePinned(std::int64_t bytes)
{
    void* data = nullptr;
    CUDA_TRY(cudaMallocHost(&data, static_cast<std::size_t>(bytes)));
    return PinnedBuffer(data, bytes);
}

bool runsOn(std::string_view architectures, int cc)
{
    while (!architectures.empty()) {
        const std::size_t end = architectures.find(';');
        const std::string entry(architectures.substr(0, end));
        architectures.remove_prefix(end == std::string_view::npos ? architectures.size() : end + 1);
        char* rest = nullptr;
        const int arch = static_cast<int>(std::strtol(entry.c_str(), &rest, 10));
        const std::string_view suffix(rest);
        const bool exact = suffix.starts_with("a"); // features of this one architecture
        const bool intermediate = suffix.find("-real") == std::string_view::npos; // the driver can compile it
        if (arch == cc)
            return true;
        if (!exact && arch < cc && (intermediate || arch / 10 == cc / 10))
            return true;
    }
    return false;
}

namespace {

// The free memory of a device without creating a context on it, from the driver's management library.
std::int64_t freeMemory(const cudaDeviceProp& properties, std::int64_t otherwise)
{
    struct Memory {
        unsigned long long total, free, used;
    };
    const auto library = Owner<void*, dlclose>(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
    if (!library)
        return otherwise;
    const auto init = reinterpret_cast<int (*)()>(dlsym(library.get(), "nvmlInit_v2"));
    const auto shutdown = reinterpret_cast<int (*)()>(dlsym(library.get(), "nvmlShutdown"));
    const auto handle =
        reinterpret_cast<int (*)(const char*, void**)>(dlsym(library.get(), "nvmlDeviceGetHandleByPciBusId_v2"));
    const auto memory = reinterpret_cast<int (*)(void*, Memory*)>(dlsym(library.get(), "nvmlDeviceGetMemoryInfo"));
    if (!init || !shutdown || !handle || !memory || init() != 0)
        return otherwise;
    char bus[32];
    std::snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
        static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
    void* device = nullptr;
    Memory found {};
    if (handle(bus, &device) == 0 && memory(device, &found) == 0)
        otherwise = static_cast<std::int64_t>(found.free);
    shutdown();
    return otherwise;
}

std::string cudaVersion(int version)
{
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

} // namespace

} // namespace cuda

CudaDevices cudaDevices()
{
    CudaDevices result;
    // Any driver of the toolkit's major version runs it.
    constexpr int kNeeded = CUDART_VERSION / 1000 * 1000;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) {
        result.problem = "No NVIDIA driver is installed, so models run on the CPU.";
        return result;
    }
    if (driver < kNeeded) {
        result.problem = "The NVIDIA driver supports CUDA " + cuda::cudaVersion(driver) + ", and this program needs "
            + cuda::cudaVersion(kNeeded) + "; update the driver to use the GPU.";
        return result;
    }
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        cudaGetLastError();
        result.problem = error == cudaErrorNoDevice || error == cudaSuccess
            ? "The NVIDIA driver finds no GPU, so models run on the CPU."
            : std::string("The NVIDIA driver cannot be used: ") + cudaGetErrorString(error) + ".";
        return result;
    }
    for (int i = 0; i < count; ++i) {
        cudaDeviceProp properties {};
        if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
            cudaGetLastError();
            continue;
        }
        const int cc = properties.major * 10 + properties.minor;
        if (!cuda::runsOn(PUNA_CUDA_ARCHITECTURES, cc)) {
            if (result.problem.empty())
                result.problem = std::string(properties.name) + " has compute capability "
                    + std::to_string(properties.major) + "." + std::to_string(properties.minor)
                    + ", for which this program was not built.";
            continue;
        }
        const auto total = static_cast<std::int64_t>(properties.totalGlobalMem);
        result.devices.push_back({i, properties.name, {total}, {cuda::freeMemory(properties, total)}, cc});
    }
    if (!result.devices.empty())
        result.problem.clear();
    return result;
}

} // namespace puna
