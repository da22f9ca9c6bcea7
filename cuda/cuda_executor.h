// The CUDA executor, and what can be said of the GPUs of this machine without loading a model.
//
// This header holds no CUDA types, so that engine/ can use it. Built only with the CUDA toolkit.
#pragma once

#include "engine/base/executor.h"

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace puna {

struct CudaDevice {
    int index = 0;
    std::string name;
    Bytes total, free;
    int compute_capability = 0; // 90 for 9.0
};

struct CudaDevices {
    std::vector<CudaDevice> devices; // usable by this build
    std::string problem; // one sentence where there is none: no driver, driver too old, card too old ...
};

CudaDevices cudaDevices();

Result<std::unique_ptr<Executor>> loadCudaExecutor(int device, const ModelConfig& config, const ModelWeights& weights,
    const MemoryPlan& plan, const LoadProgress& progress, std::stop_token stop);

} // namespace puna
