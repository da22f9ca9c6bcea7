// BlockText: fills the document of a read-only TextEdit with a block's plain text and its spans.
//
// Text from a model is never markup: it goes into the document as plain characters, and emphasis is laid over it by
// position. While text streams in, only what is new is inserted, so that a selection and the view stay. Code spans
// are reported as rectangles for a frame behind them. Cost: linear in what changed, plus one layout of the paragraph.
#pragma once

#include <QColor>
#include <QFont>
#include <QObject>
#include <QPointer>
#include <QQmlEngine>
#include <QQmlParserStatus>
#include <QQuickTextDocument>
#include <QTimer>
#include <QVariant>

namespace puna::ui {

class SpanHighlighter;

class BlockText : public QObject, public QQmlParserStatus {
    Q_OBJECT
    QML_ELEMENT
    Q_INTERFACES(QQmlParserStatus)
    Q_PROPERTY(QQuickTextDocument* document READ document WRITE setDocument NOTIFY documentChanged FINAL)
    Q_PROPERTY(QString text READ text WRITE setText NOTIFY textChanged FINAL)
    // Of {start, length, bold, italic, strike, code, link}, in UTF-16 units, as BlockModel gives them.
    Q_PROPERTY(QVariantList spans READ spans WRITE setSpans NOTIFY spansChanged FINAL)
    Q_PROPERTY(int lineHeight READ lineHeight WRITE setLineHeight NOTIFY lineHeightChanged FINAL) // 0: the font's
    Q_PROPERTY(QFont codeFont READ codeFont WRITE setCodeFont NOTIFY codeFontChanged FINAL)
    Q_PROPERTY(QColor linkColor READ linkColor WRITE setLinkColor NOTIFY linkColorChanged FINAL)
    Q_PROPERTY(QVariantList codeRects READ codeRects NOTIFY codeRectsChanged FINAL) // of QRectF, in the document

public:
    explicit BlockText(QObject* parent = nullptr);

    QQuickTextDocument* document() const { return m_document; }
    void setDocument(QQuickTextDocument* document);
    QString text() const { return m_text; }
    void setText(const QString& text);
    QVariantList spans() const { return m_spans; }
    void setSpans(const QVariantList& spans);
    int lineHeight() const { return m_lineHeight; }
    void setLineHeight(int height);
    QFont codeFont() const { return m_codeFont; }
    void setCodeFont(const QFont& font);
    QColor linkColor() const { return m_linkColor; }
    void setLinkColor(const QColor& color);
    QVariantList codeRects() const { return m_codeRects; }

    // The target of the link at a position of the text, as the model wrote it; empty: none.
    Q_INVOKABLE QString linkAt(int position) const;

    void classBegin() override { }
    void componentComplete() override;

signals:
    void documentChanged();
    void textChanged();
    void spansChanged();
    void lineHeightChanged();
    void codeFontChanged();
    void linkColorChanged();
    void codeRectsChanged();

private:
    void fill();
    void applyLineHeight();
    void restyle();
    void updateCodeRects();

    QQuickTextDocument* m_document = nullptr;
    QPointer<SpanHighlighter> m_highlighter; // the document's; made for the first span
    QString m_text;
    QString m_shown; // what the document holds
    QVariantList m_spans;
    int m_lineHeight = 0;
    QFont m_codeFont;
    QColor m_linkColor;
    QVariantList m_codeRects;
    QTimer m_rectsTimer;
    bool m_complete = false;
};

} // namespace puna::ui
