// config.json and GGUF metadata: what is read, and that every number is checked and named.
#include "engine/base/rope.h"
#include "engine/model/gguf.h"
#include "engine/model/model_config.h"
#include "tests/support/model_writer.h"
#include "tests/support/temporary_folder.h"

#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTest>

using namespace puna;
using namespace puna::test;

namespace {

QJsonObject goodConfig()
{
    return {{"architectures", QJsonArray {"LlamaForCausalLM"}}, {"hidden_size", 64}, {"intermediate_size", 96},
        {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"vocab_size", 300},
        {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}, {"hidden_act", "silu"}};
}

std::string text(const QJsonObject& object)
{
    return QJsonDocument(object).toJson().toStdString();
}

QByteArray refusal(const std::string& json, std::string_view quantize_config = {})
{
    const auto parsed = parseConfig(json, quantize_config);
    return parsed ? QByteArray("accepted") : QByteArray::fromStdString(parsed.error().message);
}

} // namespace

class tst_model_config : public QObject {
    Q_OBJECT

private slots:
    void readsTheNumbers()
    {
        QJsonObject o = goodConfig();
        o["rope_theta"] = 500000.0;
        o["head_dim"] = 32;
        o["tie_word_embeddings"] = true;
        o["attention_bias"] = true;
        o["torch_dtype"] = "float16"; // unread fields do not matter
        const auto parsed = parseConfig(text(o));
        QVERIFY2(parsed.has_value(), parsed ? "" : parsed.error().message.c_str());
        const ModelConfig& m = parsed->model;
        QCOMPARE(m.architecture, std::string("LlamaForCausalLM"));
        QCOMPARE(m.n_layers, 2);
        QCOMPARE(m.hidden_size, 64);
        QCOMPARE(m.intermediate_size, 96);
        QCOMPARE(m.n_heads, 4);
        QCOMPARE(m.n_kv_heads, 2);
        QCOMPARE(m.head_dim, 32);
        QCOMPARE(m.vocab_size, 300);
        QCOMPARE(m.max_context, 2048);
        QCOMPARE(m.norm_eps, 1e-5f);
        QCOMPARE(m.attention_scale, 1.0f / std::sqrt(32.0f));
        QCOMPARE(m.rope.theta, 500000.0);
        QCOMPARE(m.rope.rotary_dim, 32);
        QCOMPARE(m.rope.style, RopeStyle::half);
        QVERIFY(parsed->tied_head && parsed->attention_bias && !parsed->mlp_bias);
    }

    void defaults()
    {
        QJsonObject o = goodConfig();
        o.remove("num_key_value_heads");
        o.remove("max_position_embeddings");
        o["head_dim"] = QJsonValue::Null;
        o["num_hidden_layers"] = 2.0;
        const auto parsed = parseConfig(text(o));
        QVERIFY(parsed.has_value());
        QCOMPARE(parsed->model.n_kv_heads, 4);
        QCOMPARE(parsed->model.head_dim, 16);
        QCOMPARE(parsed->model.max_context, 2048);
        QCOMPARE(parsed->model.rope.theta, 10000.0);
        QVERIFY(!parsed->tied_head && !parsed->attention_bias);
    }

    void hostileNumbersAreRefusedByName_data()
    {
        QTest::addColumn<QString>("field");
        QTest::addColumn<QByteArray>("value");
        const QStringList integers {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "vocab_size", "max_position_embeddings", "head_dim"};
        const QStringList numbers {"rms_norm_eps", "rope_theta", "partial_rotary_factor"};
        const QList<QByteArray> values {
            "-5", "0", "2147483648000000", "9223372036854775808", "1e308", "\"5\"", "[5]", "{}", "true"};
        for (const QString& field : integers + numbers)
            for (const QByteArray& value : values)
                QTest::addRow("%s = %s", qPrintable(field), value.constData()) << field << value;
        for (const QString& field : integers)
            QTest::addRow("%s = 2.5", qPrintable(field)) << field << QByteArray("2.5");
        for (const QString field : {"tie_word_embeddings", "attention_bias", "mlp_bias"})
            QTest::addRow("%s = 1", qPrintable(field)) << field << QByteArray("1");
        QTest::addRow("hidden_act = 3") << QString("hidden_act") << QByteArray("3");
        QTest::addRow("rope_scaling = 3") << QString("rope_scaling") << QByteArray("3");
        QTest::addRow("quantization_config = []") << QString("quantization_config") << QByteArray("[]");
    }
    void hostileNumbersAreRefusedByName()
    {
        QFETCH(QString, field);
        QFETCH(QByteArray, value);
        QJsonObject o = goodConfig();
        o.remove(field);
        std::string json = text(o);
        json.insert(json.find('{') + 1, "\"" + field.toStdString() + "\": " + value.toStdString() + ",");
        const QByteArray message = refusal(json);
        QVERIFY2(message.contains("'" + field.toUtf8() + "'"), message);
        QVERIFY2(message.contains("expected") && message.size() < 400, message);
    }

    void whatIsMissingIsNamed_data()
    {
        QTest::addColumn<QString>("field");
        for (const char* field :
            {"architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "rms_norm_eps"})
            QTest::newRow(field) << QString(field);
    }
    void whatIsMissingIsNamed()
    {
        QFETCH(QString, field);
        QJsonObject o = goodConfig();
        o.remove(field);
        QVERIFY(refusal(text(o)).contains("'" + field.toUtf8() + "' is missing"));
        o[field] = QJsonValue::Null;
        QVERIFY(refusal(text(o)).contains("'" + field.toUtf8() + "'"));
    }

    void otherRefusals_data()
    {
        QTest::addColumn<QByteArray>("json");
        QTest::addColumn<QByteArray>("expected");
        const auto with = [](const char* field, const QJsonValue& value) {
            QJsonObject o = goodConfig();
            o[field] = value;
            return QByteArray::fromStdString(text(o));
        };
        const auto add = [](const char* name, const QByteArray& json, const char* expected) {
            QTest::newRow(name) << json << QByteArray(expected);
        };
        add("empty", "", "not valid JSON");
        add("a list", "[1]", "it holds array");
        add("cut off", "{\"hidden_size\": 6", "not valid JSON");
        add("NaN", "{\"hidden_size\": NaN}", "not valid JSON at byte 17");
        add("Infinity", "{\"hidden_size\": Infinity}", "not valid JSON");
        add("1e999", "{\"hidden_size\": 1e999}", "too large");
        add("a zero byte", QByteArray("{\"hidden_size\": 64}\0junk", 23), "zero byte");
        add("a field twice", "{\"hidden_size\": 64, \"hidden_size\": 65}", "'hidden_size' occurs twice");
        add("nested too deep", QByteArray(100'000, '[') + QByteArray(100'000, ']'), "nested deeper");
        add("no architecture", with("architectures", QJsonArray()), "'architectures'");
        add("two architectures", with("architectures", QJsonArray {"LlamaForCausalLM", "X"}), "'architectures'");
        add("an unknown architecture", with("architectures", QJsonArray {"MambaForCausalLM"}),
            "'MambaForCausalLM' is not supported; expected one of: LlamaForCausalLM");
        add("heads that do not divide", with("num_key_value_heads", 3), "expected a divisor");
        add("odd heads", with("head_dim", 15), "expected even numbers");
        add("too many heads", with("num_attention_heads", 100), "attention heads");
        add("another activation", with("hidden_act", "gelu"), "'hidden_act' is 'gelu'");
        add("yarn", with("rope_scaling", QJsonObject {{"type", "yarn"}, {"factor", 4.0}}), "'yarn' is not supported");
        add("longrope", with("rope_scaling", QJsonObject {{"rope_type", "longrope"}}), "'longrope' is not supported");
        add("two kinds of scaling", with("rope_scaling", QJsonObject {{"type", "linear"}, {"rope_type", "llama3"}}),
            "both");
        add("linear without a factor", with("rope_scaling", QJsonObject {{"type", "linear"}}), "'factor' is missing");
        add("a factor of 0", with("rope_scaling", QJsonObject {{"type", "linear"}, {"factor", 0.0}}), "'factor' is 0");
        add("AWQ", with("quantization_config", QJsonObject {{"quant_method", "awq"}}), "quantised with AWQ");
        add("another quantisation", with("quantization_config", QJsonObject {{"quant_method", "fp8"}}), "'fp8'");
        add("marlin",
            with("quantization_config", QJsonObject {{"quant_method", "gptq"}, {"checkpoint_format", "marlin"}}),
            "'marlin'");
    }
    void otherRefusals()
    {
        QFETCH(QByteArray, json);
        QFETCH(QByteArray, expected);
        const QByteArray message = refusal(json.toStdString());
        QVERIFY2(message.startsWith("config.json: ") && message.contains(expected), message);
        QVERIFY2(message.size() < 400 && !message.contains('\n'), message);
    }

    void gptqVersions()
    {
        QJsonObject o = goodConfig();
        o["quantization_config"] =
            QJsonObject {{"quant_method", "gptq"}, {"checkpoint_format", "gptq_v2"}, {"sym", true}, {"group_size", 64}};
        const auto parsed = parseConfig(text(o));
        QVERIFY(parsed.has_value());
        QVERIFY(parsed->gptq_v2 && parsed->gptq_symmetric);
        QCOMPARE(parsed->gptq_group_size, 64);
        const auto separate =
            parseConfig(text(goodConfig()), R"({"bits": 4, "group_size": -1, "checkpoint_format": "gptq_v2"})");
        QVERIFY(separate.has_value());
        QVERIFY(separate->gptq_v2);
        QCOMPARE(separate->gptq_group_size, 0);
        QVERIFY(refusal(text(goodConfig()), "{").startsWith("quantize_config.json: "));
    }

    // Transformers 5 writes theta and scaling into one object.
    void newerSpellingOfRope()
    {
        QJsonObject o = goodConfig();
        o["rope_parameters"] = QJsonObject {{"rope_theta", 123456.0}, {"rope_type", "default"}};
        const auto plain = parseConfig(text(o));
        QVERIFY(plain.has_value());
        QCOMPARE(plain->model.rope.theta, 123456.0);
        QCOMPARE(plain->model.rope.scaling, RopeScaling::none);
    }

    // Values of Transformers 5.17's _compute_llama3_parameters for Llama 3.1, and of the plain formula.
    void frequencies()
    {
        QJsonObject o = goodConfig();
        o["head_dim"] = 128;
        o["rope_theta"] = 500000.0;
        o["rope_scaling"] = QJsonObject {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
        const auto llama3 = parseConfig(text(o));
        QVERIFY2(llama3.has_value(), llama3 ? "" : llama3.error().message.c_str());
        const std::vector<double> f = ropeFrequencies(llama3->model.rope);
        QCOMPARE(f.size(), 64u);
        const auto close = [](double ours, double theirs) { return std::abs(ours / theirs - 1.0) < 1e-6; };
        const auto base = [](int j) { return std::pow(500000.0, -j / 64.0); };
        QVERIFY(close(f[0], 1.0) && close(f[20], base(20)) && close(f[28], base(28))); // short wavelengths stay
        QVERIFY(close(f[35], base(35) / 8.0) && close(f[63], base(63) / 8.0)); // long ones are divided
        QVERIFY(f[30] < base(30) && f[30] > base(30) / 8.0); // between: a mixture
        const double turns = 8192.0 * base(30) / (2.0 * 3.14159265358979323846);
        const double t = (turns - 1.0) / 3.0;
        QVERIFY(close(f[30], (1.0 - t) * base(30) / 8.0 + t * base(30)));

        o["rope_scaling"] = QJsonObject {{"type", "linear"}, {"factor", 4.0}};
        const auto linear = parseConfig(text(o));
        QVERIFY(linear.has_value());
        QVERIFY(close(ropeFrequencies(linear->model.rope)[5], base(5) / 4.0));
        o["rope_scaling"] = QJsonObject {{"type", "dynamic"}, {"factor", 4.0}};
        QVERIFY(close(ropeFrequencies(parseConfig(text(o))->model.rope)[5], base(5)));
    }

    void ggufMetadata_data()
    {
        QTest::addColumn<QString>("key");
        QTest::addColumn<double>("value"); // -1: absent
        QTest::addColumn<QByteArray>("expected");
        QTest::newRow("good") << QString() << 0.0 << QByteArray();
        for (const char* key : {"block_count", "embedding_length", "feed_forward_length", "attention.head_count"}) {
            QTest::addRow("%s absent", key) << QString(key) << -1.0 << QByteArray("is missing");
            QTest::addRow("%s = 0", key) << QString(key) << 0.0 << QByteArray("is 0, expected");
            QTest::addRow("%s huge", key) << QString(key) << 4e9 << QByteArray("is 4000000000, expected");
        }
        QTest::newRow("kv heads") << QString("attention.head_count_kv") << 3.0 << QByteArray("expected a divisor");
        QTest::newRow("rotary") << QString("rope.dimension_count") << 100.0
                                << QByteArray("rope.dimension_count' is 100");
        QTest::newRow("context") << QString("context_length") << 0.0 << QByteArray("context_length' is 0");
        QTest::newRow("experts") << QString("expert_count") << 8.0 << QByteArray("mixture of experts");
        QTest::newRow("value length") << QString("attention.value_length") << 8.0 << QByteArray("different lengths");
    }
    void ggufMetadata()
    {
        QFETCH(QString, key);
        QFETCH(double, value);
        QFETCH(QByteArray, expected);
        QMap<QString, quint32> keys {{"block_count", 2}, {"embedding_length", 64}, {"feed_forward_length", 96},
            {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"context_length", 512}};
        if (!key.isEmpty() && value >= 0)
            keys[key] = static_cast<quint32>(value);
        else
            keys.remove(key);
        GgufWriter w;
        w.text("general.architecture", "llama");
        for (auto it = keys.begin(); it != keys.end(); ++it)
            w.number("llama." + it.key().toStdString(), it.value());
        w.real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
        const TemporaryFolder folder;
        writeFile(folder.path() / "m.gguf", w.finish());
        const auto gguf = Gguf::open(folder.path() / "m.gguf");
        QVERIFY(gguf.has_value());
        const auto config = ggufConfig(**gguf);
        if (expected.isEmpty()) {
            QVERIFY2(config.has_value(), config ? "" : config.error().message.c_str());
            QCOMPARE(config->head_dim, 16);
            QCOMPARE(config->rope.style, RopeStyle::interleaved);
            QCOMPARE(config->rope.theta, 10000.0);
            QCOMPARE(config->architecture, std::string("LlamaForCausalLM"));
        } else {
            QVERIFY(!config.has_value());
            QVERIFY2(
                QByteArray::fromStdString(config.error().message).contains(expected), config.error().message.c_str());
        }
    }

    void ggufOddities()
    {
        const TemporaryFolder folder;
        const auto refusalOf = [&](auto fill) {
            GgufWriter w;
            fill(w);
            writeFile(folder.path() / "m.gguf", w.finish());
            const auto gguf = Gguf::open(folder.path() / "m.gguf");
            const auto config = ggufConfig(**gguf);
            return config ? QByteArray("accepted") : QByteArray::fromStdString(config.error().message);
        };
        QVERIFY(refusalOf([](GgufWriter&) {}).contains("'general.architecture' is missing"));
        QVERIFY(refusalOf([](GgufWriter& w) {
            w.text("general.architecture", "mamba");
        }).contains("'mamba' is not supported"));
        QVERIFY(refusalOf([](GgufWriter& w) { w.number("general.architecture", 3); }).contains("is missing"));
        QVERIFY(refusalOf([](GgufWriter& w) {
            w.text("general.architecture", "llama");
            w.text("llama.block_count", "two");
        }).contains("'llama.block_count' is not a whole number"));
        QVERIFY(refusalOf([](GgufWriter& w) {
            w.text("general.architecture", "llama");
            for (const char* key : {"block_count", "feed_forward_length", "attention.head_count"})
                w.number(std::string("llama.") + key, 4);
            w.number("llama.embedding_length", 64);
            w.real("llama.attention.layer_norm_rms_epsilon", std::numeric_limits<float>::quiet_NaN());
        }).contains("epsilon' is nan"));
    }
};

QTEST_GUILESS_MAIN(tst_model_config)
#include "tst_model_config.moc"
