// Unpacked weights as the formats define them: (code - zero) * scale (+ offset), rounded to half.
#pragma once

#include "cuda/packed_matrix.h"
#include "cuda/unpack.cuh"

namespace puna::cuda {

// scale, offset: of each input half, rows g and g + 8.
template <int Bits>
__device__ __forceinline__ void unpackScaled(const uint32_t (&w)[Bits], const uint32_t (&scale)[2],
    const uint32_t (&offset)[2], Offset kind, uint32_t magic, uint32_t (&a)[16])
{
    unpack<Bits>(w, a, magic);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const half2 both = asHalf2(scale[i >> 3]);
        const half2 s = i & 4 ? __high2half2(both) : __low2half2(both);
        if (kind == Offset::none) {
            a[i] = bits(__hmul2(asHalf2(a[i]), s));
        } else {
            constexpr float zero = 1 << (Bits - 1);
            const half2 pair = asHalf2(offset[i >> 3]);
            const float o = __half2float(i & 4 ? __high2half(pair) : __low2half(pair));
            if (kind == Offset::zero_point)
                a[i] = bits(__hmul2(__hadd2(asHalf2(a[i]), __float2half2_rn(zero - o)), s));
            else
                a[i] = bits(__hfma2(asHalf2(a[i]), s, __float2half2_rn(fmaf(zero, __low2float(s), o))));
        }
    }
}

} // namespace puna::cuda
