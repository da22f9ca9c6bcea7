// The frequencies of rotary position embedding, for every executor: position p turns pair j by the angle p * f[j].
//
// Source: `exl2-format.md` section 6. Base frequencies theta^(-2j / rotary_dim); linear scaling divides them by
// the factor; llama3 scaling divides the long wavelengths only, with a smooth transition.
#pragma once

#include "engine/base/model.h"

#include <vector>

namespace puna {

std::vector<double> ropeFrequencies(const RopeConfig& rope); // rotary_dim / 2 of them

} // namespace puna
