#include "cuda/cuda_executor.h"

namespace puna {

Result<std::unique_ptr<Executor>> loadCudaExecutor(
    int, const ModelConfig&, const ModelWeights&, const MemoryPlan&, const LoadProgress&, std::stop_token)
{
    return Error {ErrorCode::unsupported, "This build cannot run models on the GPU; choose the CPU."};
}

} // namespace puna
