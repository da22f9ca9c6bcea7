// What the scanner colours, by language and across lines.
#include "ui/code_syntax.h"

#include <QTest>

using namespace puna::ui;

namespace {

// Each coloured piece as kind and text: "k:def n:f s:'x'".
QString scan(const char* language, const QString& code)
{
    const LanguageRules* rules = languageRules(QString::fromLatin1(language));
    if (!rules)
        return QStringLiteral("unknown");
    QStringList pieces;
    int state = 0;
    for (const QString& line : code.split(u'\n'))
        for (const SyntaxRun& run : scanLine(*rules, line, state))
            pieces.append(QStringLiteral("%1:%2").arg(
                QChar(u"knsdc"[static_cast<int>(run.kind)]), line.sliced(run.start, run.length)));
    return pieces.join(u'|');
}

} // namespace

class TestCodeSyntax : public QObject {
    Q_OBJECT

private slots:
    void piecesAreColoured_data()
    {
        QTest::addColumn<QString>("language");
        QTest::addColumn<QString>("code");
        QTest::addColumn<QString>("expected");
        const auto row = [](const char* name, const char* language, const char* code, const char* expected) {
            QTest::newRow(name) << QString::fromUtf8(language) << QString::fromUtf8(code)
                                << QString::fromUtf8(expected);
        };
        row("python", "Python", "def f(x, t=60.0): # go", "k:def|n:f|d:60.0|c:# go");
        row("a long string", "py", "s = \"\"\"one\n# two\"\"\" + 'x'", "s:\"\"\"one|s:# two\"\"\"|s:'x'");
        row("a hash in a string", "python", "print('#1')", "n:print|s:'#1'");
        row("c", "cpp", "int x = 0x1f; /* a\nb */ return g(\"\\\"\"); // end",
            "k:int|d:0x1f|c:/* a|c:b */|k:return|n:g|s:\"\\\"\"|c:// end");
        row("two lifetimes look like a string", "rust", "fn f<'a>(s: &'a str)", "k:fn|s:'a>(s: &'");
        row("an apostrophe", "sh", "echo don't", "");
        row("sql in capitals", "sql", "SELECT sum(x) -- all", "k:SELECT|n:sum|c:-- all");
        row("json", "json", "{\"a\": [1, true]}", "s:\"a\"|d:1|k:true");
        row("a template over lines", "js", "const a = `x\ny`;", "k:const|s:`x|s:y`");
        row("an escape at the end", "c", "\"abc\\", "s:\"abc\\");
        row("nothing", "python", "", "");
        row("another language", "brainfuck", "+++", "unknown");
        row("none", "", "text", "unknown");
    }

    void piecesAreColoured()
    {
        QFETCH(QString, language);
        QFETCH(QString, code);
        QFETCH(QString, expected);
        QCOMPARE(scan(language.toLatin1().constData(), code), expected);
    }
};

QTEST_GUILESS_MAIN(TestCodeSyntax)
#include "tst_code_syntax.moc"
