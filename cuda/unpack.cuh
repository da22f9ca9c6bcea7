// From a lane's words of a unit to its 16 pairs of halves: q - 2^(bits-1), exact. See packed_matrix.h.
//
// The bits of a code are OR-ed into the mantissa of the half 1024: with the code at bit p that gives 1024 + q 2^p, and
// one FMA makes of it the exact integer q - zero. The constant 0x64006400 has to be in a register (a mask and a
// constant both immediate cost two instructions), so that it passes through an opaque move. Source: kernel-design 3.4.
#pragma once

#include "cuda/ptx.cuh"
#include "engine/base/dtype.h"

namespace puna::cuda {

constexpr uint32_t kMagicHalves = 0x64006400;

// A pair of equal halves as a literal (cuda_fp16's conversions are instructions, even of constants).
template <int Numerator, int Denominator = 1> __device__ __forceinline__ half2 halves()
{
    constexpr uint32_t h = floatToHalf(static_cast<float>(Numerator) / Denominator);
    return asHalf2(h | h << 16);
}

// The code at bits Position ... Position + Bits - 1 of both halves of w, minus 2^(Bits-1).
template <int Bits, int Position> __device__ __forceinline__ uint32_t field(uint32_t w, uint32_t magic)
{
    constexpr uint32_t mask = ((1u << Bits) - 1u) << Position;
    const uint32_t v = (w & (mask | mask << 16)) | magic;
    constexpr int base = (1024 >> Position) + (1 << (Bits - 1));
    if constexpr (Position == 0)
        return bits(__hadd2(asHalf2(v), halves<-base>()));
    else
        return bits(__hfma2(asHalf2(v), halves<1, 1 << Position>(), halves<-base>()));
}

template <int Bits> __device__ __forceinline__ void unpack(const uint32_t (&w)[Bits], uint32_t (&a)[16], uint32_t magic)
{
    if constexpr (Bits == 2) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t s = w[j] >> 8;
            a[8 * j] = field<2, 0>(w[j], magic), a[8 * j + 1] = field<2, 2>(w[j], magic);
            a[8 * j + 2] = field<2, 4>(w[j], magic), a[8 * j + 3] = field<2, 6>(w[j], magic);
            a[8 * j + 4] = field<2, 0>(s, magic), a[8 * j + 5] = field<2, 2>(s, magic);
            a[8 * j + 6] = field<2, 4>(s, magic), a[8 * j + 7] = field<2, 6>(s, magic);
        }
    } else if constexpr (Bits == 4) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t s = w[j] >> 8;
            a[4 * j] = field<4, 0>(w[j], magic), a[4 * j + 1] = field<4, 4>(w[j], magic);
            a[4 * j + 2] = field<4, 0>(s, magic), a[4 * j + 3] = field<4, 4>(s, magic);
        }
    } else if constexpr (Bits == 8) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            a[2 * j] = bits(__hadd2(asHalf2(__byte_perm(w[j], magic, 0x5150)), halves<-1152>()));
            a[2 * j + 1] = bits(__hadd2(asHalf2(__byte_perm(w[j], magic, 0x5352)), halves<-1152>()));
        }
    } else if constexpr (Bits == 3) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            a[5 * j] = field<3, 0>(w[j], magic), a[5 * j + 1] = field<3, 3>(w[j], magic);
            a[5 * j + 2] = field<3, 6>(w[j], magic);
        }
        const uint32_t x = w[0] >> 9, y = w[1] >> 7, z = w[2] >> 8;
        a[3] = field<3, 0>(x, magic), a[4] = field<3, 3>(x, magic);
        a[8] = field<3, 2>(y, magic), a[9] = field<3, 5>(y, magic);
        a[13] = field<3, 1>(z, magic), a[14] = field<3, 4>(z, magic);
        a[15] = field<3, 6>((x & 0x00400040) | (y & 0x01000100) | (z & 0x00800080), magic);
    } else if constexpr (Bits == 5) {
        const uint32_t s0 = w[0] >> 6, s1 = w[1] >> 7, s2 = w[2] >> 8, s3 = w[3] >> 9, s4 = w[4] >> 10;
#pragma unroll
        for (int j = 0; j < 5; ++j)
            a[3 * j] = field<5, 0>(w[j], magic), a[3 * j + 1] = field<5, 5>(w[j], magic);
        a[2] = field<5, 4>(s0, magic), a[5] = field<5, 3>(s1, magic), a[8] = field<5, 2>(s2, magic);
        a[11] = field<5, 1>(s3, magic), a[14] = field<5, 0>(s4, magic);
        a[15] = field<5, 5>(
            (s0 & 0x02000200) | (s1 & 0x01000100) | (s2 & 0x00800080) | (s3 & 0x00400040) | (s4 & 0x00200020), magic);
    } else if constexpr (Bits == 6) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t *v = w + 3 * j, x = v[0] >> 6, y = v[1] >> 6, z = v[2] >> 6;
            uint32_t* o = a + 8 * j;
            o[0] = field<6, 0>(v[0], magic), o[1] = field<6, 0>(x, magic);
            o[2] = field<6, 0>(v[1], magic), o[3] = field<6, 0>(y, magic);
            o[4] = field<6, 0>(v[2], magic), o[5] = field<6, 0>(z, magic);
            o[6] = field<6, 4>((x & 0x03c003c0) | ((z >> 2) & 0x00300030), magic);
            o[7] = field<6, 4>((y & 0x03c003c0) | ((z >> 4) & 0x00300030), magic);
        }
    } else {
        static_assert(Bits == 16);
#pragma unroll
        for (int j = 0; j < 16; ++j)
            a[j] = w[j];
    }
}

} // namespace puna::cuda
