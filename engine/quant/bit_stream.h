// Codes packed into 32-bit words as EXL2 and GPTQ do it: `exl2-format.md` 2.3 and 4.4.
//
// Code i of a stream occupies its bits [i * bits, (i + 1) * bits), least significant first; word w of the stream is
// element first + w * stride of an I32 tensor. Codes may straddle two words (3, 5 and 6 bits).
#pragma once

#include "engine/base/view.h"

#include <cstdint>

namespace puna {

inline std::uint32_t bitsAt(const TensorView& words, std::int64_t first, std::int64_t stride, std::int64_t i, int bits)
{
    const std::int64_t bit = i * bits;
    const std::int64_t word = first + bit / 32 * stride;
    const int shift = static_cast<int>(bit % 32);
    std::uint64_t value = words.load<std::uint32_t>(word);
    if (shift + bits > 32)
        value |= static_cast<std::uint64_t>(words.load<std::uint32_t>(word + stride)) << 32;
    return static_cast<std::uint32_t>(value >> shift) & ((1u << bits) - 1u);
}

} // namespace puna
