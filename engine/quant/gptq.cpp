#include "engine/quant/gptq.h"

#include "engine/quant/bit_stream.h"

#include <algorithm>

namespace puna {

namespace {

// 1 where the first group's zero points are all the middle minus one, 0 where all are the middle, else `stated`.
int zeroOffset(const TensorView& qzeros, int bits, std::int64_t columns, int stated)
{
    const std::uint32_t middle = 1u << (bits - 1);
    bool v1 = true, v2 = true;
    for (std::int64_t n = 0; n < columns && (v1 || v2); ++n) {
        const std::uint32_t zero = bitsAt(qzeros, 0, 1, n, bits);
        v1 &= zero == middle - 1;
        v2 &= zero == middle;
    }
    return v1 ? 1 : v2 ? 0 : stated;
}

} // namespace

Result<GptqLinear> bindGptq(const std::string& name, const GptqTensors& t, std::int64_t in_features,
    std::int64_t out_features, const GptqOptions& options)
{
    const auto refused = [&](const std::string& what) {
        return Error {ErrorCode::format,
            "The GPTQ layer '" + name + "' " + what + "; the model is damaged or of another kind (AWQ?)."};
    };
    const std::int64_t k = in_features;
    const std::int64_t n = out_features;
    if (!t.qweight || t.qweight.dtype != DType::i32 || t.qweight.rank != 2 || t.qweight.shape[1] != n)
        return refused("lacks a qweight of I32 with " + std::to_string(n) + " columns");
    GptqLinear layer;
    for (const int bits : {2, 3, 4, 8})
        if (k % 32 == 0 && t.qweight.shape[0] == k / 32 * bits)
            layer.bits = bits;
        else if (bits != 3 && k % (32 / bits) == 0 && t.qweight.shape[0] == k * bits / 32)
            layer.bits = bits;
    if (t.qweight.shape[0] * 32 != k * layer.bits)
        return refused("has " + std::to_string(t.qweight.shape[0]) + " rows of words for " + std::to_string(k)
            + " input features, which is not a width of 2, 3, 4 or 8 bits");
    if (n * layer.bits % 32 != 0)
        return refused("has " + std::to_string(n) + " output features, whose zero points do not fill whole words");
    if (!t.scales || (t.scales.dtype != DType::f16 && t.scales.dtype != DType::f32) || t.scales.rank != 2
        || t.scales.shape[1] != n)
        return refused("lacks scales of F16 or F32 with " + std::to_string(n) + " columns");
    const std::int64_t groups = t.scales.shape[0];
    if (groups < 1 || groups > k)
        return refused("has " + std::to_string(groups) + " groups for " + std::to_string(k) + " input features");
    if (!t.qzeros || t.qzeros.dtype != DType::i32 || t.qzeros.rank != 2 || t.qzeros.shape[0] != groups
        || t.qzeros.shape[1] != n * layer.bits / 32)
        return refused(
            "lacks a qzeros of I32 [" + std::to_string(groups) + ", " + std::to_string(n * layer.bits / 32) + "]");

    std::int64_t size = options.group_size;
    if (size < 1 || (k + size - 1) / size != groups)
        for (size = 1; size * groups < k;)
            size *= 2;
    layer.group_size = static_cast<int>(size);
    layer.qweight = t.qweight;
    layer.qzeros = t.qzeros;
    layer.scales = t.scales;
    layer.zero_offset = options.v2 ? 0 : 1;
    if (options.symmetric)
        layer.zero_offset = zeroOffset(t.qzeros, layer.bits, n, layer.zero_offset);

    if (t.g_idx) {
        if (t.g_idx.dtype != DType::i32 || t.g_idx.rank != 1 || t.g_idx.shape[0] != k)
            return refused("has a g_idx that is not I32 [" + std::to_string(k) + "]");
        bool all_zero = true, sequential = true;
        for (std::int64_t i = 0; i < k; ++i) {
            const auto group = t.g_idx.load<std::int32_t>(i);
            if (group < 0 || group >= groups)
                return refused("has " + std::to_string(group) + " at " + std::to_string(i) + " of g_idx, expected 0 to "
                    + std::to_string(groups - 1));
            all_zero &= group == 0;
            sequential &= group == i / size;
        }
        if (!all_zero && !sequential)
            layer.g_idx = t.g_idx;
    }
    return layer;
}

} // namespace puna
