// Repacks a linear layer of any format into stripes (packed.h).
//
// planPacked() decides the layout and costs next to nothing but, for GPTQ, one look at the zero points; packStripe()
// writes one stripe and may run on many threads. Every weight keeps its code and its scale: the packed matrix is the
// file's, but for the last rounding of a product to half that EXL2 and GPTQ define (at most 2^-11 of a weight).
#pragma once

#include "engine/base/model.h"
#include "engine/cpu/packed.h"

namespace puna {

// Everything but `data`.
PackedLinear planPacked(const Linear& linear);

// Writes the stripe_bytes of stripe `index` to `out`, which is aligned to 64.
void packStripe(const Linear& linear, const PackedLinear& packed, std::int64_t index, std::byte* out);

} // namespace puna
