// CodeSyntax: colours for a block of code: keywords, names that are called or defined, strings, numbers, comments.
//
// A scanner over one line at a time, with a state for strings and comments that go on; it knows words, quotes and
// comment signs of a language and nothing of its grammar, so text that is not the language named is coloured oddly,
// never changed. A line is scanned again only when it, or the state before it, has changed. Cost: linear in the line.
#pragma once

#include <QColor>
#include <QObject>
#include <QPointer>
#include <QQmlEngine>
#include <QQuickTextDocument>
#include <QString>

#include <vector>

namespace puna::ui {

enum class Syntax { Keyword, Name, String, Number, Comment };

struct SyntaxRun {
    int start = 0;
    int length = 0;
    Syntax kind = Syntax::Keyword;

    bool operator==(const SyntaxRun&) const = default;
};

struct LanguageRules; // of one family of languages; static

const LanguageRules* languageRules(const QString& name); // as written after the fence; null: not known
// state: what the line before has left open, 0 at the beginning; becomes what this line leaves open.
std::vector<SyntaxRun> scanLine(const LanguageRules& rules, const QString& line, int& state);

class SyntaxHighlighter;

class CodeSyntax : public QObject {
    Q_OBJECT
    QML_ELEMENT
    Q_PROPERTY(QQuickTextDocument* document READ document WRITE setDocument NOTIFY documentChanged FINAL)
    Q_PROPERTY(QString language READ language WRITE setLanguage NOTIFY languageChanged FINAL)
    Q_PROPERTY(QColor keyword MEMBER m_keyword NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor name MEMBER m_name NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor string MEMBER m_string NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor number MEMBER m_number NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor comment MEMBER m_comment NOTIFY colorsChanged FINAL)

public:
    explicit CodeSyntax(QObject* parent = nullptr);

    QQuickTextDocument* document() const { return m_document; }
    void setDocument(QQuickTextDocument* document);
    QString language() const { return m_language; }
    void setLanguage(const QString& language);
    QColor colorOf(Syntax kind) const;

signals:
    void documentChanged();
    void languageChanged();
    void colorsChanged();

private:
    void update();

    QQuickTextDocument* m_document = nullptr;
    QPointer<SyntaxHighlighter> m_highlighter;
    QString m_language;
    QColor m_keyword, m_name, m_string, m_number, m_comment;
};

} // namespace puna::ui
