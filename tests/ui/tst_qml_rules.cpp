// Rules for the window's sources that no linter knows: text from outside is plain text, nothing loads by address,
// colours come from the theme, words go through qsTr.
#include <QDir>
#include <QDirIterator>
#include <QFile>
#include <QRegularExpression>
#include <QTest>

#include <utility>

namespace {

const QString kSources = QStringLiteral(PUNA_UI_SOURCES);

QString read(const QString& path)
{
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? QString::fromUtf8(file.readAll()) : QString();
}

QString withoutComments(QString text)
{
    static const QRegularExpression kComment(
        QStringLiteral("//[^\n]*|/\\*.*?\\*/"), QRegularExpression::DotMatchesEverythingOption);
    return text.remove(kComment);
}

// The body of the braces that open at a place.
QString bodyAt(const QString& text, qsizetype brace)
{
    int depth = 0;
    for (qsizetype i = brace; i < text.size(); ++i) {
        if (text[i] == u'{')
            ++depth;
        else if (text[i] == u'}' && --depth == 0)
            return text.sliced(brace, i - brace);
    }
    return {};
}

} // namespace

class TestQmlRules : public QObject {
    Q_OBJECT

private slots:
    void initTestCase()
    {
        QDirIterator files(kSources, {QStringLiteral("*.qml")}, QDir::Files, QDirIterator::Subdirectories);
        while (files.hasNext())
            m_files.append(files.next());
        QVERIFY(m_files.size() > 20);
    }

    void nothingInTheSourcesIsForbidden_data()
    {
        QTest::addColumn<QString>("pattern");
        QTest::newRow("markup") << "\\b(RichText|StyledText|MarkdownText|AutoText)\\b";
        QTest::newRow("text with a format of its own choice") << "^\\s*(Label|TextInput)\\s*\\{";
        QTest::newRow("pictures and code by address") << "^\\s*(Image|AnimatedImage|BorderImage|Loader|WebView)\\s*\\{";
        QTest::newRow("code from strings") << "createQmlObject|createComponent|\\beval\\b|XMLHttpRequest";
        QTest::newRow("addresses opened without asking") << "openUrlExternally";
        QTest::newRow("colours") << "\"#[0-9a-fA-F]{3,8}\"";
        QTest::newRow("pixel sizes of fonts") << "pixelSize|pointSize";
        QTest::newRow("left-over output") << "\\bconsole\\.";
        QTest::newRow("words that are not translated")
            << "\\b(text|title|placeholderText|Accessible\\.name):\\s*\"[A-Za-z]";
    }

    void nothingInTheSourcesIsForbidden()
    {
        QFETCH(QString, pattern);
        const QRegularExpression forbidden(pattern, QRegularExpression::MultilineOption);
        for (const QString& file : std::as_const(m_files)) {
            const QRegularExpressionMatch match = forbidden.match(withoutComments(read(file)));
            QVERIFY2(!match.hasMatch(), qPrintable(file + QStringLiteral(": ") + match.captured()));
        }
    }

    void everyTextSaysThatItIsPlain()
    {
        static const QRegularExpression kText(
            QStringLiteral("^\\s*(?:[\\w.]+:\\s*)?(?:T\\.)?(Text|TextEdit|TextArea)\\s*\\{"),
            QRegularExpression::MultilineOption);
        int found = 0;
        for (const QString& file : std::as_const(m_files)) {
            const QString text = withoutComments(read(file));
            for (const QRegularExpressionMatch& match : kText.globalMatch(text)) {
                ++found;
                QVERIFY2(
                    bodyAt(text, match.capturedEnd() - 1).contains(QStringLiteral(".PlainText")), qPrintable(file));
            }
        }
        QVERIFY(found >= 4);
    }

    void everyFileIsInTheModule()
    {
        const QString list = read(kSources + QStringLiteral("/CMakeLists.txt"));
        for (const QString& file : std::as_const(m_files))
            QVERIFY2(list.contains(QDir(kSources).relativeFilePath(file)), qPrintable(file));
    }

private:
    QStringList m_files;
};

QTEST_GUILESS_MAIN(TestQmlRules)
#include "tst_qml_rules.moc"
