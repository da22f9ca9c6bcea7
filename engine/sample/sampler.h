// Sampler: from logits to a token.
//
// Order of operations and definitions: `exl2-format.md` 8.5, each stage as its author defines it:
// repetition penalty, temperature, top-k, top-p (the smallest set whose mass reaches p), min-p, draw.
// Greedy (temperature 0) is the arg max after the penalty, the lowest id among equals. Non-finite logits fail.
// Cost: one pass over the vocabulary, and an exponential for each candidate that min-p does not rule out at once.
#pragma once

#include "engine/base/result.h"
#include "engine/base/types.h"
#include "engine/run/event.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace puna {

// Fails (argument) with the first parameter that makes no sense.
Result<void> checkSampling(const SamplingParams& params);

class Sampler {
public:
    // params have passed checkSampling().
    explicit Sampler(const SamplingParams& params);

    // logits: [vocab_size], changed in place. history: prompt and answer so far. The draw depends on the seed and
    // on history.size(), not on earlier calls.
    Result<TokenId> sample(std::span<float> logits, std::span<const TokenId> history);

private:
    void penalise(std::span<float> logits, std::span<const TokenId> history);
    void keepTopP();

    SamplingParams m_params;
    std::vector<TokenId> m_recent; // distinct tokens that the penalty applies to
    std::vector<std::pair<float, TokenId>> m_candidates; // weight: probability times a common factor
};

} // namespace puna
