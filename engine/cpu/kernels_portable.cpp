// kernels.inl in plain C++, for every processor: the compiler's own vectors, which it
// cuts into what the processor has.
#include "engine/base/dtype.h"
#include "engine/cpu/kernels.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace puna {

const Kernels* avx512Kernels();
const Kernels* avx2Kernels();

namespace {

constexpr SimdLevel kLevel = SimdLevel::portable;
constexpr int kRowTile = 1;
constexpr int kStripes = 1;
constexpr int kScoreTiles = 1;
constexpr int kValueChunks = 1;
constexpr int kPrefetch = 0;

#define PUNA_OP inline __attribute__((always_inline))

using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));

struct F {
    Floats v;
};
struct I {
    Ints v;
};
struct X {
    std::int32_t even, odd; // two shorts each: inputs 0 and 2, inputs 1 and 3
};
struct C {
    Words v; // word n holds the codes of output n, first input lowest
};

PUNA_OP F set(float x)
{
    return {Floats {} + x};
}
PUNA_OP F zeroF()
{
    return {Floats {}};
}
PUNA_OP F load(const float* p)
{
    F r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
}
PUNA_OP void store(float* p, F x)
{
    std::memcpy(p, &x.v, sizeof x.v);
}
template <class T> PUNA_OP I loadShorts(const std::uint16_t* p)
{
    T __attribute__((vector_size(32))) shorts;
    std::memcpy(&shorts, p, sizeof shorts);
    return {__builtin_convertvector(shorts, Ints)};
}
PUNA_OP F asFloats(Words x)
{
    return {std::bit_cast<Floats>(x)};
}
// 2^112 moves a half's exponent to a float's, subnormals included.
PUNA_OP F loadHalf(const std::uint16_t* p)
{
    const Words bits = std::bit_cast<Words>(loadShorts<std::uint16_t>(p).v);
    const Words magnitude = (bits & 0x7fffu) << 13;
    const Words special = std::bit_cast<Words>(magnitude >= 0x0f800000u) & 0x7f800000u; // infinity and NaN
    return asFloats(std::bit_cast<Words>(asFloats(magnitude).v * 0x1p112f) | special | ((bits & 0x8000u) << 16));
}
PUNA_OP void storeHalf(std::uint16_t* p, F x)
{
    for (int i = 0; i < 16; ++i)
        p[i] = floatToHalf(x.v[i]);
}
PUNA_OP F loadBf16(const std::uint16_t* p)
{
    return asFloats(std::bit_cast<Words>(loadShorts<std::uint16_t>(p).v) << 16);
}
PUNA_OP F loadNegatedInt16(const std::uint16_t* p)
{
    return {-__builtin_convertvector(loadShorts<std::int16_t>(p).v, Floats)};
}
PUNA_OP F add(F a, F b)
{
    return {a.v + b.v};
}
PUNA_OP F sub(F a, F b)
{
    return {a.v - b.v};
}
PUNA_OP F mul(F a, F b)
{
    return {a.v * b.v};
}
PUNA_OP F div(F a, F b)
{
    return {a.v / b.v};
}
PUNA_OP F fma(F a, F b, F c)
{
    return {a.v * b.v + c.v};
}
PUNA_OP F choose(Ints mask, F a, F b)
{
    const Words m = std::bit_cast<Words>(mask);
    return asFloats((m & std::bit_cast<Words>(a.v)) | (~m & std::bit_cast<Words>(b.v)));
}
PUNA_OP F largerOf(F a, F b)
{
    return choose(a.v > b.v, a, b);
}
PUNA_OP F smallerOf(F a, F b)
{
    return choose(a.v < b.v, a, b);
}
PUNA_OP F firstLanes(F x, int n, F rest)
{
    constexpr Ints kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return choose(kLane < n, x, rest);
}
PUNA_OP float sumOf(F x)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; ++i)
            x.v[i] += x.v[i + n];
    return x.v[0];
}
PUNA_OP float largestOf(F x)
{
    float r = x.v[0];
    for (int i = 1; i < 16; ++i)
        r = x.v[i] > r ? x.v[i] : r;
    return r;
}
PUNA_OP float firstLane(F x)
{
    return x.v[0];
}
// To nearest even, for magnitudes below 2^22; anything else, NaN too, becomes some integer.
PUNA_OP I round(F x)
{
    constexpr float kMagic = 0x1.8p23f;
    const Words bits = std::bit_cast<Words>(x.v + kMagic) - std::bit_cast<std::uint32_t>(kMagic);
    return {std::bit_cast<Ints>(bits)};
}
PUNA_OP F toFloat(I x)
{
    return {__builtin_convertvector(x.v, Floats)};
}
PUNA_OP F timesPowerOfTwo(F x, I n)
{
    return {x.v * asFloats((std::bit_cast<Words>(n.v) + 127u) << 23).v};
}

PUNA_OP I setI(std::int32_t x)
{
    return {Ints {} + x};
}
PUNA_OP I addI(I a, I b)
{
    return {a.v + b.v};
}
PUNA_OP I subI(I a, I b)
{
    return {a.v - b.v};
}
template <int n> PUNA_OP I shiftLeftI(I x)
{
    return {std::bit_cast<Ints>(std::bit_cast<Words>(x.v) << n)};
}
template <int n> PUNA_OP I shiftRightI(I x)
{
    return {x.v >> n};
}
PUNA_OP int sumOf(I x)
{
    int r = 0;
    for (int i = 0; i < 16; ++i)
        r += x.v[i];
    return r;
}
PUNA_OP float largestMagnitude(F a, F b)
{
    const Ints x = std::bit_cast<Ints>(std::bit_cast<Words>(a.v) & 0x7fffffffu);
    const Ints y = std::bit_cast<Ints>(std::bit_cast<Words>(b.v) & 0x7fffffffu);
    std::int32_t r = 0;
    for (int i = 0; i < 16; ++i) {
        r = x[i] > r ? x[i] : r;
        r = y[i] > r ? y[i] : r;
    }
    return std::bit_cast<float>(r);
}
PUNA_OP void storeBytes(std::int8_t* p, I a, I b)
{
    for (int i = 0; i < 16; ++i) {
        p[i] = static_cast<std::int8_t>(a.v[i]);
        p[i + 16] = static_cast<std::int8_t>(b.v[i]);
    }
}

PUNA_OP X loadX(const std::int8_t* p)
{
    const auto pair = [](int low, int high) __attribute__((always_inline))
    {
        return static_cast<std::int32_t>(
            (static_cast<std::uint32_t>(high) << 16) | (static_cast<std::uint32_t>(low) & 0xffffu));
    };
    return {pair(p[0], p[2]), pair(p[1], p[3])};
}
PUNA_OP C loadCodes(const std::byte* p)
{
    C r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
}
template <int mask> PUNA_OP C maskCodes(C x)
{
    return {x.v & (mask * 0x01010101u)};
}
template <int n> PUNA_OP C shiftCodes(C x) // right for n > 0, left for n < 0, across bytes: mask afterwards
{
    if constexpr (n >= 0)
        return {x.v >> n};
    else
        return {x.v << -n};
}
template <int mask> PUNA_OP C orMasked(C a, C b)
{
    return {a.v | maskCodes<mask>(b).v};
}
PUNA_OP C xorCodes(C a, C b)
{
    return {a.v ^ b.v};
}
PUNA_OP std::uint64_t foldCodes(C x)
{
    std::uint64_t lanes[8], all = 0;
    std::memcpy(lanes, &x.v, sizeof lanes);
    for (std::uint64_t lane : lanes)
        all ^= lane;
    return all;
}
PUNA_OP void prefetch(const std::byte*) { }

// word n: the sum of its two shorts' products with those of x
PUNA_OP Ints productsOfPairs(Words codes, std::int32_t x)
{
#if defined(__SSE2__)
    __m128i part[4];
    std::memcpy(part, &codes, sizeof part);
    for (__m128i& p : part)
        p = _mm_madd_epi16(p, _mm_set1_epi32(x));
    Ints sums;
    std::memcpy(&sums, part, sizeof sums);
    return sums;
#else
    const Ints low = std::bit_cast<Ints>(codes & 0xffffu), high = std::bit_cast<Ints>(codes >> 16);
    return low * static_cast<std::int16_t>(x) + high * (x >> 16);
#endif
}

template <int Bits> struct Dot {
    Ints total;
    PUNA_OP void clear() { total = Ints {}; }
    template <int v> PUNA_OP void add(C codes, X x)
    {
        total += productsOfPairs(codes.v & 0x00ff00ffu, x.even) + productsOfPairs(codes.v >> 8 & 0x00ff00ffu, x.odd);
    }
    PUNA_OP I sum() const { return {total}; }
};

#include "engine/cpu/kernels.inl"

} // namespace

const Kernels& kernels(SimdLevel level)
{
#if defined(__x86_64__)
    if (level == SimdLevel::avx512_vnni)
        return *avx512Kernels();
    if (level == SimdLevel::avx2)
        return *avx2Kernels();
#endif
    static_cast<void>(level);
    return kTable;
}

} // namespace puna
