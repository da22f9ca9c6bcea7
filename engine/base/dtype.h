// Element types of tensors in model files, and exact conversions of the half formats.
//
// The block types are GGUF's: a fixed number of elements share a block of bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace puna {

enum class DType : std::uint8_t {
    f32, f16, bf16,
    i64, i32, i16, i8, u8,
    q4_0, q4_1, q8_0, // GGUF blocks of 32: 18, 20 and 34 bytes
};

struct DTypeInfo {
    std::string_view name;
    int block_elements; // 1 for plain types
    int block_bytes;
};

constexpr DTypeInfo info(DType type)
{
    switch (type) {
    case DType::f32: return {"F32", 1, 4};
    case DType::f16: return {"F16", 1, 2};
    case DType::bf16: return {"BF16", 1, 2};
    case DType::i64: return {"I64", 1, 8};
    case DType::i32: return {"I32", 1, 4};
    case DType::i16: return {"I16", 1, 2};
    case DType::i8: return {"I8", 1, 1};
    case DType::u8: return {"U8", 1, 1};
    case DType::q4_0: return {"Q4_0", 32, 18};
    case DType::q4_1: return {"Q4_1", 32, 20};
    case DType::q8_0: return {"Q8_0", 32, 34};
    }
    return {"?", 1, 1};
}

// IEEE half to float, exact, subnormals and NaN included.
constexpr float halfToFloat(std::uint16_t h)
{
    const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
    const std::uint32_t exponent = (h >> 10) & 0x1fu;
    const std::uint32_t mantissa = h & 0x3ffu;
    if (exponent == 31)
        return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
        return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

// Round to nearest even, subnormals included; overflow becomes infinity.
constexpr std::uint16_t floatToHalf(float f)
{
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) // rounds to 65536 or more
        return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { // below the smallest normal half: a multiple of 2^-24
        const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f; // exact
        auto whole = static_cast<std::uint32_t>(scaled);
        const float rest = scaled - static_cast<float>(whole);
        if (rest > 0.5f || (rest == 0.5f && (whole & 1u)))
            ++whole;
        return static_cast<std::uint16_t>(sign | whole);
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

constexpr float bf16ToFloat(std::uint16_t b)
{
    return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

constexpr std::uint16_t floatToBf16(float f)
{
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

} // namespace puna
