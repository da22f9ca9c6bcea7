// BlockTable: the pages of one sequence, in order. Position p lies in page p / kPageSize.
#pragma once

#include "engine/base/types.h"

#include <cstdint>
#include <span>
#include <vector>

namespace puna {

inline constexpr std::int64_t pagesFor(std::int64_t tokens)
{
    return (tokens + kPageSize - 1) / kPageSize;
}

struct BlockTable {
    std::vector<PageId> pages;

    std::int64_t capacity() const { return static_cast<std::int64_t>(pages.size()) * kPageSize; } // tokens
    std::span<const PageId> span() const { return pages; }
};

} // namespace puna
