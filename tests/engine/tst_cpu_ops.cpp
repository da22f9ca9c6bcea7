// The kernels of the fast CPU executor, for every instruction set that this machine has, against double precision and
// the reference decoders. Outputs are poisoned before, what must not be read is not a number.
#include "engine/cpu/kernels.h"
#include "engine/cpu/pack.h"
#include "engine/quant/decode.h"

#include <QTest>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

using namespace puna;

namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::size_t at(std::int64_t i)
{
    return static_cast<std::size_t>(i);
}

class Random {
public:
    explicit Random(unsigned seed)
        : m_generator(seed)
    {
    }
    float real() { return static_cast<float>(m_generator()) * 0x1p-31f - 1.0f; } // -1 ... 1
    int below(int n) { return static_cast<int>(m_generator() % static_cast<unsigned>(n)); }
    std::uint32_t word() { return static_cast<std::uint32_t>(m_generator()); }
    template <class T> void shuffle(std::vector<T>& v) { std::shuffle(v.begin(), v.end(), m_generator); }

private:
    std::mt19937 m_generator;
};

// A layer and the memory behind its views.
struct Layer {
    Linear linear;
    std::vector<std::vector<std::byte>> memory;

    std::byte* bytes(std::int64_t count)
    {
        memory.emplace_back(at(count));
        return memory.back().data();
    }
    template <class T>
    TensorView tensor(DType type, std::initializer_list<std::int64_t> shape, const std::vector<T>& values)
    {
        TensorView view;
        view.dtype = type;
        for (const std::int64_t n : shape)
            view.shape[at(view.rank++)] = n;
        std::byte* data = bytes(static_cast<std::int64_t>(values.size() * sizeof(T)));
        std::memcpy(data, values.data(), values.size() * sizeof(T));
        view.data = data;
        return view;
    }
};

std::vector<std::uint32_t> randomWords(std::int64_t n, Random& random)
{
    std::vector<std::uint32_t> words(at(n));
    for (std::uint32_t& w : words)
        w = random.word();
    return words;
}

Layer denseLayer(DType type, std::int64_t k, std::int64_t n, Random& random)
{
    Layer layer;
    layer.linear.in_features = k;
    layer.linear.out_features = n;
    TensorView view;
    view.dtype = type;
    view.rank = 2;
    view.shape = {n, k};
    std::byte* data = layer.bytes(view.bytes());
    for (std::int64_t i = 0; i < view.bytes(); ++i)
        data[i] = static_cast<std::byte>(random.word());
    const DTypeInfo d = info(type);
    for (std::int64_t i = 0; i < n * k / d.block_elements; ++i) {
        std::byte* block = data + i * d.block_bytes;
        const float value = random.real() * 0.1f;
        const std::uint16_t halves[] = {floatToHalf(value), floatToHalf(random.real())};
        const std::uint16_t bf16 = floatToBf16(value);
        switch (type) {
        case DType::f32:
            std::memcpy(block, &value, 4);
            break;
        case DType::f16:
            std::memcpy(block, halves, 2);
            break;
        case DType::bf16:
            std::memcpy(block, &bf16, 2);
            break;
        case DType::q4_1:
            std::memcpy(block, halves, 4);
            break;
        default:
            std::memcpy(block, halves, 2);
        }
    }
    view.data = data;
    layer.linear.weight = DenseLinear {view};
    return layer;
}

// Groups of the given widths and rows, in a random order of inputs.
Layer exl2Layer(const std::vector<std::pair<int, int>>& groups, std::int64_t n, Random& random)
{
    Layer layer;
    Exl2Linear exl2;
    exl2.padded_out = (n + 31) / 32 * 32;
    std::int32_t rows = 0, words = 0;
    std::vector<std::uint16_t> scale_max;
    for (const auto& [bits, count] : groups) {
        exl2.groups.push_back({bits, rows, count, words});
        rows += count;
        words += count * bits / 32;
        scale_max.push_back(floatToHalf(0.001f + 0.01f * std::abs(random.real())));
    }
    const auto g = static_cast<std::int64_t>(groups.size());
    std::vector<std::int32_t> invperm(at(rows));
    std::iota(invperm.begin(), invperm.end(), 0);
    random.shuffle(invperm);
    exl2.q_weight = layer.tensor(DType::i32, {words, exl2.padded_out}, randomWords(words * exl2.padded_out, random));
    exl2.q_scale = layer.tensor(DType::i32, {g, exl2.padded_out / 8}, randomWords(g * exl2.padded_out / 8, random));
    exl2.q_scale_max = layer.tensor(DType::f16, {g}, scale_max);
    exl2.q_invperm = layer.tensor(DType::i32, {rows}, invperm);
    layer.linear.in_features = rows;
    layer.linear.out_features = n;
    layer.linear.weight = exl2;
    return layer;
}

enum class Order { none, sorted, uneven };

Layer gptqLayer(int bits, int group_size, std::int64_t k, std::int64_t n, Order order, bool symmetric, Random& random)
{
    Layer layer;
    GptqLinear gptq;
    gptq.bits = bits;
    gptq.group_size = group_size;
    gptq.zero_offset = random.below(2);
    const std::int64_t g = (k + group_size - 1) / group_size;
    gptq.qweight = layer.tensor(DType::i32, {k * bits / 32, n}, randomWords(k * bits / 32 * n, random));
    std::vector<std::uint32_t> zeros = randomWords(g * n * bits / 32, random);
    if (symmetric) {
        std::fill(zeros.begin(), zeros.end(), 0u);
        const std::uint32_t zero = (1u << (bits - 1)) - static_cast<std::uint32_t>(gptq.zero_offset);
        for (std::int64_t i = 0; i < g * n; ++i)
            for (int b = 0; b < bits; ++b)
                if (zero >> b & 1u)
                    zeros[at((i * bits + b) / 32)] |= 1u << ((i * bits + b) % 32);
    }
    gptq.qzeros = layer.tensor(DType::i32, {g, n * bits / 32}, zeros);
    std::vector<std::uint16_t> scales(at(g * n));
    for (std::uint16_t& s : scales)
        s = floatToHalf(0.02f * random.real());
    gptq.scales = layer.tensor(DType::f16, {g, n}, scales);
    if (order != Order::none) {
        std::vector<std::int32_t> index(at(k));
        for (std::int64_t i = 0; i < k; ++i)
            index[at(i)] =
                order == Order::uneven ? random.below(static_cast<int>(g)) : static_cast<int>(i / group_size);
        random.shuffle(index);
        gptq.g_idx = layer.tensor(DType::i32, {k}, index);
    }
    layer.linear.in_features = k;
    layer.linear.out_features = n;
    layer.linear.weight = gptq;
    return layer;
}

Layer layerNamed(const std::string& name, std::int64_t n, Random& random)
{
    if (name == "F32")
        return denseLayer(DType::f32, 1, n, random);
    if (name == "F32 odd")
        return denseLayer(DType::f32, 33, n, random);
    if (name == "F16")
        return denseLayer(DType::f16, 172, n, random);
    if (name == "F16 real")
        return denseLayer(DType::f16, 576, n, random);
    if (name == "BF16")
        return denseLayer(DType::bf16, 64, n, random);
    if (name == "Q4_0")
        return denseLayer(DType::q4_0, 32, n, random);
    if (name == "Q4_1")
        return denseLayer(DType::q4_1, 1536, n, random);
    if (name == "Q8_0")
        return denseLayer(DType::q8_0, 576, n, random);
    if (name == "EXL2 all widths")
        return exl2Layer(
            {{8, 32}, {8, 32}, {6, 128}, {5, 128}, {5, 128}, {4, 64}, {3, 64}, {2, 64}, {2, 32}}, n, random);
    if (name == "EXL2 4, short last group")
        return exl2Layer({{4, 128}, {4, 128}, {4, 64}}, n, random);
    if (name == "EXL2 3 2")
        return exl2Layer({{3, 32}, {2, 128}}, n, random);
    if (name == "GPTQ 4")
        return gptqLayer(4, 64, 576, n, Order::none, false, random);
    if (name == "GPTQ 4 symmetric")
        return gptqLayer(4, 128, 256, n, Order::none, true, random);
    if (name == "GPTQ 4 sorted")
        return gptqLayer(4, 64, 576, n, Order::sorted, false, random);
    if (name == "GPTQ 4 uneven")
        return gptqLayer(4, 32, 160, n, Order::uneven, false, random);
    if (name == "GPTQ 4 groups of 48")
        return gptqLayer(4, 48, 120, n, Order::none, true, random);
    if (name == "GPTQ 2")
        return gptqLayer(2, 64, 128, n, Order::sorted, false, random);
    if (name == "GPTQ 3")
        return gptqLayer(3, 32, 96, n, Order::none, false, random);
    return gptqLayer(8, 64, 128, n, Order::none, false, random);
}

const char* const kLayers[] = {"F32", "F32 odd", "F16", "F16 real", "BF16", "Q4_0", "Q4_1", "Q8_0", "EXL2 all widths",
    "EXL2 4, short last group", "EXL2 3 2", "GPTQ 4", "GPTQ 4 symmetric", "GPTQ 4 sorted", "GPTQ 4 uneven",
    "GPTQ 4 groups of 48", "GPTQ 2", "GPTQ 3", "GPTQ 8"};

// Owner of an Input, with every byte set.
struct OwnedInput {
    Input input;
    std::vector<std::int8_t> codes;
    std::vector<float> scales, scaled_sums, values;
    std::vector<std::int32_t> sums;

    OwnedInput(const Kernels& kernel, const PackedLinear& m, const std::vector<float>& x, std::int64_t rows)
    {
        const std::int64_t places = rows * m.blocks;
        codes.assign(at(2 * places * kBlock), 77);
        scales.assign(at(places), kPoison);
        scaled_sums.assign(at(places), kPoison);
        sums.assign(at(places), 123456789);
        values.assign(at(rows * m.in_features), kPoison);
        input = {rows, m.blocks, codes.data(), scales.data(), sums.data(), scaled_sums.data(), values.data()};
        std::vector<float> scratch(at(m.blocks * kBlock), kPoison);
        for (std::int64_t row = rows; row-- > 0;) {
            const float* from = x.data() + row * m.in_features;
            if (m.kind == WeightKind::codes) {
                kernel.quantise(from, m.gather.empty() ? nullptr : m.gather.data(), row, input, scratch.data());
                continue;
            }
            const RowTile tile = tileOfRow(row, rows, kernel.row_tile);
            for (std::int64_t k = 0; k < m.in_features; ++k)
                values[at(tile.first * m.in_features + k * tile.rows + row - tile.first)] = from[k];
        }
    }
};

struct Packed {
    PackedLinear matrix;
    std::vector<std::byte> memory;

    explicit Packed(const Linear& linear)
        : matrix(planPacked(linear))
    {
        memory.assign(at(matrix.stripes * matrix.stripe_bytes + 64), std::byte {0xff});
        std::byte* data = memory.data();
        data += (64 - reinterpret_cast<std::uintptr_t>(data) % 64) % 64;
        for (std::int64_t i = 0; i < matrix.stripes; ++i)
            packStripe(linear, matrix, i, data + i * matrix.stripe_bytes);
        matrix.data = data;
    }
};

void addLevels()
{
    QTest::addColumn<int>("level");
    for (int level = 0; level <= static_cast<int>(cpuFeatures().simd); ++level)
        QTest::newRow(simdName(static_cast<SimdLevel>(level))) << level;
}

} // namespace

class tst_cpu_ops : public QObject {
    Q_OBJECT

private slots:
    void matmulIsTheDecodedLayers_data()
    {
        QTest::addColumn<int>("level");
        QTest::addColumn<QString>("layer");
        QTest::addColumn<int>("n");
        for (int level = 0; level <= static_cast<int>(cpuFeatures().simd); ++level)
            for (const char* layer : kLayers)
                for (const int n : {32, 96})
                    QTest::newRow(qPrintable(
                        QString("%1, %2, %3 outputs").arg(simdName(static_cast<SimdLevel>(level)), layer).arg(n)))
                        << level << QString(layer) << n;
    }

    // Rounding x to multiples of 1/32,512 of the largest of its block costs at most half a multiple per weight; EXL2
    // and GPTQ round their products to half, which we do not; the rest is float32 arithmetic.
    void matmulIsTheDecodedLayers()
    {
        QFETCH(int, level);
        QFETCH(QString, layer);
        QFETCH(int, n);
        const Kernels& kernel = kernels(static_cast<SimdLevel>(level));
        Random random(static_cast<unsigned>(qHash(layer)) + static_cast<unsigned>(n));
        const Layer source = layerNamed(layer.toStdString(), n, random);
        const Linear& linear = source.linear;
        const std::int64_t k = linear.in_features;
        const Packed packed(linear);
        const std::vector<float> decoded = decodeLinear(linear);
        const bool dense = packed.matrix.kind != WeightKind::codes;
        const bool halves = !std::holds_alternative<DenseLinear>(linear.weight);
        // What a weight is the difference of: code times scale, and minimum or zero point times scale.
        const double parts = packed.matrix.offset == Offset::minimum ? 1.5 : 0.3;

        for (const std::int64_t rows : {1, 2, 3, 4, 7, 9}) {
            std::vector<float> x(at(rows * k));
            for (float& value : x)
                value = random.real() * (random.below(50) == 0 ? 100.0f : 1.0f);
            const OwnedInput in(kernel, packed.matrix, x, rows);
            const std::int64_t stripes = packed.matrix.stripes;
            std::vector<float> out(at(stripes * rows * kStripe), kPoison);
            kernel.matmul(packed.matrix, 0, stripes, in.input, out.data());
            for (std::int64_t row = 0; row < rows; ++row) {
                std::vector<double> unit(at(k), 0.0); // error of each value of x
                for (std::int64_t b = 0; !dense && b < packed.matrix.blocks; ++b) {
                    double largest = 0.0;
                    const auto feature = [&](std::int64_t i) {
                        return packed.matrix.gather.empty() ? static_cast<std::int32_t>(i)
                                                            : packed.matrix.gather[at(i)];
                    };
                    for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i)
                        if (feature(i) >= 0)
                            largest = std::max(largest, std::abs(static_cast<double>(x[at(row * k + feature(i))])));
                    for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i)
                        if (feature(i) >= 0)
                            unit[at(feature(i))] = 0.5001 * largest / 32512.0;
                }
                for (std::int64_t column = 0; column < n; ++column) {
                    double expected = 0.0, allowed = 0.0;
                    for (std::int64_t i = 0; i < k; ++i) {
                        const auto w = static_cast<double>(decoded[at(column * k + i)]);
                        const auto value = static_cast<double>(x[at(row * k + i)]);
                        expected += w * value;
                        allowed += std::abs(w) * unit[at(i)] + std::abs(w * value) * (halves ? 0x1p-11 : 0.0)
                            + (std::abs(w) + parts) * std::abs(value) * 1e-6;
                    }
                    const float ours = out[at((column / kStripe * rows + row) * kStripe + column % kStripe)];
                    if (!(std::abs(static_cast<double>(ours) - expected) <= allowed))
                        QFAIL(qPrintable(QString("row %1 of %2, output %3: %4, expected %5 within %6")
                                             .arg(row)
                                             .arg(rows)
                                             .arg(column)
                                             .arg(static_cast<double>(ours))
                                             .arg(expected)
                                             .arg(allowed)));
                }
            }
            // Alone, and stripe by stripe, the same bits.
            std::vector<float> alone(at(kStripe), kPoison);
            for (std::int64_t row = 0; row < rows; ++row) {
                const OwnedInput one(kernel, packed.matrix, {x.begin() + row * k, x.begin() + (row + 1) * k}, 1);
                for (std::int64_t i = 0; i < stripes; ++i) {
                    kernel.matmul(packed.matrix, i, 1, one.input, alone.data());
                    QVERIFY(std::memcmp(alone.data(), out.data() + (i * rows + row) * kStripe, 4 * kStripe) == 0);
                }
            }
        }
    }

    void outputsBeyondTheLastAreZero()
    {
        Random random(5);
        const Layer source = denseLayer(DType::q8_0, 64, 21, random);
        const Packed packed(source.linear);
        for (int level = 0; level <= static_cast<int>(cpuFeatures().simd); ++level) {
            const Kernels& kernel = kernels(static_cast<SimdLevel>(level));
            const OwnedInput in(kernel, packed.matrix, std::vector<float>(64, 1.0f), 1);
            std::vector<float> out(2 * kStripe, kPoison);
            kernel.matmul(packed.matrix, 0, 2, in.input, out.data());
            for (int n = 21; n < 32; ++n)
                QCOMPARE(out[at(n)], 0.0f);
        }
    }

    void whatIsNotFiniteStaysSo_data() { addLevels(); }
    void whatIsNotFiniteStaysSo()
    {
        QFETCH(int, level);
        const Kernels& kernel = kernels(static_cast<SimdLevel>(level));
        Random random(6);
        const Layer source = denseLayer(DType::q4_0, 64, 16, random);
        const Packed packed(source.linear);
        for (const float bad : {kPoison, std::numeric_limits<float>::infinity()}) {
            std::vector<float> x(64, 0.25f);
            x[37] = bad;
            const OwnedInput in(kernel, packed.matrix, x, 1);
            std::vector<float> out(kStripe, 0.0f);
            kernel.matmul(packed.matrix, 0, 1, in.input, out.data());
            for (const float value : out)
                QVERIFY(!std::isfinite(value));
        }
        const std::vector<float> zeros(64, 0.0f); // and nothing comes of nothing
        const OwnedInput in(kernel, packed.matrix, zeros, 1);
        std::vector<float> out(kStripe, kPoison);
        kernel.matmul(packed.matrix, 0, 1, in.input, out.data());
        for (const float value : out)
            QCOMPARE(value, 0.0f);
    }

    void normAndSiluAreTheirFormulas_data() { addLevels(); }
    void normAndSiluAreTheirFormulas()
    {
        QFETCH(int, level);
        const Kernels& kernel = kernels(static_cast<SimdLevel>(level));
        Random random(7);
        for (const std::int64_t n : {1, 7, 16, 64, 576, 577}) {
            std::vector<float> x(at(n)), weight(at(n)), out(at(n) + 1, kPoison);
            double squares = 0.0;
            for (std::int64_t i = 0; i < n; ++i) {
                x[at(i)] = random.real() * 1000.0f;
                weight[at(i)] = random.real();
                squares += static_cast<double>(x[at(i)]) * static_cast<double>(x[at(i)]);
            }
            const float sum = kernel.norm(x.data(), weight.data(), 1e-5f, n, out.data());
            QVERIFY(std::abs(static_cast<double>(sum) - squares) <= 1e-5 * squares);
            for (std::int64_t i = 0; i < n; ++i) {
                const double exact = static_cast<double>(x[at(i)]) / std::sqrt(squares / static_cast<double>(n) + 1e-5)
                    * static_cast<double>(weight[at(i)]);
                QVERIFY(std::abs(static_cast<double>(out[at(i)]) - exact) <= 1e-5 * std::abs(exact)); // of n roundings
            }
            QVERIFY(std::isnan(out[at(n)]));
        }
        std::vector<float> gate, up(64), out(64, kPoison);
        for (int i = 0; i < 64; ++i) {
            gate.push_back(i < 32 ? random.real() * 12.0f : random.real() * 200.0f);
            up[at(i)] = random.real() * 100.0f;
        }
        gate[0] = 0.0f;
        gate[1] = -3e38f;
        gate[2] = kPoison;
        kernel.siluTimes(gate.data(), up.data(), 64, out.data());
        QVERIFY(std::isnan(out[2]));
        for (std::size_t i = 0; i < 64; ++i) {
            const auto g = static_cast<double>(gate[i]);
            const double exact = g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]);
            // Below -88 the exponential is held at e^88: what is left is smaller than 1e-36 of the gate.
            if (i != 2)
                QVERIFY(std::abs(static_cast<double>(out[i]) - exact)
                    <= 1e-6 * std::abs(exact) + 1e-36 * std::abs(g) * std::abs(static_cast<double>(up[i])));
        }
    }

    void attentionIsSoftmaxOfTheKeysSeen_data() { addLevels(); }
    void attentionIsSoftmaxOfTheKeysSeen()
    {
        QFETCH(int, level);
        const Kernels& kernel = kernels(static_cast<SimdLevel>(level));
        Random random(8);
        for (const int head_dim : {2, 8, 64, 80, 128})
            for (const int queries : {1, 2, 3, 4, 9})
                for (const int most : {1, 15, 16, 17, 128}) {
                    const int stride = (head_dim + 15) / 16 * 16;
                    const auto halves = [&](std::int64_t count) {
                        return std::vector<std::uint16_t>(at(count), floatToHalf(kPoison));
                    };
                    std::vector<std::uint16_t> k = halves(kKeySplit * head_dim), v = halves(kKeySplit * stride);
                    std::vector<float> keys(at(kKeySplit * head_dim)), values(at(kKeySplit * head_dim));
                    for (int key = 0; key < most; ++key) {
                        std::fill_n(v.begin() + key * stride, stride, std::uint16_t {0});
                        for (int d = 0; d < head_dim; ++d) {
                            const std::uint16_t a = floatToHalf(random.real()), b = floatToHalf(random.real());
                            k[at((key / kKeyTile * head_dim + d) * kKeyTile + key % kKeyTile)] = a;
                            v[at(key * stride + d)] = b;
                            keys[at(key * head_dim + d)] = halfToFloat(a);
                            values[at(key * head_dim + d)] = halfToFloat(b);
                        }
                    }
                    std::vector<std::vector<float>> query(at(queries), std::vector<float>(at(head_dim)));
                    std::vector<std::vector<float>> out(at(queries), std::vector<float>(at(2 + stride), kPoison));
                    std::vector<const float*> query_at;
                    std::vector<float*> out_at;
                    std::vector<int> seen;
                    for (int q = 0; q < queries; ++q) {
                        for (float& value : query[at(q)])
                            value = random.real() * 3.0f;
                        query_at.push_back(query[at(q)].data());
                        out_at.push_back(out[at(q)].data());
                        seen.push_back(q == 0 ? most : random.below(most + 1));
                    }
                    std::vector<float> scores(at(queries * kKeySplit), kPoison);
                    kernel.attend({.queries = queries,
                        .query = query_at.data(),
                        .keys = seen.data(),
                        .k = k.data(),
                        .v = v.data(),
                        .head_dim = head_dim,
                        .value_stride = stride,
                        .scores = scores.data(),
                        .out = out_at.data()});
                    for (int q = 0; q < queries; ++q) {
                        if (seen[at(q)] == 0) {
                            QCOMPARE(out[at(q)][1], 0.0f);
                            continue;
                        }
                        std::vector<double> score;
                        for (int key = 0; key < seen[at(q)]; ++key) {
                            double sum = 0.0;
                            for (int d = 0; d < head_dim; ++d)
                                sum += static_cast<double>(query[at(q)][at(d)])
                                    * static_cast<double>(keys[at(key * head_dim + d)]);
                            score.push_back(sum);
                        }
                        const double top = *std::max_element(score.begin(), score.end());
                        double sum = 0.0;
                        for (double& s : score)
                            sum += s = std::exp(s - top);
                        for (int d = 0; d < head_dim; ++d) {
                            double exact = 0.0;
                            for (int key = 0; key < seen[at(q)]; ++key)
                                exact += score[at(key)] / sum * static_cast<double>(values[at(key * head_dim + d)]);
                            const auto ours = static_cast<double>(out[at(q)][at(2 + d)] / out[at(q)][1]);
                            QVERIFY(std::abs(ours - exact) <= 2e-5); // scores up to 400 in float32, values below 1
                        }
                    }
                    // The same in two pieces, joined.
                    if (most > kKeyTile) {
                        std::vector<float> first(at(2 + stride), kPoison), second(at(2 + stride), kPoison);
                        const int counts[] = {kKeyTile, most - kKeyTile};
                        float* outs[] = {first.data(), second.data()};
                        for (int piece = 0; piece < 2; ++piece)
                            kernel.attend({.queries = 1,
                                .query = query_at.data(),
                                .keys = counts + piece,
                                .k = k.data() + piece * kKeyTile * head_dim,
                                .v = v.data() + piece * kKeyTile * stride,
                                .head_dim = head_dim,
                                .value_stride = stride,
                                .scores = scores.data(),
                                .out = outs + piece});
                        kernel.merge(first.data(), second.data(), stride);
                        for (int d = 0; d < head_dim; ++d)
                            QVERIFY(std::abs(first[at(2 + d)] / first[1] - out[0][at(2 + d)] / out[0][1]) <= 1e-5f);
                    }
                }
    }

    void halvesAreRoundedToNearest_data() { addLevels(); }
    void halvesAreRoundedToNearest()
    {
        QFETCH(int, level);
        const Kernels& kernel = kernels(static_cast<SimdLevel>(level));
        std::vector<float> x = {0.0f, -0.0f, 1.0f, 65504.0f, 65519.9f, 65520.0f, 1e-8f, 3e-8f, 6.1e-5f, -1.0009765f,
            1.00048828125f, 1.00146484375f, 1e30f, -1e30f, 5.9604645e-8f, 0.1f};
        std::vector<std::uint16_t> out(x.size());
        kernel.toHalf(x.data(), static_cast<std::int64_t>(x.size()), out.data());
        for (std::size_t i = 0; i < x.size(); ++i)
            QCOMPARE(out[i], floatToHalf(x[i]));
    }
};

QTEST_GUILESS_MAIN(tst_cpu_ops)
#include "tst_cpu_ops.moc"
