// Every CUDA kernel against plain loops on fresh random input with poisoned outputs; whole models against the golden
// data and the reference executor. A plain program: tst_cuda [part of a test's name]...; exit code 1 if anything
// failed. Without a usable GPU it says why and is skipped.

#include "cuda/attention.h"
#include "cuda/blas.h"
#include "cuda/cuda_executor.h"
#include "cuda/gemm.h"
#include "cuda/matvec.h"
#include "cuda/ops.h"
#include "engine/base/rope.h"
#include "engine/cpu/cpu_executor.h"
#include "engine/model/model_files.h"
#include "engine/quant/decode.h"
#include "tests/support/compare.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

using namespace puna;
using namespace puna::cuda;

namespace {

int failures = 0;
std::mt19937_64 generator;

void check(bool ok, const std::string& what)
{
    if (!ok) {
        ++failures;
        std::printf("FAIL   : %s\n", what.c_str());
    }
}

[[noreturn]] void stop(const std::string& why)
{
    std::printf("FAIL   : %s\n", why.c_str());
    std::exit(1);
}

template <class T> T need(Result<T> result)
{
    if (!result)
        stop(result.error().message);
    return std::move(result).value();
}
void need(cudaError_t error)
{
    if (error != cudaSuccess)
        stop(std::string("CUDA: ") + cudaGetErrorString(error));
}

std::size_t at(std::int64_t i)
{
    return static_cast<std::size_t>(i);
}

float normal()
{
    static std::normal_distribution<float> distribution;
    return distribution(generator);
}
std::int64_t below(std::int64_t n)
{
    return static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(n));
}

template <class T> struct OnDevice {
    explicit OnDevice(std::int64_t n)
        : memory(need(allocate(std::max<std::int64_t>(n, 1) * static_cast<std::int64_t>(sizeof(T)), "A test")))
        , count(n)
    {
        need(cudaMemset(memory.data(), 0xff, at(memory.bytes()))); // NaN
    }
    explicit OnDevice(const std::vector<T>& values)
        : OnDevice(static_cast<std::int64_t>(values.size()))
    {
        need(cudaMemcpy(memory.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    T* get() const { return memory.template as<T>(); }
    std::vector<T> values() const
    {
        need(cudaDeviceSynchronize());
        std::vector<T> v(at(count));
        need(cudaMemcpy(v.data(), memory.data(), v.size() * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
    DeviceBuffer memory;
    std::int64_t count;
};

// |a - b| / |b|; NaN if anything is.
double relativeError(const std::vector<float>& a, const std::vector<double>& b)
{
    double difference = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return std::sqrt(difference / std::max(size, 1e-30));
}

// ---- random layers -----------------------------------------------------------------------------------------------

// Owns what the views of a Linear point to.
struct RandomLinear {
    Linear linear;
    std::vector<std::vector<std::byte>> storage;

    template <class T> TensorView tensor(const std::vector<T>& values, DType type, std::vector<std::int64_t> shape)
    {
        std::vector<std::byte> bytes(values.size() * sizeof(T));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        storage.push_back(std::move(bytes));
        TensorView view {storage.back().data(), type, static_cast<int>(shape.size()), {}};
        std::copy(shape.begin(), shape.end(), view.shape.begin());
        return view;
    }
    void bias(std::int64_t n)
    {
        std::vector<float> values(at(n));
        for (float& v : values)
            v = normal();
        linear.bias = tensor(values, DType::f32, {n});
    }
};

std::vector<std::uint32_t> words(std::int64_t count)
{
    std::vector<std::uint32_t> v(at(count));
    for (auto& w : v)
        w = static_cast<std::uint32_t>(generator());
    return v;
}

std::vector<std::int32_t> permutation(std::int64_t n)
{
    std::vector<std::int32_t> p(at(n));
    std::iota(p.begin(), p.end(), 0);
    std::shuffle(p.begin(), p.end(), generator);
    return p;
}

// groups: bits, rows
RandomLinear exl2(std::int64_t n, const std::vector<std::pair<int, int>>& groups)
{
    RandomLinear r;
    const std::int64_t padded = (n + 31) / 32 * 32;
    Exl2Linear e;
    std::int32_t row = 0;
    std::int32_t word = 0;
    std::vector<std::uint16_t> largest;
    for (const auto& [bits, rows] : groups) {
        e.groups.push_back({bits, row, rows, word});
        row += rows;
        word += rows * bits / 32;
        largest.push_back(floatToHalf(0.02f + 0.01f * std::fabs(normal())));
    }
    const auto g = static_cast<std::int64_t>(groups.size());
    e.q_weight = r.tensor(words(word * padded), DType::i32, {word, padded});
    e.q_scale = r.tensor(words(g * padded / 8), DType::i32, {g, padded / 8});
    e.q_scale_max = r.tensor(largest, DType::f16, {g});
    e.q_invperm = r.tensor(permutation(row), DType::i32, {row});
    e.padded_out = padded;
    r.linear.in_features = row;
    r.linear.out_features = n;
    r.linear.weight = e;
    return r;
}

RandomLinear gptq(std::int64_t n, std::int64_t k, int bits, int group, bool act_order, int zero_offset, DType scales)
{
    RandomLinear r;
    GptqLinear q;
    const std::int64_t groups = (k + group - 1) / group;
    q.qweight = r.tensor(words(k * bits / 32 * n), DType::i32, {k * bits / 32, n});
    q.qzeros = r.tensor(words(groups * n * bits / 32), DType::i32, {groups, n * bits / 32});
    if (scales == DType::f16) {
        std::vector<std::uint16_t> s(at(groups * n));
        for (auto& v : s)
            v = floatToHalf(0.01f + 0.002f * normal());
        q.scales = r.tensor(s, DType::f16, {groups, n});
    } else {
        std::vector<float> s(at(groups * n));
        for (auto& v : s)
            v = 0.01f + 0.002f * normal();
        q.scales = r.tensor(s, DType::f32, {groups, n});
    }
    if (act_order) {
        const std::vector<std::int32_t> p = permutation(k);
        std::vector<std::int32_t> g(at(k));
        for (std::int64_t i = 0; i < k; ++i)
            g[at(p[at(i)])] = static_cast<std::int32_t>(i / group);
        q.g_idx = r.tensor(g, DType::i32, {k});
    }
    q.bits = bits;
    q.group_size = group;
    q.zero_offset = zero_offset;
    r.linear.in_features = k;
    r.linear.out_features = n;
    r.linear.weight = q;
    return r;
}

RandomLinear dense(std::int64_t n, std::int64_t k, DType type, float size = 0.05f)
{
    RandomLinear r;
    std::vector<std::byte> bytes;
    const auto half = [&](float f) {
        const std::uint16_t h = type == DType::bf16 ? floatToBf16(f) : floatToHalf(f);
        bytes.push_back(static_cast<std::byte>(h & 255));
        bytes.push_back(static_cast<std::byte>(h >> 8));
    };
    const int block = info(type).block_elements;
    for (std::int64_t i = 0; i < n * k / block; ++i) {
        if (type == DType::f32) {
            const float f = size * normal();
            const auto* p = reinterpret_cast<const std::byte*>(&f);
            bytes.insert(bytes.end(), p, p + 4);
        } else {
            half(block == 1 ? size * normal() : 0.01f + 0.002f * normal());
            if (type == DType::q4_1)
                half(-0.08f + 0.01f * normal());
            const int codes = type == DType::q8_0 ? 32 : block == 32 ? 16 : 0;
            for (int c = 0; c < codes; ++c)
                bytes.push_back(static_cast<std::byte>(generator() & 255));
        }
    }
    r.linear.weight = DenseLinear {r.tensor(bytes, type, {n, k})};
    r.linear.in_features = k;
    r.linear.out_features = n;
    return r;
}

struct Packed {
    PackedLayout layout;
    Arena arena;
    PackedMatrix matrix;
};
Packed packed(const Linear& linear)
{
    Packed p {layoutOf(linear), {}, {}};
    p.arena = Arena(need(allocate(p.layout.bytes(), "A test")));
    Uploader uploader = need(Uploader::make(nullptr, Uploader::stagingBytes(linear, p.layout)));
    p.matrix = need(uploader.pack(linear, p.layout, p.arena));
    check(p.arena.used() == p.layout.bytes(), "the layout's size is what packing takes");
    need(cudaDeviceSynchronize());
    return p;
}

std::vector<float> floats(std::int64_t count, float size = 1.0f)
{
    std::vector<float> v(at(count));
    for (float& f : v)
        f = size * normal();
    return v;
}

// y [rows, n] in double precision.
std::vector<double> product(const Linear& linear, const std::vector<float>& w, const std::vector<double>& x, int rows)
{
    const std::int64_t k = linear.in_features;
    const std::int64_t n = linear.out_features;
    std::vector<double> y(at(rows * n));
    for (int r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = linear.bias ? linear.bias.load<float>(j) : 0.0;
            for (std::int64_t i = 0; i < k; ++i)
                sum += static_cast<double>(w[at(j * k + i)]) * x[at(r * k + i)];
            y[at(r * n + j)] = sum;
        }
    return y;
}

std::vector<double> normed(const std::vector<float>& x, const std::vector<float>& gamma, int rows, float eps)
{
    const auto k = static_cast<std::int64_t>(gamma.size());
    std::vector<double> y(x.size());
    for (int r = 0; r < rows; ++r) {
        double squares = 0.0;
        for (std::int64_t i = 0; i < k; ++i)
            squares += static_cast<double>(x[at(r * k + i)]) * x[at(r * k + i)];
        for (std::int64_t i = 0; i < k; ++i)
            y[at(r * k + i)] = x[at(r * k + i)] / std::sqrt(squares / static_cast<double>(k) + eps) * gamma[at(i)];
    }
    return y;
}

// In stored order, as producers write it.
std::vector<float> placed(const std::vector<float>& x, const PackedLayout& layout, int rows)
{
    std::vector<float> y(x);
    if (!layout.place.empty())
        for (int r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < layout.k; ++i)
                y[at(r * layout.k + layout.place[at(i)])] = x[at(r * layout.k + i)];
    return y;
}

// x is rounded to half (2^-12 of each), sums are float32.
constexpr double kProductError = 6e-4;

std::vector<std::pair<std::string, RandomLinear>> randomLayers()
{
    std::vector<std::pair<std::string, RandomLinear>> layers;
    const auto add = [&](std::string name, RandomLinear r, bool bias = false) {
        if (bias)
            r.bias(r.linear.out_features);
        layers.emplace_back(std::move(name), std::move(r));
    };
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
        const std::string b = std::to_string(bits);
        add("exl2 " + b + " bit, 32 x 32", exl2(32, {{bits, 32}}));
        add("exl2 " + b + " bit, groups of 32 and a short one", exl2(80, {{bits, 32}, {bits, 32}, {bits, 32}}), true);
        add("exl2 " + b + " bit, groups of 64, K 448", exl2(96, std::vector<std::pair<int, int>>(7, {bits, 64})));
        auto long_groups = std::vector<std::pair<int, int>>(11, {bits, 128});
        long_groups.emplace_back(bits, 96);
        add("exl2 " + b + " bit, groups of 128 and one of 96", exl2(160, long_groups), true);
    }
    add("exl2 all widths, odd bands",
        exl2(224,
            {{8, 32}, {6, 128}, {6, 128}, {5, 64}, {5, 64}, {5, 64}, {4, 32}, {4, 32}, {4, 32}, {3, 128}, {3, 128},
                {2, 64}, {2, 64}, {2, 32}}));
    for (const int bits : {2, 3, 4, 8}) {
        const std::string b = std::to_string(bits);
        add("gptq " + b + " bit, act-order", gptq(96, 512, bits, 64, true, 1, DType::f16), true);
        add("gptq " + b + " bit, v2, groups of 128", gptq(64, 640, bits, 128, false, 0, DType::f32));
    }
    add("gptq 4 bit, one group", gptq(64, 512, 4, 512, false, 1, DType::f16));
    add("gptq 4 bit, groups of 16: decoded", gptq(64, 128, 4, 16, false, 1, DType::f16));
    for (const DType type : {DType::q4_0, DType::q4_1, DType::q8_0, DType::f16, DType::bf16, DType::f32}) {
        const std::string name(info(type).name);
        add(name + " 48 x 96", dense(48, 96, type));
        add(name + " 576 x 1536", dense(576, 1536, type), true);
    }
    add("F32 33 x 172", dense(33, 172, DType::f32));
    add("F16 1 x 1", dense(1, 1, DType::f16));
    add("F32 large 64 x 64", dense(64, 64, DType::f32, 1e6f));
    add("BF16 small 64 x 64", dense(64, 64, DType::bf16, 1e-9f));
    add("exl2 4.04 bpw, 512 x 4096", [] {
        std::vector<std::pair<int, int>> groups(3, {5, 128});
        groups.insert(groups.end(), 26, {4, 128});
        groups.insert(groups.end(), 3, {3, 128});
        return exl2(512, groups);
    }());
    return layers;
}

void matricesTimesVectors(int processors)
{
    for (auto& [name, random] : randomLayers()) {
        const Linear& linear = random.linear;
        const Packed p = packed(linear);
        const std::vector<float> w = decodeLinear(linear);
        const std::int64_t k = linear.in_features;
        const std::int64_t n = linear.out_features;
        const std::vector<float> gamma = floats(k);
        const OnDevice<float> device_gamma(gamma);
        std::vector<float> first[2]; // results of one row
        const std::vector<float> x = floats(kMatvecRows * k, 3.0f);
        for (const int rows : {1, 2, 3, 8})
            for (const bool norm : {false, true}) {
                const std::vector<float> part(x.begin(), x.begin() + rows * k);
                const OnDevice<float> in(norm ? part : placed(part, p.layout, rows));
                const OnDevice<float> out(rows * n);
                MatvecArguments a {};
                a.m[0] = p.matrix, a.matrices = 1, a.rows = rows;
                a.x = in.get(), a.x_stride = static_cast<int>(k);
                a.gamma = norm ? device_gamma.get() : nullptr, a.eps = 1e-5f;
                a.epilogue = Epilogue::store, a.out = out.get(), a.out_stride = static_cast<int>(n);
                need(matvec(a, processors, nullptr));
                const std::vector<float> y = out.values();
                const std::vector<double> exact =
                    norm ? normed(part, gamma, rows, 1e-5f) : std::vector<double>(part.begin(), part.end());
                const double error = relativeError(y, product(linear, w, exact, rows));
                check(error < kProductError,
                    "matvec " + name + ", " + std::to_string(rows) + (norm ? " normed rows" : " rows") + ": error "
                        + std::to_string(error));
                std::vector<float>& one = first[norm];
                if (rows == 1)
                    one = y;
                check(std::equal(one.begin(), one.end(), y.begin()),
                    "matvec " + name + ": a row does not depend on the others");
            }
    }
}

void epilogues(int processors)
{
    for (const int rows : {1, 4, 8}) {
        RandomLinear gate = exl2(352, {{5, 128}, {4, 128}, {4, 128}, {4, 64}});
        RandomLinear up = exl2(352, {{6, 128}, {3, 128}, {3, 128}, {3, 64}});
        std::get<Exl2Linear>(up.linear.weight).q_invperm = std::get<Exl2Linear>(gate.linear.weight).q_invperm;
        const Packed g = packed(gate.linear);
        Packed u = packed(up.linear);
        u.matrix.perm = g.matrix.perm;
        const std::vector<float> x = floats(rows * 448, 100.0f);
        const std::vector<float> gamma = floats(448, 100.0f);
        const OnDevice<float> in(x), device_gamma(gamma), out(rows * 352);
        const OnDevice<unsigned> largest(std::vector<unsigned>(at(rows), 0));
        std::vector<std::uint16_t> place(352);
        for (std::size_t i = 0; i < place.size(); ++i)
            place[i] = static_cast<std::uint16_t>((i * 5 + 3) % 352);
        const OnDevice<std::uint16_t> device_place(place);
        MatvecArguments a {};
        a.m[0] = g.matrix, a.m[1] = u.matrix, a.matrices = 2, a.rows = rows;
        a.x = in.get(), a.x_stride = 448, a.gamma = device_gamma.get(), a.eps = 1e-5f;
        a.epilogue = Epilogue::gated, a.out = out.get(), a.out_stride = 352;
        a.place = device_place.get(), a.out_max = largest.get();
        need(matvec(a, processors, nullptr));
        const std::vector<double> exact = normed(x, gamma, rows, 1e-5f);
        const std::vector<double> yg = product(gate.linear, decodeLinear(gate.linear), exact, rows);
        const std::vector<double> yu = product(up.linear, decodeLinear(up.linear), exact, rows);
        std::vector<double> y(yg.size());
        for (std::size_t i = 0; i < y.size(); ++i)
            y[i / 352 * 352 + place[i % 352]] = yg[i] / (1.0 + std::exp(-yg[i])) * yu[i];
        const std::vector<float> found = out.values();
        check(
            relativeError(found, y) < 2 * kProductError, "gated epilogue: " + std::to_string(relativeError(found, y)));
        const std::vector<unsigned> maxima = largest.values();
        for (int r = 0; r < rows; ++r) {
            float most = 0.0f;
            for (int i = 0; i < 352; ++i)
                most = std::max(most, std::fabs(found[at(r * 352 + i)]));
            check(std::bit_cast<float>(maxima[at(r)]) == most, "largest product of a row");
        }

        // Its product, far beyond the range of halves, into the next matrix, which adds.
        RandomLinear down = exl2(96, {{4, 128}, {4, 128}, {3, 96}});
        const Packed d = packed(down.linear);
        const std::vector<float> before = floats(rows * 96, 1e5f);
        const OnDevice<float> residual(before);
        std::vector<float> natural(found.size());
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < 352; ++i)
                natural[at(r * 352 + (d.layout.place.empty() ? i : d.layout.perm[at(i)]))] = found[at(r * 352 + i)];
        MatvecArguments b {};
        b.m[0] = d.matrix, b.matrices = 1, b.rows = rows;
        b.x = out.get(), b.x_stride = 352, b.row_max = largest.get();
        b.epilogue = Epilogue::add, b.out = residual.get(), b.out_stride = 96;
        need(matvec(b, processors, nullptr));
        std::vector<double> sum =
            product(down.linear, decodeLinear(down.linear), std::vector<double>(natural.begin(), natural.end()), rows);
        for (std::size_t i = 0; i < sum.size(); ++i)
            sum[i] += before[i];
        check(relativeError(residual.values(), sum) < kProductError, "product beyond halves, added to the residual");

        // Three matrices with two different orders of the same input; logits and their maximum.
        RandomLinear q = exl2(64, {{4, 128}, {4, 128}});
        RandomLinear k = exl2(32, {{3, 128}, {3, 128}});
        RandomLinear v = exl2(48, {{8, 128}, {2, 128}});
        const Packed parts[3] = {packed(q.linear), packed(k.linear), packed(v.linear)};
        const std::vector<float> x2 = floats(rows * 256);
        const std::vector<float> gamma2 = floats(256);
        const OnDevice<float> in2(x2), device_gamma2(gamma2), out2(rows * 160);
        MatvecArguments c {};
        for (int i = 0; i < 3; ++i)
            c.m[i] = parts[i].matrix;
        c.matrices = 3, c.rows = rows, c.base[1] = 64, c.base[2] = 96;
        c.x = in2.get(), c.x_stride = 256, c.gamma = device_gamma2.get(), c.eps = 1e-5f;
        c.epilogue = Epilogue::store, c.out = out2.get(), c.out_stride = 160;
        need(matvec(c, 3, nullptr));
        const std::vector<float> y2 = out2.values();
        const std::vector<double> exact2 = normed(x2, gamma2, rows, 1e-5f);
        int base = 0;
        for (const RandomLinear* r : {&q, &k, &v}) {
            const auto n = static_cast<int>(r->linear.out_features);
            std::vector<float> part;
            for (int row = 0; row < rows; ++row)
                part.insert(part.end(), y2.begin() + row * 160 + base, y2.begin() + row * 160 + base + n);
            check(relativeError(part, product(r->linear, decodeLinear(r->linear), exact2, rows)) < kProductError,
                "three matrices, three permutations");
            base += n;
        }
        const OnDevice<unsigned long long> best(std::vector<unsigned long long>(at(rows), 0));
        const OnDevice<float> logits(rows * 64);
        MatvecArguments h {};
        h.m[0] = parts[0].matrix, h.matrices = 1, h.rows = rows;
        h.x = in2.get(), h.x_stride = 256, h.gamma = device_gamma2.get(), h.eps = 1e-5f;
        h.epilogue = Epilogue::logits, h.out = logits.get(), h.out_stride = 64, h.best = best.get();
        need(matvec(h, processors, nullptr));
        const std::vector<float> found_logits = logits.values();
        const std::vector<unsigned long long> keys = best.values();
        for (int r = 0; r < rows; ++r) {
            const auto* from = found_logits.data() + r * 64;
            check(static_cast<std::int64_t>(~static_cast<std::uint32_t>(keys[at(r)]))
                    == std::max_element(from, from + 64) - from,
                "the largest logit");
        }
    }
}

void matricesTimesMatrices()
{
    const std::unique_ptr<Blas> blas = Blas::open(nullptr);
    std::printf("         the vendor's matrix library is %s\n", blas ? "here" : "not here");
    for (auto& [name, random] : randomLayers()) {
        const Linear& linear = random.linear;
        const Packed p = packed(linear);
        const std::vector<float> w = decodeLinear(linear);
        const std::int64_t k = linear.in_features;
        const std::int64_t n = linear.out_features;
        const std::int64_t stride = gemmInputs(k);
        for (const int rows : {1, 9, 33, 130}) {
            const std::vector<float> x = floats(rows * k, 3.0f);
            const std::vector<float> gamma = floats(k);
            const OnDevice<float> in(x), device_gamma(gamma), out(rows * n);
            const OnDevice<__half> halves(rows * stride);
            need(normRows(in.get(), static_cast<int>(k), nullptr, rows, static_cast<int>(k), device_gamma.get(), 1e-5f,
                p.matrix.perm, halves.get(), static_cast<int>(stride), nullptr));
            GemmArguments a {};
            a.m[0] = p.matrix, a.matrices = 1, a.x[0] = halves.get(), a.x_stride = static_cast<int>(stride),
            a.rows = rows;
            a.out = out.get(), a.out_stride = static_cast<int>(n);
            need(gemm(a, nullptr));
            const double error = relativeError(out.values(), product(linear, w, normed(x, gamma, rows, 1e-5f), rows));
            check(error < kProductError,
                "gemm " + name + ", " + std::to_string(rows) + " rows: " + std::to_string(error));
            if (!blas || !blas->takes(a))
                continue;
            const OnDevice<float> scratch(rows * n);
            const OnDevice<unsigned> row_max(std::vector<unsigned>(at(rows), 139u << 23)); // scaled by 2^2
            const std::vector<float> before = floats(rows * n, 10.0f);
            for (const bool scaled : {false, true}) {
                const OnDevice<float> sum(before);
                a.out = sum.get(), a.add = true, a.row_max = scaled ? row_max.get() : nullptr;
                if (const auto done = blas->multiply(a, scratch.get()); !done)
                    stop(done.error().message);
                std::vector<double> y = product(linear, w, normed(x, gamma, rows, 1e-5f), rows);
                for (std::size_t i = 0; i < y.size(); ++i)
                    y[i] = y[i] * (scaled ? 0.25 : 1.0) + before[i];
                check(relativeError(sum.values(), y) < kProductError, "the vendor's library, " + name);
            }
        }
    }
    // The gated product of many rows.
    const std::vector<float> both = floats(5 * 2 * 300, 300.0f);
    const OnDevice<float> in(both);
    const OnDevice<__half> out(5 * 384);
    const OnDevice<unsigned> largest(5);
    need(gatedRows(in.get(), in.get() + 300, 600, 5, 300, nullptr, out.get(), 384, largest.get(), nullptr));
    const std::vector<__half> y = out.values();
    const std::vector<unsigned> maxima = largest.values();
    for (int r = 0; r < 5; ++r) {
        const int exponent = static_cast<int>(maxima[at(r)] >> 23) - 141;
        double worst = 0.0;
        for (int i = 0; i < 384; ++i) {
            const double g = i < 300 ? both[at(r * 600 + i)] : 0.0;
            const double u = i < 300 ? both[at(r * 600 + 300 + i)] : 0.0;
            const double exact = g / (1.0 + std::exp(-g)) * u;
            const double found = std::ldexp(__half2float(y[at(r * 384 + i)]), exponent);
            worst = std::max(
                worst, std::fabs(found - exact) / (std::fabs(exact) + 1e-6 * std::bit_cast<float>(maxima[at(r)])));
        }
        check(worst < 2e-3, "gated rows: " + std::to_string(worst));
    }
}

// ---- attention ---------------------------------------------------------------------------------------------------

void attention()
{
    for (const int d : {8, 32, 64, 80, 96, 128, 256})
        for (const auto& [heads, kv_heads] : {std::pair {4, 1}, std::pair {3, 3}, std::pair {40, 2}})
            for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
                if (d == 256 && heads == 40)
                    continue;
                constexpr int kLayers = 2;
                constexpr int kLayer = 1;
                constexpr int kPages = 12;
                const KvCache shape {nullptr, kLayers, kv_heads, d};
                std::vector<std::uint16_t> cache(at(kPages * shape.pageSize()));
                for (auto& h : cache)
                    h = floatToHalf(normal());
                RopeConfig rope_config;
                rope_config.rotary_dim = d == 80 ? 40 : d;
                rope_config.style = style;
                const std::vector<double> frequencies = ropeFrequencies(rope_config);
                // Sequences: pages of each, rows with their positions.
                const std::vector<std::int32_t> tables = {3, 0, 7, 9, 5, 1, 2, 11};
                struct Case {
                    std::vector<std::int32_t> positions, sequence;
                    bool decode;
                };
                std::vector<Case> cases;
                for (const int p : {0, 1, 63, 64, 255, 256, 700, 1023})
                    cases.push_back({{p, std::max(0, p - 17)}, {0, 1}, true});
                Case many {{}, {}, false};
                for (int i = 0; i < 70; ++i) // 70 rows of one sequence, 5 of another
                    many.positions.push_back(220 + i), many.sequence.push_back(0);
                for (int i = 0; i < 5; ++i)
                    many.positions.push_back(i), many.sequence.push_back(1);
                cases.push_back(many);
                for (const Case& c : cases) {
                    const auto rows = static_cast<int>(c.positions.size());
                    const int width = (heads + 2 * kv_heads) * d;
                    const std::vector<float> qkv = floats(std::int64_t {rows} * width);
                    const OnDevice<float> device_qkv(qkv);
                    const OnDevice<std::uint16_t> device_cache(cache);
                    const OnDevice<std::int32_t> positions(c.positions), sequence(c.sequence), device_tables(tables);
                    const OnDevice<double> device_frequencies(frequencies);
                    const OnDevice<__half> out16(rows * heads * d), queries(rows * heads * d);
                    const OnDevice<float> out(rows * heads * d);
                    const OnDevice<float> partials(std::int64_t {rows} * heads * 16 * (d + 2));
                    const OnDevice<unsigned> counters(std::vector<unsigned>(at(rows * heads), 0));
                    AttentionArguments a {};
                    a.cache = {reinterpret_cast<__half*>(device_cache.get()), kLayers, kv_heads, d};
                    a.layer = kLayer, a.rows = rows, a.n_heads = heads,
                    a.scale = 0.7f / std::sqrt(static_cast<float>(d));
                    a.qkv = device_qkv.get(), a.qkv_stride = width;
                    a.key_base = heads * d, a.value_base = (heads + kv_heads) * d;
                    a.positions = positions.get(), a.sequence = sequence.get();
                    a.tables = device_tables.get(), a.max_pages = 4;
                    a.frequencies = device_frequencies.get(), a.pairs = rope_config.rotary_dim / 2, a.style = style;
                    a.out_stride = heads * d, a.q = queries.get();
                    a.partials = partials.get(), a.counters = counters.get();
                    need(prepareAttention(d));
                    if (c.decode && hasTensorAttention(d)) {
                        a.out = out.get();
                        need(decodeAttention(a, 8, nullptr));
                    } else if (hasTensorAttention(d)) {
                        a.out16 = out16.get();
                        const OnDevice<QueryTile> tiles(
                            std::vector<QueryTile> {{0, 64, 220}, {64, 6, 284}, {70, 5, 0}});
                        need(rope(a, nullptr));
                        need(prefillAttention(a, tiles.get(), 3, nullptr));
                    } else {
                        a.out = out.get();
                        need(rope(a, nullptr));
                        need(plainAttention(a, nullptr));
                    }
                    std::vector<float> found(at(rows * heads * d));
                    if (a.out16) {
                        const std::vector<__half> h = out16.values();
                        std::transform(h.begin(), h.end(), found.begin(), [](__half v) { return __half2float(v); });
                    } else {
                        found = out.values();
                    }
                    const std::vector<std::uint16_t> after = device_cache.values();

                    // The same in double precision; new keys and values first.
                    const auto rotate = [&](const float* head, std::int32_t position) {
                        std::vector<double> r(head, head + d);
                        const auto pairs = static_cast<int>(frequencies.size());
                        for (int j = 0; j < pairs; ++j) {
                            const double angle = position * frequencies[at(j)];
                            const int i0 = style == RopeStyle::half ? j : 2 * j;
                            const int i1 = style == RopeStyle::half ? j + pairs : 2 * j + 1;
                            r[at(i0)] = head[i0] * std::cos(angle) - head[i1] * std::sin(angle);
                            r[at(i1)] = head[i1] * std::cos(angle) + head[i0] * std::sin(angle);
                        }
                        return r;
                    };
                    std::vector<double> exact_cache(cache.size());
                    std::transform(cache.begin(), cache.end(), exact_cache.begin(),
                        [](std::uint16_t h) { return halfToFloat(h); });
                    const auto headAt = [&](int row, int position, int kind, int h) {
                        const std::int32_t page = tables[at(c.sequence[at(row)] * 4 + position / kPageSize)];
                        return page * shape.pageSize() + ((kLayer * 2 + kind) * kv_heads + h) * shape.headSize()
                            + position % kPageSize * d;
                    };
                    for (int row = 0; row < rows; ++row)
                        for (int h = 0; h < kv_heads; ++h) {
                            const float* from = qkv.data() + row * width;
                            const auto key = rotate(from + (heads + h) * d, c.positions[at(row)]);
                            for (int e = 0; e < d; ++e) {
                                exact_cache[at(headAt(row, c.positions[at(row)], 0, h) + e)] = key[at(e)];
                                exact_cache[at(headAt(row, c.positions[at(row)], 1, h) + e)] =
                                    from[(heads + kv_heads + h) * d + e];
                            }
                        }
                    double stored = 0.0;
                    for (std::size_t i = 0; i < after.size(); ++i)
                        stored = std::max(stored, std::fabs(exact_cache[i] - halfToFloat(after[i])));
                    check(stored < 4e-3,
                        "cache after attention, head size " + std::to_string(d) + ": " + std::to_string(stored));
                    std::vector<double> exact(found.size());
                    for (int row = 0; row < rows; ++row)
                        for (int h = 0; h < heads; ++h) {
                            const auto q = rotate(qkv.data() + row * width + h * d, c.positions[at(row)]);
                            const int kv = h / (heads / kv_heads);
                            std::vector<double> p(at(c.positions[at(row)] + 1));
                            double top = -1e30;
                            for (std::size_t i = 0; i < p.size(); ++i) {
                                double s = 0.0;
                                const std::int64_t key = headAt(row, static_cast<int>(i), 0, kv);
                                for (int e = 0; e < d; ++e)
                                    s += q[at(e)] * exact_cache[at(key + e)];
                                p[i] = s * a.scale;
                                top = std::max(top, p[i]);
                            }
                            double sum = 0.0;
                            for (double& v : p)
                                sum += v = std::exp(v - top);
                            for (std::size_t i = 0; i < p.size(); ++i) {
                                const std::int64_t value = headAt(row, static_cast<int>(i), 1, kv);
                                for (int e = 0; e < d; ++e)
                                    exact[at((row * heads + h) * d + e)] += p[i] / sum * exact_cache[at(value + e)];
                            }
                        }
                    // Queries, keys, probabilities and, in prefill, results are halves.
                    const double error = relativeError(found, exact);
                    check(error < 2e-3,
                        "attention, head size " + std::to_string(d) + ", " + std::to_string(heads) + "/"
                            + std::to_string(kv_heads) + " heads, " + std::to_string(rows) + " rows, position "
                            + std::to_string(c.positions[0]) + ": error " + std::to_string(error));
                }
            }
}

// ---- sampling ----------------------------------------------------------------------------------------------------

void sampling()
{
    constexpr int kVocab = 3000;
    constexpr int kDraws = 8192;
    std::vector<float> logits = floats(kVocab, 2.5f);
    logits[17] = logits[1234] = *std::max_element(logits.begin(), logits.end()) + 0.25f; // equal and largest
    struct Case {
        float temperature;
        int top_k;
        float top_p, min_p;
    };
    for (const Case& c : {Case {0.0f, 0, 1.0f, 0.0f}, Case {1.0f, 0, 1.0f, 0.0f}, Case {0.8f, 40, 1.0f, 0.0f},
             Case {0.7f, 0, 0.9f, 0.0f}, Case {1.3f, 0, 1.0f, 0.1f}, Case {1.1f, 100, 0.8f, 0.05f},
             Case {1.0f, 1, 1.0f, 0.0f}, Case {1.0f, 0, 1e-6f, 0.0f}}) {
        // The expected distribution, by sorting.
        std::vector<int> order(kVocab);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[at(a)] > logits[at(b)]; });
        std::vector<double> expected(kVocab, 0.0);
        if (c.temperature == 0.0f) {
            expected[at(order[0])] = 1.0;
        } else {
            const auto weight = [&](int i) { return std::exp((logits[at(i)] - logits[at(order[0])]) / c.temperature); };
            std::size_t kept = c.top_k > 0 ? at(c.top_k) : order.size();
            while (kept < order.size() && logits[at(order[kept])] == logits[at(order[kept - 1])])
                ++kept; // equals stay together
            double total = 0.0;
            for (std::size_t i = 0; i < kept; ++i)
                total += weight(order[i]);
            if (c.top_p < 1.0f) {
                double sum = 0.0;
                std::size_t n = 0;
                while (n < kept && sum < c.top_p * total)
                    sum += weight(order[n++]);
                while (n < kept && logits[at(order[n])] == logits[at(order[n - 1])])
                    ++n;
                kept = n;
            }
            while (kept > 1 && weight(order[kept - 1]) < c.min_p)
                --kept;
            total = 0.0;
            for (std::size_t i = 0; i < kept; ++i)
                total += expected[at(order[i])] = weight(order[i]);
            for (double& p : expected)
                p /= total;
        }
        const OnDevice<float> device_logits(logits);
        const OnDevice<unsigned long long> one(std::vector<unsigned long long>(1, 0));
        need(largestLogits(device_logits.get(), kVocab, kVocab, 1, one.get(), nullptr));
        const OnDevice<unsigned long long> best(std::vector<unsigned long long>(kDraws, one.values()[0]));
        std::vector<SamplingRow> rows;
        for (int i = 0; i < kDraws; ++i)
            rows.push_back({c.temperature, c.top_p, c.min_p, c.top_k, 7, static_cast<std::uint64_t>(i), 0, 1});
        const OnDevice<SamplingRow> device_rows(rows);
        const OnDevice<std::int32_t> tokens(kDraws), positions(std::vector<std::int32_t>(kDraws, 5)), drawn(kDraws);
        SampleArguments a {device_logits.get(), 0, kVocab, best.get(), device_rows.get(), tokens.get(), positions.get(),
            drawn.get(), 1};
        need(sample(a, kDraws, nullptr));
        const std::vector<std::int32_t> found = drawn.values();
        check(found == tokens.values(), "the token drawn is the next input");
        check(positions.values() == std::vector<std::int32_t>(kDraws, 6), "the position moves on");
        std::vector<int> counts(kVocab, 0);
        bool kept = true;
        for (const std::int32_t token : found) {
            kept = kept && token >= 0 && token < kVocab && expected[at(token)] > 0.0;
            if (token >= 0 && token < kVocab)
                ++counts[at(token)];
        }
        const std::string name = "sampling T " + std::to_string(c.temperature) + ", k " + std::to_string(c.top_k)
            + ", p " + std::to_string(c.top_p) + ", min " + std::to_string(c.min_p);
        check(kept, name + ": only what the filters keep");
        // Chi-square over the tokens that are expected at least 8 times, the rest together.
        double chi = 0.0;
        double rest = 0.0;
        int rest_count = 0;
        int degrees = -1;
        for (int i = 0; i < kVocab; ++i) {
            const double e = expected[at(i)] * kDraws;
            if (e < 8.0) {
                rest += e;
                rest_count += counts[at(i)];
                continue;
            }
            chi += (counts[at(i)] - e) * (counts[at(i)] - e) / e;
            ++degrees;
        }
        if (rest > 8.0) {
            chi += (rest_count - rest) * (rest_count - rest) / rest;
            ++degrees;
        }
        check(degrees < 1 || chi < degrees + 5.0 * std::sqrt(2.0 * degrees) + 5.0,
            name + ": chi-square " + std::to_string(chi) + " of " + std::to_string(degrees));
    }
    logits[99] = std::numeric_limits<float>::quiet_NaN();
    const OnDevice<float> broken(logits);
    const OnDevice<unsigned long long> best(1);
    need(largestLogits(broken.get(), kVocab, kVocab, 1, best.get(), nullptr));
    const OnDevice<SamplingRow> row(std::vector<SamplingRow> {{0.7f, 0.9f, 0.0f, 0, 1, 1, 0, 1}});
    const OnDevice<std::int32_t> tokens(1), positions(1), drawn(1);
    need(sample(
        {broken.get(), 0, kVocab, best.get(), row.get(), tokens.get(), positions.get(), drawn.get(), 1}, 1, nullptr));
    check(drawn.values()[0] == -1, "logits that are no numbers are reported");
}

// ---- whole models ------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Executor>> loadCuda(const ModelConfig& config, const ModelWeights& weights,
    const MemoryPlan& plan, const LoadProgress& progress, std::stop_token stop)
{
    return loadCudaExecutor(0, config, weights, plan, progress, std::move(stop));
}

void tinyModels()
{
    const test::TemporaryFolder folder;
    int number = 0;
    for (const test::TinyFormat format : {test::TinyFormat::fp16, test::TinyFormat::exl2, test::TinyFormat::gptq,
             test::TinyFormat::gguf, test::TinyFormat::gguf_q8_0, test::TinyFormat::gguf_q4_1}) {
        const auto path = folder.path() / std::to_string(number++);
        std::filesystem::create_directories(path);
        const auto model = test::writeTinyModel(path, {.format = format});
        test::ModelRun reference(model, loadReferenceExecutor);
        test::ModelRun cuda(model, loadCuda);
        std::vector<TokenId> tokens(300);
        for (TokenId& t : tokens)
            t = static_cast<TokenId>(below(reference.vocabulary()));
        const std::vector<float> expected = reference.logits(tokens);
        for (const int chunk : {0, 1, 7}) {
            const std::vector<float> found = cuda.logits(tokens, 0, chunk);
            const auto d = test::divergence(found, expected, reference.vocabulary(), tokens);
            std::printf("         tiny model %d, chunks of %d: logits within %.4f, KL %.2e\n", number, chunk, d.largest,
                d.kl_mean);
            check(d.largest < 0.05 && d.kl_mean < 1e-5,
                "tiny model " + std::to_string(number) + " against the reference");
        }
    }
}

void goldenModels()
{
    for (const test::GoldenModel& model : test::goldenModels()) {
        if (!model.available()) {
            std::printf("         %s is not here\n", model.name.c_str());
            continue;
        }
        const bool whole = std::getenv("PUNA_WHOLE") != nullptr;
        const test::Comparison found = test::compareWithGolden(
            model, loadCuda, test::kCudaBounds, whole ? test::GoldenExtent::whole : test::GoldenExtent::part);
        std::printf("         %s\n", found.summary.c_str());
        check(found.failures.empty(), model.name + ": " + found.failureText());
    }
}

// Greedy answers, drawn on the device: the same over runs, numbers of steps, neighbours, and as from logits.
void decodeLoop()
{
    auto path = test::starterModel();
    const test::TemporaryFolder folder;
    if (path.empty())
        path = test::writeTinyModel(folder.path(), {.format = test::TinyFormat::exl2});
    const ModelFiles files = need(openModelFiles(path));
    MemoryPlan plan;
    plan.max_context = 1024;
    plan.kv_pages = 64;
    plan.max_sequences = 12;
    const auto executor = need(loadCuda(files.config, files.weights, plan, {}, {}));
    std::vector<TokenId> prompt(40);
    for (TokenId& t : prompt)
        t = static_cast<TokenId>(below(files.config.vocab_size));
    constexpr int kTokens = 32;
    const DeviceSampling greedy {};
    // Runs `count` sequences beside each other, the one of interest at `place`.
    const auto answer = [&](int count, int place, int steps, const DeviceSampling* sampling, bool logits) {
        std::vector<std::vector<PageId>> pages;
        for (int i = 0; i < count; ++i)
            pages.push_back({static_cast<PageId>(4 * i + 1), static_cast<PageId>(4 * i)});
        std::vector<std::vector<TokenId>> last(at(count));
        ForwardResult result;
        std::vector<DeviceSampling> draws(at(count), sampling ? *sampling : greedy);
        for (int i = 0; i < count; ++i) {
            std::vector<TokenId> own = prompt;
            if (i != place)
                for (TokenId& t : own)
                    t = static_cast<TokenId>(below(files.config.vocab_size));
            const Sequence s {own, 0, pages[at(i)], LogitRows::last, logits ? nullptr : &draws[at(i)]};
            const auto done = executor->forward({{&s, 1}, 1, {}}, result);
            if (!done)
                stop(done.error().message);
            if (logits)
                result.tokens = {static_cast<TokenId>(
                    std::max_element(result.logits.begin(), result.logits.end()) - result.logits.begin())};
            last[at(i)] = {result.tokens[0]};
        }
        std::vector<TokenId> out = last[at(place)];
        for (int done = 1; done < kTokens; done += steps) {
            std::vector<Sequence> batch;
            for (int i = 0; i < count; ++i) {
                draws[at(i)].step = static_cast<std::uint64_t>(done);
                batch.push_back({last[at(i)], static_cast<std::int64_t>(prompt.size()) + done - 1, pages[at(i)],
                    LogitRows::last, logits ? nullptr : &draws[at(i)]});
            }
            const auto ran = executor->forward({batch, steps, {}}, result);
            if (!ran)
                stop(ran.error().message);
            for (int i = 0; i < count; ++i) {
                if (logits) {
                    const auto* from = result.logits.data() + i * files.config.vocab_size;
                    result.tokens.resize(at(count));
                    result.tokens[at(i)] =
                        static_cast<TokenId>(std::max_element(from, from + files.config.vocab_size) - from);
                }
                last[at(i)][0] = result.tokens[at(i * steps + steps - 1)];
                if (i == place)
                    out.insert(out.end(), result.tokens.begin() + i * steps, result.tokens.begin() + (i + 1) * steps);
            }
        }
        out.resize(kTokens);
        return out;
    };
    const std::vector<TokenId> expected = answer(1, 0, 1, &greedy, false);
    check(answer(1, 0, 1, nullptr, true) == expected, "drawn on the device as from the logits");
    for (int i = 0; i < 20; ++i)
        check(
            answer(1, 0, i % 2 ? 8 : 3, &greedy, false) == expected, "the same answer again, several steps at a time");
    for (const auto& [count, place] : {std::pair {2, 1}, std::pair {5, 3}, std::pair {8, 7}})
        check(answer(count, place, 4, &greedy, false) == expected,
            "the same answer beside " + std::to_string(count - 1) + " others");
    const std::vector<TokenId> twelve = answer(12, 11, 4, &greedy, false);
    std::size_t same = 0;
    while (same < twelve.size() && twelve[same] == expected[same])
        ++same;
    std::printf("         beside 11 others (another kernel): %zu of %d tokens alike\n", same, kTokens);
    check(same > 0, "twelve sequences");
    const DeviceSampling warm {0.9f, 50, 0.95f, 0.02f, 1234, 0};
    const std::vector<TokenId> sampled = answer(1, 0, 1, &warm, false);
    check(answer(1, 0, 8, &warm, false) == sampled, "the same draws for the same seed");
    check(sampled != expected, "a warm answer differs from the greedy one");

    // A copied page continues like its original.
    ForwardResult a, b;
    const std::vector<PageId> original = {1};
    const std::vector<PageId> copy = {20};
    const Sequence s {prompt, 0, original, LogitRows::last, nullptr};
    check(executor->forward({{&s, 1}, 1, {}}, a).has_value(), "prompt");
    const PageCopy pages[] = {{1, 20, 40}};
    check(executor->copyPages(pages).has_value(), "copyPages");
    const std::vector<TokenId> next = {5};
    for (const auto& [page, to] : {std::pair {&original, &a}, std::pair {&copy, &b}}) {
        const Sequence t {next, 40, *page, LogitRows::last, nullptr};
        check(executor->forward({{&t, 1}, 1, {}}, *to).has_value(), "next token");
    }
    check(a.logits == b.logits && !a.logits.empty(), "a copied page is the same");
    const std::vector<PageId> filled = {2, 3, 4, 5};
    check(executor->fillPages(filled, 9).has_value(), "fillPages");
    const Sequence far {next, 1000, filled, LogitRows::last, nullptr};
    check(executor->forward({{&far, 1}, 1, {}}, a).has_value(), "a long context of made-up numbers");

    // Refusals.
    const std::vector<TokenId> outside = {files.config.vocab_size};
    const Sequence bad {outside, 0, original, LogitRows::last, nullptr};
    check(!executor->forward({{&bad, 1}, 1, {}}, a), "a token outside of the vocabulary is refused");
    const Sequence beyond {next, 5000, original, LogitRows::last, nullptr};
    check(!executor->forward({{&beyond, 1}, 1, {}}, a), "a position beyond the context is refused");
    std::stop_source source;
    source.request_stop();
    const auto stopped = executor->forward({{&s, 1}, 1, source.get_token()}, a);
    check(!stopped && stopped.error().code == ErrorCode::cancelled, "a stopped batch says so");
    const auto unloaded = loadCuda(files.config, files.weights, plan, {}, source.get_token());
    check(!unloaded && unloaded.error().code == ErrorCode::cancelled, "loading can be stopped");
    plan.kv_type = KvType::q8;
    check(!loadCuda(files.config, files.weights, plan, {}, {}), "other cache types are refused");
    plan.kv_type = KvType::fp16;
    plan.kv_pages = std::int64_t {1} << 30;
    const auto huge = loadCuda(files.config, files.weights, plan, {}, {});
    check(!huge && huge.error().code == ErrorCode::memory, "too large a cache is refused");
}

void architectures()
{
    check(runsOn("90a-real", 90) && !runsOn("90a-real", 100) && !runsOn("90a-real", 89), "90a is 9.0 only");
    check(runsOn("80", 120) && runsOn("80-real", 86) && !runsOn("80-real", 90), "real code and intermediate code");
    check(runsOn("75-real;120-virtual", 121) && !runsOn("75-real;120-virtual", 90), "lists");
}

} // namespace

int main(int count, char** arguments)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    architectures();
    const CudaDevices found = cudaDevices();
    if (found.devices.empty()) {
        std::printf("SKIP   : tst_cuda::initTestCase() %s\n", found.problem.c_str());
        return failures > 0;
    }
    need(cudaSetDevice(found.devices[0].index));
    cudaDeviceProp properties {};
    need(cudaGetDeviceProperties(&properties, found.devices[0].index));
    need(prepareMatvec());
    need(prepareGemm());
    const std::uint64_t seed = std::random_device {}();
    generator.seed(seed);
    std::printf("         %s, %d multiprocessors, %.1f of %.1f GiB free, seed %llu\n", properties.name,
        properties.multiProcessorCount, found.devices[0].free.gib(), found.devices[0].total.gib(),
        static_cast<unsigned long long>(seed));
    const std::pair<const char*, std::function<void()>> tests[] = {
        {"matvec", [&] { matricesTimesVectors(properties.multiProcessorCount); }},
        {"epilogues", [&] { epilogues(properties.multiProcessorCount); }},
        {"gemm", matricesTimesMatrices},
        {"attention", attention},
        {"sampling", sampling},
        {"tiny", tinyModels},
        {"loop", decodeLoop},
        {"golden", goldenModels},
    };
    for (const auto& [name, test] : tests) {
        bool wanted = count < 2;
        for (int i = 1; i < count; ++i)
            wanted = wanted || std::strstr(name, arguments[i]);
        if (!wanted)
            continue;
        const int before = failures;
        test();
        need(cudaDeviceSynchronize());
        std::printf("%s   : %s\n", failures == before ? "PASS" : "FAIL", name);
    }
    return failures > 0;
}
