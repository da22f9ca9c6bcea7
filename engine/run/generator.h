// Generator: one answer on its way from logits to text, and the reasons to end it.
//
// Tokens are looked at in this order: a stop token ends the answer; else its text is added and searched for stop
// strings; else the budget may be used up (`exl2-format.md` 8.2).
#pragma once

#include "engine/base/result.h"
#include "engine/run/event.h"
#include "engine/sample/sampler.h"
#include "engine/text/stream_decoder.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace puna {

class Tokenizer;

struct GeneratorOptions {
    SamplingParams sampling; // checked
    std::int64_t max_tokens = 1; // new ones, at least one
    std::vector<TokenId> stop_tokens;
    std::vector<std::string> stop_strings;
    bool continues_text = false; // the answer goes on in the middle of the prompt's text
};

class Generator {
public:
    // tokenizer: null for a model without one; the answer then has tokens and no text.
    Generator(const Tokenizer* tokenizer, GeneratorOptions options, std::span<const TokenId> prompt);

    // logits: [vocab_size]; ids that the tokenizer does not know are never drawn.
    Result<TokenId> draw(std::span<float> logits, std::span<const TokenId> history);

    // Takes a drawn token; text that can be shown is appended. A reason: the answer has ended.
    std::optional<FinishReason> push(TokenId token, std::string& text);

    // Appends what was held back, when an answer ends early.
    void flush(std::string& text);

    const SamplingParams& sampling() const { return m_options.sampling; }
    std::int64_t drawn() const { return m_drawn; }
    std::int64_t remaining() const { return m_options.max_tokens - m_drawn; }

private:
    GeneratorOptions m_options;
    std::size_t m_known_tokens; // of the tokenizer
    Sampler m_sampler;
    std::optional<StreamDecoder> m_decoder;
    StopMatcher m_matcher;
    std::int64_t m_drawn = 0;
};

} // namespace puna
