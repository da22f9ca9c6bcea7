// Logits of whole texts from a loaded model, below the generator: what `logits` and `perplexity` need.
#pragma once

#include "engine/engine.h"

#include <functional>
#include <span>

namespace puna::tool {

// Called with the logits of consecutive positions, [rows, vocab_size]; may fail.
using TakeLogits = std::function<Result<void>(std::span<const float> logits, std::int64_t rows)>;

// All logits of tokens at positions 0 ..., in batches of at most `chunk` rows (1: as decoding computes them).
// The engine has no jobs; its pages are used.
Result<void> forwardAll(Engine& engine, std::span<const TokenId> tokens, int chunk, const TakeLogits& take);

} // namespace puna::tool
