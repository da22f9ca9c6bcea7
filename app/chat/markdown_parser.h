// Markdown to a flat list of blocks, whole or as it streams in. Parsing is md4c's (CommonMark, tables,
// strike-through, task lists, bare links; HTML stays text).
//
// The text is first cut into chunks at blank lines that cannot lie inside a block: outside a code fence, and before a
// line that is not indented. A chunk never changes once the next one has begun, so a stream parses only its last
// chunk again, and by construction gives the same blocks as one pass over the whole text. The price: a reference
// definition is seen only in its own chunk.
// Cost: linear in the text for one pass; per streamed piece, linear in the open chunk.
#pragma once

#include <QString>
#include <QStringList>

#include <vector>

namespace puna::app {

enum class BlockKind { MessageHead, Text, Code, Heading, ListItem, Quote, Table, Rule, Thinking, Status, Error };

struct Span { // UTF-16 units of Block::text; spans do not overlap and rise
    int start = 0;
    int length = 0;
    bool bold = false, italic = false, strike = false, code = false;
    QString link {}; // the target as written; nothing is opened or fetched here

    bool operator==(const Span&) const = default;
};

struct Block {
    BlockKind kind = BlockKind::Text;
    QString text {};
    std::vector<Span> spans {};
    QString language {};
    int level = 0;
    QString marker {};
    int columns = 0;
    QStringList cells {};

    bool operator==(const Block&) const = default;
};

std::vector<Block> parseMarkdown(const QString& text);

// Appended text in, blocks out. A leading <think> ... </think> becomes one Thinking block.
class MarkdownStream {
public:
    // What append() changed: blocks from this index on are new or different.
    std::size_t append(const QString& text);
    const std::vector<Block>& blocks() const { return m_blocks; }
    bool thinking() const { return m_phase == Phase::Thinking; } // inside an open <think>

private:
    enum class Phase { Start, Thinking, Answer };

    void parseOpen(std::size_t keep);

    QString m_open; // text that may still change its blocks
    std::size_t m_frozen = 0; // blocks before this index are final
    std::vector<Block> m_blocks;
    Phase m_phase = Phase::Start;
};

} // namespace puna::app
