// The safetensors reader against the format's rules (`reliability.md` 1.2): what is well formed opens, each violation
// is refused with the file and the rule, quickly.
#include "engine/model/safetensors.h"
#include "tests/support/model_writer.h"
#include "tests/support/temporary_folder.h"

#include <QElapsedTimer>
#include <QTest>

#include <sys/resource.h>
#include <sys/stat.h>

using namespace puna;
using namespace puna::test;

class tst_safetensors : public QObject {
    Q_OBJECT

    TemporaryFolder m_folder;
    std::filesystem::path file() const { return m_folder.path() / "model.safetensors"; }

    static std::string tensor(
        const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end)
    {
        return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":["
            + std::to_string(begin) + "," + std::to_string(end) + "]}";
    }

private slots:
    void opensWhatIsWellFormed()
    {
        const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + tensor("b", "F32", "[2,1]", 4, 12) + ","
            + tensor("a", "F16", "[2]", 0, 4) + "," + tensor("none", "I32", "[0]", 4, 4) + ","
            + tensor("scalar", "I64", "[]", 12, 20) + "," + tensor("odd", "F8_E4M3", "[3]", 20, 23) + "}  \n";
        std::vector<std::byte> data(23);
        data[4] = std::byte {42};
        writeSafetensorsRaw(file(), header, data);
        const auto opened = Safetensors::open(file());
        QVERIFY2(opened.has_value(), opened ? "" : opened.error().message.c_str());
        const Safetensors& s = **opened;
        QCOMPARE(s.tensors().size(), 4u);
        QCOMPARE(s.tensor("b").rank, 2);
        QCOMPARE(s.tensor("b").shape[0], 2);
        QCOMPARE(static_cast<int>(s.tensor("b").data[0]), 42);
        QCOMPARE(s.tensor("a").dtype, DType::f16);
        QCOMPARE(s.tensor("scalar").elements(), 1);
        QVERIFY(!s.tensor("absent"));
        QCOMPARE(s.unsupportedTensors().at("odd"), std::string("F8_E4M3 [3]"));
    }

    void aSpaceBeforeTheHeaderIsAllowed()
    {
        writeSafetensorsRaw(file(), " \n{" + tensor("a", "U8", "[1]", 0, 1) + "}", std::vector<std::byte>(1));
        QVERIFY(Safetensors::open(file()).has_value());
    }

    void violationsAreRefused_data()
    {
        QTest::addColumn<QByteArray>("header");
        QTest::addColumn<int>("data");
        QTest::addColumn<QByteArray>("expected");
        const auto add = [](const char* name, const std::string& header, int data, const char* expected) {
            QTest::newRow(name) << QByteArray::fromStdString(header) << data << QByteArray(expected);
        };
        const std::string good = tensor("a", "F16", "[2]", 0, 4);
        add("empty header", "", 4, "too few");
        add("no object", "[1, 2, 3]", 0, "does not begin with '{'");
        add("text before the object", "x{" + good + "}", 4, "does not begin");
        add("not JSON", "{\"a\": nonsense}", 0, "not valid JSON");
        add("cut off", "{" + good, 4, "not valid JSON");
        add("something after it", "{" + good + "} {}", 4, "not valid JSON");
        add("a zero byte after it", "{" + good + "}" + std::string(1, '\0'), 4, "not valid JSON");
        add("invalid UTF-8", "{\"\xff\xfe\":" + good.substr(4) + "}", 4, "not valid JSON");
        add("a number as tensor", "{\"a\":1}", 0, "a number");
        add("a text as tensor", "{\"a\":\"b\"}", 0, "a string");
        add("a list as tensor", "{\"a\":[]}", 0, "a list");
        add("null as tensor", "{\"a\":null}", 0, "a null");
        add("a number in the metadata", "{\"__metadata__\":{\"a\":1}}", 0, "a number");
        add("an object in the metadata", "{\"__metadata__\":{\"a\":{}}}", 0, "an object");
        add("metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
        add("no dtype", R"({"a":{"shape":[2],"data_offsets":[0,4]}})", 4, "lacks");
        add("no shape", R"({"a":{"dtype":"F16","data_offsets":[0,4]}})", 4, "lacks");
        add("no offsets", R"({"a":{"dtype":"F16","shape":[2]}})", 4, "lacks");
        add("unknown field", R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4],"x":1}})", 4, "unknown field 'x'");
        add("shape twice", R"({"a":{"dtype":"F16","shape":[2],"shape":[2],"data_offsets":[0,4]}})", 4, "'shape' twice");
        add("nested shape", R"({"a":{"dtype":"F16","shape":[[2]],"data_offsets":[0,4]}})", 4, "a list");
        add("negative shape", R"({"a":{"dtype":"F16","shape":[-2],"data_offsets":[0,4]}})", 4, "negative");
        add("fraction in shape", R"({"a":{"dtype":"F16","shape":[2.0],"data_offsets":[0,4]}})", 4, "fraction");
        add("shape beyond 64 bits", R"({"a":{"dtype":"F16","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
            "fraction");
        add("text in shape", R"({"a":{"dtype":"F16","shape":["2"],"data_offsets":[0,4]}})", 4, "a string");
        add("17 dimensions", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
            1, "more than 16 dimensions");
        add("one offset", R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[4]}})", 4, "1 data offsets");
        add("three offsets", R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,2,4]}})", 4, "3 data offsets");
        add("unknown dtype", "{" + tensor("a", "F15", "[2]", 0, 4) + "}", 4, "unknown element type 'F15'");
        add("offsets reversed", "{" + tensor("a", "F16", "[2]", 4, 0) + "}", 4, "lies at 4 to 0");
        add("offsets past the end", "{" + tensor("a", "F16", "[4]", 0, 8) + "}", 4, "lies at 0 to 8");
        add("shape smaller than the bytes", "{" + tensor("a", "F16", "[1]", 0, 4) + "}", 4,
            "does not take the 4 bytes");
        add("shape larger than the bytes", "{" + tensor("a", "F16", "[3]", 0, 4) + "}", 4, "does not take the 4 bytes");
        add("a product that wraps to 4", "{" + tensor("a", "F16", "[4294967297, 4294967296, 2]", 0, 4) + "}", 4,
            "does not take");
        add("a product that wraps to 0", "{" + tensor("a", "F16", "[9223372036854775808, 2]", 0, 0) + "}", 0,
            "does not take");
        add("a zero that hides a huge extent", "{" + tensor("a", "F16", "[0, 9223372036854775808]", 0, 0) + "}", 0,
            "does not take");
        add("half a byte", "{" + tensor("a", "F4", "[3]", 0, 1) + "}", 1, "does not take");
        add("overlap", "{" + good + "," + tensor("b", "F16", "[2]", 2, 6) + "}", 6, "overlap");
        add("the same bytes twice", "{" + good + "," + tensor("b", "F16", "[2]", 0, 4) + "}", 4, "overlap");
        add("a hole", "{" + good + "," + tensor("b", "F16", "[2]", 6, 10) + "}", 10, "belong to no tensor");
        add("does not begin at 0", "{" + tensor("a", "F16", "[2]", 2, 6) + "}", 6, "belong to no tensor");
        add("bytes after the last", "{" + good + "}", 6, "end at byte 4 of 6");
        add("a name twice", "{" + good + "," + tensor("a", "F16", "[1]", 4, 6) + "}", 6, "'a' occurs twice");
        add("a name twice, once escaped", "{" + good + "," + tensor("\\u0061", "F16", "[1]", 4, 6) + "}", 6,
            "'a' occurs twice");
        add("a name twice, once of an unread type", "{" + good + "," + tensor("a", "F64", "[1]", 4, 12) + "}", 12,
            "'a' occurs twice");
        add("a name of 2,000 bytes", "{" + tensor(std::string(2000, 'n'), "F16", "[2]", 0, 4) + "}", 4, "2000 bytes");
        add("deep nesting", "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0, "a list");
        add("a name that misleads", "{" + tensor("a\\u202e\\u0007", "F16", "[3]", 0, 4) + "}", 4,
            "'a?"
            "?'");
    }
    void violationsAreRefused()
    {
        QFETCH(QByteArray, header);
        QFETCH(int, data);
        QFETCH(QByteArray, expected);
        if (header.isEmpty())
            writeFile(file(), std::string_view("\0\0\0\0\0\0\0\0", 8));
        else
            writeSafetensorsRaw(file(), {header.data(), static_cast<std::size_t>(header.size())},
                std::vector<std::byte>(static_cast<std::size_t>(data)));
        const auto opened = Safetensors::open(file());
        QVERIFY(!opened.has_value());
        const QByteArray message = QByteArray::fromStdString(opened.error().message);
        QVERIFY2(message.startsWith("model.safetensors: ") && message.contains(expected), message);
        QVERIFY2(message.size() < 400 && !message.contains('\n'), message);
    }

    void lengthsThatLieAreRefused_data()
    {
        QTest::addColumn<quint64>("length");
        QTest::addColumn<QByteArray>("expected");
        QTest::newRow("minus one") << ~quint64 {0} << QByteArray("at most 100000000");
        QTest::newRow("beyond the cap") << quint64 {100'000'001} << QByteArray("at most 100000000");
        QTest::newRow("beyond the file") << quint64 {1000} << QByteArray("the file has only");
        QTest::newRow("one too many") << quint64 {57} << QByteArray("the file has only");
        QTest::newRow("zero") << quint64 {0} << QByteArray("does not begin");
    }
    void lengthsThatLieAreRefused()
    {
        QFETCH(quint64, length);
        QFETCH(QByteArray, expected);
        std::string bytes(reinterpret_cast<const char*>(&length), 8);
        bytes += "{" + tensor("a", "F16", "[2]", 0, 4) + "}";
        bytes.resize(8 + 56);
        writeFile(file(), bytes);
        const auto opened = Safetensors::open(file());
        QVERIFY(!opened.has_value());
        QVERIFY2(QByteArray::fromStdString(opened.error().message).contains(expected), opened.error().message.c_str());
    }

    void otherThingsAreNamed()
    {
        const auto refusal = [&](std::string_view bytes) {
            writeFile(file(), bytes);
            const auto opened = Safetensors::open(file());
            return opened ? QByteArray() : QByteArray::fromStdString(opened.error().message);
        };
        QVERIFY(refusal("PK\x03\x04 an archive of some kind").contains("zip archive"));
        QVERIFY(refusal("\x80\x02}q\x00(X\x01\x00\x00\x00pickle").contains("pickle")
            || refusal("\x80\x02").contains("few"));
        QVERIFY(refusal("").contains("0 bytes"));
        std::filesystem::remove(file());
        QCOMPARE(Safetensors::open(file()).error().code, ErrorCode::io);
        QCOMPARE(mkfifo(file().c_str(), 0600), 0);
        QCOMPARE(Safetensors::open(file()).error().code, ErrorCode::io); // and does not wait
        std::filesystem::remove(file());
        QCOMPARE(Safetensors::open("/dev/zero").error().code, ErrorCode::io);
    }

    // Headers just under the cap, made to be slow or to take memory.
    void hugeHeadersAreQuick_data()
    {
        QTest::addColumn<QByteArray>("piece");
        QTest::newRow("900,000 tensors") << QByteArray(
            "\"%1\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]},");
        QTest::newRow("metadata") << QByteArray("\"__metadata__\":{\"%1\":\"x\"},");
        QTest::newRow("numbers") << QByteArray("\"%1\":{\"shape\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]},");
    }
    void hugeHeadersAreQuick()
    {
        QFETCH(QByteArray, piece);
        std::string header = "{";
        while (header.size() < 67'000'000)
            header += QByteArray(piece).replace("%1", QByteArray::number(quint64(header.size()))).toStdString();
        header.back() = '}';
        writeSafetensorsRaw(file(), header, {});
        struct rusage before {
        }, after {};
        getrusage(RUSAGE_SELF, &before);
        QElapsedTimer timer;
        timer.start();
        QVERIFY(!Safetensors::open(file()).has_value());
        QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed()) + " ms"));
        getrusage(RUSAGE_SELF, &after);
        // The mapping itself counts as resident: 64 MiB for the file, 64 more for what is built.
        QVERIFY2(after.ru_maxrss - before.ru_maxrss < (67 + 70) * 1024,
            qPrintable(QString::number(after.ru_maxrss - before.ru_maxrss)));
    }
};

QTEST_GUILESS_MAIN(tst_safetensors)
#include "tst_safetensors.moc"
