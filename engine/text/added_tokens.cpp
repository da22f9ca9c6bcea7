#include "engine/text/added_tokens.h"

#include "engine/text/unicode.h"

#include <algorithm>

namespace puna {

PatternTrie::PatternTrie(std::vector<std::pair<std::string, std::int32_t>> patterns)
{
    std::erase_if(patterns, [](const auto& p) { return p.first.empty(); });
    std::stable_sort(patterns.begin(), patterns.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    patterns.erase(
        std::unique(patterns.begin(), patterns.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        patterns.end());
    if (patterns.empty())
        return;
    struct Range { // patterns that share the path to a node
        std::int32_t node;
        std::size_t begin, end, depth;
    };
    m_nodes.emplace_back();
    std::vector<Range> open {{0, 0, patterns.size(), 0}};
    for (std::size_t i = 0; i < open.size(); ++i) {
        Range range = open[i];
        if (patterns[range.begin].first.size() == range.depth)
            m_nodes[static_cast<std::size_t>(range.node)].value = patterns[range.begin++].second;
        m_nodes[static_cast<std::size_t>(range.node)].edges_begin = static_cast<std::uint32_t>(m_edges.size());
        while (range.begin < range.end) {
            const auto byte = static_cast<unsigned char>(patterns[range.begin].first[range.depth]);
            std::size_t end = range.begin + 1;
            while (end < range.end && static_cast<unsigned char>(patterns[end].first[range.depth]) == byte)
                ++end;
            const auto node = static_cast<std::int32_t>(m_nodes.size());
            m_nodes.emplace_back();
            m_edges.push_back({byte, node});
            open.push_back({node, range.begin, end, range.depth + 1});
            range.begin = end;
        }
        m_nodes[static_cast<std::size_t>(range.node)].edges_end = static_cast<std::uint32_t>(m_edges.size());
    }
    for (std::uint32_t e = m_nodes[0].edges_begin; e < m_nodes[0].edges_end; ++e)
        m_starts[m_edges[e].byte] = m_edges[e].node;
}

std::int32_t PatternTrie::child(std::int32_t node, unsigned char byte) const
{
    const Node& n = m_nodes[static_cast<std::size_t>(node)];
    const auto begin = m_edges.begin() + n.edges_begin, end = m_edges.begin() + n.edges_end;
    const auto edge = std::lower_bound(begin, end, byte, [](const Edge& e, unsigned char b) { return e.byte < b; });
    return edge != end && edge->byte == byte ? edge->node : -1;
}

bool PatternTrie::find(std::string_view text, std::size_t from, Hit& hit) const
{
    if (m_nodes.empty())
        return false;
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        std::int32_t node = m_starts[static_cast<unsigned char>(text[begin])];
        if (node < 0)
            continue;
        bool found = false;
        for (std::size_t at = begin + 1;; ++at) {
            const std::int32_t value = m_nodes[static_cast<std::size_t>(node)].value;
            if (value >= 0) {
                hit = {begin, at, value};
                found = true;
            }
            if (at >= text.size())
                break;
            node = child(node, static_cast<unsigned char>(text[at]));
            if (node < 0)
                break;
        }
        if (found)
            return true;
    }
    return false;
}

bool AddedTokenMatcher::accept(std::string_view text, const AddedToken& token, bool guarded, std::size_t from,
    std::size_t& begin, std::size_t& end)
{
    if (guarded && isControlToken(token)) { // an odd number of guards before it: it was typed
        std::size_t guards = 0;
        for (std::string_view before = text.substr(0, begin); before.ends_with(kGuard); ++guards)
            before.remove_suffix(kGuard.size());
        if (guards % 2)
            return false;
    }
    if (token.single_word) {
        if (begin > 0 && unicode::isWord(unicode::decodeLast(text.substr(0, begin)).c))
            return false;
        if (end < text.size() && unicode::isWord(unicode::decode(text.data() + end).c))
            return false;
    }
    if (token.lstrip)
        while (begin > from) {
            const unicode::Decoded d = unicode::decodeLast(text.substr(0, begin));
            if (!unicode::isSpace(d.c))
                break;
            begin -= d.length;
        }
    if (token.rstrip)
        while (end < text.size()) {
            const unicode::Decoded d = unicode::decode(text.data() + end);
            if (!unicode::isSpace(d.c))
                break;
            end += d.length;
        }
    return true;
}

bool isControlToken(const AddedToken& token)
{
    const std::string_view text = token.content;
    return token.special || (text.size() > 4 && text.starts_with("<|") && text.ends_with("|>"))
        || (text.size() > 8 && text.starts_with("<\xEF\xBD\x9C") && text.ends_with("\xEF\xBD\x9C>")); // U+FF5C
}

void removeGuards(std::string_view text, std::string& out)
{
    out.clear();
    std::size_t from = 0;
    for (std::size_t at = text.find(kGuard); at != std::string_view::npos; at = text.find(kGuard, from)) {
        out.append(text, from, at - from);
        from = at + kGuard.size();
        if (text.substr(from).starts_with(kGuard)) {
            out += kGuard;
            from += kGuard.size();
        }
    }
    out.append(text, from);
}

} // namespace puna
