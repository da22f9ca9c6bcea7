// From CUDA's error codes to Result. CUDA_TRY(call) returns the error from the calling function.
//
// Kernels are only enqueued: the first error of the queue comes back from the next synchronising call, and after a
// sticky one (a fault inside a kernel) every further call fails, so that the executor has to be loaded again.
#pragma once

#include "engine/base/result.h"

#include <cuda_runtime.h>

namespace puna::cuda {

Error failure(cudaError_t error, const char* call);

} // namespace puna::cuda

#define CUDA_TRY(...)                                                                                                  \
    do {                                                                                                               \
        const cudaError_t cuda_try_error = (__VA_ARGS__);                                                              \
        if (cuda_try_error != cudaSuccess)                                                                             \
            return ::puna::cuda::failure(cuda_try_error, #__VA_ARGS__);                                                \
    } while (false)
