// The real puna-engine on a tiny model: fields, exit codes, and one sentence for everything that is wrong.

#include "tests/support/model_writer.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

#include <QElapsedTimer>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>

#include <csignal>
#include <sys/stat.h>

namespace fs = std::filesystem;
namespace test = puna::test;

namespace {

struct Outcome {
    int code = -1;
    bool crashed = true;
    qint64 elapsed_ms = 0;
    QByteArray out, err;

    QJsonObject json() const { return QJsonDocument::fromJson(out).object(); }
};

Outcome program(const QStringList& arguments, const QByteArray& input = {})
{
    QProcess process;
    QElapsedTimer timer;
    timer.start();
    process.start(QString::fromStdString(puna::test::program("puna-engine").string()), arguments);
    process.write(input);
    process.closeWriteChannel();
    Outcome outcome;
    if (!process.waitForFinished(60'000)) {
        process.kill();
        process.waitForFinished();
        return outcome;
    }
    outcome.elapsed_ms = timer.elapsed();
    outcome.crashed = process.exitStatus() == QProcess::CrashExit;
    outcome.code = process.exitCode();
    outcome.out = process.readAllStandardOutput();
    outcome.err = process.readAllStandardError();
    return outcome;
}

// One line, of a failure that is not a crash.
bool isOneSentence(const QByteArray& text)
{
    return text.startsWith("puna-engine: ") && text.endsWith('\n') && text.count('\n') == 1 && text.size() > 30;
}

QStringList keys(const QJsonObject& object)
{
    return object.keys();
}

} // namespace

class TestCli : public QObject {
    Q_OBJECT

private slots:
    void initTestCase();
    void wrongUsageExitsWith2_data();
    void wrongUsageExitsWith2();
    void helpAndVersion();
    void inspectTellsEverything();
    void inspectOfABadModelExitsWith1();
    void runAnswers();
    void runStreamsPlainText();
    void runContinuesText();
    void runReadsMessages();
    void runHoldsAConversation();
    void runWithSeedsAndStops();
    void interruptCancelsCleanly();
    void tokenizeBothWays();
    void renderGivesTextOrError();
    void logitsWritesSafetensors();
    void perplexityAndKl();
    void benchMeasures();
    void badInputGivesOneSentence_data();
    void badInputGivesOneSentence();

private:
    QString path(const char* name) const { return m_dir.filePath(QString::fromUtf8(name)); }
    QString write(const char* name, std::string_view text) const
    {
        test::writeFile(fs::path(path(name).toStdString()), text);
        return path(name);
    }

    QTemporaryDir m_dir;
    QString m_model, m_gguf;
};

void TestCli::initTestCase()
{
    QVERIFY(!puna::test::program("puna-engine").empty());
    QVERIFY(m_dir.isValid());
    m_model = QString::fromStdString(test::writeTinyModel(m_dir.path().toStdString()).string());
    test::TinyModelOptions options;
    options.format = test::TinyFormat::gguf_q8_0;
    m_gguf = QString::fromStdString(test::writeTinyModel(m_dir.path().toStdString(), options).string());
}

void TestCli::wrongUsageExitsWith2_data()
{
    QTest::addColumn<QStringList>("arguments");
    QTest::newRow("nothing") << QStringList {};
    QTest::newRow("unknown command") << QStringList {"frobnicate"};
    QTest::newRow("unknown option") << QStringList {"inspect", m_model, "--frob"};
    QTest::newRow("no model") << QStringList {"inspect"};
    QTest::newRow("no prompt") << QStringList {"run", m_model};
    QTest::newRow("device") << QStringList {"run", m_model, "--prompt", "x", "--device", "tpu"};
    QTest::newRow("cuda index") << QStringList {"run", m_model, "--prompt", "x", "--device", "cuda:x"};
    QTest::newRow("threads") << QStringList {"run", m_model, "--prompt", "x", "--threads", "-1"};
    QTest::newRow("number") << QStringList {"run", m_model, "--prompt", "x", "--max-tokens", "many"};
    QTest::newRow("kv") << QStringList {"run", m_model, "--prompt", "x", "--kv", "q1"};
    QTest::newRow("system without chat") << QStringList {"run", m_model, "--prompt", "x", "--system", "y"};
    QTest::newRow("no source of text") << QStringList {"tokenize", m_model};
    QTest::newRow("two sources") << QStringList {"tokenize", m_model, "--text", "x", "--decode", "1"};
    QTest::newRow("no context") << QStringList {"render", m_model};
    QTest::newRow("no tokens") << QStringList {"logits", m_model, "--out", "x"};
    QTest::newRow("no text") << QStringList {"perplexity", m_model};
    QTest::newRow("runs") << QStringList {"bench", m_model, "--runs", "0"};
}

void TestCli::wrongUsageExitsWith2()
{
    QFETCH(QStringList, arguments);
    const Outcome o = program(arguments);
    QVERIFY(!o.crashed);
    QCOMPARE(o.code, 2);
    QVERIFY(o.out.isEmpty());
    QVERIFY(!o.err.isEmpty());
}

void TestCli::helpAndVersion()
{
    const Outcome help = program({"--help"});
    QCOMPARE(help.code, 0);
    for (const char* command : {"inspect", "run", "tokenize", "render", "logits", "perplexity", "bench"}) {
        QVERIFY(help.out.contains(command));
        const Outcome own = program({command, "--help"});
        QCOMPARE(own.code, 0);
        QVERIFY(own.out.contains("--json"));
    }
    QCOMPARE(program({"--version"}).code, 0);
}

void TestCli::inspectTellsEverything()
{
    for (const QString& model : {m_model, m_gguf}) {
        const Outcome o = program({"inspect", model, "--json"});
        QCOMPARE(o.code, 0);
        QVERIFY(o.err.isEmpty());
        const QJsonObject json = o.json();
        for (const char* key : {"ok", "problems", "format", "architecture", "bpw", "head_bits", "layers", "hidden_size",
                 "vocab_size", "max_context", "weight_bytes", "tokenizer", "template", "eos_token_ids"})
            QVERIFY2(json.contains(QLatin1String(key)), key);
        QCOMPARE(json["ok"], QJsonValue(true));
        QVERIFY(json["problems"].toArray().isEmpty());
        QCOMPARE(json["layers"].toInt(), 2);
        QCOMPARE(json["hidden_size"].toInt(), 64);
        QCOMPARE(json["max_context"].toInt(), 2048);
        QCOMPARE(json["architecture"].toString(), QStringLiteral("LlamaForCausalLM"));
        QCOMPARE(json["template"], QJsonValue(true));
        QVERIFY(json["eos_token_ids"].toArray().contains(2));
        QVERIFY(json["bpw"].toDouble() > 8.0);
    }
    QCOMPARE(program({"inspect", m_gguf, "--json"}).json()["format"].toString(), QStringLiteral("GGUF Q8_0"));
    QVERIFY(program({"inspect", m_model}).out.contains("FP16"));
}

void TestCli::inspectOfABadModelExitsWith1()
{
    const Outcome o = program({"inspect", path("nowhere"), "--json"});
    QCOMPARE(o.code, 1);
    QCOMPARE(o.json()["ok"], QJsonValue(false));
    QCOMPARE(o.json()["problems"].toArray().size(), 1);
    QVERIFY(isOneSentence(o.err));
}

void TestCli::runAnswers()
{
    const QStringList arguments {
        "run", m_model, "--chat", "--prompt", "Hello", "--temperature", "0", "--max-tokens", "12", "--json"};
    const Outcome o = program(arguments + QStringList {"--device", "reference"});
    QCOMPARE(o.code, 0);
    QVERIFY(o.err.isEmpty());
    const QJsonObject json = o.json();
    for (const char* key : {"text", "prompt_tokens", "tokens", "finish", "prefill_tokens_per_second",
             "decode_tokens_per_second", "time_to_first_token_s", "reused_tokens"})
        QVERIFY2(json.contains(QLatin1String(key)), key);
    QVERIFY(json["finish"] == "length" || json["finish"] == "stop");
    QVERIFY(json["tokens"].toArray().size() <= 12);
    QCOMPARE(json["reused_tokens"].toInt(), 0);
    QVERIFY(json["time_to_first_token_s"].toDouble() > 0.0);
    QCOMPARE(json["prompt_tokens"].toArray()[0].toInt(), 1);
    QCOMPARE(
        program(arguments + QStringList {"--device", "reference", "--threads", "1"}).json()["tokens"], json["tokens"]);
    // On the CPU's fast path the answer may differ, the shape may not.
    const QJsonObject cpu =
        program(arguments + QStringList {"--device", "cpu", "--context", "512", "--kv", "fp16"}).json();
    QCOMPARE(keys(cpu), keys(json));
    QCOMPARE(cpu["prompt_tokens"], json["prompt_tokens"]);
}

void TestCli::runStreamsPlainText()
{
    const QStringList arguments {"run", m_model, "--chat", "--prompt", "Hello", "--temperature", "0", "--max-tokens",
        "12", "--device", "reference"};
    const Outcome plain = program(arguments);
    QCOMPARE(plain.code, 0);
    QVERIFY(plain.err.isEmpty()); // no progress where nobody looks
    QCOMPARE(
        QString::fromUtf8(plain.out), program(arguments + QStringList {"--json"}).json()["text"].toString() + "\n");
}

void TestCli::runContinuesText()
{
    const QJsonObject json =
        program({"run", m_model, "--prompt", "Hello there", "--max-tokens", "5", "--json", "--device", "cpu"}).json();
    QCOMPARE(json["prompt_tokens"], program({"tokenize", m_model, "--text", "Hello there", "--json"}).json()["tokens"]);
}

void TestCli::runReadsMessages()
{
    const QString messages = write("messages.json",
        R"([{"role":"user","content":"Hello"},{"role":"assistant","content":"Yes"},{"role":"user","content":"More"}])");
    const QStringList arguments {
        "run", m_model, "--chat", "--messages", messages, "--system", "Short.", "--max-tokens", "3", "--json"};
    const Outcome o = program(arguments);
    QCOMPARE(o.code, 0);
    QString ids;
    for (const QJsonValue& id : o.json()["prompt_tokens"].toArray())
        ids += (ids.isEmpty() ? "" : ",") + QString::number(id.toInt());
    const QString text = program({"tokenize", m_model, "--decode", ids, "--json"}).json()["text"].toString();
    QVERIFY(text.indexOf("Short.") < text.indexOf("Hello"));
    QVERIFY(text.indexOf("Hello") < text.indexOf("Yes") && text.indexOf("Yes") < text.indexOf("More"));
}

void TestCli::runHoldsAConversation()
{
    const Outcome o = program(
        {"run", m_model, "-i", "--max-tokens", "5", "--temperature", "0", "--device", "cpu"}, "Hello\n\nAnd more\n");
    QCOMPARE(o.code, 0);
    QVERIFY(o.out.count('\n') >= 2); // two answers
    const Outcome first = program(
        {"run", m_model, "--chat", "--prompt", "Hello", "--max-tokens", "5", "--temperature", "0", "--device", "cpu"});
    QVERIFY(o.out.startsWith(first.out));
}

void TestCli::runWithSeedsAndStops()
{
    const auto text = [&](const QStringList& more) {
        return program(QStringList {"run", m_model, "--chat", "--prompt", "Hello", "--max-tokens", "30", "--json",
                           "--device", "reference"}
            + more)
            .json()["text"]
            .toString();
    };
    const QString whole = text({"--seed", "5"});
    QCOMPARE(text({"--seed", "5"}), whole);
    QVERIFY(text({"--seed", "6"}) != whole);
    const QString stop = whole.mid(whole.size() / 2, 3);
    QCOMPARE(text({"--seed", "5", "--stop", "not there", "--stop", stop}), whole.left(whole.indexOf(stop)));
    const Outcome o = program({"run", m_model, "--prompt", "x", "--top-p", "1.5"});
    QCOMPARE(o.code, 1);
    QVERIFY(isOneSentence(o.err));
}

void TestCli::interruptCancelsCleanly()
{
    QProcess process;
    // Long enough to be interrupted: a stop token is not to be expected with this penalty turned upside down.
    process.start(QString::fromStdString(puna::test::program("puna-engine").string()),
        {"run", m_model, "--prompt", "Hello", "--temperature", "0", "--repetition-penalty", "0.01", "--device",
            "reference", "--threads", "1"});
    QVERIFY(process.waitForReadyRead(20'000));
    ::kill(static_cast<pid_t>(process.processId()), SIGINT);
    QVERIFY(process.waitForFinished(20'000));
    QCOMPARE(process.exitStatus(), QProcess::NormalExit);
    QCOMPARE(process.exitCode(), 0);
    QVERIFY(process.readAllStandardOutput().endsWith('\n'));
    QVERIFY(process.readAllStandardError().isEmpty());
}

void TestCli::tokenizeBothWays()
{
    const QString text = QStringLiteral("Grüße, \"world\"!\n<|im_end|>");
    const QJsonObject json = program({"tokenize", m_model, "--text", text, "--json"}).json();
    QCOMPARE(json["text"].toString(), text);
    const QJsonArray tokens = json["tokens"].toArray();
    QCOMPARE(tokens.last().toInt(), 2);
    QStringList ids;
    for (const QJsonValue& id : tokens)
        ids << QString::number(id.toInt());
    QCOMPARE(program({"tokenize", m_model, "--decode", ids.join(','), "--json"}).json()["text"].toString(), text);
    QCOMPARE(QString::fromUtf8(program({"tokenize", m_model, "--text", text}).out).trimmed(), ids.join(','));
    QVERIFY(!program({"tokenize", m_model, "--text", text, "--json", "--no-special"})
                 .json()["tokens"]
                 .toArray()
                 .contains(2));
    const QString file = write("text.txt", text.toStdString());
    QCOMPARE(program({"tokenize", m_gguf, "--text-file", file, "--json"}).json()["tokens"].toArray(), tokens);
    const Outcome o = program({"tokenize", m_model, "--decode", "99999999"});
    QCOMPARE(o.code, 1);
    QVERIFY(isOneSentence(o.err));
}

void TestCli::renderGivesTextOrError()
{
    const QString context =
        write("context.json", R"({"messages":[{"role":"user","content":"Hello"}],"add_generation_prompt":true})");
    const Outcome o = program({"render", m_model, "--context", context, "--json"});
    QCOMPARE(o.code, 0);
    QVERIFY(o.json()["text"].toString().contains("<|im_start|>user\nHello<|im_end|>"));
    QCOMPARE(QString::fromUtf8(program({"render", m_gguf, "--context", context}).out), o.json()["text"].toString());

    const QString clock = write("clock.jinja", "{{ strftime_now('%Y-%m-%d %H:%M') }}");
    const QString now = write("now.json", R"({"now":"2025-03-14T15:09:26"})");
    QCOMPARE(program({"render", "--template", clock, "--context", now, "--json"}).json()["text"].toString(),
        QStringLiteral("2025-03-14 15:09"));

    for (const auto& [source, line] : {std::pair {"a\n{{ raise_exception('No cats.') }}", 2}, {"a\nb\n{% if %}", 3}}) {
        const QString bad = write("bad.jinja", source);
        const Outcome failed = program({"render", "--template", bad, "--context", context, "--json"});
        QCOMPARE(failed.code, 1);
        QVERIFY(!failed.json()["error"].toString().isEmpty());
        QVERIFY(failed.json().contains("line"));
        QVERIFY(isOneSentence(failed.err));
        if (QByteArray(source).contains("cats")) {
            QCOMPARE(failed.json()["line"].toInt(), line);
            QCOMPARE(failed.json()["error"].toString(), QStringLiteral("No cats."));
        }
    }
    for (const char* content : {"[]", "{", "{\"now\": 5}", "{\"now\": \"tomorrow\"}"}) {
        const Outcome failed = program({"render", m_model, "--context", write("bad.json", content)});
        QCOMPARE(failed.code, 1);
        QVERIFY(isOneSentence(failed.err));
    }
}

void TestCli::logitsWritesSafetensors()
{
    QList<QByteArray> files;
    for (const QStringList& more : {QStringList {}, QStringList {"--one-by-one"}}) {
        const QString out = path("logits.safetensors");
        const Outcome o = program(QStringList {"logits", m_model, "--tokens", "1,20,30,40,50", "--out", out, "--json",
                                      "--device", "reference"}
            + more);
        QCOMPARE(o.code, 0);
        QCOMPARE(o.json()["rows"].toInt(), 5);
        const int vocab_size = o.json()["vocab_size"].toInt();
        const std::string file = test::readFile(fs::path(out.toStdString()));
        quint64 header_size = 0;
        std::memcpy(&header_size, file.data(), 8);
        const QJsonObject header =
            QJsonDocument::fromJson(QByteArray(file.data() + 8, static_cast<qsizetype>(header_size))).object();
        QCOMPARE(header["logits"]["shape"].toArray(), (QJsonArray {5, vocab_size}));
        QCOMPARE(header["logits"]["dtype"].toString(), QStringLiteral("F32"));
        QCOMPARE(file.size(), 8 + header_size + 5u * 4u * static_cast<unsigned>(vocab_size));
        files << QByteArray(file.data() + 8 + header_size, static_cast<qsizetype>(file.size() - 8 - header_size));
    }
    QCOMPARE(files[0], files[1]); // the reference executor: to the bit
    const Outcome o = program({"logits", m_model, "--tokens", "1,99999", "--out", path("none.safetensors")});
    QCOMPARE(o.code, 1);
    QVERIFY(isOneSentence(o.err));
    QVERIFY(!fs::exists(path("none.safetensors").toStdString()));
    QVERIFY(!fs::exists((path("none.safetensors") + ".part").toStdString()));
    QCOMPARE(program({"logits", m_model, "--tokens", "1", "--out", path("no/such/folder/x")}).code, 1);
}

void TestCli::perplexityAndKl()
{
    const QString text =
        write("eval.txt", std::string(4000, 'a') + " and some more words to read " + std::string(800, 'b'));
    const QString logits = path("saved-logits");
    const QStringList arguments {
        "perplexity", m_model, "--text-file", text, "--context", "64", "--windows", "3", "--json"};
    const Outcome saved = program(arguments + QStringList {"--device", "reference", "--save-logits", logits});
    QCOMPARE(saved.code, 0);
    QCOMPARE(saved.json()["tokens"].toInt(), 3 * 63);
    QVERIFY(saved.json()["perplexity"].toDouble() > 1.0);
    QVERIFY(!saved.json().contains("kl_mean"));
    const Outcome same = program(arguments + QStringList {"--device", "reference", "--against", logits});
    QCOMPARE(same.json()["perplexity"], saved.json()["perplexity"]);
    QCOMPARE(same.json()["kl_mean"].toDouble(), 0.0);
    QCOMPARE(same.json()["top1_agreement"].toDouble(), 1.0);
    const Outcome cpu = program(arguments + QStringList {"--device", "cpu", "--against", logits});
    QVERIFY(cpu.json()["kl_p99"].toDouble() >= cpu.json()["kl_mean"].toDouble());
    QVERIFY(cpu.json()["kl_mean"].toDouble() < 0.05);

    const Outcome other = program({"perplexity", m_model, "--text-file", text, "--context", "32", "--against", logits});
    QCOMPARE(other.code, 1);
    QVERIFY(isOneSentence(other.err));
    const Outcome too_short = program({"perplexity", m_model, "--text-file", write("short.txt", "few words")});
    QCOMPARE(too_short.code, 1);
    QVERIFY(isOneSentence(too_short.err));
}

void TestCli::benchMeasures()
{
    const Outcome o = program({"bench", m_model, "--runs", "1", "--prefill", "16,100000", "--decode", "16,64,100000",
        "--batch", "1,3", "--device", "cpu", "--threads", "1", "--json"});
    QCOMPARE(o.code, 0);
    const QJsonObject json = o.json();
    for (const char* key : {"device", "bandwidth_gbps", "load_s", "bytes_per_token", "bandwidth_share"})
        QVERIFY2(json.contains(QLatin1String(key)), key);
    QCOMPARE(keys(json["prefill"].toObject()), QStringList {"16"}); // beyond the model's limit: skipped
    QCOMPARE(keys(json["decode"].toObject()), (QStringList {"16", "64"}));
    QCOMPARE(keys(json["batch"].toObject()), (QStringList {"1", "3"}));
    for (const char* key : {"weights", "kv", "workspace", "other", "peak"})
        QVERIFY2(json["memory"].toObject().contains(QLatin1String(key)), key);
    QVERIFY(json["decode"]["64"].toDouble() > 0.0 && json["bandwidth_gbps"].toDouble() > 0.0);
}

void TestCli::badInputGivesOneSentence_data()
{
    QTest::addColumn<QString>("model");
    QTest::newRow("absent") << path("absent");
    QTest::newRow("empty path") << QString();
    fs::create_directory(path("empty").toStdString());
    QTest::newRow("empty folder") << path("empty");
    fs::create_directory(path("pickle").toStdString());
    write("pickle/pytorch_model.bin", "x");
    QTest::newRow("pickle") << path("pickle");
    QTest::newRow("text file") << write("notes.txt", "Dear diary");
    QTest::newRow("empty gguf") << write("empty.gguf", "");
    QTest::newRow("text gguf") << write("text.gguf", "not a model");
    QTest::newRow("truncated gguf") << [&] {
        const std::string file = test::readFile(fs::path(m_gguf.toStdString()));
        return write("cut.gguf", std::string_view(file).substr(0, file.size() / 3));
    }();
    ::mkfifo(path("pipe.gguf").toStdString().c_str(), 0600);
    QTest::newRow("pipe") << path("pipe.gguf");
    QTest::newRow("device") << QStringLiteral("/dev/zero");
    const auto spoiled = [&](const char* name, const char* file, std::string_view text) {
        fs::copy(m_model.toStdString(), path(name).toStdString(), fs::copy_options::recursive);
        if (text.empty())
            fs::remove(fs::path(path(name).toStdString()) / file);
        else
            test::writeFile(fs::path(path(name).toStdString()) / file, text);
        return path(name);
    };
    QTest::newRow("no config") << spoiled("no-config", "config.json", {});
    QTest::newRow("config is no object") << spoiled("list-config", "config.json", "[]");
    QTest::newRow("config with NaN") << spoiled("nan-config", "config.json", "{\"hidden_size\": NaN}");
    QTest::newRow("no tokenizer") << spoiled("no-tokenizer", "tokenizer.json", {});
    QTest::newRow("broken tokenizer") << spoiled("bad-tokenizer", "tokenizer.json", "{\"model\": {\"type\": \"X\"}}");
    QTest::newRow("broken weights") << spoiled("bad-weights", "model.safetensors", "x");
}

void TestCli::badInputGivesOneSentence()
{
    QFETCH(QString, model);
    for (const QStringList& command : {QStringList {"inspect"}, QStringList {"run", "--chat", "--prompt", "Hello"}}) {
        const Outcome o = program(QStringList {command.first(), model} + command.mid(1));
        QVERIFY(!o.crashed);
        QVERIFY2(o.code == 1 || (model.isEmpty() && o.code == 2), o.err.constData());
        if (o.code == 1)
            QVERIFY2(isOneSentence(o.err), o.err.constData());
        QVERIFY2(o.elapsed_ms < 2000, "within two seconds");
    }
}

QTEST_GUILESS_MAIN(TestCli)
#include "tst_cli.moc"
