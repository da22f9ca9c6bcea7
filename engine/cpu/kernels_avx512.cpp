// kernels.inl for AVX-512 (F, BW, DQ, VL) with VNNI: one register holds 16 floats or the codes of 16 outputs, and
// one vpdpbusd multiplies 64 of them.
#include "engine/cpu/kernels.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,avx2,f16c"))), apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // gcc 12's own _mm512_undefined_ps ()
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,avx2,f16c,prefer-vector-width=512")
#endif

namespace puna {
namespace {

constexpr SimdLevel kLevel = SimdLevel::avx512_vnni;
constexpr int kRowTile = 4;
constexpr int kStripes = 2;
constexpr int kScoreTiles = 4;
constexpr int kValueChunks = 4;
constexpr int kPrefetch = 1536; // bytes ahead in a stripe

#define PUNA_OP inline __attribute__((always_inline))

struct F {
    __m512 v;
};
struct I {
    __m512i v;
};
struct X {
    __m512i v;
};
struct C {
    __m512i v;
};

PUNA_OP F zeroF()
{
    return {_mm512_setzero_ps()};
}
PUNA_OP F set(float x)
{
    return {_mm512_set1_ps(x)};
}
PUNA_OP F load(const float* p)
{
    return {_mm512_loadu_ps(p)};
}
PUNA_OP void store(float* p, F x)
{
    _mm512_storeu_ps(p, x.v);
}
PUNA_OP F loadHalf(const std::uint16_t* p)
{
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
PUNA_OP void storeHalf(std::uint16_t* p, F x)
{
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
PUNA_OP F loadBf16(const std::uint16_t* p)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
PUNA_OP F loadNegatedInt16(const std::uint16_t* p)
{
    const __m512i wide = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), wide))};
}
PUNA_OP F add(F a, F b)
{
    return {_mm512_add_ps(a.v, b.v)};
}
PUNA_OP F sub(F a, F b)
{
    return {_mm512_sub_ps(a.v, b.v)};
}
PUNA_OP F mul(F a, F b)
{
    return {_mm512_mul_ps(a.v, b.v)};
}
PUNA_OP F div(F a, F b)
{
    return {_mm512_div_ps(a.v, b.v)};
}
PUNA_OP F fma(F a, F b, F c)
{
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
PUNA_OP F largerOf(F a, F b)
{
    return {_mm512_max_ps(a.v, b.v)};
}
PUNA_OP F smallerOf(F a, F b)
{
    return {_mm512_min_ps(a.v, b.v)};
}
PUNA_OP F firstLanes(F x, int n, F rest)
{
    const unsigned mask = n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u;
    return {_mm512_mask_mov_ps(rest.v, static_cast<__mmask16>(mask), x.v)};
}
PUNA_OP float sumOf(F x)
{
    return _mm512_reduce_add_ps(x.v);
}
PUNA_OP float largestOf(F x)
{
    return _mm512_reduce_max_ps(x.v);
}
PUNA_OP float firstLane(F x)
{
    return _mm512_cvtss_f32(x.v);
}
PUNA_OP I round(F x)
{
    return {_mm512_cvtps_epi32(x.v)};
}
PUNA_OP F toFloat(I x)
{
    return {_mm512_cvtepi32_ps(x.v)};
}
PUNA_OP F timesPowerOfTwo(F x, I n)
{
    return {_mm512_scalef_ps(x.v, _mm512_cvtepi32_ps(n.v))};
}

PUNA_OP I setI(std::int32_t x)
{
    return {_mm512_set1_epi32(x)};
}
PUNA_OP I addI(I a, I b)
{
    return {_mm512_add_epi32(a.v, b.v)};
}
PUNA_OP I subI(I a, I b)
{
    return {_mm512_sub_epi32(a.v, b.v)};
}
template <int n> PUNA_OP I shiftLeftI(I x)
{
    return {_mm512_slli_epi32(x.v, n)};
}
template <int n> PUNA_OP I shiftRightI(I x)
{
    return {_mm512_srai_epi32(x.v, n)};
}
PUNA_OP int sumOf(I x)
{
    return _mm512_reduce_add_epi32(x.v);
}
// As unsigned numbers the bit patterns of magnitudes are ordered, infinity and NaN last.
PUNA_OP float largestMagnitude(F a, F b)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    const __m512i x = _mm512_and_si512(_mm512_castps_si512(a.v), mask);
    const __m512i y = _mm512_and_si512(_mm512_castps_si512(b.v), mask);
    const std::uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(x, y));
    float result;
    std::memcpy(&result, &largest, sizeof result);
    return result;
}
PUNA_OP void storeBytes(std::int8_t* p, I a, I b)
{
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm512_cvtsepi32_epi8(b.v));
}

PUNA_OP X loadX(const std::int8_t* p)
{
    std::int32_t four;
    std::memcpy(&four, p, sizeof four);
    return {_mm512_set1_epi32(four)};
}
PUNA_OP C loadCodes(const std::byte* p)
{
    return {_mm512_loadu_si512(p)};
}
template <int mask> PUNA_OP C maskCodes(C x)
{
    return {_mm512_and_si512(x.v, _mm512_set1_epi8(mask))};
}
// Right for n > 0, left for n < 0, across bytes: mask afterwards.
template <int n> PUNA_OP C shiftCodes(C x)
{
    if constexpr (n > 0)
        return {_mm512_srli_epi16(x.v, n)};
    else if constexpr (n < 0)
        return {_mm512_slli_epi16(x.v, -n)};
    else
        return x;
}
template <int mask> PUNA_OP C orMasked(C a, C b)
{
    return {_mm512_ternarylogic_epi32(a.v, b.v, _mm512_set1_epi8(mask), 0xf8)}; // a | (b & mask)
}
PUNA_OP C xorCodes(C a, C b)
{
    return {_mm512_xor_si512(a.v, b.v)};
}
PUNA_OP std::uint64_t foldCodes(C x)
{
    alignas(64) std::uint64_t lanes[8];
    _mm512_store_si512(lanes, x.v);
    std::uint64_t all = 0;
    for (std::uint64_t lane : lanes)
        all ^= lane;
    return all;
}
PUNA_OP void prefetch(const std::byte* p)
{
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

template <int Bits> struct Dot {
    __m512i total;
    PUNA_OP void clear() { total = _mm512_setzero_si512(); }
    template <int v> PUNA_OP void add(C codes, X x) { total = _mm512_dpbusd_epi32(total, codes.v, x.v); }
    PUNA_OP I sum() const { return {total}; }
};

#include "engine/cpu/kernels.inl"

} // namespace

const Kernels* avx512Kernels()
{
    return &kTable;
}

} // namespace puna

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
