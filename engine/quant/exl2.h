// EXL2 layers: from the tensors of a file to an Exl2Linear whose index contents are proven.
//
// Format: `exl2-format.md` section 2. Checked: element types and shapes; widths 2, 3, 4, 5, 6 or 8, never rising;
// groups that begin at word row 0, rise, and hold whole multiples of 32 rows that add up to K; a q_invperm that is a
// permutation; finite scales. Cost: O(K + groups); q_weight and q_scale are not touched.
#pragma once

#include "engine/base/model.h"
#include "engine/base/result.h"

#include <string>

namespace puna {

struct Exl2Tensors {
    TensorView q_weight, q_scale, q_scale_max, q_groups, q_invperm;
};

// name: for messages; in and out features: what the model's config expects.
Result<Exl2Linear> bindExl2(
    const std::string& name, const Exl2Tensors& tensors, std::int64_t in_features, std::int64_t out_features);

} // namespace puna
