// The developers' reference data: 39 tokenizers over real vocabularies and 88 texts, ids and texts as Hugging Face's
// tokenizers core gives them; the stream decoder's chunks joined; and 300 strings through 10 pipelines of splits.
#ifndef Q_MOC_RUN // Qt 6.4 cannot parse some headers of the C++20 library
#include "engine/model/gguf.h"
#include "engine/text/stream_decoder.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_impl.h"
#include "tests/support/golden_tokenizers.h"
#include "tests/support/model_writer.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include <map>
#endif

#include <QTest>

using namespace puna;
using namespace puna::test;
using Ids = std::vector<TokenId>;

class tst_tokenizer_reference : public QObject {
    Q_OBJECT

    GoldenTokenizers m_golden;

private slots:
    void initTestCase()
    {
        if (shared("testdata/tokenizers").empty())
            QSKIP("the reference data is not on this machine");
        m_golden = sharedGoldenTokenizers();
        QCOMPARE(m_golden.tokenizers.size(), 39u);
        QCOMPARE(m_golden.texts.size(), 88u);
    }

    void idsAndTextsAgree()
    {
        for (const GoldenTokenizer& golden : m_golden.tokenizers) {
            const auto made = Tokenizer::fromJson(golden.json, {});
            QVERIFY2(made.has_value(), made ? "" : made.error().message.c_str());
            for (std::size_t i = 0; i < m_golden.texts.size(); ++i) {
                const std::string& text = m_golden.texts[i];
                const Json& want = golden.expected[i];
                const std::string where = golden.name + ", text " + std::to_string(i);
                const Ids ids = want["ids"], with_special = want.value("ids_with_special", ids);
                const std::string decoded = want["decoded"], skipped = want.value("decoded_skip_special", decoded);
                QVERIFY2(made->encode(text, {}) == ids, where.c_str());
                QVERIFY2(made->encode(text, {.add_special = true}) == with_special, where.c_str());
                QVERIFY2(made->decode(ids, false) == decoded, where.c_str());
                QVERIFY2(made->decode(ids, true) == skipped, where.c_str());
                StreamDecoder stream(*made);
                std::string streamed;
                for (const TokenId id : ids)
                    streamed += stream.push(id);
                streamed += stream.finish();
                QVERIFY2(streamed == skipped, where.c_str());
            }
        }
    }

    // Llama 2's vocabulary as SentencePiece has it: scores, no list of merges. The list is sorted by the result's
    // score, so that the first merge with a result tells the order of scores.
    void sentencePieceOfAGgufAgrees()
    {
        const GoldenTokenizer& golden = m_golden.tokenizers.back();
        QCOMPARE(golden.name, std::string("phi-3-mini-full"));
        const auto from_json = Tokenizer::fromJson(golden.json, {});
        QVERIFY(from_json.has_value());
        std::map<std::string, float> order;
        const Json file = Json::parse(golden.json);
        for (const Json& merge : file["model"]["merges"]) {
            std::string piece = merge.get<std::string>();
            piece.erase(piece.find(' '), 1);
            order.emplace(piece, -static_cast<float>(order.size()));
        }
        std::vector<std::string> tokens;
        std::vector<std::int32_t> types;
        std::vector<float> scores;
        for (TokenId id = 0; id < 32000; ++id) {
            tokens.emplace_back(from_json->tokenText(id));
            types.push_back(id == 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
            const auto score = order.find(tokens.back());
            scores.push_back(score == order.end() ? -1e9f : score->second);
        }
        GgufWriter writer;
        writer.text("general.architecture", "llama");
        writer.text("tokenizer.ggml.model", "llama");
        writer.texts("tokenizer.ggml.tokens", tokens);
        writer.numbers("tokenizer.ggml.token_type", types);
        writer.reals("tokenizer.ggml.scores", scores);
        const TemporaryFolder folder;
        writeFile(folder.path() / "t.gguf", writer.finish());
        const auto made = Tokenizer::fromGguf(**Gguf::open(folder.path() / "t.gguf"));
        QVERIFY2(made.has_value(), made ? "" : made.error().message.c_str());
        int compared = 0;
        for (std::size_t i = 0; i < m_golden.texts.size(); ++i) {
            const Ids ids = golden.expected[i]["ids"];
            if (std::any_of(ids.begin(), ids.end(), [](TokenId id) { return id < 3 || id >= 32000; }))
                continue; // control tokens have other flags there
            QCOMPARE(made->encode(m_golden.texts[i], {}), ids);
            ++compared;
        }
        QVERIFY(compared > 60);
    }

    void piecesAgree()
    {
        const Json fuzz = readJson(shared("testdata/tokenizers/pretokenizer-fuzz.json").string());
        const Json base = {{"vocab", {"a"}}, {"merges", Json::array()}};
        for (const auto& [name, pieces] : fuzz["pieces"].items()) {
            // A ByteLevel stands as the split that it implies, without the byte mapping.
            Json overlay = m_golden.overlays[name];
            Json& pre = overlay["pre_tokenizer"];
            Json steps = Json::array();
            for (const Json& step : pre["type"] == "Sequence" ? pre["pretokenizers"] : Json::array({pre}))
                if (step["type"] != "ByteLevel")
                    steps.push_back(step);
                else if (step["use_regex"].get<bool>())
                    steps.push_back(
                        {{"type", "Split"}, {"pattern", {{"Regex", kGpt2Pattern}}}, {"behavior", "Isolated"}});
            pre = {{"type", "Sequence"}, {"pretokenizers", steps}};
            overlay["model"]["unk_token"] = nullptr;
            overlay["post_processor"] = nullptr;
            overlay.erase("added_tokens");
            overlay.erase("extra_vocab");
            const auto made = Tokenizer::fromJson(composeTokenizer(overlay, base), {});
            QVERIFY2(made.has_value(), made ? "" : made.error().message.c_str());
            QCOMPARE(pieces.size(), fuzz["texts"].size());
            for (std::size_t i = 0; i < pieces.size(); ++i) {
                const std::string text = fuzz["texts"][i];
                for (const bool late : {false, true}) { // both programs of a pattern
                    std::vector<int> lengths;
                    auto sink = [&](std::string_view piece) {
                        lengths.push_back(static_cast<int>(
                            std::count_if(piece.begin(), piece.end(), [](char c) { return (c & 0xC0) != 0x80; })));
                    };
                    made->impl().m_pretokenizer.split(text, true, late, sink);
                    const std::string where = name + ", text " + std::to_string(i) + (late ? ", late" : "") + ": "
                        + Json(lengths).dump() + ", expected " + pieces[i].dump();
                    QVERIFY2(lengths == pieces[i].get<std::vector<int>>(), where.c_str());
                }
            }
        }
    }
};

QTEST_GUILESS_MAIN(tst_tokenizer_reference)
#include "tst_tokenizer_reference.moc"
