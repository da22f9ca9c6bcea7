// The CPU executors.
//
// `cpu`: the fast path. Weights are repacked at load into stripes for the instruction set found at run time
// (AVX-512 VNNI, AVX2, portable), activations are rounded to 16 bits per 32 elements, KV pages are half precision.
// `reference`: plain loops in float32, the oracle for every other executor and kernel.
#pragma once

#include "engine/base/executor.h"

#include <memory>
#include <stop_token>

namespace puna {

Result<std::unique_ptr<Executor>> loadCpuExecutor(const ModelConfig& config, const ModelWeights& weights,
                                                  const MemoryPlan& plan, const LoadProgress& progress,
                                                  std::stop_token stop);

Result<std::unique_ptr<Executor>> loadReferenceExecutor(const ModelConfig& config, const ModelWeights& weights,
                                                        const MemoryPlan& plan, const LoadProgress& progress,
                                                        std::stop_token stop);

} // namespace puna
