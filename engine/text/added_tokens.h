// Tokens that are cut out of a text before anything else happens to it: control tokens and whatever else a model adds.
//
// Matching is leftmost-longest over a trie of their contents; a first-byte filter makes texts without any cost about a
// nanosecond a byte. Source: `tokenizer-and-templates.md` 1.3.
#pragma once

#include "engine/base/types.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace puna {

struct AddedToken {
    TokenId id = -1;
    std::string content;
    bool single_word = false; // not beside a word character
    bool lstrip = false; // swallows white space to its left
    bool rstrip = false; // and to its right
    bool normalized = false; // looked for in the normalised text, in its normalised form
    bool special = false;
};

inline constexpr std::size_t kAddedTokenBytesMax = 1024;

// Longest-match look-up of byte strings.
class PatternTrie {
public:
    PatternTrie() = default;
    // Pattern and value; empty patterns are ignored; of equal patterns the first one counts.
    explicit PatternTrie(std::vector<std::pair<std::string, std::int32_t>> patterns);

    struct Hit {
        std::size_t begin, end;
        std::int32_t value;
    };
    // The first place at or after `from` where a pattern starts, with the longest pattern there.
    bool find(std::string_view text, std::size_t from, Hit& hit) const;
    bool empty() const { return m_nodes.empty(); }
    bool canStart(unsigned char byte) const { return m_starts[byte] >= 0; }

private:
    struct Node {
        std::int32_t value = -1;
        std::uint32_t edges_begin = 0, edges_end = 0;
    };
    struct Edge {
        unsigned char byte;
        std::int32_t node;
    };
    std::int32_t child(std::int32_t node, unsigned char byte) const;

    std::vector<Node> m_nodes;
    std::vector<Edge> m_edges; // of one node: sorted by byte
    std::array<std::int32_t, 256> m_starts = filled(); // children of the root

    static constexpr std::array<std::int32_t, 256> filled()
    {
        std::array<std::int32_t, 256> a {};
        a.fill(-1);
        return a;
    }
};

// Breaks up a control token in a person's text (Tokenizer::guard): U+FDD0, a noncharacter.
inline constexpr std::string_view kGuard = "\xEF\xB7\x90";

class AddedTokenMatcher {
public:
    AddedTokenMatcher() = default;
    // Pairs of pattern and index into `tokens`.
    AddedTokenMatcher(std::vector<std::pair<std::string, std::int32_t>> patterns, const std::vector<AddedToken>& tokens)
        : m_trie(std::move(patterns))
        , m_tokens(&tokens)
    {
    }

    // Calls between(begin, end) for every stretch that is not empty and token(AddedToken) for every match, in order.
    template <class Between, class Token>
    void split(std::string_view text, bool skip_special, bool guarded, Between&& between, Token&& token) const
    {
        std::size_t from = 0; // end of what has been handed out
        PatternTrie::Hit hit {};
        for (std::size_t at = 0; !m_trie.empty() && m_trie.find(text, at, hit); at = hit.end) {
            const AddedToken& found = (*m_tokens)[static_cast<std::size_t>(hit.value)];
            std::size_t begin = hit.begin, end = hit.end;
            if ((skip_special && found.special) || !accept(text, found, guarded, from, begin, end))
                continue;
            if (from < begin)
                between(from, begin);
            token(found);
            from = end;
        }
        if (from < text.size())
            between(from, text.size());
    }

private:
    static bool accept(std::string_view text, const AddedToken& token, bool guarded, std::size_t from,
        std::size_t& begin, std::size_t& end);

    PatternTrie m_trie;
    const std::vector<AddedToken>* m_tokens = nullptr;
};

// Whether a person who types this text could forge the structure of a chat: special, or spelled like <|name|>.
bool isControlToken(const AddedToken& token);

// Guards taken out again: two in a row stand for one that the person typed.
void removeGuards(std::string_view text, std::string& out);

} // namespace puna
