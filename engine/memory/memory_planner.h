// What a model will take of a device's memory, and the plan that follows from it, before anything is allocated.
//
// A pure function of numbers. The KV cache is given room for the full context of every sequence where that fits, less
// where that would leave the device without reserve, and of one sequence at least; if even that is too much, the refusal says what is needed and
// what there is. The figures are the executors' own layouts, rounded up.
#pragma once

#include "engine/base/executor.h"
#include "engine/base/result.h"
#include "engine/engine.h"

#include <cstdint>

namespace puna {

struct MemoryNeeds {
    MemoryPlan plan;
    Bytes weights, kv, workspace;
    Bytes total() const { return weights + kv + workspace; }
};

// device: what will run the model, not automatic. available: of that device's memory; 0: unknown, nothing is refused.
Result<MemoryNeeds> planMemory(const ModelConfig& config, const ModelWeights& weights, DeviceKind device,
    const LoadOptions& options, Bytes available);

Bytes availableHostMemory(); // 0 where the system does not say

} // namespace puna
