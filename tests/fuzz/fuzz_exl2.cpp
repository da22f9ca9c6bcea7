// A safetensors file with an EXL2 layer "l" or a GPTQ layer: whatever it holds, it is refused or can be decoded.
#include "engine/model/safetensors.h"
#include "engine/quant/decode.h"
#include "engine/quant/exl2.h"
#include "engine/quant/gptq.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    using namespace puna;
    const test::MemoryFile file(data, size);
    const auto opened = Safetensors::open(file.path());
    if (!opened)
        return 0;
    const auto part = [&](const char* name) { return (*opened)->tensor(name); };
    // A model's config would bound these.
    const auto sensible = [](std::int64_t k, std::int64_t n) { return k > 0 && n > 0 && k <= 4096 && n <= 4096; };
    Linear linear;
    if (const TensorView invperm = part("l.q_invperm"), weight = part("l.q_weight");
        invperm && weight && sensible(invperm.shape[0], weight.shape[1])) {
        linear.in_features = invperm.shape[0];
        linear.out_features = weight.shape[1] - static_cast<std::int64_t>(size % 3);
        auto bound = bindExl2("l", {weight, part("l.q_scale"), part("l.q_scale_max"), part("l.q_groups"), invperm},
            linear.in_features, linear.out_features);
        if (bound) {
            linear.weight = *std::move(bound);
            (void)decodeLinear(linear);
        }
    }
    if (const TensorView weight = part("l.qweight"), scales = part("l.scales");
        weight && scales && sensible(weight.shape[0] * 8, weight.shape[1])) {
        for (const std::int64_t k :
            {weight.shape[0] * 4, weight.shape[0] * 8, weight.shape[0] * 16, weight.shape[0] * 32 / 3}) {
            linear.in_features = k;
            linear.out_features = weight.shape[1];
            auto bound = bindGptq("l", {weight, part("l.qzeros"), scales, part("l.g_idx")}, k, linear.out_features,
                {.v2 = size % 2 == 0, .symmetric = true, .group_size = static_cast<int>(size % 64)});
            if (bound) {
                linear.weight = *std::move(bound);
                (void)decodeLinear(linear);
            }
        }
    }
    return 0;
}
