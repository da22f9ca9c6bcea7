#include "engine/tools/forward.h"

#include "engine/tools/tool.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace puna::tool {

Result<void> forwardAll(Engine& engine, std::span<const TokenId> tokens, int chunk, const TakeLogits& take)
{
    if (static_cast<std::int64_t>(tokens.size()) > engine.context())
        return Error {ErrorCode::argument,
            "The text has " + std::to_string(tokens.size()) + " tokens; the context holds "
                + std::to_string(engine.context()) + "."};
    for (const TokenId token : tokens)
        if (token < 0 || token >= engine.model().vocab_size)
            return Error {ErrorCode::argument,
                "Token " + std::to_string(token) + " is not in the vocabulary of "
                    + std::to_string(engine.model().vocab_size) + " tokens."};
    std::vector<PageId> pages(static_cast<std::size_t>(engine.plan().kv_pages));
    std::iota(pages.begin(), pages.end(), PageId {0});
    const Interruptible computing;
    ForwardResult result;
    for (std::size_t begin = 0; begin < tokens.size();) {
        const std::size_t rows = std::min(tokens.size() - begin, static_cast<std::size_t>(chunk));
        const Sequence sequence {
            tokens.subspan(begin, rows), static_cast<std::int64_t>(begin), pages, LogitRows::all, nullptr};
        TRY(engine.executor().forward({{&sequence, 1}, 1, computing.token()}, result));
        TRY(take(result.logits, static_cast<std::int64_t>(rows)));
        begin += rows;
    }
    return {};
}

} // namespace puna::tool
