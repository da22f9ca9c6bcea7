// Reference decoders: a linear layer's weights as float32, exactly as the format defines them.
//
// EXL2 and GPTQ values are halves by definition and come out bit for bit as shared/tools/exl2_reference.py and
// ExLlamaV2 compute them. Plain and slow on purpose: the oracle for the kernels.
#pragma once

#include "engine/base/model.h"

#include <cstdint>
#include <span>
#include <vector>

namespace puna {

// rows first ... first + count of W as [count, K], one row per output feature. out.size() == count * in_features.
void decodeRows(const Linear& linear, std::int64_t first, std::int64_t count, std::span<float> out);

// A whole layer, [out_features, in_features].
std::vector<float> decodeLinear(const Linear& linear);

// `count` elements of a f32, f16, bf16 or block-type tensor from element `first` (a multiple of its block size).
void decodeTensor(const TensorView& tensor, std::int64_t first, std::int64_t count, float* out);

} // namespace puna
