#include "engine/text/vocabulary.h"

#include <cassert>

namespace puna {

bool Vocabulary::insert(std::string_view text, TokenId id)
{
    assert(id >= 0 && id <= kTokenIdMax);
    if (contains(id) || text.size() > kHole / 2 || m_arena.size() > kHole / 2)
        return false;
    if (static_cast<std::size_t>(m_count) * 2 >= m_slots.size())
        grow();
    const std::size_t mask = m_slots.size() - 1;
    std::size_t slot = hashBytes(text) & mask;
    for (; m_slots[slot] != kNoToken; slot = (slot + 1) & mask)
        if (this->text(m_slots[slot]) == text)
            return false;
    m_slots[slot] = id;
    if (static_cast<std::size_t>(id) >= m_entries.size())
        m_entries.resize(static_cast<std::size_t>(id) + 1, {0, kHole});
    m_entries[static_cast<std::size_t>(id)] = {
        static_cast<std::uint32_t>(m_arena.size()), static_cast<std::uint32_t>(text.size())};
    m_arena += text;
    ++m_count;
    return true;
}

TokenId Vocabulary::find(std::string_view text) const
{
    if (m_slots.empty())
        return kNoToken;
    const std::size_t mask = m_slots.size() - 1;
    for (std::size_t slot = hashBytes(text) & mask;; slot = (slot + 1) & mask) {
        const TokenId id = m_slots[slot];
        if (id == kNoToken || this->text(id) == text)
            return id;
    }
}

void Vocabulary::grow()
{
    m_slots.assign(m_slots.empty() ? 1024 : m_slots.size() * 2, kNoToken);
    const std::size_t mask = m_slots.size() - 1;
    for (TokenId id = 0; id < idEnd(); ++id) {
        if (!contains(id))
            continue;
        std::size_t slot = hashBytes(text(id)) & mask;
        while (m_slots[slot] != kNoToken)
            slot = (slot + 1) & mask;
        m_slots[slot] = id;
    }
}

} // namespace puna
