// GPTQ layers: from the tensors of a file to a GptqLinear whose index contents are proven.
//
// Format: `exl2-format.md` section 4. The width follows from the shapes, the group size from the config where it
// fits, else it is the smallest power of two that covers K. An all-zero g_idx, or one that says what the group size
// says, is dropped. Symmetric files tell by their zero points whether these are stored minus one, whatever the config
// says. Cost: O(K + N); qweight and scales are not touched.
#pragma once

#include "engine/base/model.h"
#include "engine/base/result.h"

#include <string>

namespace puna {

struct GptqTensors {
    TensorView qweight, qzeros, scales, g_idx; // g_idx may be empty
};

struct GptqOptions {
    bool v2 = false;
    bool symmetric = false;
    int group_size = 0; // 0: not stated
};

Result<GptqLinear> bindGptq(const std::string& name, const GptqTensors& tensors, std::int64_t in_features,
    std::int64_t out_features, const GptqOptions& options);

} // namespace puna
