// Decoded layers against reference decoders, every value exactly: tests/golden/quant.
#include "engine/model/safetensors.h"
#include "engine/quant/decode.h"
#include "engine/quant/exl2.h"
#include "engine/quant/gptq.h"
#include "tests/support/paths.h"

#include <QTest>

#include <set>

using namespace puna;

class tst_decode : public QObject {
    Q_OBJECT

    std::shared_ptr<const Safetensors> m_file;

    TensorView part(const QString& layer, const char* name) const
    {
        return m_file->tensor((layer + '.' + name).toStdString());
    }

    // Rows "kind.NAME" for every layer of the file.
    void addRows(const std::string& kind) const
    {
        QTest::addColumn<QString>("layer");
        for (const auto& [name, view] : m_file->tensors())
            if (name.starts_with(kind) && name.ends_with(".expected")) {
                const QString layer = QString::fromStdString(name.substr(0, name.rfind('.')));
                QTest::newRow(qPrintable(layer)) << layer;
            }
    }

    // expected: F16 [K, N or more]
    static void compareLayer(const Linear& linear, const TensorView& expected)
    {
        const std::vector<float> decoded = decodeLinear(linear);
        const std::int64_t columns = expected.shape[1];
        for (std::int64_t n = 0; n < linear.out_features; ++n)
            for (std::int64_t k = 0; k < linear.in_features; ++k) {
                const float ours = decoded[static_cast<std::size_t>(n * linear.in_features + k)];
                const float theirs = halfToFloat(expected.load<std::uint16_t>(k * columns + n));
                if (ours != theirs)
                    QFAIL(qPrintable(
                        QString("input %1, output %2: %3, expected %4").arg(k).arg(n).arg(ours).arg(theirs)));
            }
        // Any range of rows decodes to the same values.
        std::vector<float> some(static_cast<std::size_t>(3 * linear.in_features));
        decodeRows(linear, linear.out_features - 3, 3, some);
        QVERIFY(std::equal(some.begin(), some.end(), decoded.end() - 3 * linear.in_features));
    }

private slots:
    void initTestCase()
    {
        auto opened = Safetensors::open(test::source("tests/golden/quant/layers.safetensors"));
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        m_file = *opened;
    }

    void exl2IsTheReferenceDecoders_data() { addRows("exl2."); }
    void exl2IsTheReferenceDecoders()
    {
        QFETCH(QString, layer);
        const Exl2Tensors tensors {part(layer, "q_weight"), part(layer, "q_scale"), part(layer, "q_scale_max"),
            part(layer, "q_groups"), part(layer, "q_invperm")};
        const TensorView expected = part(layer, "expected");
        Linear linear;
        linear.in_features = expected.shape[0];
        linear.out_features = expected.shape[1] - 5; // pretend that the last columns are padding
        auto bound = bindExl2("layer", tensors, linear.in_features, linear.out_features);
        QVERIFY2(bound.has_value(), bound ? "" : bound.error().message.c_str());
        linear.weight = *bound;
        compareLayer(linear, expected);
    }

    void goldenDataHasEveryExl2Width()
    {
        std::set<int> widths;
        for (const auto& [name, view] : m_file->tensors())
            if (name.ends_with(".q_groups"))
                for (std::int64_t i = 0; i < view.shape[0]; i += 2)
                    widths.insert(view.load<std::int16_t>(i));
        QCOMPARE(widths, (std::set<int> {2, 3, 4, 5, 6, 8}));
    }

    void gptqIsTheReferenceDecoders_data() { addRows("gptq."); }
    void gptqIsTheReferenceDecoders()
    {
        QFETCH(QString, layer);
        const TensorView expected = part(layer, "expected");
        Linear linear;
        linear.in_features = expected.shape[0];
        linear.out_features = expected.shape[1];
        const GptqTensors tensors {
            part(layer, "qweight"), part(layer, "qzeros"), part(layer, "scales"), part(layer, "g_idx")};
        auto bound = bindGptq("layer", tensors, linear.in_features, linear.out_features,
            {.v2 = layer.contains("_v2"), .symmetric = false, .group_size = 32});
        QVERIFY2(bound.has_value(), bound ? "" : bound.error().message.c_str());
        QCOMPARE(bound->bits, layer.mid(6, 1).toInt());
        QCOMPARE(static_cast<bool>(bound->g_idx), layer.contains("_act"));
        linear.weight = *bound;
        compareLayer(linear, expected);
    }

    void ggufBlocksAreGgmls_data() { addRows("gguf."); }
    void ggufBlocksAreGgmls()
    {
        QFETCH(QString, layer);
        const TensorView blocks = part(layer, "blocks");
        const TensorView expected = part(layer, "expected");
        TensorView tensor;
        for (const DType type : {DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q8_0})
            if (layer.endsWith("." + QString::fromStdString(std::string(info(type).name))))
                tensor.dtype = type;
        tensor.data = blocks.data;
        tensor.rank = 2;
        tensor.shape = expected.shape;
        QCOMPARE(tensor.bytes(), blocks.elements());
        std::vector<float> decoded(static_cast<std::size_t>(expected.elements()));
        decodeTensor(tensor, 0, expected.elements(), decoded.data());
        for (std::size_t i = 0; i < decoded.size(); ++i)
            QCOMPARE(decoded[i], expected.load<float>(static_cast<std::int64_t>(i)));
        float one[32];
        decodeTensor(tensor, 32, 32, one);
        QVERIFY(std::equal(one, one + 32, decoded.begin() + 32));
    }

    // A symmetric file says by its zero points how they are stored, whatever its config claims.
    void symmetricZeroPointsTellTheVersion_data()
    {
        QTest::addColumn<quint32>("nibble");
        QTest::addColumn<bool>("claims_v2");
        QTest::addColumn<int>("offset");
        QTest::newRow("7, said to be version 1") << 7u << false << 1;
        QTest::newRow("7, said to be version 2") << 7u << true << 1;
        QTest::newRow("8, said to be version 1") << 8u << false << 0;
        QTest::newRow("8, said to be version 2") << 8u << true << 0;
        QTest::newRow("9, said to be version 1") << 9u << false << 1;
        QTest::newRow("9, said to be version 2") << 9u << true << 0;
    }
    void symmetricZeroPointsTellTheVersion()
    {
        QFETCH(quint32, nibble);
        QFETCH(bool, claims_v2);
        QFETCH(int, offset);
        const std::vector<std::uint32_t> words(4 * 8);
        const std::vector<std::uint32_t> zeros(1, nibble * 0x11111111u);
        const std::vector<std::uint16_t> scales(8, 0x3c00);
        const auto view = [](const auto& data, DType type, std::int64_t rows, std::int64_t columns) {
            return TensorView {reinterpret_cast<const std::byte*>(data.data()), type, 2, {rows, columns}};
        };
        const GptqTensors tensors {
            view(words, DType::i32, 4, 8), view(zeros, DType::i32, 1, 1), view(scales, DType::f16, 1, 8), {}};
        const auto bound = bindGptq("layer", tensors, 32, 8, {.v2 = claims_v2, .symmetric = true, .group_size = -1});
        QVERIFY(bound.has_value());
        QCOMPARE(bound->zero_offset, offset);
    }
};

QTEST_GUILESS_MAIN(tst_decode)
#include "tst_decode.moc"
