#include "app/chat/markdown_parser.h"

#include <md4c.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace puna::app {

namespace {

constexpr QStringView kThinkOpen = u"<think>";
constexpr QStringView kThinkClose = u"</think>";
constexpr unsigned kFlags = MD_FLAG_NOHTML | MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS
    | MD_FLAG_PERMISSIVEURLAUTOLINKS | MD_FLAG_PERMISSIVEWWWAUTOLINKS;

QString fromUtf8(const MD_CHAR* text, MD_SIZE size)
{
    return QString::fromUtf8(text, static_cast<qsizetype>(size));
}

// The named ones that models write; others stay as they are.
QString entity(const QString& name)
{
    static constexpr std::pair<QStringView, char16_t> kNamed[] = {{u"&amp;", u'&'}, {u"&lt;", u'<'}, {u"&gt;", u'>'},
        {u"&quot;", u'"'}, {u"&apos;", u'\''}, {u"&nbsp;", u'\xa0'}, {u"&copy;", u'\xa9'}, {u"&reg;", u'\xae'},
        {u"&deg;", u'\xb0'}, {u"&times;", u'\xd7'}, {u"&ndash;", u'–'}, {u"&mdash;", u'—'}, {u"&hellip;", u'…'},
        {u"&bull;", u'•'}, {u"&rarr;", u'→'}, {u"&larr;", u'←'}, {u"&euro;", u'€'}, {u"&lsquo;", u'‘'},
        {u"&rsquo;", u'’'}, {u"&ldquo;", u'“'}, {u"&rdquo;", u'”'}, {u"&le;", u'≤'}, {u"&ge;", u'≥'}, {u"&ne;", u'≠'}};
    for (const auto& [spelled, character] : kNamed)
        if (name == spelled)
            return QString(QChar(character));
    if (!name.startsWith(QLatin1String("&#")))
        return name;
    const bool hex = name.size() > 3 && (name.at(2) == QLatin1Char('x') || name.at(2) == QLatin1Char('X'));
    bool ok = false;
    const QStringView digits = QStringView(name).mid(hex ? 3 : 2).chopped(1);
    const uint code = digits.toUInt(&ok, hex ? 16 : 10);
    if (!ok || code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return QString(QChar(QChar::ReplacementCharacter));
    const char32_t character = code;
    return QString::fromUcs4(&character, 1);
}

// Receives md4c's events for one chunk and appends blocks.
class Builder {
public:
    explicit Builder(std::vector<Block>& blocks)
        : m_blocks(blocks)
    {
    }

    void enterBlock(MD_BLOCKTYPE type, void* detail)
    {
        switch (type) {
        case MD_BLOCK_QUOTE:
            flush();
            m_containers.push_back({Container::Quote, 0, 0});
            break;
        case MD_BLOCK_UL:
            flush();
            m_containers.push_back({Container::Bullets, 0, 0});
            break;
        case MD_BLOCK_OL: {
            flush();
            const auto* list = static_cast<MD_BLOCK_OL_DETAIL*>(detail);
            m_containers.push_back({Container::Numbers, list->start, list->mark_delimiter});
            break;
        }
        case MD_BLOCK_LI: {
            flush();
            const auto* item = static_cast<MD_BLOCK_LI_DETAIL*>(detail);
            open(BlockKind::ListItem);
            if (m_containers.empty())
                break;
            Container& list = m_containers.back();
            if (item->is_task)
                m_current.marker = item->task_mark == ' ' ? QStringLiteral("☐") : QStringLiteral("☑");
            else if (list.type == Container::Numbers)
                m_current.marker = QString::number(list.next) + QLatin1Char(list.delimiter);
            else
                m_current.marker = QStringLiteral("•");
            ++list.next;
            m_fresh = true;
            break;
        }
        case MD_BLOCK_P:
            if (!m_fresh)
                openText();
            break;
        case MD_BLOCK_H:
            openOther(BlockKind::Heading);
            m_current.level = static_cast<int>(static_cast<MD_BLOCK_H_DETAIL*>(detail)->level);
            break;
        case MD_BLOCK_CODE: {
            const auto* code = static_cast<MD_BLOCK_CODE_DETAIL*>(detail);
            openOther(BlockKind::Code);
            m_current.language = fromUtf8(code->lang.text, code->lang.size);
            break;
        }
        case MD_BLOCK_HR:
            openOther(BlockKind::Rule);
            flush();
            break;
        case MD_BLOCK_TABLE:
            openOther(BlockKind::Table);
            m_current.columns = static_cast<int>(static_cast<MD_BLOCK_TABLE_DETAIL*>(detail)->col_count);
            break;
        case MD_BLOCK_TH:
        case MD_BLOCK_TD:
            m_current.cells.append(QString());
            break;
        default:
            break;
        }
    }

    void leaveBlock(MD_BLOCKTYPE type)
    {
        switch (type) {
        case MD_BLOCK_QUOTE:
        case MD_BLOCK_UL:
        case MD_BLOCK_OL:
            flush();
            if (!m_containers.empty())
                m_containers.pop_back();
            break;
        case MD_BLOCK_CODE:
            if (m_current.text.endsWith(QLatin1Char('\n')))
                m_current.text.chop(1);
            flush();
            break;
        case MD_BLOCK_LI:
        case MD_BLOCK_P:
        case MD_BLOCK_H:
        case MD_BLOCK_TABLE:
            flush();
            break;
        default:
            break;
        }
    }

    void enterSpan(MD_SPANTYPE type, void* detail)
    {
        switch (type) {
        case MD_SPAN_STRONG:
            ++m_bold;
            break;
        case MD_SPAN_EM:
            ++m_italic;
            break;
        case MD_SPAN_DEL:
            ++m_strike;
            break;
        case MD_SPAN_CODE:
            ++m_code;
            break;
        case MD_SPAN_A: {
            const auto& href = static_cast<MD_SPAN_A_DETAIL*>(detail)->href;
            m_link = fromUtf8(href.text, href.size);
            break;
        }
        case MD_SPAN_IMG: { // never fetched: its description, as a link
            const auto& source = static_cast<MD_SPAN_IMG_DETAIL*>(detail)->src;
            m_link = fromUtf8(source.text, source.size);
            break;
        }
        default:
            break;
        }
    }

    void leaveSpan(MD_SPANTYPE type)
    {
        switch (type) {
        case MD_SPAN_STRONG:
            --m_bold;
            break;
        case MD_SPAN_EM:
            --m_italic;
            break;
        case MD_SPAN_DEL:
            --m_strike;
            break;
        case MD_SPAN_CODE:
            --m_code;
            break;
        case MD_SPAN_A:
        case MD_SPAN_IMG:
            m_link.clear();
            break;
        default:
            break;
        }
    }

    void text(MD_TEXTTYPE type, const MD_CHAR* bytes, MD_SIZE size)
    {
        QString piece;
        switch (type) {
        case MD_TEXT_NULLCHAR:
            piece = QChar(QChar::ReplacementCharacter);
            break;
        case MD_TEXT_BR:
        case MD_TEXT_SOFTBR:
            piece = QLatin1Char('\n');
            break;
        case MD_TEXT_ENTITY:
            piece = entity(fromUtf8(bytes, size));
            break;
        default:
            piece = fromUtf8(bytes, size);
            break;
        }
        if (!m_open)
            openText();
        m_fresh = false;
        if (m_current.kind == BlockKind::Table) {
            if (!m_current.cells.isEmpty())
                m_current.cells.last() += piece;
            return;
        }
        if (m_current.kind != BlockKind::Code && (m_bold || m_italic || m_strike || m_code || !m_link.isEmpty())) {
            Span span {static_cast<int>(m_current.text.size()), static_cast<int>(piece.size()), m_bold > 0,
                m_italic > 0, m_strike > 0, m_code > 0, m_link};
            Span* last = m_current.spans.empty() ? nullptr : &m_current.spans.back();
            if (last && last->start + last->length == span.start && last->bold == span.bold
                && last->italic == span.italic && last->strike == span.strike && last->code == span.code
                && last->link == span.link)
                last->length += span.length;
            else
                m_current.spans.push_back(std::move(span));
        }
        m_current.text += piece;
    }

    void flush()
    {
        if (m_open)
            m_blocks.push_back(std::exchange(m_current, {}));
        m_open = m_fresh = false;
    }

private:
    struct Container {
        enum Type { Quote, Bullets, Numbers } type;
        unsigned next;
        char delimiter;
    };

    int depth(bool quotes) const
    {
        return static_cast<int>(std::count_if(m_containers.begin(), m_containers.end(),
            [quotes](const Container& container) { return (container.type == Container::Quote) == quotes; }));
    }

    void open(BlockKind kind)
    {
        flush();
        m_current.kind = kind;
        if (kind == BlockKind::ListItem || kind == BlockKind::Code)
            m_current.level = depth(false);
        else if (kind == BlockKind::Quote)
            m_current.level = depth(true);
        m_open = true;
    }

    void openText()
    {
        if (m_containers.empty())
            open(BlockKind::Text);
        else
            open(m_containers.back().type == Container::Quote ? BlockKind::Quote : BlockKind::ListItem);
    }

    void openOther(BlockKind kind) { open(kind); }

    std::vector<Block>& m_blocks;
    Block m_current;
    bool m_open = false;
    bool m_fresh = false; // m_current is a list item that has no text yet
    std::vector<Container> m_containers;
    int m_bold = 0, m_italic = 0, m_strike = 0, m_code = 0;
    QString m_link;
};

void parseChunk(QStringView chunk, std::vector<Block>& blocks)
{
    const QByteArray utf8 = chunk.toUtf8();
    const std::size_t before = blocks.size();
    Builder builder(blocks);
    MD_PARSER parser {};
    parser.flags = kFlags;
    parser.enter_block = [](MD_BLOCKTYPE type, void* detail, void* self) {
        static_cast<Builder*>(self)->enterBlock(type, detail);
        return 0;
    };
    parser.leave_block = [](MD_BLOCKTYPE type, void*, void* self) {
        static_cast<Builder*>(self)->leaveBlock(type);
        return 0;
    };
    parser.enter_span = [](MD_SPANTYPE type, void* detail, void* self) {
        static_cast<Builder*>(self)->enterSpan(type, detail);
        return 0;
    };
    parser.leave_span = [](MD_SPANTYPE type, void*, void* self) {
        static_cast<Builder*>(self)->leaveSpan(type);
        return 0;
    };
    parser.text = [](MD_TEXTTYPE type, const MD_CHAR* text, MD_SIZE size, void* self) {
        static_cast<Builder*>(self)->text(type, text, size);
        return 0;
    };
    if (md_parse(utf8.constData(), static_cast<MD_SIZE>(utf8.size()), &parser, &builder) != 0) {
        blocks.resize(before);
        blocks.push_back({.kind = BlockKind::Text, .text = chunk.toString()});
        return;
    }
    builder.flush();
}

bool isSpace(QChar character)
{
    return character == u' ' || character == u'\t' || character == u'\r';
}

enum class ListMarker { No, Yes, Undecided };

// Whether a line (from its first character that is no space) begins a list item.
ListMarker listMarker(QStringView line, bool complete)
{
    qsizetype end = 0;
    if (line.front() == u'-' || line.front() == u'+' || line.front() == u'*') {
        end = 1;
    } else {
        while (end < line.size() && line[end].unicode() >= u'0' && line[end].unicode() <= u'9')
            ++end;
        if (end == 0 || end > 9)
            return ListMarker::No;
        if (end == line.size())
            return complete ? ListMarker::No : ListMarker::Undecided;
        if (line[end] != u'.' && line[end] != u')')
            return ListMarker::No;
        ++end;
    }
    if (end == line.size())
        return complete ? ListMarker::Yes : ListMarker::Undecided;
    return isSpace(line[end]) ? ListMarker::Yes : ListMarker::No;
}

// Where the chunks after the first begin. Decisions depend on text before a place and never change with text after it.
std::vector<qsizetype> chunkStarts(QStringView text)
{
    std::vector<qsizetype> starts;
    bool blankBefore = false;
    bool anyLine = false;
    bool chunkIsList = false;
    QChar fence;
    qsizetype fenceLength = 0, fenceIndent = 0;
    for (qsizetype lineStart = 0; lineStart < text.size();) {
        const qsizetype newline = text.indexOf(u'\n', lineStart);
        const bool complete = newline >= 0;
        const QStringView line = text.mid(lineStart, (complete ? newline : text.size()) - lineStart);
        qsizetype indent = 0;
        while (indent < line.size() && isSpace(line[indent]))
            ++indent;
        const QStringView content = line.mid(indent);
        if (content.isEmpty()) {
            blankBefore = true;
        } else {
            const ListMarker marker = listMarker(content, complete);
            if (!anyLine) {
                if (marker == ListMarker::Undecided)
                    break;
                chunkIsList = marker == ListMarker::Yes;
            } else if (blankBefore && fenceLength == 0 && (indent == 0 || (indent == 1 && line[0] == u' '))) {
                if (chunkIsList && marker == ListMarker::Undecided)
                    break;
                if (!(chunkIsList && marker == ListMarker::Yes)) {
                    if (marker == ListMarker::Undecided)
                        break;
                    starts.push_back(lineStart);
                    chunkIsList = marker == ListMarker::Yes;
                }
            }
            anyLine = true;
            blankBefore = false;
            if (complete && (content.front() == u'`' || content.front() == u'~')) {
                qsizetype run = 0;
                while (run < content.size() && content[run] == content.front())
                    ++run;
                const QStringView rest = content.mid(run);
                if (fenceLength == 0) {
                    if (run >= 3 && !(content.front() == u'`' && rest.contains(u'`'))) {
                        fence = content.front();
                        fenceLength = run;
                        fenceIndent = indent;
                    }
                } else if (content.front() == fence && run >= fenceLength && rest.trimmed().isEmpty()
                    && (indent < 4 || fenceIndent >= 4)) {
                    fenceLength = 0;
                }
            }
        }
        if (!complete)
            break;
        lineStart = newline + 1;
    }
    return starts;
}

} // namespace

void MarkdownStream::parseOpen(std::size_t keep)
{
    m_blocks.resize(keep);
    const std::vector<qsizetype> starts = chunkStarts(m_open);
    const QStringView open(m_open);
    qsizetype from = 0;
    for (const qsizetype start : starts) {
        parseChunk(open.mid(from, start - from), m_blocks);
        from = start;
    }
    m_frozen = m_blocks.size();
    parseChunk(open.mid(from), m_blocks);
    m_open.remove(0, from);
}

std::size_t MarkdownStream::append(const QString& text)
{
    const std::size_t keep = m_frozen;
    m_open += text;
    if (m_phase == Phase::Start) {
        const QStringView begin = QStringView(m_open).trimmed();
        if (begin.startsWith(kThinkOpen)) {
            m_phase = Phase::Thinking;
            m_open.remove(0, m_open.indexOf(kThinkOpen) + kThinkOpen.size());
        } else if (!kThinkOpen.startsWith(begin)) {
            m_phase = Phase::Answer;
        } else { // not decided yet
            m_blocks.clear();
            parseChunk(m_open, m_blocks);
            return 0;
        }
    }
    if (m_phase == Phase::Thinking) {
        const qsizetype end = m_open.indexOf(kThinkClose);
        QStringView thought = QStringView(m_open).left(end < 0 ? m_open.size() : end);
        if (end < 0) // part of the closing tag may have come
            for (qsizetype length = std::min(kThinkClose.size() - 1, thought.size()); length > 0; --length)
                if (thought.endsWith(kThinkClose.left(length))) {
                    thought.chop(length);
                    break;
                }
        m_blocks.clear();
        if (const QStringView trimmed = thought.trimmed(); !trimmed.isEmpty())
            m_blocks.push_back({.kind = BlockKind::Thinking, .text = trimmed.toString()});
        if (end < 0)
            return 0;
        m_open.remove(0, end + kThinkClose.size());
        m_frozen = m_blocks.size();
        m_phase = Phase::Answer;
        parseOpen(m_frozen);
        return 0;
    }
    parseOpen(keep);
    return keep;
}

std::vector<Block> parseMarkdown(const QString& text)
{
    MarkdownStream stream;
    stream.append(text);
    return stream.blocks();
}

} // namespace puna::app
