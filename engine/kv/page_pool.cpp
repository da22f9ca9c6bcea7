#include "engine/kv/page_pool.h"

#include <algorithm>
#include <utility>

namespace puna {

PagePool::PagePool(std::int64_t pages)
    : m_pages(pages)
{
    // The lowest is handed out first, so that a small load touches little memory.
    for (std::int64_t page = pages; page-- > 0;)
        m_free.push_back(static_cast<PageId>(page));
}

std::int64_t PagePool::retainedPages() const
{
    std::int64_t sum = 0;
    for (const Retained& r : m_retained)
        sum += static_cast<std::int64_t>(r.table.pages.size());
    return sum;
}

bool PagePool::grow(BlockTable& table, std::int64_t tokens)
{
    const std::int64_t missing = pagesFor(tokens) - static_cast<std::int64_t>(table.pages.size());
    if (missing <= 0)
        return true;
    if (missing > freePages() + retainedPages())
        return false;
    while (freePages() < missing) {
        release(m_retained.back().table);
        m_retained.pop_back();
    }
    for (std::int64_t i = 0; i < missing; ++i) {
        table.pages.push_back(m_free.back());
        m_free.pop_back();
    }
    return true;
}

void PagePool::release(BlockTable& table)
{
    m_free.insert(m_free.end(), table.pages.rbegin(), table.pages.rend());
    table.pages.clear();
}

void PagePool::retain(BlockTable& table, std::vector<TokenId> tokens)
{
    BlockTable kept = std::exchange(table, {});
    // Pages reserved for tokens that never came.
    const std::int64_t used = pagesFor(static_cast<std::int64_t>(tokens.size()));
    BlockTable surplus;
    while (static_cast<std::int64_t>(kept.pages.size()) > used) {
        surplus.pages.insert(surplus.pages.begin(), kept.pages.back());
        kept.pages.pop_back();
    }
    release(surplus);
    if (!kept.pages.empty())
        m_retained.push_front({std::move(tokens), std::move(kept)});
}

PagePool::Reused PagePool::reuse(std::span<const TokenId> tokens)
{
    auto best = m_retained.end();
    std::int64_t common = 0;
    for (auto it = m_retained.begin(); it != m_retained.end(); ++it) {
        const auto [end, _] = std::mismatch(it->tokens.begin(), it->tokens.end(), tokens.begin(), tokens.end());
        if (end - it->tokens.begin() > common) {
            common = end - it->tokens.begin();
            best = it;
        }
    }
    Reused reused;
    if (best == m_retained.end())
        return reused;

    if (2 * common >= static_cast<std::int64_t>(best->tokens.size())) {
        reused.table = std::move(best->table);
        reused.tokens = common;
        m_retained.erase(best);
        BlockTable surplus;
        for (std::int64_t used = pagesFor(common); static_cast<std::int64_t>(reused.table.pages.size()) > used;) {
            surplus.pages.insert(surplus.pages.begin(), reused.table.pages.back());
            reused.table.pages.pop_back();
        }
        release(surplus);
        return reused;
    }

    // In use from here on, and so the last to be given up while room is made.
    m_retained.splice(m_retained.begin(), m_retained, best);
    const auto from = m_retained.front().table.pages;
    if (freePages() + retainedPages() - static_cast<std::int64_t>(from.size()) < pagesFor(common)
        || !grow(reused.table, common))
        return reused;
    reused.tokens = common;
    for (std::size_t i = 0; i < reused.table.pages.size(); ++i) {
        const auto left = common - static_cast<std::int64_t>(i) * kPageSize;
        reused.copies.push_back(
            {from[i], reused.table.pages[i], static_cast<int>(std::min<std::int64_t>(left, kPageSize))});
    }
    return reused;
}

void PagePool::forgetRetained()
{
    for (Retained& r : m_retained)
        release(r.table);
    m_retained.clear();
}

} // namespace puna
