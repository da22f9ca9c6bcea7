// Sampler: from logits to a token.
//
// Order of operations and definitions: `exl2-format.md` 8.5, each stage as its author defines it:
// repetition penalty, temperature, top-k, top-p (the smallest set whose mass reaches p), min-p, draw.
// Greedy (temperature 0) is the arg max after the penalty, the lowest id among equals. Non-finite logits fail.
#pragma once

#include "engine/base/result.h"
#include "engine/base/types.h"
#include "engine/run/event.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace puna {

class Sampler {
public:
    explicit Sampler(const SamplingParams& params);

    // logits: [vocab_size], changed in place. history: prompt and answer so far. The draw depends on the seed and
    // on history.size(), not on earlier calls.
    Result<TokenId> sample(std::span<float> logits, std::span<const TokenId> history);

private:
    SamplingParams m_params;
    std::vector<std::pair<float, TokenId>> m_candidates;
};

} // namespace puna
