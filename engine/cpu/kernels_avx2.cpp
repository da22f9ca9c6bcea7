// kernels.inl for AVX2 with FMA and F16C: two registers hold what the kernels call one. Products of codes and signed
// bytes are added in pairs to 16 bits (vpmaddubsw), as many of them as cannot overflow, and then to 32.
#include "engine/cpu/kernels.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace puna {
namespace {

constexpr SimdLevel kLevel = SimdLevel::avx2;
constexpr int kRowTile = 4;
constexpr int kStripes = 1;
constexpr int kScoreTiles = 1;
constexpr int kValueChunks = 1;
constexpr int kPrefetch = 1536; // bytes ahead in a stripe

#define PUNA_OP inline __attribute__((always_inline))

struct F {
    __m256 a, b;
};
struct I {
    __m256i a, b;
};
struct X {
    __m256i v;
};
struct C {
    __m256i a, b;
};

PUNA_OP F zeroF()
{
    return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
PUNA_OP F set(float x)
{
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
PUNA_OP F load(const float* p)
{
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
PUNA_OP void store(float* p, F x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
PUNA_OP __m128i eightShorts(const std::uint16_t* p)
{
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
PUNA_OP F loadHalf(const std::uint16_t* p)
{
    return {_mm256_cvtph_ps(eightShorts(p)), _mm256_cvtph_ps(eightShorts(p + 8))};
}
PUNA_OP void storeHalf(std::uint16_t* p, F x)
{
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
PUNA_OP F loadBf16(const std::uint16_t* p)
{
    const __m256i a = _mm256_cvtepu16_epi32(eightShorts(p)), b = _mm256_cvtepu16_epi32(eightShorts(p + 8));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}
PUNA_OP F loadNegatedInt16(const std::uint16_t* p)
{
    const __m256i zero = _mm256_setzero_si256();
    return {_mm256_cvtepi32_ps(_mm256_sub_epi32(zero, _mm256_cvtepi16_epi32(eightShorts(p)))),
        _mm256_cvtepi32_ps(_mm256_sub_epi32(zero, _mm256_cvtepi16_epi32(eightShorts(p + 8))))};
}
PUNA_OP F add(F x, F y)
{
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
PUNA_OP F sub(F x, F y)
{
    return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
PUNA_OP F mul(F x, F y)
{
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
PUNA_OP F div(F x, F y)
{
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
PUNA_OP F fma(F x, F y, F z)
{
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
PUNA_OP F largerOf(F x, F y)
{
    return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
PUNA_OP F smallerOf(F x, F y)
{
    return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
PUNA_OP F firstLanes(F x, int n, F rest)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 a = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
    const __m256 b = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane));
    return {_mm256_blendv_ps(rest.a, x.a, a), _mm256_blendv_ps(rest.b, x.b, b)};
}
PUNA_OP float sumOf(F x)
{
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
PUNA_OP float largestOf(F x)
{
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
PUNA_OP float firstLane(F x)
{
    return _mm256_cvtss_f32(x.a);
}
PUNA_OP I round(F x)
{
    return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
PUNA_OP F toFloat(I x)
{
    return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
// n >= -126, and the result is a normal number or NaN.
PUNA_OP F timesPowerOfTwo(F x, I n)
{
    const __m256i bias = _mm256_set1_epi32(127);
    return {_mm256_mul_ps(x.a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23))),
        _mm256_mul_ps(x.b, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23)))};
}

PUNA_OP I setI(std::int32_t x)
{
    return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
PUNA_OP I addI(I x, I y)
{
    return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
PUNA_OP I subI(I x, I y)
{
    return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
template <int n> PUNA_OP I shiftLeftI(I x)
{
    return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
template <int n> PUNA_OP I shiftRightI(I x)
{
    return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
PUNA_OP int sumOf(I x)
{
    const __m256i eight = _mm256_add_epi32(x.a, x.b);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
// As unsigned numbers the bit patterns of magnitudes are ordered, infinity and NaN last.
PUNA_OP float largestMagnitude(F x, F y)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    const auto bits = [&](__m256 v) __attribute__((always_inline))
    {
        return _mm256_and_si256(_mm256_castps_si256(v), mask);
    };
    const __m256i eight =
        _mm256_max_epu32(_mm256_max_epu32(bits(x.a), bits(x.b)), _mm256_max_epu32(bits(y.a), bits(y.b)));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}
PUNA_OP void storeBytes(std::int8_t* p, I x, I y)
{
    const __m256i shorts01 = _mm256_packs_epi32(x.a, x.b), shorts23 = _mm256_packs_epi32(y.a, y.b);
    const __m256i bytes = _mm256_packs_epi16(shorts01, shorts23); // dwords xa xb ya yb of each half
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(bytes, order));
}

PUNA_OP X loadX(const std::int8_t* p)
{
    std::int32_t four;
    std::memcpy(&four, p, sizeof four);
    return {_mm256_set1_epi32(four)};
}
PUNA_OP C loadCodes(const std::byte* p)
{
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
template <int mask> PUNA_OP C maskCodes(C x)
{
    return {_mm256_and_si256(x.a, _mm256_set1_epi8(mask)), _mm256_and_si256(x.b, _mm256_set1_epi8(mask))};
}
// Right for n > 0, left for n < 0, across bytes: mask afterwards.
template <int n> PUNA_OP C shiftCodes(C x)
{
    if constexpr (n > 0)
        return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
    else if constexpr (n < 0)
        return {_mm256_slli_epi16(x.a, -n), _mm256_slli_epi16(x.b, -n)};
    else
        return x;
}
template <int mask> PUNA_OP C orMasked(C x, C y)
{
    const C m = maskCodes<mask>(y);
    return {_mm256_or_si256(x.a, m.a), _mm256_or_si256(x.b, m.b)};
}
PUNA_OP C xorCodes(C x, C y)
{
    return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
PUNA_OP std::uint64_t foldCodes(C x)
{
    alignas(32) std::uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_xor_si256(x.a, x.b));
    return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}
PUNA_OP void prefetch(const std::byte* p)
{
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

// A pair of products of b-bit codes is at most 2 (2^b - 1) 127: 16 bits hold 8 pairs of up to 4 bits, 4 of 5 (31,496)
// and 2 of 6 (32,004). Codes of 8 bits are two of 4.
template <int Bits> struct Dot {
    static constexpr int kPairs = Bits == 6 ? 2 : Bits == 5 ? 4 : 8;
    __m256i a, b, total_a, total_b;
    PUNA_OP void clear() { total_a = total_b = a = b = _mm256_setzero_si256(); }
    template <int v> PUNA_OP void add(C codes, X x)
    {
        const __m256i pa = _mm256_maddubs_epi16(codes.a, x.v), pb = _mm256_maddubs_epi16(codes.b, x.v);
        a = v % kPairs == 0 ? pa : _mm256_add_epi16(a, pa);
        b = v % kPairs == 0 ? pb : _mm256_add_epi16(b, pb);
        if constexpr (v % kPairs == kPairs - 1) {
            const __m256i ones = _mm256_set1_epi16(1);
            total_a = _mm256_add_epi32(total_a, _mm256_madd_epi16(a, ones));
            total_b = _mm256_add_epi32(total_b, _mm256_madd_epi16(b, ones));
        }
    }
    PUNA_OP I sum() const { return {total_a, total_b}; }
};

template <> struct Dot<8> {
    __m256i low_a, low_b, high_a, high_b;
    PUNA_OP void clear() { low_a = low_b = high_a = high_b = _mm256_setzero_si256(); }
    template <int v> PUNA_OP void add(C codes, X x)
    {
        const C low = maskCodes<0x0f>(codes), high = maskCodes<0x0f>(shiftCodes<4>(codes));
        low_a = _mm256_add_epi16(low_a, _mm256_maddubs_epi16(low.a, x.v));
        low_b = _mm256_add_epi16(low_b, _mm256_maddubs_epi16(low.b, x.v));
        high_a = _mm256_add_epi16(high_a, _mm256_maddubs_epi16(high.a, x.v));
        high_b = _mm256_add_epi16(high_b, _mm256_maddubs_epi16(high.b, x.v));
    }
    PUNA_OP I sum() const
    {
        const __m256i one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
        return {_mm256_add_epi32(_mm256_madd_epi16(low_a, one), _mm256_madd_epi16(high_a, sixteen)),
            _mm256_add_epi32(_mm256_madd_epi16(low_b, one), _mm256_madd_epi16(high_b, sixteen))};
    }
};

#include "engine/cpu/kernels.inl"

} // namespace

const Kernels* avx2Kernels()
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
