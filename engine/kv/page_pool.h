// PagePool: who holds which page of the KV cache, and what finished sequences have left in theirs.
//
// A page is free, held by a running sequence's block table, or retained: it belongs to a finished sequence whose
// tokens are remembered. A new sequence that begins with the same tokens takes such pages over, so that a follow-up
// turn computes only what is new. Retained sequences are given up, the longest unused first, when pages run out.
// Plain bookkeeping: the pages themselves are the executor's. Cost: a comparison with each retained sequence per
// reuse(); there are at most as many as pages.
#pragma once

#include "engine/base/executor.h"
#include "engine/kv/block_table.h"

#include <cstdint>
#include <list>
#include <span>
#include <vector>

namespace puna {

class PagePool {
public:
    explicit PagePool(std::int64_t pages);

    std::int64_t pages() const { return m_pages; }
    std::int64_t freePages() const { return static_cast<std::int64_t>(m_free.size()); }
    std::int64_t retainedPages() const;

    // Makes room for `tokens` in all. False: every page is held by others, and the table is as it was.
    bool grow(BlockTable& table, std::int64_t tokens);
    void release(BlockTable& table);

    // tokens: those whose keys and values are in the table's pages.
    void retain(BlockTable& table, std::vector<TokenId> tokens);

    // The longest beginning of `tokens` that is in retained pages. A sequence that shares most of what it holds is
    // taken over; of one that shares less, the beginning is to be copied, so that it stays of use to its own
    // conversation.
    struct Reused {
        BlockTable table;
        std::int64_t tokens = 0; // in the table once the copies are done
        std::vector<PageCopy> copies;
    };
    Reused reuse(std::span<const TokenId> tokens);

    void forgetRetained();

private:
    struct Retained {
        std::vector<TokenId> tokens;
        BlockTable table;
    };

    std::int64_t m_pages;
    std::vector<PageId> m_free;
    std::list<Retained> m_retained; // the latest first
};

} // namespace puna
