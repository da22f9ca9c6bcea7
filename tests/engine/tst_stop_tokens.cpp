// Which tokens end an answer, out of files that disagree, and of files that lie.

#include "engine/text/stop_tokens.h"

#include "engine/engine.h"
#include "engine/text/tokenizer.h"
#include "tests/support/model_writer.h"
#include "tests/support/tiny_model.h"

#include <QTemporaryDir>
#include <QTest>

#include <random>

using namespace puna;
namespace fs = std::filesystem;

using Ids = std::vector<TokenId>;

namespace {

// A vocabulary of these control tokens, numbered from 0, and the letter "a" after them.
Tokenizer tokenizerOf(const std::vector<std::string>& control, const std::string& config = "{}")
{
    std::string added;
    for (std::size_t i = 0; i < control.size(); ++i)
        added += (i ? "," : "") + std::string("{\"id\":") + std::to_string(i)
            + ",\"content\":" + test::jsonString(control[i])
            + ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}";
    std::string vocab;
    for (std::size_t i = 0; i < control.size(); ++i)
        vocab += test::jsonString(control[i]) + ":" + std::to_string(i) + ",";
    const std::string json = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added
        + R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
        + R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)"
        + R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
        + R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"vocab":{)" + vocab
        + "\"a\":" + std::to_string(control.size()) + R"(},"merges":[]}})";
    auto tokenizer = Tokenizer::fromJson(json, config);
    if (!tokenizer)
        qFatal("%s", tokenizer.error().message.c_str());
    return *std::move(tokenizer);
}

} // namespace

class TestStopTokens : public QObject {
    Q_OBJECT

private slots:
    void readsNumbersAndLists_data();
    void readsNumbersAndLists();
    void refusesWhatIsNoNumber_data();
    void refusesWhatIsNoNumber();
    void unitesAllSources();
    void namesCountOnlyWhereTheTemplateMentionsThem();
    void theNextSpeakerEndsATurnInGlmOnly();
    void idsOutsideOfTheVocabularyAreReported();
    void aFoldersFilesAreUnited();
    void brokenGenerationConfigsNeverCrash_data();
    void brokenGenerationConfigsNeverCrash();
    void randomConfigsNeverCrash();
};

void TestStopTokens::readsNumbersAndLists_data()
{
    QTest::addColumn<QByteArray>("json");
    QTest::addColumn<std::vector<std::int64_t>>("ids");
    using Wide = std::vector<std::int64_t>;
    QTest::newRow("number") << QByteArray(R"({"eos_token_id": 2})") << Wide {2};
    QTest::newRow("list") << QByteArray(R"({"eos_token_id": [128001, 128008]})") << Wide {128001, 128008};
    QTest::newRow("empty list") << QByteArray(R"({"eos_token_id": []})") << Wide {};
    QTest::newRow("null") << QByteArray(R"({"eos_token_id": null})") << Wide {};
    QTest::newRow("absent") << QByteArray(R"({"bos_token_id": 1})") << Wide {};
    QTest::newRow("whole float") << QByteArray(R"({"eos_token_id": 7.0})") << Wide {7};
    QTest::newRow("text_config") << QByteArray(R"({"eos_token_id": 1, "text_config": {"eos_token_id": [106]}})")
                                 << Wide {1, 106};
    QTest::newRow("negative") << QByteArray(R"({"eos_token_id": -1})") << Wide {-1};
}

void TestStopTokens::readsNumbersAndLists()
{
    QFETCH(QByteArray, json);
    QFETCH(std::vector<std::int64_t>, ids);
    const auto found = eosTokenIds("config.json", json.toStdString());
    QVERIFY(found);
    QCOMPARE(*found, ids);
}

void TestStopTokens::refusesWhatIsNoNumber_data()
{
    QTest::addColumn<QByteArray>("json");
    for (const char* json : {R"({"eos_token_id": "2"})", R"({"eos_token_id": [2, "x"]})", R"({"eos_token_id": {}})",
             R"({"eos_token_id": 2.5})", R"({"eos_token_id": 1e300})", R"({"eos_token_id": true})",
             R"({"eos_token_id": [[2]]})", R"([1])", R"("x")", "", "{", "nul", "\xff\xfe", R"({"eos_token_id": NaN})"})
        QTest::newRow(json) << QByteArray(json);
    QTest::newRow("deep") << QByteArray(100000, '[');
    QTest::newRow("deep object") << QByteArray("{\"a\":").repeated(100000);
    QTest::newRow("long list") << "{\"eos_token_id\": [1" + QByteArray(",1").repeated(100000) + "]}";
}

void TestStopTokens::refusesWhatIsNoNumber()
{
    QFETCH(QByteArray, json);
    const auto found = eosTokenIds("generation_config.json", json.toStdString());
    QVERIFY(!found);
    QCOMPARE(found.error().code, ErrorCode::format);
    QVERIFY(found.error().message.starts_with("generation_config.json: "));
    QVERIFY(found.error().message.size() < 300);
}

void TestStopTokens::unitesAllSources()
{
    const Tokenizer tokenizer = tokenizerOf({"<s>", "</s>", "<|im_start|>", "<|im_end|>"}, R"({"eos_token": "</s>"})");
    QCOMPARE(stopTokens({}, nullptr, "", 10).ids, (Ids {}));
    QCOMPARE(stopTokens({4, 4, 2}, nullptr, "", 10).ids, (Ids {2, 4}));
    QCOMPARE(stopTokens({4}, &tokenizer, "", 10).ids, (Ids {1, 4}));
    QCOMPARE(stopTokens({4}, &tokenizer, "{{ '<|im_end|>' }}", 10).ids, (Ids {1, 3, 4}));
}

void TestStopTokens::namesCountOnlyWhereTheTemplateMentionsThem()
{
    const Tokenizer tokenizer = tokenizerOf({"<|eot_id|>", "<end_of_turn>", "<|im_start|>"});
    QCOMPARE(stopTokens({}, &tokenizer, "no names", 10).ids, (Ids {}));
    QCOMPARE(stopTokens({}, &tokenizer, "{{ x + '<end_of_turn>' }}", 10).ids, (Ids {1}));
    QCOMPARE(stopTokens({}, &tokenizer, "<|im_end|> <|im_start|>", 10).ids, (Ids {})); // not in the vocabulary; no end
}

void TestStopTokens::theNextSpeakerEndsATurnInGlmOnly()
{
    const Tokenizer tokenizer = tokenizerOf({"<|user|>", "<|end|>", "<|observation|>"});
    QCOMPARE(stopTokens({}, &tokenizer, "<|user|><|end|>", 10).ids, (Ids {1})); // Phi
    QCOMPARE(stopTokens({}, &tokenizer, "[gMASK]<sop><|user|><|observation|>", 10).ids, (Ids {0, 2}));
}

void TestStopTokens::idsOutsideOfTheVocabularyAreReported()
{
    const StopTokens stop = stopTokens({-1, 5, 10, 1'000'000'000'000}, nullptr, "", 10);
    QCOMPARE(stop.ids, (Ids {5}));
    QCOMPARE(stop.problems.size(), std::size_t {3});
}

void TestStopTokens::aFoldersFilesAreUnited()
{
    QTemporaryDir dir;
    const fs::path model = test::writeTinyModel(dir.path().toStdString());
    test::writeFile(model / "generation_config.json", std::string_view(R"({"eos_token_id": [7, 0]})"));
    const ModelInfo info = inspectModel(model);
    QVERIFY(info.ok);
    for (const TokenId id : {0, 2, 7})
        QVERIFY(std::count(info.eos_token_ids.begin(), info.eos_token_ids.end(), id) == 1);
}

void TestStopTokens::brokenGenerationConfigsNeverCrash_data()
{
    refusesWhatIsNoNumber_data();
}

// The model runs without the file, and says that it was ignored.
void TestStopTokens::brokenGenerationConfigsNeverCrash()
{
    QFETCH(QByteArray, json);
    QTemporaryDir dir;
    const fs::path model = test::writeTinyModel(dir.path().toStdString());
    test::writeFile(
        model / "generation_config.json", std::string_view(json.constData(), static_cast<std::size_t>(json.size())));
    const ModelInfo info = inspectModel(model);
    QVERIFY(info.ok);
    QCOMPARE(info.problems.size(), std::size_t {1});
    QVERIFY(!info.eos_token_ids.empty());
}

// Bytes of the configuration files changed, cut off or doubled: a verdict with a reason, or none needed.
void TestStopTokens::randomConfigsNeverCrash()
{
    QTemporaryDir dir;
    const fs::path model = test::writeTinyModel(dir.path().toStdString());
    std::mt19937 random(11);
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
        const std::string original =
            fs::exists(model / name) ? test::readFile(model / name) : std::string(R"({"eos_token_id": [1, 2]})");
        for (int i = 0; i < 60; ++i) {
            std::string text = original;
            for (int changes = 0; changes < 1 + i % 4; ++changes) {
                const std::size_t at = random() % text.size();
                if (i % 3 == 0)
                    text[at] = static_cast<char>(random());
                else if (i % 3 == 1)
                    text.erase(at, 1 + random() % 9);
                else
                    text.insert(at, text.substr(random() % text.size(), 1 + random() % 20));
                if (text.empty())
                    text = "x";
            }
            test::writeFile(model / name, std::string_view(text));
            const ModelInfo info = inspectModel(model);
            QVERIFY(info.ok || !info.problems.empty());
            for (const std::string& problem : info.problems)
                QVERIFY(!problem.empty() && problem.find('\n') == std::string::npos);
        }
        test::writeFile(model / name, std::string_view(original));
    }
}

QTEST_GUILESS_MAIN(TestStopTokens)
#include "tst_stop_tokens.moc"
