#include "engine/cpu/reference.h"

#include "engine/cpu/cpu_features.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace puna::reference {

namespace {

constexpr int kLanes = 16;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)))); // one register of AVX-512, two of AVX2 ...

constexpr std::int64_t kRowsTogether = 4; // share the loads of a row of w
constexpr std::int64_t kRowBlock = 64; // rows of x that stay in the second-level cache

// Adds the lanes in pairs: 16, 8, 4, 2, 1.
[[gnu::always_inline]] inline float total(const Lanes& lanes)
{
    float sums[kLanes];
    std::memcpy(sums, &lanes, sizeof sums);
    for (int width = kLanes / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            sums[i] += sums[i + width];
    return sums[0];
}

// out[r] = x[r, :] . w, element i in lane i % 16.
template <int Rows> [[gnu::always_inline]] inline void dots(const float* x, std::int64_t k, const float* w, float* out)
{
    Lanes sums[Rows] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= k; i += kLanes) {
        Lanes b;
        std::memcpy(&b, w + i, sizeof b);
        for (int r = 0; r < Rows; ++r) {
            Lanes a;
            std::memcpy(&a, x + r * k + i, sizeof a);
            sums[r] += a * b;
        }
    }
    for (int lane = 0; i + lane < k; ++lane)
        for (int r = 0; r < Rows; ++r)
            sums[r][lane] += x[r * k + i + lane] * w[i + lane];
    for (int r = 0; r < Rows; ++r)
        out[r] = total(sums[r]);
}

[[gnu::always_inline]] inline void linearBody(const float* x, std::int64_t rows, std::int64_t k, const float* w,
    const float* bias, std::int64_t n, std::int64_t begin, std::int64_t end, float* y)
{
    for (std::int64_t block = 0; block < rows; block += kRowBlock) {
        const std::int64_t block_end = std::min(rows, block + kRowBlock);
        for (std::int64_t j = begin; j < end; ++j) {
            const float offset = bias ? bias[j] : 0.0f;
            float sums[kRowsTogether];
            std::int64_t r = block;
            for (; r + kRowsTogether <= block_end; r += kRowsTogether) {
                dots<kRowsTogether>(x + r * k, k, w + j * k, sums);
                for (std::int64_t s = 0; s < kRowsTogether; ++s)
                    y[(r + s) * n + j] = sums[s] + offset;
            }
            for (; r < block_end; ++r) {
                dots<1>(x + r * k, k, w + j * k, sums);
                y[r * n + j] = sums[0] + offset;
            }
        }
    }
}

// The same loops, compiled for each kind of processor.
#if defined(__x86_64__)
#define PUNA_AVX2 [[gnu::target("avx2")]]
#define PUNA_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")]]
#else
#define PUNA_AVX2
#define PUNA_AVX512
#endif

using LinearFunction = void (*)(const float*, std::int64_t, std::int64_t, const float*, const float*, std::int64_t,
    std::int64_t, std::int64_t, float*);
using DotFunction = float (*)(const float*, const float*, std::int64_t);

void linearPortable(const float* x, std::int64_t rows, std::int64_t k, const float* w, const float* bias,
    std::int64_t n, std::int64_t begin, std::int64_t end, float* y)
{
    linearBody(x, rows, k, w, bias, n, begin, end, y);
}

PUNA_AVX2 void linearAvx2(const float* x, std::int64_t rows, std::int64_t k, const float* w, const float* bias,
    std::int64_t n, std::int64_t begin, std::int64_t end, float* y)
{
    linearBody(x, rows, k, w, bias, n, begin, end, y);
}

PUNA_AVX512 void linearAvx512(const float* x, std::int64_t rows, std::int64_t k, const float* w, const float* bias,
    std::int64_t n, std::int64_t begin, std::int64_t end, float* y)
{
    linearBody(x, rows, k, w, bias, n, begin, end, y);
}

float dotPortable(const float* a, const float* b, std::int64_t n)
{
    float sum;
    dots<1>(a, n, b, &sum);
    return sum;
}

PUNA_AVX2 float dotAvx2(const float* a, const float* b, std::int64_t n)
{
    float sum;
    dots<1>(a, n, b, &sum);
    return sum;
}

PUNA_AVX512 float dotAvx512(const float* a, const float* b, std::int64_t n)
{
    float sum;
    dots<1>(a, n, b, &sum);
    return sum;
}

template <class Function> Function chosen(Function portable, Function avx2, Function avx512)
{
    switch (cpuFeatures().simd) {
    case SimdLevel::portable:
        break;
    case SimdLevel::avx2:
        return avx2;
    case SimdLevel::avx512_vnni:
        return avx512;
    }
    return portable;
}

const LinearFunction linear_function = chosen<LinearFunction>(linearPortable, linearAvx2, linearAvx512);
const DotFunction dot_function = chosen<DotFunction>(dotPortable, dotAvx2, dotAvx512);

} // namespace

float dot(const float* a, const float* b, std::int64_t n)
{
    return dot_function(a, b, n);
}

void linear(const float* x, std::int64_t rows, std::int64_t k, const float* w, const float* bias, std::int64_t n,
    std::int64_t begin, std::int64_t end, float* y)
{
    linear_function(x, rows, k, w, bias, n, begin, end, y);
}

void rmsNorm(const float* x, const float* weight, std::int64_t n, float eps, float* y)
{
    const float mean = dot(x, x, n) / static_cast<float>(n);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (std::int64_t i = 0; i < n; ++i)
        y[i] = x[i] * scale * weight[i];
}

void rope(float* head, const float* cosines, const float* sines, int pairs, RopeStyle style)
{
    const int step = style == RopeStyle::interleaved ? 2 : 1;
    const int apart = style == RopeStyle::interleaved ? 1 : pairs;
    for (int j = 0; j < pairs; ++j) {
        float& first = head[j * step];
        float& second = head[j * step + apart];
        const float a = first, b = second;
        first = a * cosines[j] - b * sines[j];
        second = b * cosines[j] + a * sines[j];
    }
}

void attend(const float* q, const Attention& t, float* scores, float* out)
{
    const auto rowAt = [&](const float* pool, std::int64_t position) {
        const auto page = static_cast<std::size_t>(position / kPageSize);
        return pool + t.pages[page] * t.page_stride + position % kPageSize * t.head_dim;
    };
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t p = 0; p < t.length; ++p) {
        scores[p] = dot(q, rowAt(t.keys, p), t.head_dim) * t.scale;
        largest = std::max(largest, scores[p]);
    }
    double sum = 0.0;
    for (std::int64_t p = 0; p < t.length; ++p) {
        scores[p] = std::exp(scores[p] - largest);
        sum += static_cast<double>(scores[p]);
    }
    const auto share = static_cast<float>(1.0 / sum);
    std::fill_n(out, t.head_dim, 0.0f);
    for (std::int64_t p = 0; p < t.length; ++p) {
        const float weight = scores[p] * share;
        const float* value = rowAt(t.values, p);
        for (int d = 0; d < t.head_dim; ++d)
            out[d] += weight * value[d];
    }
}

void siluMultiply(const float* gate, const float* up, std::int64_t n, float* out)
{
    for (std::int64_t i = 0; i < n; ++i)
        out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

} // namespace puna::reference
