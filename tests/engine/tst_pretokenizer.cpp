// Patterns: Oniguruma's meaning after the rewriting for PCRE2, in both programs of a pattern; refusals.
#include "engine/text/regex.h"

#include <QElapsedTimer>
#include <QTest>

using namespace puna;

class tst_pretokenizer : public QObject {
    Q_OBJECT

private slots:
    // Matches joined by '|'; expected values are Oniguruma's documented syntax (doc/RE, Ruby), not PCRE2's.
    void patternsMeanWhatOnigurumaMeans_data()
    {
        QTest::addColumn<QString>("pattern");
        QTest::addColumn<QString>("text");
        QTest::addColumn<QString>("matches");
        const auto row = [](const char* name, const char* pattern, const char* text, const char* matches) {
            QTest::newRow(name) << QString::fromUtf8(pattern) << QString::fromUtf8(text) << QString::fromUtf8(matches);
        };
        row("U+180E is no space", R"(\s+)", "a \xE1\xA0\x8E b", " | ");
        row("nor a non-space in a class", R"([^\s]+)", "a\xE1\xA0\x8E b", "a\xE1\xA0\x8E|b");
        row("not space in a class", R"([\S]+)", "a\xE3\x80\x80z", "a|z");
        row("word of marks", R"(\w+)", "e\xCC\x81-x_1", "e\xCC\x81|x_1");
        row("not word", R"(\W+)", "a-b", "-");
        row("border", R"(\bx)", "x xx ax", "x|x");
        row("no border", R"(\Bx)", "x xx ax", "x|x");
        row("digits are Nd", R"(\d+)", "1\xC2\xBD\xE0\xA5\xAA", "1|\xE0\xA5\xAA");
        row("hexadecimal", R"(\h+)", "0xBEEFg", "0|BEEF");
        row("counted plus is a repeat", R"(a{1,2}+b)", "aaaab", "aaaab");
        row("possessive plus", R"(a++a)", "aaa", "");
        row("exact and question is optional", R"(ba{2}?c)", "bc baac", "bc|baac");
        row("at most", R"(ba{,2}c)", "bc bac baaac", "bc|bac");
        row("a brace", R"(a{b)", "a{b", "a{b");
        row("lazy", R"(a+?)", "aa", "a|a");
        row("lines", R"(^.+$)", "ab\ncd", "ab|cd");
        row("dot and line", R"(a.b)", "a\nb", "");
        row("m is dot-all", R"((?m:a.b))", "a\nb", "a\nb");
        row("case", R"((?i:'S))", "'s '\xC5\xBF", "'s|'\xC5\xBF");
        row("case from the start", R"((?i)ab)", "aB", "aB");
        row("union of classes", R"([a[bc]]+)", "abcd", "abc");
        row("negated union", R"([^a[bc]]+)", "abcd", "d");
        row("intersection", R"([a-z&&[^aeiou]]+)", "hello", "h|ll");
        row("three", R"([a-z&&[^a]&&[^b]]+)", "abcba", "c");
        row("property and negation", R"([^\P{L}]+)", "1ab2", "ab");
        row("negated property", R"(\p{^L}+)", "a12b", "12");
        row("script, not extensions", R"(\p{Han}+)", "\xE4\xB8\x80\xE3\x80\x81\xE3\x80\x85",
            "\xE4\xB8\x80|\xE3\x80\x85");
        row("code point", R"(\x{4e00}|\u4e01)", "\xE4\xB8\x80\xE4\xB8\x81", "\xE4\xB8\x80|\xE4\xB8\x81");
        row("bracket first", "[]a]+", "]a", "]a");
        row("dash last", "[a-]+", "a-b", "a-");
        row("escapes", R"(\.\[\\\t)", ".[\\\t", ".[\\\t");
        row("vertical tab", R"(\v)", "\n\v", "\v");
        row("comment", "a(?#no)b", "ab", "ab");
        row("empty matches", "x*", "axb", "|x|");
        row("lookbehind", "(?<=a)b", "ab b", "b");
    }
    void patternsMeanWhatOnigurumaMeans()
    {
        QFETCH(QString, pattern);
        QFETCH(QString, text);
        QFETCH(QString, matches);
        const auto regex = Regex::compile(pattern.toStdString(), "here");
        QVERIFY2(regex.has_value(), regex ? "" : regex.error().message.c_str());
        const std::string bytes = text.toStdString();
        for (const bool late : {false, true}) {
            QStringList found;
            Regex::Matches all(*regex, bytes, late);
            for (Regex::Match m {}; all.next(m);)
                found << QString::fromStdString(bytes.substr(m.begin, m.end - m.begin));
            QCOMPARE(found.join('|'), matches);
        }
    }

    void lateCharactersHaveTheirClass_data()
    {
        QTest::addColumn<QString>("pattern");
        QTest::addColumn<int>("length"); // of the match at the start of U+31350 (a letter of Unicode 15) and ".", bytes
        QTest::newRow("letters") << R"(\p{L}+)" << 4;
        QTest::newRow("no letters") << R"([^\p{L}]+)" << 0;
        QTest::newRow("no letters, bare") << R"(\P{L}+)" << 0;
        QTest::newRow("neither") << R"([^\P{Lo}]+)" << 4;
        QTest::newRow("script") << R"(\p{Han}+)" << 4;
        QTest::newRow("word") << R"(\w+)" << 4;
        const QString o200k =
            R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|)"
            R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t)?|\p{N}{1,3}|)"
            R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
        QTest::newRow("o200k") << o200k << 4;
    }
    void lateCharactersHaveTheirClass()
    {
        QFETCH(QString, pattern);
        QFETCH(int, length);
        const auto regex = Regex::compile(pattern.toStdString(), "here");
        QVERIFY2(regex.has_value(), regex ? "" : regex.error().message.c_str());
        const std::string text = "\xF0\xB1\x8D\x90.";
        Regex::Match m {};
        const bool found = Regex::Matches(*regex, text, true).next(m);
        QCOMPARE(found && m.begin == 0 ? static_cast<int>(m.end) : 0, length);
    }

    void whatCannotBeTranslatedIsRefused_data()
    {
        QTest::addColumn<QString>("pattern");
        for (const char* pattern : {"(a", "a)", "[a", "[]", "*a", R"(\y)", R"(\1)", R"(\k<a>)", R"(\g<1>)", "(?~a)",
                 "(?x: a)", "a(?i)b", "[[:alpha:]]", R"(\p{Nonsense})", R"(\pL)", R"(\xff)", R"(\x{110000})",
                 R"(\ud800)", "a\\", "[b-a]", "(*UTF)", "a{99999}", "a{123456}"})
            QTest::newRow(pattern) << pattern;
        QTest::newRow("deep groups") << QString(1000, '(') + QString(1000, ')');
        QTest::newRow("deep classes") << QString(1000, '[') + 'a' + QString(1000, ']');
        QTest::newRow("long") << QString(100'000, 'a');
        QTest::newRow("grows") << QString(R"(\w)").repeated(10'000);
        QTest::newRow("grows in a class") << "[" + QString(R"(\w)").repeated(10'000) + "]";
    }
    void whatCannotBeTranslatedIsRefused()
    {
        QFETCH(QString, pattern);
        const auto regex = Regex::compile(pattern.toStdString(), "here");
        QVERIFY(!regex);
        QVERIFY2(regex.error().message.starts_with("here: ") && regex.error().message.size() < 600,
            regex.error().message.c_str());
    }

    void matchingIsBounded()
    {
        const auto regex = Regex::compile("(?:a|a)*(?:a|a)*(?:a|a)*b", "here");
        const std::string text(5000, 'a');
        QElapsedTimer timer;
        timer.start();
        Regex::Match m {};
        Regex::Matches all(*regex, text, false);
        while (all.next(m)) { }
        QVERIFY(timer.elapsed() < 5000);
    }
};

QTEST_GUILESS_MAIN(tst_pretokenizer)
#include "tst_pretokenizer.moc"
