// The operations of a transformer as plain float32 loops: the oracle for every other kernel.
//
// Matrices are row major. Long sums are kept as 16 partial sums, one per lane, added up in a fixed order at the end;
// a product and a sum are two roundings. So the result is the same to the bit on every processor and for every
// number of threads, and the compiler can use whatever vectors there are.
// Sources: RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021), GQA (Ainslie et al. 2023), SwiGLU (Shazeer 2020);
// `exl2-format.md` 5.5 and 6.
#pragma once

#include "engine/base/model.h"
#include "engine/base/types.h"

#include <cstdint>
#include <span>

namespace puna::reference {

float dot(const float* a, const float* b, std::int64_t n);

// y[r, j] = x[r, :] . w[j, :] + bias[j] for all rows r and begin <= j < end. x [rows, k], w [n, k], y [rows, n];
// bias may be null. A range of j so that threads can share the work.
void linear(const float* x, std::int64_t rows, std::int64_t k, const float* w, const float* bias, std::int64_t n,
    std::int64_t begin, std::int64_t end, float* y);

// y = x / sqrt(mean(x^2) + eps) * weight; y may be x.
void rmsNorm(const float* x, const float* weight, std::int64_t n, float eps, float* y);

// Turns the first 2 * pairs dimensions of one head by the angles whose cosines and sines are given, one per pair.
void rope(float* head, const float* cosines, const float* sines, int pairs, RopeStyle style);

// One query head over the first `length` positions of its key/value head: out = softmax(scale * q . K) V.
// keys, values: page p begins at p * page_stride and holds [kPageSize, head_dim]. scores: room for `length` floats.
struct Attention {
    const float* keys;
    const float* values;
    std::int64_t page_stride;
    std::span<const PageId> pages;
    std::int64_t length;
    int head_dim;
    float scale;
};
void attend(const float* q, const Attention& attention, float* scores, float* out);

// out = silu(gate) * up, silu(g) = g / (1 + exp(-g)); out may be gate.
void siluMultiply(const float* gate, const float* up, std::int64_t n, float* out);

} // namespace puna::reference
