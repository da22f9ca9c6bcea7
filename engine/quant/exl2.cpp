#include "engine/quant/exl2.h"

#include <vector>

namespace puna {

namespace {

constexpr std::int64_t kMaxRows = 65536; // the format's readers keep row indices in 16 bits

bool isShape(const TensorView& t, DType dtype, std::initializer_list<std::int64_t> shape)
{
    if (!t || t.dtype != dtype || t.rank != static_cast<int>(shape.size()))
        return false;
    std::size_t i = 0;
    for (const std::int64_t extent : shape)
        if (t.shape[i++] != extent)
            return false;
    return true;
}

} // namespace

Result<Exl2Linear> bindExl2(
    const std::string& name, const Exl2Tensors& t, std::int64_t in_features, std::int64_t out_features)
{
    const auto refused = [&](const std::string& what) {
        return Error {ErrorCode::format,
            "The EXL2 layer '" + name + "' " + what + "; the model is damaged. Copy or download it again."};
    };
    const std::int64_t k = in_features;
    const std::int64_t n = (out_features + 31) / 32 * 32;
    if (k % 32 != 0 || k > kMaxRows)
        return refused("has " + std::to_string(k) + " input features, expected a multiple of 32 up to "
            + std::to_string(kMaxRows));
    if (!t.q_weight || t.q_weight.dtype != DType::i32 || t.q_weight.rank != 2 || t.q_weight.shape[1] != n)
        return refused("lacks a q_weight of I32 with " + std::to_string(n) + " columns");
    if (!t.q_scale_max || t.q_scale_max.dtype != DType::f16 || t.q_scale_max.rank != 1)
        return refused("lacks a q_scale_max of F16");
    const std::int64_t groups = t.q_scale_max.shape[0];
    const std::int64_t words = t.q_weight.shape[0];
    if (groups < 1 || groups > k / 32)
        return refused("has " + std::to_string(groups) + " groups, expected 1 to " + std::to_string(k / 32));
    if (!isShape(t.q_scale, DType::i32, {groups, n / 8}))
        return refused("lacks a q_scale of I32 [" + std::to_string(groups) + ", " + std::to_string(n / 8) + "]");
    if (!isShape(t.q_groups, DType::i16, {2 * groups}))
        return refused("lacks a q_groups of I16 [" + std::to_string(2 * groups) + "]");
    if (!isShape(t.q_invperm, DType::i32, {k}))
        return refused("lacks a q_invperm of I32 [" + std::to_string(k) + "], one entry for each input feature");

    Exl2Linear layer;
    layer.q_weight = t.q_weight;
    layer.q_scale = t.q_scale;
    layer.q_scale_max = t.q_scale_max;
    layer.q_invperm = t.q_invperm;
    layer.padded_out = n;
    layer.groups.reserve(static_cast<std::size_t>(groups));
    std::int64_t row = 0;
    int widest = 8;
    for (std::int64_t g = 0; g < groups; ++g) {
        const int bits = t.q_groups.load<std::uint16_t>(2 * g);
        const std::int64_t begin = t.q_groups.load<std::uint16_t>(2 * g + 1);
        const std::int64_t end = g + 1 < groups ? t.q_groups.load<std::uint16_t>(2 * g + 3) : words;
        const std::string which = "group " + std::to_string(g);
        if (bits != 2 && bits != 3 && bits != 4 && bits != 5 && bits != 6 && bits != 8)
            return refused("has " + which + " with " + std::to_string(bits) + " bits, expected 2, 3, 4, 5, 6 or 8");
        if (bits > widest)
            return refused("has " + which + " with more bits than the one before it");
        if ((g == 0 && begin != 0) || end <= begin || end > words)
            return refused("has " + which + " in rows " + std::to_string(begin) + " to " + std::to_string(end)
                + " of q_weight, expected rising rows from 0 to " + std::to_string(words));
        const std::int64_t rows = (end - begin) * 32 / bits;
        if ((end - begin) * 32 % bits != 0 || rows % 32 != 0 || rows > k - row)
            return refused("has " + which + " of " + std::to_string(end - begin) + " rows of " + std::to_string(bits)
                + "-bit codes, expected multiples of 32 weights adding up to " + std::to_string(k));
        const std::uint16_t scale = t.q_scale_max.load<std::uint16_t>(g);
        if ((scale & 0x7c00u) == 0x7c00u)
            return refused("has a scale in " + which + " that is not a finite number");
        layer.groups.push_back(
            {bits, static_cast<std::int32_t>(row), static_cast<std::int32_t>(rows), static_cast<std::int32_t>(begin)});
        row += rows;
        widest = bits;
    }
    if (row != k)
        return refused("has groups for " + std::to_string(row) + " input features, expected " + std::to_string(k));

    std::vector<bool> seen(static_cast<std::size_t>(k));
    for (std::int64_t i = 0; i < k; ++i) {
        const auto stored = t.q_invperm.load<std::int32_t>(i);
        if (stored < 0 || stored >= k || seen[static_cast<std::size_t>(stored)])
            return refused("has " + std::to_string(stored) + " at " + std::to_string(i)
                + " of q_invperm, which is out of range or there twice");
        seen[static_cast<std::size_t>(stored)] = true;
    }
    return layer;
}

} // namespace puna
