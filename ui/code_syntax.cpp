#include "ui/code_syntax.h"

#include <QSet>
#include <QStringView>
#include <QSyntaxHighlighter>
#include <QTextCharFormat>
#include <QTextDocument>

#include <algorithm>
#include <array>

namespace puna::ui {

struct LanguageRules {
    QSet<QString> names;
    QSet<QString> keywords;
    QString lineComment;
    QString blockBegin, blockEnd; // empty: none
    QString quotes; // each character begins and ends a string of one line
    QString longQuotes; // begin and end, tripled (""") or single (`), a string of several lines
    bool anyCase = false; // keywords in capitals, too
    bool calls = true; // a word before a parenthesis is a name
};

namespace {

QSet<QString> words(const char* list)
{
    const QStringList split = QString::fromLatin1(list).split(u' ', Qt::SkipEmptyParts);
    return {split.begin(), split.end()};
}

const std::array<LanguageRules, 8>& allRules()
{
    static const std::array<LanguageRules, 8> kRules {{
        {words("python py python3 pycon"),
            words(
                "False None True and as assert async await break case class continue def del elif else except finally "
                "for from global if import in is lambda match nonlocal not or pass raise return try while with yield"),
            "#", "", "", "\"'", "\"'", false, true},
        {words("c cpp c++ cxx h hpp cuda cu java kotlin kt swift go golang rust rs csharp cs c# php dart scala zig"),
            words(
                "abstract alignas alignof as async auto await bool break byte case catch chan char class concept const "
                "constexpr continue crate default defer delete do double dyn else enum explicit export extends extern "
                "false final finally float fn for friend fun func function go goto guard if impl implements import in "
                "inline int interface internal is let long loop match mod module move mut mutable namespace new nil "
                "noexcept null nullptr object operator override package private protected public pub range ref "
                "register requires return self short signed sizeof static struct super switch template this throw "
                "throws trait true try type typedef typename union unsafe unsigned use using val var virtual void "
                "volatile when where while yield"),
            "//", "/*", "*/", "\"'", "", false, true},
        {words("javascript js jsx typescript ts tsx mjs node"),
            words(
                "abstract as async await break case catch class const continue debugger default delete do else enum "
                "export extends false finally for from function if implements import in instanceof interface let new "
                "null of private protected public readonly return static super switch this throw true try type typeof "
                "undefined var void while with yield"),
            "//", "/*", "*/", "\"'", "`", false, true},
        {words("sh bash shell zsh console"),
            words(
                "case do done elif else esac exit export fi for function if in local read return select set shift then "
                "until while"),
            "#", "", "", "\"'", "", false, false},
        {words("sql sqlite postgres postgresql mysql plsql"),
            words(
                "add all alter and as asc begin between by case cast check column commit constraint create cross "
                "default delete desc distinct drop else end except exists false foreign from full group having if in "
                "index inner insert intersect into is join key left like limit not null offset on or order outer over "
                "partition primary recursive references returning right rollback rows select set table then true "
                "union unique update using values view when where window with"),
            "--", "/*", "*/", "'\"", "", true, true},
        {words("json jsonc json5"), words("true false null"), "//", "", "", "\"", "", false, false},
        {words("yaml yml toml ini cfg conf properties dockerfile makefile make cmake"),
            words("true false null yes no on off"), "#", "", "", "\"'", "", false, false},
        {words("lua ruby rb perl r julia jl"),
            words(
                "and begin break class def do else elseif elsif end false for foreach function if in include let local "
                "loop module my next nil not or our package print redo repeat require return self sub super then true "
                "undef unless until use using when while yield"),
            "#", "", "", "\"'", "", false, true},
    }};
    return kRules;
}

// What a line can leave open: 0 nothing, 1 a block comment, above that a long string by its quote.
constexpr int kComment = 1;

bool isWordStart(QChar c)
{
    return c.isLetter() || c == u'_' || c == u'$' || c == u'@';
}

} // namespace

const LanguageRules* languageRules(const QString& name)
{
    const QString wanted = name.toLower();
    for (const LanguageRules& rules : allRules())
        if (rules.names.contains(wanted))
            return &rules;
    return nullptr;
}

std::vector<SyntaxRun> scanLine(const LanguageRules& rules, const QString& line, int& state)
{
    std::vector<SyntaxRun> runs;
    const QStringView text(line);
    const int size = static_cast<int>(text.size());
    const auto add = [&runs](int from, int to, Syntax kind) {
        if (to > from)
            runs.push_back({from, to - from, kind});
    };
    const auto find = [&](QStringView what, int from) { return static_cast<int>(text.indexOf(what, from)); };
    const auto longQuote = [](QChar quote) { return quote == u'`' ? QString(quote) : QString(3, quote); };

    int i = 0;
    // Goes on with what is open, from i; the end may be on another line.
    const auto goOn = [&](int from, int search) {
        const Syntax kind = state == kComment ? Syntax::Comment : Syntax::String;
        const QString end = state == kComment ? rules.blockEnd : longQuote(QChar(state));
        const int at = find(end, search);
        const int to = at < 0 ? size : at + static_cast<int>(end.size());
        add(from, to, kind);
        if (at >= 0)
            state = 0;
        i = to;
    };

    if (state != 0)
        goOn(0, 0);
    while (i < size) {
        const QChar c = text[i];
        const QStringView rest = text.sliced(i);
        if (!rules.lineComment.isEmpty() && rest.startsWith(rules.lineComment)) {
            add(i, size, Syntax::Comment);
            break;
        }
        if (!rules.blockBegin.isEmpty() && rest.startsWith(rules.blockBegin)) {
            state = kComment;
            goOn(i, i + static_cast<int>(rules.blockBegin.size()));
        } else if (rules.longQuotes.contains(c) && rest.startsWith(longQuote(c))) {
            state = c.unicode();
            goOn(i, i + static_cast<int>(longQuote(c).size()));
        } else if (rules.quotes.contains(c)) {
            int end = i + 1;
            while (end < size && text[end] != c)
                end += text[end] == u'\\' ? 2 : 1;
            if (end >= size && c == u'\'') { // an apostrophe, a lifetime
                ++i;
                continue;
            }
            end = std::min(end + 1, size);
            add(i, end, Syntax::String);
            i = end;
        } else if (c.isDigit()) {
            int end = i + 1;
            while (end < size && (text[end].isLetterOrNumber() || text[end] == u'.' || text[end] == u'_'))
                ++end;
            add(i, end, Syntax::Number);
            i = end;
        } else if (isWordStart(c)) {
            int end = i + 1;
            while (end < size && (text[end].isLetterOrNumber() || text[end] == u'_'))
                ++end;
            const QString word = text.sliced(i, end - i).toString();
            if (rules.keywords.contains(rules.anyCase ? word.toLower() : word))
                add(i, end, Syntax::Keyword);
            else if (rules.calls && end < size && text[end] == u'(')
                add(i, end, Syntax::Name);
            i = end;
        } else {
            ++i;
        }
    }
    return runs;
}

class SyntaxHighlighter : public QSyntaxHighlighter {
public:
    SyntaxHighlighter(QTextDocument* document, const CodeSyntax& owner, const LanguageRules& rules)
        : QSyntaxHighlighter(document)
        , m_owner(owner)
        , m_rules(rules)
    {
    }

protected:
    void highlightBlock(const QString& text) override
    {
        int state = std::max(0, previousBlockState());
        for (const SyntaxRun& run : scanLine(m_rules, text, state)) {
            QTextCharFormat format;
            format.setForeground(m_owner.colorOf(run.kind));
            format.setFontItalic(run.kind == Syntax::Comment);
            setFormat(run.start, run.length, format);
        }
        setCurrentBlockState(state);
    }

private:
    const CodeSyntax& m_owner;
    const LanguageRules& m_rules;
};

CodeSyntax::CodeSyntax(QObject* parent)
    : QObject(parent)
{
    connect(this, &CodeSyntax::colorsChanged, this, [this] {
        if (m_highlighter)
            m_highlighter->rehighlight();
    });
}

void CodeSyntax::setDocument(QQuickTextDocument* document)
{
    if (document == m_document)
        return;
    m_document = document;
    emit documentChanged();
    update();
}

void CodeSyntax::setLanguage(const QString& language)
{
    if (language == m_language)
        return;
    m_language = language;
    emit languageChanged();
    update();
}

QColor CodeSyntax::colorOf(Syntax kind) const
{
    switch (kind) {
    case Syntax::Keyword:
        return m_keyword;
    case Syntax::Name:
        return m_name;
    case Syntax::String:
        return m_string;
    case Syntax::Number:
        return m_number;
    case Syntax::Comment:
        return m_comment;
    }
    return {};
}

void CodeSyntax::update()
{
    delete m_highlighter;
    const LanguageRules* rules = languageRules(m_language);
    if (m_document && rules)
        m_highlighter = new SyntaxHighlighter(m_document->textDocument(), *this, *rules);
}

} // namespace puna::ui
