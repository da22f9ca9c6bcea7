#include "engine/quant/decode.h"

#include "engine/quant/bit_stream.h"

#include <algorithm>
#include <cassert>

namespace puna {

namespace {

// Columns decoded together, so that the words of a row are read as a cache line.
constexpr std::int64_t kColumns = 16;

// Rounded to half and back: where the formats say so.
float roundedToHalf(float value)
{
    return halfToFloat(floatToHalf(value));
}

// `exl2-format.md` 2.5: three roundings to half are part of the format; the products before them are exact in float.
void decodeExl2(const Exl2Linear& layer, std::int64_t k, std::int64_t first, std::int64_t count, float* out)
{
    const std::int64_t n = layer.padded_out;
    std::vector<std::int32_t> natural(static_cast<std::size_t>(k)); // stored row -> input feature
    for (std::int64_t i = 0; i < k; ++i)
        natural[static_cast<std::size_t>(layer.q_invperm.load<std::int32_t>(i))] = static_cast<std::int32_t>(i);

    for (std::int64_t column = 0; column < count; column += kColumns) {
        const std::int64_t width = std::min(kColumns, count - column);
        for (std::size_t g = 0; g < layer.groups.size(); ++g) {
            const Exl2Linear::Group& group = layer.groups[g];
            const auto index = static_cast<std::int64_t>(g);
            const float largest = halfToFloat(layer.q_scale_max.load<std::uint16_t>(index));
            const float unit = roundedToHalf(largest / 256.0f);
            float scale[kColumns];
            for (std::int64_t j = 0; j < width; ++j) {
                const auto code =
                    static_cast<float>(bitsAt(layer.q_scale, index * (n / 8), 1, first + column + j, 4) + 1);
                scale[j] = roundedToHalf(code * code * unit);
            }
            const int zero = 1 << (group.bits - 1);
            for (std::int32_t r = 0; r < group.rows; ++r) {
                float* to = out + column * k + natural[static_cast<std::size_t>(group.row_begin + r)];
                for (std::int64_t j = 0; j < width; ++j) {
                    const std::int64_t word = group.word_row_begin * n + first + column + j;
                    const auto code = static_cast<int>(bitsAt(layer.q_weight, word, n, r, group.bits));
                    to[j * k] = roundedToHalf(static_cast<float>(code - zero) * scale[j]);
                }
            }
        }
    }
}

// `exl2-format.md` 4.2: the difference is exact in half, the product rounded to it.
void decodeGptq(
    const GptqLinear& layer, std::int64_t k, std::int64_t n, std::int64_t first, std::int64_t count, float* out)
{
    const std::int64_t zero_words = n * layer.bits / 32;
    const auto scaleAt = [&](std::int64_t i) {
        return layer.scales.dtype == DType::f16 ? halfToFloat(layer.scales.load<std::uint16_t>(i))
                                                : roundedToHalf(layer.scales.load<float>(i));
    };
    for (std::int64_t column = 0; column < count; column += kColumns) {
        const std::int64_t width = std::min(kColumns, count - column);
        float scale[kColumns];
        int zero[kColumns];
        std::int64_t loaded = -1;
        for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t group = layer.g_idx ? layer.g_idx.load<std::int32_t>(i) : i / layer.group_size;
            if (group != loaded) {
                for (std::int64_t j = 0; j < width; ++j) {
                    scale[j] = scaleAt(group * n + first + column + j);
                    zero[j] =
                        static_cast<int>(bitsAt(layer.qzeros, group * zero_words, 1, first + column + j, layer.bits))
                        + layer.zero_offset;
                }
                loaded = group;
            }
            for (std::int64_t j = 0; j < width; ++j) {
                const auto code = static_cast<int>(bitsAt(layer.qweight, first + column + j, n, i, layer.bits));
                out[(column + j) * k + i] = roundedToHalf(static_cast<float>(code - zero[j]) * scale[j]);
            }
        }
    }
}

// GGUF's blocks of 32 elements: a scale, for Q4_1 a minimum, then the codes. The low nibbles of the 4-bit kinds hold
// the first half of a block.
template <DType type> void decodeBlocks(const std::byte* block, std::int64_t blocks, float* out)
{
    for (std::int64_t b = 0; b < blocks; ++b, block += info(type).block_bytes, out += 32) {
        std::uint16_t halves[2];
        std::memcpy(halves, block, sizeof halves);
        const float scale = halfToFloat(halves[0]);
        const std::byte* codes = block + (type == DType::q4_1 ? 4 : 2);
        for (int i = 0; i < 32; ++i) {
            if constexpr (type == DType::q8_0) {
                out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
            } else {
                const auto byte = static_cast<unsigned>(codes[i % 16]);
                const auto code = static_cast<int>(i < 16 ? byte & 15u : byte >> 4);
                out[i] = type == DType::q4_1 ? scale * static_cast<float>(code) + halfToFloat(halves[1])
                                             : scale * static_cast<float>(code - 8);
            }
        }
    }
}

} // namespace

void decodeTensor(const TensorView& tensor, std::int64_t first, std::int64_t count, float* out)
{
    const DTypeInfo layout = info(tensor.dtype);
    assert(first % layout.block_elements == 0);
    assert(first >= 0 && count >= 0 && first + count <= tensor.elements());
    const auto stride = static_cast<std::size_t>(layout.block_bytes);
    const std::byte* from = tensor.data + static_cast<std::size_t>(first / layout.block_elements) * stride;
    const std::int64_t blocks = count / layout.block_elements;
    switch (tensor.dtype) {
    case DType::f32:
        std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
        return;
    case DType::f16:
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = halfToFloat(tensor.load<std::uint16_t>(first + i));
        return;
    case DType::bf16:
        for (std::int64_t i = 0; i < count; ++i)
            out[i] = bf16ToFloat(tensor.load<std::uint16_t>(first + i));
        return;
    case DType::q4_0:
        return decodeBlocks<DType::q4_0>(from, blocks, out);
    case DType::q4_1:
        return decodeBlocks<DType::q4_1>(from, blocks, out);
    case DType::q8_0:
        return decodeBlocks<DType::q8_0>(from, blocks, out);
    case DType::i64:
    case DType::i32:
    case DType::i16:
    case DType::i8:
    case DType::u8:
        break;
    }
    assert(!"integer tensors hold no weights");
}

void decodeRows(const Linear& linear, std::int64_t first, std::int64_t count, std::span<float> out)
{
    assert(first >= 0 && count >= 0 && first + count <= linear.out_features);
    assert(static_cast<std::int64_t>(out.size()) == count * linear.in_features);
    const std::int64_t k = linear.in_features;
    if (const auto* dense = std::get_if<DenseLinear>(&linear.weight))
        decodeTensor(dense->weight, first * k, count * k, out.data());
    else if (const auto* exl2 = std::get_if<Exl2Linear>(&linear.weight))
        decodeExl2(*exl2, k, first, count, out.data());
    else
        decodeGptq(std::get<GptqLinear>(linear.weight), k, linear.out_features, first, count, out.data());
}

std::vector<float> decodeLinear(const Linear& linear)
{
    std::vector<float> out(static_cast<std::size_t>(linear.out_features * linear.in_features));
    decodeRows(linear, 0, linear.out_features, out);
    return out;
}

} // namespace puna
