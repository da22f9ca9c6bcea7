// The GGUF reader: metadata of every type, tensor directories, and headers that lie.
#include "engine/model/gguf.h"
#include "tests/support/model_writer.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

#include <QElapsedTimer>
#include <QTest>

using namespace puna;
using namespace puna::test;

namespace {

// A file field by field, so that each can lie.
struct FileBytes {
    std::string s;
    template <class T> FileBytes& put(T value)
    {
        s.append(reinterpret_cast<const char*>(&value), sizeof value);
        return *this;
    }
    FileBytes& text(std::string_view t)
    {
        put<quint64>(t.size());
        s += t;
        return *this;
    }
    FileBytes& head(quint64 tensors, quint64 keys, quint32 version = 3)
    {
        s += "GGUF";
        return put(version).put(tensors).put(keys);
    }
    FileBytes& number(std::string_view key, quint32 value) { return text(key).put<quint32>(4).put(value); }
    FileBytes& tensor(std::string_view name, std::initializer_list<quint64> fastest_first, quint32 type, quint64 offset)
    {
        text(name).put<quint32>(static_cast<quint32>(fastest_first.size()));
        for (const quint64 n : fastest_first)
            put(n);
        return put(type).put(offset);
    }
    FileBytes& data(std::size_t size, std::size_t alignment = 32)
    {
        s.resize((s.size() + alignment - 1) / alignment * alignment + size);
        return *this;
    }
};

} // namespace

class tst_gguf : public QObject {
    Q_OBJECT

    TemporaryFolder m_folder;
    std::filesystem::path file() const { return m_folder.path() / "model.gguf"; }

private slots:
    void readsEveryTypeOfValue()
    {
        FileBytes b;
        b.head(0, 15);
        b.text("u8").put<quint32>(0).put<quint8>(200);
        b.text("i8").put<quint32>(1).put<qint8>(-5);
        b.text("u16").put<quint32>(2).put<quint16>(60000);
        b.text("i16").put<quint32>(3).put<qint16>(-30000);
        b.text("u32").put<quint32>(4).put<quint32>(4000000000u);
        b.text("i32").put<quint32>(5).put<qint32>(-7);
        b.text("f32").put<quint32>(6).put<float>(1.5f);
        b.text("bool").put<quint32>(7).put<quint8>(1);
        b.text("string").put<quint32>(8).text("hello");
        b.text("u64").put<quint32>(10).put<quint64>(~quint64 {0});
        b.text("i64").put<quint32>(11).put<qint64>(-9);
        b.text("f64").put<quint32>(12).put<double>(0.1);
        b.text("strings").put<quint32>(9).put<quint32>(8).put<quint64>(2).text("a").text("");
        b.text("i16s").put<quint32>(9).put<quint32>(3).put<quint64>(2).put<qint16>(-1).put<qint16>(2);
        b.text("bools").put<quint32>(9).put<quint32>(7).put<quint64>(2).put<quint8>(1).put<quint8>(0);
        writeFile(file(), b.s);
        const auto opened = Gguf::open(file());
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        const Gguf& g = **opened;
        QCOMPARE(g.integer("u8").value(), 200);
        QCOMPARE(g.integer("i8").value(), -5);
        QCOMPARE(g.integer("u16").value(), 60000);
        QCOMPARE(g.integer("i16").value(), -30000);
        QCOMPARE(g.integer("u32").value(), 4000000000);
        QCOMPARE(g.integer("i32").value(), -7);
        QCOMPARE(g.number("f32").value(), 1.5);
        QVERIFY(!g.integer("f32"));
        QCOMPARE(std::get<bool>(*g.find("bool")), true);
        QCOMPARE(g.string("string").value(), std::string_view("hello"));
        QVERIFY(!g.integer("u64")); // does not fit
        QCOMPARE(g.integer("i64").value(), -9);
        QCOMPARE(g.number("i64").value(), -9.0);
        QCOMPARE(g.number("f64").value(), 0.1);
        QCOMPARE(*g.strings("strings"), (std::vector<std::string> {"a", ""}));
        QCOMPARE(std::get<std::vector<std::int64_t>>(*g.find("i16s")), (std::vector<std::int64_t> {-1, 2}));
        QCOMPARE(std::get<std::vector<bool>>(*g.find("bools")), (std::vector<bool> {true, false}));
        QVERIFY(!g.find("absent") && !g.string("u8") && !g.strings("string"));
    }

    void readsTensors_data()
    {
        QTest::addColumn<quint32>("version");
        QTest::newRow("version 2") << 2u;
        QTest::newRow("version 3") << 3u;
    }
    void readsTensors()
    {
        QFETCH(quint32, version);
        FileBytes b;
        b.head(4, 1, version).number("general.alignment", 64);
        b.tensor("matrix", {32, 3}, 8, 64)
            .tensor("vector", {5}, 0, 0)
            .tensor("k", {256}, 12, 192)
            .tensor("new", {1}, 99, 192);
        b.data(64 + 3 * 34, 64);
        writeFile(file(), b.s);
        const auto opened = Gguf::open(file());
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        const TensorView matrix = (*opened)->tensor("matrix");
        QCOMPARE(matrix.dtype, DType::q8_0);
        QCOMPARE(matrix.shape[0], 3); // row major
        QCOMPARE(matrix.shape[1], 32);
        QCOMPARE(matrix.bytes(), 3 * 34);
        QCOMPARE(matrix.data - (*opened)->tensor("vector").data, 64);
        QCOMPARE((*opened)->unsupportedTensors().at("k"), std::string("Q4_K"));
        QCOMPARE((*opened)->unsupportedTensors().at("new"), std::string("type 99"));
    }

    void violationsAreRefused_data()
    {
        QTest::addColumn<QByteArray>("bytes");
        QTest::addColumn<QByteArray>("expected");
        const auto add = [](const char* name, const FileBytes& b, const char* expected) {
            QTest::newRow(name) << QByteArray::fromStdString(b.s) << QByteArray(expected);
        };
        const auto begin = [](quint64 tensors, quint64 keys) { return FileBytes().head(tensors, keys); };
        add("nothing", FileBytes(), "does not begin with 'GGUF'");
        add("something else", FileBytes().text("hello"), "does not begin with 'GGUF'");
        add("version 1", FileBytes().head(0, 0, 1), "GGUF version 1, expected version 2 or 3");
        add("version 4", FileBytes().head(0, 0, 4), "GGUF version 4");
        add("big-endian", FileBytes().head(0, 0, 0x03000000), "big-endian");
        add("only a magic", FileBytes {"GGUF"}, "ends within its header");
        add("claims 2^64 - 1 keys", begin(0, ~quint64 {0}).data(100), "keys");
        add("claims 2^60 keys", begin(0, quint64 {1} << 60).data(100), "keys");
        add("claims 2^64 - 1 tensors", begin(~quint64 {0}, 0).data(100), "tensors");
        add("claims 1,000 tensors in 100 bytes", begin(1000, 0).data(100), "1000 tensors");
        add("a key of 2^63 bytes", begin(0, 1).put<quint64>(quint64 {1} << 63).data(64), "ends within");
        add("a key of 2^64 - 1 bytes", begin(0, 1).put<quint64>(~quint64 {0}).data(64), "ends within");
        add("a long key", begin(0, 1).number(std::string(5000, 'k'), 1), "5000 bytes");
        add("a text of 2^62 bytes", begin(0, 1).text("a").put<quint32>(8).put<quint64>(quint64 {1} << 62).data(64),
            "ends within");
        add("an array of 2^61 numbers",
            begin(0, 1).text("a").put<quint32>(9).put<quint32>(10).put<quint64>(quint64 {1} << 61).data(64),
            "'a' claims");
        add("an array of 2^62 texts",
            begin(0, 1).text("a").put<quint32>(9).put<quint32>(8).put<quint64>(quint64 {1} << 62).data(64),
            "'a' claims");
        add("an array of 40 texts in 100 bytes",
            begin(0, 1).text("a").put<quint32>(9).put<quint32>(8).put<quint64>(40).data(100), "'a' claims");
        add("an array of arrays", begin(0, 1).text("a").put<quint32>(9).put<quint32>(9).put<quint64>(1).data(64),
            "unknown value type 9");
        add("an array of an unknown type",
            begin(0, 1).text("a").put<quint32>(9).put<quint32>(77).put<quint64>(1).data(64), "unknown value type 77");
        add("an unknown value type", begin(0, 1).text("a").put<quint32>(13).data(64), "unknown value type 13");
        add("a key twice", begin(0, 2).number("a", 1).number("a", 2).data(64), "'a' occurs twice");
        for (const quint32 alignment : {0u, 3u, 24u, 1u << 21, 0xffffffffu})
            QTest::addRow("alignment %u", alignment)
                << QByteArray::fromStdString(begin(0, 1).number("general.alignment", alignment).s)
                << QByteArray("power of two");
        add("alignment as text", begin(0, 1).text("general.alignment").put<quint32>(8).text("32"), "power of two");
        add("5 dimensions", begin(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).data(64), "5 dimensions");
        add("2^32 - 1 dimensions", begin(1, 0).text("t").put<quint32>(0xffffffffu).data(64), "dimensions");
        add("a product that wraps", begin(1, 0).tensor("t", {quint64 {1} << 32, quint64 {1} << 32, 2}, 0, 0).data(64),
            "no possible shape");
        add("an extent of 2^63", begin(1, 0).tensor("t", {quint64 {1} << 63}, 0, 0).data(64), "no possible shape");
        add("a zero that hides a huge extent", begin(1, 0).tensor("t", {0, quint64 {1} << 63}, 0, 0).data(64),
            "no possible shape");
        add("a part of a block", begin(1, 0).tensor("t", {33, 2}, 8, 0).data(128), "no possible shape");
        add("an offset off the alignment", begin(1, 0).tensor("t", {1}, 0, 4).data(64), "expected a multiple of 32");
        add("an offset past the end", begin(1, 0).tensor("t", {1}, 0, 64).data(64), "of 64 bytes of data");
        add("an offset of 2^64 - 32", begin(1, 0).tensor("t", {16}, 0, ~quint64 {0} - 31).data(64),
            "of 64 bytes of data");
        add("one byte too many", begin(1, 0).tensor("t", {17}, 0, 0).data(67), "of 67 bytes of data");
        add("an overlap", begin(2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).data(64), "overlaps");
        add("the same bytes twice", begin(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 0).data(64), "overlaps");
        add("a tensor twice", begin(2, 0).tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(64), "'a' occurs twice");
        add("a tensor twice, once of an unread type",
            begin(2, 0).tensor("a", {8}, 0, 0).tensor("a", {256}, 12, 32).data(256), "'a' occurs twice");
    }
    void violationsAreRefused()
    {
        QFETCH(QByteArray, bytes);
        QFETCH(QByteArray, expected);
        writeFile(file(), std::string_view(bytes.data(), static_cast<std::size_t>(bytes.size())));
        QElapsedTimer timer;
        timer.start();
        const auto opened = Gguf::open(file());
        QVERIFY(!opened.has_value());
        QVERIFY(timer.elapsed() < 2000);
        const QByteArray message = QByteArray::fromStdString(opened.error().message);
        QVERIFY2(message.startsWith("model.gguf: ") && message.contains(expected), message);
        QVERIFY2(message.size() < 400 && !message.contains('\n'), message);
    }

    void everyTruncationIsRefused()
    {
        GgufWriter w;
        w.text("general.architecture", "llama");
        w.texts("tokens", std::vector<std::string> {"one", "two"});
        w.tensor("a", 0, {2, 3}, ByteString(24));
        w.tensor("b", 8, {2, 32}, ByteString(68));
        ByteString whole = w.finish();
        writeFile(file(), whole);
        QVERIFY(Gguf::open(file()).has_value());
        const std::size_t needed = whole.size() - 28; // b's padding is not needed
        for (std::size_t size = 0; size < needed; ++size) {
            writeFile(file(), std::span(whole).first(size));
            QVERIFY2(!Gguf::open(file()).has_value(), qPrintable(QString::number(size)));
        }
    }

    void readsTheStarterModel()
    {
        const std::filesystem::path path = starterModel();
        if (path.empty())
            QSKIP("the starter model is not here");
        QElapsedTimer timer;
        timer.start();
        const auto opened = Gguf::open(path);
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        QVERIFY2(timer.elapsed() < 1000, qPrintable(QString::number(timer.elapsed()) + " ms"));
        QCOMPARE((*opened)->tensors().size(), 272u);
        QCOMPARE((*opened)->integer("llama.block_count").value(), 30);
        QCOMPARE((*opened)->strings("tokenizer.ggml.tokens")->size(), 49152u);
        QCOMPARE((*opened)->tensor("token_embd.weight").shape[0], 49152);
    }
};

QTEST_GUILESS_MAIN(tst_gguf)
#include "tst_gguf.moc"
