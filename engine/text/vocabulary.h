// Vocabulary: token texts in one arena, found by id or, through an open-addressing table, by text.
//
// About 24 bytes a token beside its text. Ids may have holes; texts are unique.
#pragma once

#include "engine/base/types.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

inline constexpr TokenId kNoToken = -1;
inline constexpr TokenId kTokenIdMax = (1 << 22) - 1; // larger ids are taken for damage

inline std::uint64_t hashBytes(std::string_view text)
{
    constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
    std::uint64_t h = text.size() * kMultiplier;
    const char* p = text.data();
    std::size_t n = text.size();
    const auto mix = [&h](std::uint64_t word) {
        h = (h ^ word) * kMultiplier;
        h ^= h >> 32;
    };
    for (; n >= 8; p += 8, n -= 8) {
        std::uint64_t word;
        std::memcpy(&word, p, 8);
        mix(word);
    }
    std::uint64_t word = 0;
    if (n >= 4) { // two halves that overlap; nothing beyond the text is read
        std::uint32_t low, high;
        std::memcpy(&low, p, 4);
        std::memcpy(&high, p + n - 4, 4);
        word = static_cast<std::uint64_t>(high) << 32 | low;
    } else if (n > 0) {
        word = static_cast<std::uint64_t>(static_cast<unsigned char>(p[0])) << 16
            | static_cast<std::uint64_t>(static_cast<unsigned char>(p[n / 2])) << 8
            | static_cast<unsigned char>(p[n - 1]);
    }
    mix(word);
    return h;
}

class Vocabulary {
public:
    // False, and nothing changes, if the text or the id is taken. 0 <= id <= kTokenIdMax.
    bool insert(std::string_view text, TokenId id);
    TokenId find(std::string_view text) const; // kNoToken: absent
    bool contains(TokenId id) const
    {
        return id >= 0 && static_cast<std::size_t>(id) < m_entries.size()
            && m_entries[static_cast<std::size_t>(id)].length != kHole;
    }
    std::string_view text(TokenId id) const // empty for unknown ids
    {
        if (!contains(id))
            return {};
        const Entry& e = m_entries[static_cast<std::size_t>(id)];
        return std::string_view(m_arena).substr(e.offset, e.length);
    }
    TokenId idEnd() const { return static_cast<TokenId>(m_entries.size()); } // highest id + 1
    std::int64_t count() const { return m_count; }

private:
    static constexpr std::uint32_t kHole = 0xFFFFFFFF;
    struct Entry {
        std::uint32_t offset;
        std::uint32_t length;
    };
    void grow();

    std::string m_arena;
    std::vector<Entry> m_entries; // by id
    std::vector<TokenId> m_slots; // power of two, at most half full
    std::int64_t m_count = 0;
};

} // namespace puna
