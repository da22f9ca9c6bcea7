#include "ui/block_text.h"

#include <QAbstractTextDocumentLayout>
#include <QSyntaxHighlighter>
#include <QTextBlock>
#include <QTextCursor>
#include <QTextDocument>
#include <QTextLayout>

#include <algorithm>
#include <vector>

namespace puna::ui {
namespace {

struct Run {
    int start = 0;
    int end = 0;
    bool bold = false, italic = false, strike = false, code = false;
    QString link;
};

} // namespace

class SpanHighlighter : public QSyntaxHighlighter {
public:
    using QSyntaxHighlighter::QSyntaxHighlighter;

    std::vector<Run> runs;
    QFont codeFont;
    QColor linkColor;

protected:
    void highlightBlock(const QString& text) override
    {
        const int from = currentBlock().position();
        const int to = from + static_cast<int>(text.size());
        for (const Run& run : runs) {
            const int start = std::max(run.start, from), end = std::min(run.end, to);
            if (start >= end)
                continue;
            QTextCharFormat format;
            if (run.code) {
                format.setFontFamilies(codeFont.families());
                format.setFontPointSize(codeFont.pointSizeF());
                format.setFontFixedPitch(true);
            }
            if (run.bold)
                format.setFontWeight(QFont::DemiBold);
            if (run.italic)
                format.setFontItalic(true);
            if (run.strike)
                format.setFontStrikeOut(true);
            if (!run.link.isEmpty()) {
                format.setForeground(linkColor);
                format.setFontUnderline(true);
            }
            setFormat(start - from, end - start, format);
        }
    }
};

BlockText::BlockText(QObject* parent)
    : QObject(parent)
{
    m_rectsTimer.setSingleShot(true);
    m_rectsTimer.setInterval(0);
    connect(&m_rectsTimer, &QTimer::timeout, this, &BlockText::updateCodeRects);
}

void BlockText::setDocument(QQuickTextDocument* document)
{
    if (document == m_document)
        return;
    delete m_highlighter;
    m_document = document;
    m_shown.clear();
    if (document) {
        QTextDocument* text = document->textDocument();
        text->setUndoRedoEnabled(false);
        connect(text->documentLayout(), &QAbstractTextDocumentLayout::documentSizeChanged, &m_rectsTimer,
            qOverload<>(&QTimer::start));
    }
    emit documentChanged();
    fill();
}

void BlockText::componentComplete()
{
    m_complete = true;
    fill();
}

void BlockText::setText(const QString& text)
{
    if (text == m_text)
        return;
    m_text = text;
    emit textChanged();
    fill();
}

void BlockText::setSpans(const QVariantList& spans)
{
    if (spans == m_spans)
        return;
    m_spans = spans;
    emit spansChanged();
    restyle();
}

void BlockText::setLineHeight(int height)
{
    if (height == m_lineHeight)
        return;
    m_lineHeight = height;
    emit lineHeightChanged();
    applyLineHeight();
}

void BlockText::setCodeFont(const QFont& font)
{
    if (font == m_codeFont)
        return;
    m_codeFont = font;
    emit codeFontChanged();
    restyle();
}

void BlockText::setLinkColor(const QColor& color)
{
    if (color == m_linkColor)
        return;
    m_linkColor = color;
    emit linkColorChanged();
    restyle();
}

QString BlockText::linkAt(int position) const
{
    for (const QVariant& item : m_spans) {
        const QVariantMap span = item.toMap();
        const int start = span.value(QStringLiteral("start")).toInt();
        if (position >= start && position < start + span.value(QStringLiteral("length")).toInt())
            return span.value(QStringLiteral("link")).toString();
    }
    return {};
}

void BlockText::fill()
{
    if (!m_document || !m_complete)
        return;
    QTextDocument* document = m_document->textDocument();
    if (!m_shown.isEmpty() && m_text.startsWith(m_shown)) {
        if (m_text.size() > m_shown.size()) {
            QTextCursor cursor(document);
            cursor.movePosition(QTextCursor::End);
            cursor.insertText(m_text.mid(m_shown.size()));
        }
    } else {
        document->setPlainText(m_text);
        applyLineHeight();
    }
    m_shown = m_text;
    restyle();
}

void BlockText::applyLineHeight()
{
    if (!m_document || !m_complete || m_lineHeight <= 0)
        return;
    QTextBlockFormat format;
    format.setLineHeight(m_lineHeight, QTextBlockFormat::FixedHeight);
    QTextCursor cursor(m_document->textDocument());
    cursor.select(QTextCursor::Document);
    cursor.mergeBlockFormat(format);
}

void BlockText::restyle()
{
    if (!m_document || !m_complete || (m_spans.isEmpty() && !m_highlighter))
        return;
    if (!m_highlighter)
        m_highlighter = new SpanHighlighter(m_document->textDocument());
    std::vector<Run> runs;
    runs.reserve(static_cast<std::size_t>(m_spans.size()));
    for (const QVariant& item : m_spans) {
        const QVariantMap span = item.toMap();
        const int start = span.value(QStringLiteral("start")).toInt();
        runs.push_back(
            {start, start + span.value(QStringLiteral("length")).toInt(), span.value(QStringLiteral("bold")).toBool(),
                span.value(QStringLiteral("italic")).toBool(), span.value(QStringLiteral("strike")).toBool(),
                span.value(QStringLiteral("code")).toBool(), span.value(QStringLiteral("link")).toString()});
    }
    m_highlighter->runs = std::move(runs);
    m_highlighter->codeFont = m_codeFont;
    m_highlighter->linkColor = m_linkColor;
    m_highlighter->rehighlight();
    m_rectsTimer.start();
}

void BlockText::updateCodeRects()
{
    QVariantList rects;
    if (m_document && m_highlighter) {
        const QTextDocument* document = m_document->textDocument();
        const QAbstractTextDocumentLayout* layout = document->documentLayout();
        for (const Run& run : m_highlighter->runs) {
            if (!run.code)
                continue;
            for (QTextBlock block = document->findBlock(run.start); block.isValid() && block.position() < run.end;
                 block = block.next()) {
                const QPointF origin = layout->blockBoundingRect(block).topLeft();
                const int start = run.start - block.position(), end = run.end - block.position();
                for (int i = 0; i < block.layout()->lineCount(); ++i) {
                    const QTextLine line = block.layout()->lineAt(i);
                    const int from = std::max(start, line.textStart());
                    const int to = std::min(end, line.textStart() + line.textLength());
                    if (from >= to)
                        continue;
                    const qreal left = line.cursorToX(from), right = line.cursorToX(to);
                    rects.append(QRectF(origin.x() + left - 1, origin.y() + line.y() + line.ascent() * 0.06,
                        right - left + 2, line.ascent() + line.descent()));
                }
            }
        }
    }
    if (rects != m_codeRects) {
        m_codeRects = rects;
        emit codeRectsChanged();
    }
}

} // namespace puna::ui
