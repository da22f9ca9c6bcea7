// Streaming: chunks are whole characters and join to what whole decoding gives; the prompt's context; stop strings
// split at every place.
#ifndef Q_MOC_RUN // Qt 6.4 cannot parse some headers of the C++20 library
#include "engine/text/stream_decoder.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"
#include "tests/support/golden_tokenizers.h"
#include "tests/support/paths.h"
#include <random>
#endif

#include <QTest>

using namespace puna;
using namespace puna::test;
using Ids = std::vector<TokenId>;

class tst_stream_decoder : public QObject {
    Q_OBJECT

    GoldenTokenizers m_golden;

    Tokenizer tokenizer(std::string_view name) const
    {
        for (const GoldenTokenizer& one : m_golden.tokenizers)
            if (one.name == name)
                return std::move(*Tokenizer::fromJson(one.json, {}));
        qFatal("no such tokenizer");
    }

    // Joined chunks; empty if one of them is not well-formed.
    static std::string streamed(const Tokenizer& t, const Ids& ids, const Ids& context = {})
    {
        StreamDecoder decoder(t, context);
        std::string out;
        for (const TokenId id : ids) {
            const std::string chunk = decoder.push(id);
            if (!unicode::survey(chunk).valid)
                return {};
            out += chunk;
        }
        return out + decoder.finish();
    }

private slots:
    void initTestCase() { m_golden = ownGoldenTokenizers(); }

    void chunksJoinToTheDecodedText()
    {
        for (const GoldenTokenizer& golden : m_golden.tokenizers) {
            const auto t = Tokenizer::fromJson(golden.json, {});
            QVERIFY(t.has_value());
            for (const Json& want : golden.expected) {
                const std::string decoded = want["decoded"];
                QCOMPARE(streamed(*t, want["ids"].get<Ids>()), want.value("decoded_skip_special", decoded));
            }
        }
    }

    void anyTokensJoinToTheDecodedText()
    {
        for (const char* name : {"gpt2", "llama3", "spm", "spm-metaspace-split", "spm-late-replace"}) {
            const Tokenizer t = tokenizer(name);
            std::mt19937 random(7);
            std::uniform_int_distribution<TokenId> any(-1, t.vocabSize());
            for (int round = 0; round < 300; ++round) {
                Ids ids(static_cast<std::size_t>(round % 40));
                for (TokenId& id : ids)
                    id = any(random);
                const std::string whole = t.decode(ids, true), parts = streamed(t, ids);
                QVERIFY(unicode::survey(parts).valid);
                // A bad run of byte tokens is all U+FFFD in whole decoding; a stream has let its good part go.
                if (std::string_view(name).starts_with("spm") && whole.find(unicode::kReplacement) != std::string::npos)
                    continue;
                QCOMPARE(parts, whole);
            }
        }
    }

    void aCharacterComesWhenItIsComplete()
    {
        const Tokenizer bytes = tokenizer("gpt2"), spm = tokenizer("spm");
        const auto rocket = [](const Tokenizer& t, const char* const names[4]) {
            StreamDecoder decoder(t);
            for (int i = 0; i < 3; ++i)
                QCOMPARE(decoder.push(*t.find(names[i])), std::string());
            QCOMPARE(decoder.push(*t.find(names[3])), std::string("\xF0\x9F\x9A\x80"));
            QCOMPARE(decoder.push(*t.find(names[0])), std::string());
            QCOMPARE(decoder.finish(), std::string(unicode::kReplacement)); // never completed
        };
        const char* const stand_ins[] = {"ð", "Ł", "ļ", "Ģ"};
        const char* const tokens[] = {"<0xF0>", "<0x9F>", "<0x9A>", "<0x80>"};
        rocket(bytes, stand_ins);
        rocket(spm, tokens);
    }

    void bytesThatCannotBecomeACharacterComeAtOnce()
    {
        const Tokenizer t = tokenizer("spm");
        StreamDecoder decoder(t);
        QCOMPARE(decoder.push(*t.find("<0xF0>")), std::string());
        QCOMPARE(decoder.push(*t.find("<0x9F>")), std::string());
        QCOMPARE(decoder.push(*t.find("e")), "\xEF\xBF\xBD\xEF\xBF\xBD" + std::string("e")); // one per byte
    }

    void theLeadingSpaceGoesOnlyAtTheStartOfAnAnswer()
    {
        const Tokenizer t = tokenizer("spm");
        const Ids ids = t.encode("the kiln", {});
        QCOMPARE(streamed(t, ids), std::string("the kiln"));
        QCOMPARE(streamed(t, ids, t.encode("Mira lit", {})), std::string(" the kiln"));
        QCOMPARE(streamed(t, ids, Ids {*t.find("<s>")}), std::string("the kiln")); // nothing that is shown
        const Tokenizer bytes = tokenizer("gpt2");
        QCOMPARE(streamed(bytes, bytes.encode(" the", {})), std::string(" the"));
    }

    void specialTokensGiveNothing()
    {
        const Tokenizer t = tokenizer("gpt2");
        StreamDecoder decoder(t);
        QCOMPARE(decoder.push(*t.find("<|im_end|>")), std::string());
        QCOMPARE(decoder.push(*t.find("<think>")), std::string("<think>")); // added, but not special
    }

    void aDecoderOutlivesTheMoveOfItsTokenizer()
    {
        auto t = std::make_unique<Tokenizer>(tokenizer("gpt2"));
        StreamDecoder decoder(*t);
        const Tokenizer moved = std::move(*t);
        t.reset();
        QCOMPARE(decoder.push(*moved.find("a")), std::string("a"));
    }

    // --- stop strings ---

    void stopStringsAreFoundAtEverySplit()
    {
        const std::string text = "one two END and more", stop = "END";
        for (std::size_t a = 0; a <= text.size(); ++a)
            for (std::size_t b = a; b <= text.size(); ++b) {
                StopMatcher matcher({"", stop, "ENDING"});
                std::string shown = matcher.push(text.substr(0, a));
                shown += matcher.push(text.substr(a, b - a));
                shown += matcher.push(text.substr(b));
                shown += matcher.finish();
                QCOMPARE(shown, std::string("one two "));
                QVERIFY(matcher.stopped());
            }
    }

    void onlyWhatMayBeAStopStringIsHeldBack()
    {
        StopMatcher matcher({"</s>", "\n\nUser:"});
        QCOMPARE(matcher.push("a < b"), std::string("a < b"));
        QCOMPARE(matcher.push("x</"), std::string("x"));
        QCOMPARE(matcher.push("s"), std::string());
        QCOMPARE(matcher.push("!"), std::string("</s!"));
        QCOMPARE(matcher.push("\n\nUse"), std::string());
        QVERIFY(!matcher.stopped());
        QCOMPARE(matcher.finish(), std::string("\n\nUse"));
    }

    void theEarliestStopStringWins()
    {
        StopMatcher matcher({"bc", "abcd"});
        QCOMPARE(matcher.push("xab"), std::string("x"));
        QCOMPARE(matcher.push("cd"), std::string());
        QVERIFY(matcher.stopped());
        StopMatcher repeated({"aab"});
        std::string shown = repeated.push("aa");
        shown += repeated.push("a");
        shown += repeated.push("b");
        QCOMPARE(shown, std::string("a"));
        QVERIFY(repeated.stopped());
    }
};

QTEST_GUILESS_MAIN(tst_stream_decoder)
#include "tst_stream_decoder.moc"
