// Launches a kernel, on request with programmatic dependent launch: the kernel may begin while its predecessor ends,
// and itself waits (waitForPredecessors) before it touches what that one wrote.
#pragma once

#include "cuda/check.h"

#include <cstdint>

namespace puna::cuda {

enum class Overlap { no, yes };

template <class... Parameters, class... Arguments>
cudaError_t launch(Overlap overlap, void (*kernel)(Parameters...), dim3 grid, int threads, std::int64_t shared,
    cudaStream_t stream, Arguments&&... arguments)
{
    cudaLaunchConfig_t config {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared);
    config.stream = stream;
    cudaLaunchAttribute attribute {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlap == Overlap::yes ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

} // namespace puna::cuda
