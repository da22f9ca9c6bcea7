#include "engine/cpu/pack.h"

#include "engine/quant/bit_stream.h"
#include "engine/quant/decode.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace puna {

namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes)
{
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <class T> T* at(std::byte* stripe, std::int64_t offset, std::int64_t group)
{
    return reinterpret_cast<T*>(stripe + offset) + group * kStripe;
}

// The input features in the order of their groups, which are padded to whole blocks with features that do not exist.
struct Order {
    std::vector<std::int32_t> features; // [blocks * 32], -1: none
    std::vector<std::int32_t> blocks; // of each group
};

Order gptqOrder(const GptqLinear& layer, std::int64_t k)
{
    const auto groupOf = [&](std::int64_t i) {
        return layer.g_idx ? layer.g_idx.load<std::int32_t>(i) : static_cast<std::int32_t>(i / layer.group_size);
    };
    std::vector<std::int32_t> features(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < k; ++i)
        features[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
    std::stable_sort(
        features.begin(), features.end(), [&](std::int32_t a, std::int32_t b) { return groupOf(a) < groupOf(b); });
    Order order;
    for (auto from = features.begin(); from != features.end();) {
        const std::int32_t group = groupOf(*from);
        const auto to = std::find_if(from, features.end(), [&](std::int32_t i) { return groupOf(i) != group; });
        order.features.insert(order.features.end(), from, to);
        const auto blocks = static_cast<std::int32_t>((to - from + kBlock - 1) / kBlock);
        order.blocks.push_back(blocks);
        while (order.features.size() % kBlock != 0)
            order.features.push_back(-1);
        from = to;
    }
    return order;
}

std::int32_t gptqZero(const GptqLinear& layer, std::int64_t n, std::int64_t group, std::int64_t column)
{
    return static_cast<std::int32_t>(bitsAt(layer.qzeros, group * (n * layer.bits / 32), 1, column, layer.bits))
        + layer.zero_offset;
}

bool zerosAreMiddle(const GptqLinear& layer, std::int64_t n)
{
    for (std::int64_t g = 0; g < layer.scales.shape[0]; ++g)
        for (std::int64_t column = 0; column < n; ++column)
            if (gptqZero(layer, n, g, column) != 1 << (layer.bits - 1))
                return false;
    return true;
}

// Appends groups of one width, merging equal neighbours into runs.
void addGroup(PackedLinear& packed, int bits, std::int32_t blocks)
{
    if (packed.runs.empty() || packed.runs.back().bits != bits || packed.runs.back().blocks_per_group != blocks) {
        std::int64_t codes = 0;
        if (!packed.runs.empty()) {
            const Run& last = packed.runs.back();
            codes = last.codes + std::int64_t {last.groups} * last.blocks_per_group * last.bits * 64;
        }
        packed.runs.push_back({bits, blocks, 0, static_cast<std::int32_t>(packed.blocks),
            static_cast<std::int32_t>(packed.groups), codes});
    }
    ++packed.runs.back().groups;
    packed.blocks += blocks;
    ++packed.groups;
}

// The codes of 32 inputs and 16 outputs, [input][output], to the vectors of packed.h.
void packBlock(const std::uint8_t (&codes)[kBlock][kStripe], int bits, std::byte* out)
{
    std::uint8_t v[8][64]; // code vectors
    for (int k = 0; k < kBlock; ++k)
        for (int n = 0; n < kStripe; ++n)
            v[k / 4][4 * n + k % 4] = codes[k][n];
    const auto plane = [&](int width, int first_bit) { // of `width` bits from bit `first_bit` of the codes
        const int per_vector = 8 / width;
        const int mask = (1 << width) - 1;
        for (int j = 0; j < width; ++j, out += 64) {
            std::uint8_t packed[64] = {};
            for (int i = 0; i < per_vector; ++i)
                for (int b = 0; b < 64; ++b)
                    packed[b] = static_cast<std::uint8_t>(
                        packed[b] | ((v[j * per_vector + i][b] >> first_bit & mask) << (i * width)));
            std::memcpy(out, packed, 64);
        }
    };
    switch (bits) {
    case 2:
        plane(2, 0);
        break;
    case 3:
        plane(2, 0);
        plane(1, 2);
        break;
    case 4:
        plane(4, 0);
        break;
    case 5:
        plane(4, 0);
        plane(1, 4);
        break;
    case 6:
        plane(4, 0);
        plane(2, 4);
        break;
    default:
        plane(8, 0);
        break;
    }
}

void packDense(const TensorView& weight, const PackedLinear& packed, std::int64_t first, int width, std::byte* out)
{
    const std::int64_t k = packed.in_features;
    const int size = packed.kind == WeightKind::f32 ? 4 : 2;
    for (std::int64_t i = 0; i < k; ++i)
        for (int n = 0; n < width; ++n)
            std::memcpy(out + (i * kStripe + n) * size, weight.data + ((first + n) * k + i) * size,
                static_cast<std::size_t>(size));
}

void packGguf(const TensorView& weight, const PackedLinear& packed, std::int64_t first, int width, std::byte* out)
{
    const int block_bytes = info(weight.dtype).block_bytes;
    const int bits = packed.runs[0].bits;
    std::uint8_t codes[kBlock][kStripe] = {};
    for (std::int64_t b = 0; b < packed.blocks; ++b) {
        for (int n = 0; n < width; ++n) {
            const std::byte* block = weight.data + ((first + n) * packed.blocks + b) * block_bytes;
            std::memcpy(at<std::uint16_t>(out, packed.scales, b) + n, block, 2);
            block += 2;
            if (weight.dtype == DType::q4_1) {
                std::memcpy(at<std::uint16_t>(out, packed.offsets, b) + n, block, 2);
                block += 2;
            }
            if (weight.dtype == DType::q8_0) {
                for (int k = 0; k < 32; ++k)
                    codes[k][n] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(block[k]) ^ 0x80u);
            } else {
                for (int k = 0; k < 16; ++k) {
                    const auto two = static_cast<std::uint8_t>(block[k]);
                    codes[k][n] = two & 15;
                    codes[k + 16][n] = static_cast<std::uint8_t>(two >> 4);
                }
            }
        }
        packBlock(codes, bits, out + b * bits * 64);
    }
}

void packExl2(const Exl2Linear& layer, std::int64_t first, int width, std::byte* out, const PackedLinear& packed)
{
    const std::int64_t n_padded = layer.padded_out;
    std::uint8_t codes[kBlock][kStripe] = {};
    std::byte* to = out;
    for (std::size_t g = 0; g < layer.groups.size(); ++g) {
        const Exl2Linear::Group& group = layer.groups[g];
        const auto index = static_cast<std::int64_t>(g);
        const float largest = halfToFloat(layer.q_scale_max.load<std::uint16_t>(index));
        const float unit = halfToFloat(floatToHalf(largest / 256.0f));
        for (int n = 0; n < width; ++n) {
            const auto c = static_cast<float>(bitsAt(layer.q_scale, index * (n_padded / 8), 1, first + n, 4) + 1);
            at<std::uint16_t>(out, packed.scales, index)[n] = floatToHalf(c * c * unit);
        }
        for (std::int32_t row = 0; row < group.rows; row += kBlock, to += group.bits * 64) {
            const std::int64_t word_row = group.word_row_begin + row / 32 * group.bits;
            for (int n = 0; n < width; ++n) {
                std::uint64_t bits = 0;
                int have = 0;
                std::int64_t word = word_row * n_padded + first + n;
                for (int k = 0; k < kBlock; ++k) {
                    if (have < group.bits) {
                        bits |= static_cast<std::uint64_t>(layer.q_weight.load<std::uint32_t>(word)) << have;
                        word += n_padded;
                        have += 32;
                    }
                    codes[k][n] = static_cast<std::uint8_t>(bits & ((1u << group.bits) - 1u));
                    bits >>= group.bits;
                    have -= group.bits;
                }
            }
            packBlock(codes, group.bits, to);
        }
    }
}

void packGptq(const GptqLinear& layer, std::int64_t n_all, std::int64_t first, int width, std::byte* out,
    const PackedLinear& packed)
{
    const auto feature = [&](std::int64_t position) {
        return packed.gather.empty() ? static_cast<std::int32_t>(position)
                                     : packed.gather[static_cast<std::size_t>(position)];
    };
    std::int64_t block = 0, group = 0;
    for (const Run& run : packed.runs) {
        for (std::int32_t g = 0; g < run.groups; ++g, ++group) {
            const std::int64_t in_file = feature(block * kBlock); // a group's first feature exists
            const std::int64_t file_group =
                layer.g_idx ? layer.g_idx.load<std::int32_t>(in_file) : in_file / layer.group_size;
            for (int n = 0; n < width; ++n) {
                const std::int64_t i = file_group * n_all + first + n;
                at<std::uint16_t>(out, packed.scales, group)[n] = layer.scales.dtype == DType::f16
                    ? layer.scales.load<std::uint16_t>(i)
                    : floatToHalf(layer.scales.load<float>(i));
                if (packed.offset == Offset::zero)
                    at<std::int16_t>(out, packed.offsets, group)[n] =
                        static_cast<std::int16_t>(gptqZero(layer, n_all, file_group, first + n));
            }
            for (int b = 0; b < run.blocks_per_group; ++b, ++block) {
                std::uint8_t codes[kBlock][kStripe] = {};
                for (int k = 0; k < kBlock; ++k) {
                    const std::int32_t row = feature(block * kBlock + k);
                    for (int n = 0; row >= 0 && n < width; ++n)
                        codes[k][n] =
                            static_cast<std::uint8_t>(bitsAt(layer.qweight, first + n, n_all, row, layer.bits));
                }
                packBlock(codes, run.bits, out + block * run.bits * 64);
            }
        }
    }
}

} // namespace

PackedLinear planPacked(const Linear& linear)
{
    PackedLinear packed;
    packed.in_features = linear.in_features;
    packed.out_features = linear.out_features;
    packed.stripes = (linear.out_features + kStripe - 1) / kStripe;
    if (const auto* dense = std::get_if<DenseLinear>(&linear.weight)) {
        const auto block = [&](int bits, Offset offset) {
            packed.offset = offset;
            for (std::int64_t b = 0; b < linear.in_features / kBlock; ++b)
                addGroup(packed, bits, 1);
        };
        switch (dense->weight.dtype) {
        case DType::f16:
            packed.kind = WeightKind::f16;
            break;
        case DType::bf16:
            packed.kind = WeightKind::bf16;
            break;
        case DType::f32:
            packed.kind = WeightKind::f32;
            break;
        case DType::q4_0:
            block(4, Offset::middle);
            break;
        case DType::q4_1:
            block(4, Offset::minimum);
            break;
        case DType::q8_0:
            block(8, Offset::middle);
            break;
        default:
            assert(!"integer tensors hold no weights");
        }
        if (packed.kind != WeightKind::codes)
            packed.stripe_bytes = aligned(linear.in_features * kStripe * (packed.kind == WeightKind::f32 ? 4 : 2));
    } else if (const auto* exl2 = std::get_if<Exl2Linear>(&linear.weight)) {
        for (const Exl2Linear::Group& group : exl2->groups)
            addGroup(packed, group.bits, group.rows / kBlock);
        packed.gather.resize(static_cast<std::size_t>(linear.in_features));
        for (std::int64_t i = 0; i < linear.in_features; ++i)
            packed.gather[static_cast<std::size_t>(exl2->q_invperm.load<std::int32_t>(i))] =
                static_cast<std::int32_t>(i);
    } else {
        const auto& gptq = std::get<GptqLinear>(linear.weight);
        const Order order = gptqOrder(gptq, linear.in_features);
        for (const std::int32_t blocks : order.blocks)
            addGroup(packed, gptq.bits, blocks);
        packed.gather = order.features;
        packed.offset = zerosAreMiddle(gptq, linear.out_features) ? Offset::middle : Offset::zero;
    }
    std::int32_t next = 0;
    if (std::all_of(packed.gather.begin(), packed.gather.end(), [&](std::int32_t i) { return i == next++; }))
        packed.gather = {};
    if (packed.kind == WeightKind::codes) {
        const Run& last = packed.runs.back();
        packed.scales = last.codes + std::int64_t {last.groups} * last.blocks_per_group * last.bits * 64;
        packed.offsets = packed.scales + packed.groups * kStripe * 2;
        packed.stripe_bytes =
            aligned(packed.offset == Offset::middle ? packed.offsets : packed.offsets + packed.groups * kStripe * 2);
    }
    if (linear.bias) {
        packed.bias.assign(static_cast<std::size_t>(packed.stripes * kStripe), 0.0f);
        decodeTensor(linear.bias, 0, linear.out_features, packed.bias.data());
    }
    return packed;
}

void packStripe(const Linear& linear, const PackedLinear& packed, std::int64_t index, std::byte* out)
{
    const std::int64_t first = index * kStripe;
    const int width = static_cast<int>(std::min<std::int64_t>(kStripe, linear.out_features - first));
    if (width < kStripe)
        std::memset(out, 0, static_cast<std::size_t>(packed.stripe_bytes)); // missing outputs have scale 0
    if (const auto* dense = std::get_if<DenseLinear>(&linear.weight)) {
        if (packed.kind == WeightKind::codes)
            packGguf(dense->weight, packed, first, width, out);
        else
            packDense(dense->weight, packed, first, width, out);
    } else if (const auto* exl2 = std::get_if<Exl2Linear>(&linear.weight)) {
        packExl2(*exl2, first, width, out, packed);
    } else {
        packGptq(std::get<GptqLinear>(linear.weight), linear.out_features, first, width, out, packed);
    }
}

} // namespace puna
