#include "app/chat/markdown_parser.h"

#include <QElapsedTimer>
#include <QRandomGenerator>
#include <QtTest>

using namespace puna::app;

namespace {

// A readable form of a block, for comparing.
QString spelled(const Block& block)
{
    static const char* const kNames[] = {
        "head", "text", "code", "heading", "item", "quote", "table", "rule", "thinking", "status", "error"};
    QString text = QLatin1String(kNames[static_cast<int>(block.kind)]);
    if (block.level > 0)
        text += QString::number(block.level);
    if (!block.marker.isEmpty())
        text += QStringLiteral(" [%1]").arg(block.marker);
    if (!block.language.isEmpty())
        text += QStringLiteral(" (%1)").arg(block.language);
    if (block.kind == BlockKind::Table)
        text += QStringLiteral(" %1: %2").arg(block.columns).arg(block.cells.join(QLatin1Char('|')));
    else if (block.kind != BlockKind::Rule)
        text += QStringLiteral(": ") + block.text;
    for (const Span& span : block.spans)
        text += QStringLiteral(" {%1+%2%3%4%5%6%7}")
                    .arg(span.start)
                    .arg(span.length)
                    .arg(span.bold ? QStringLiteral(" b") : QString(), span.italic ? QStringLiteral(" i") : QString(),
                        span.strike ? QStringLiteral(" s") : QString(), span.code ? QStringLiteral(" c") : QString(),
                        span.link.isEmpty() ? QString() : QStringLiteral(" ->") + span.link);
    return text;
}

QStringList spelled(const std::vector<Block>& blocks)
{
    QStringList list;
    for (const Block& block : blocks)
        list.append(spelled(block));
    return list;
}

const QString kLong = QStringLiteral(R"(# Title with *emphasis*

A paragraph with **bold**, `code` and a [link](https://example.org/a?b=c).
Its second line.

1. one
2. two

   more of two

   ```cpp
   int x = 0;

   int y;
   ```

3. three

- a
- b
  - nested

    paragraph of nested
- [x] done

> quoted *text*
> goes on
>
> > deeper

```python
def f():

    return "```"
```

| a | b |
|---|--:|
| 1 | **2** |
| 3 |

---

    indented code

    goes on

~~~
tildes

```
not closed by backticks
~~~

Done & dusted &amp; &#x1F600; <b>not html</b>
)");

} // namespace

class TestMarkdownParser : public QObject {
    Q_OBJECT

private slots:
    void blocks_data();
    void blocks();
    void streamedEqualsWhole_data();
    void streamedEqualsWhole();
    void randomTextStreamsEqually();
    void finishedBlocksAreNotParsedAgain();
    void hostileTextIsFast_data();
    void hostileTextIsFast();
};

void TestMarkdownParser::blocks_data()
{
    QTest::addColumn<QString>("text");
    QTest::addColumn<QStringList>("expected");
    const auto row = [](const char* name, const char* text, const QStringList& expected) {
        QTest::newRow(name) << QString::fromUtf8(text) << expected;
    };
    row("nothing", "", {});
    row("only blank lines", " \n\n ", {});
    row("paragraphs", "one\ntwo\n\nthree", {"text: one\ntwo", "text: three"});
    row("heading", "## Two *x*", {"heading2: Two x {4+1 i}"});
    row("emphasis", "**a *b***", {"text: a b {0+2 b} {2+1 b i}"});
    row("strike and code", "~~a~~ `b*c*`", {"text: a b*c* {0+1 s} {2+4 c}"});
    row("link", "[x](javascript:alert(1)) y", {"text: x y {0+1 ->javascript:alert(1)}"});
    row("bare link", "see https://a.org/b.", {"text: see https://a.org/b. {4+15 ->https://a.org/b}"});
    row("image is never one", "![alt](http://x/y.png)", {"text: alt {0+3 ->http://x/y.png}"});
    row("html stays text", "<img src=x onerror=y> <b>z</b>", {"text: <img src=x onerror=y> <b>z</b>"});
    row("html block stays text", "<script>\nx\n</script>", {"text: <script>\nx\n</script>"});
    row("entities", "&amp; &#65; &#x110000; &unknown;", {QString::fromUtf8("text: & A \xEF\xBF\xBD &unknown;")});
    row("bullets", "- a\n- b\n  - c",
        {QString::fromUtf8("item1 [•]: a"), QString::fromUtf8("item1 [•]: b"), QString::fromUtf8("item2 [•]: c")});
    row("numbers", "3. a\n4. b", {"item1 [3.]: a", "item1 [4.]: b"});
    row("numbers that are all one", "1. a\n\n1. b\n\n1. c", {"item1 [1.]: a", "item1 [2.]: b", "item1 [3.]: c"});
    row("tasks", "- [ ] a\n- [x] b", {QString::fromUtf8("item1 [☐]: a"), QString::fromUtf8("item1 [☑]: b")});
    row("paragraphs of an item", "- a\n\n  b", {QString::fromUtf8("item1 [•]: a"), "item1: b"});
    row("code in an item", "- a\n\n  ```\n  x\n  ```", {QString::fromUtf8("item1 [•]: a"), "code1: x"});
    row("quote", "> a\n> > b", {"quote1: a", "quote2: b"});
    row("code", "```c++ extra\nint x;\n\n  y\n```\nafter", {"code (c++): int x;\n\n  y", "text: after"});
    row("code without end", "```\nx\n\ny", {"code: x\n\ny"});
    row("rule", "a\n\n---\n\nb", {"text: a", "rule", "text: b"});
    row("table", "|a|b|\n|---|--:|\n|1|`2`|\n|3|", {"table 2: a|b|1|2|3|"});
    row("thinking", "<think>\nhm\n\n- x\n</think>\n\nYes", {"thinking: hm\n\n- x", "text: Yes"});
    row("thinking goes on", "<think>hm</thi", {"thinking: hm"});
    row("thinking of nothing", "<think>\n\n</think>\nYes", {"text: Yes"});
    row("think in the middle is text", "a <think> b", {"text: a <think> b"});
    row("right to left", "שלום **עולם**", {QString::fromUtf8("text: שלום עולם {5+4 b}")});
    row("surrogates", "😀 **b**", {QString::fromUtf8("text: 😀 b {3+1 b}")});
}

void TestMarkdownParser::blocks()
{
    QFETCH(QString, text);
    QFETCH(QStringList, expected);
    QCOMPARE(spelled(parseMarkdown(text)), expected);
}

void TestMarkdownParser::streamedEqualsWhole_data()
{
    blocks_data();
    QTest::newRow("long") << kLong << QStringList();
}

void TestMarkdownParser::streamedEqualsWhole()
{
    QFETCH(QString, text);
    for (const int step : {1, 2, 3, 7, 50}) {
        MarkdownStream stream;
        std::vector<Block> seen; // as a view keeps it: only what append() says is replaced
        for (qsizetype at = 0; at < text.size(); at += step) {
            const std::size_t from = stream.append(text.mid(at, step));
            QVERIFY(from <= seen.size());
            seen.resize(from);
            seen.insert(seen.end(), stream.blocks().begin() + static_cast<std::ptrdiff_t>(from), stream.blocks().end());
            QCOMPARE(spelled(seen), spelled(parseMarkdown(text.left(at + step))));
        }
    }
}

void TestMarkdownParser::randomTextStreamsEqually()
{
    static const char* const kPieces[] = {"\n", "\n\n", "- ", "1. ", "2) ", "  ", "    ", "```", "~~~", "`", "*", "**",
        "_", "> ", "# ", "|", "|---|---|", "word", " ", "[a](b)", "<think>", "</think>", "&amp;", "---", "\t", "\\",
        "[x] ", "\r\n", "é", "😀", "![", "](", "<b>"};
    QRandomGenerator random(3);
    for (int round = 0; round < 400; ++round) {
        QString text;
        for (int pieces = random.bounded(60); pieces > 0; --pieces)
            text += QString::fromUtf8(kPieces[random.bounded(static_cast<int>(std::size(kPieces)))]);
        MarkdownStream stream;
        std::vector<Block> seen;
        for (qsizetype at = 0; at < text.size();) {
            const qsizetype step = 1 + random.bounded(9);
            const std::size_t from = stream.append(text.mid(at, step));
            seen.resize(std::min(from, seen.size()));
            seen.insert(seen.end(), stream.blocks().begin() + static_cast<std::ptrdiff_t>(from), stream.blocks().end());
            at += step;
        }
        QCOMPARE(spelled(seen), spelled(parseMarkdown(text)));
    }
}

void TestMarkdownParser::finishedBlocksAreNotParsedAgain()
{
    MarkdownStream stream;
    stream.append(QStringLiteral("one\n\ntwo\n\nthree"));
    QCOMPARE(stream.append(QStringLiteral(" more")), 2U);
    QCOMPARE(stream.append(QStringLiteral("\n\nfour")), 2U);
    QCOMPARE(stream.append(QStringLiteral("!")), 3U);
}

void TestMarkdownParser::hostileTextIsFast_data()
{
    QTest::addColumn<QString>("text");
    QTest::newRow("quotes") << QString(100'000, QLatin1Char('>'));
    QTest::newRow("brackets") << QString(100'000, QLatin1Char('['));
    QTest::newRow("links") << QStringLiteral("[a](").repeated(25'000);
    QTest::newRow("stars") << QStringLiteral("*a_ ").repeated(25'000);
    QTest::newRow("backticks") << QStringLiteral("`a``b").repeated(20'000);
    QTest::newRow("items") << QStringLiteral("- ").repeated(50'000);
    QTest::newRow("nested items") << [] {
        QString text;
        for (int depth = 0; depth < 300; ++depth)
            text += QString(2 * depth, QLatin1Char(' ')) + QStringLiteral("- a\n");
        return text;
    }();
    QTest::newRow("table") << QStringLiteral("|a").repeated(1000) + QStringLiteral("\n")
            + QStringLiteral("|---").repeated(1000) + QStringLiteral("\n") + QStringLiteral("|\n").repeated(1000);
    QTest::newRow("one line") << QString(100'000, QLatin1Char('x'));
}

void TestMarkdownParser::hostileTextIsFast()
{
    QFETCH(QString, text);
    QElapsedTimer timer;
    timer.start();
    parseMarkdown(text);
    // The goal is 10 ms for 100 kB; this bound only catches what grows faster than the text.
    QVERIFY2(timer.elapsed() < 1000, QByteArray::number(timer.elapsed()).constData());
}

QTEST_GUILESS_MAIN(TestMarkdownParser)
#include "tst_markdown_parser.moc"
