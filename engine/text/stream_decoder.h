// StreamDecoder: the text of an answer, token by token, in whole UTF-8 characters; and stop strings across tokens.
//
// The concatenation of everything returned equals Tokenizer::decode of all tokens (`tokenizer-and-templates.md` 3).
#pragma once

#include "engine/base/types.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class Tokenizer;

class StreamDecoder {
public:
    // context: the last tokens of a prompt that the answer continues as raw text; empty for a chat answer, where a
    // SentencePiece-like decoder drops the leading space.
    explicit StreamDecoder(const Tokenizer& tokenizer, std::span<const TokenId> context = {});
    ~StreamDecoder();
    StreamDecoder(StreamDecoder&&) noexcept;
    StreamDecoder& operator=(StreamDecoder&&) noexcept;

    std::string push(TokenId token); // special tokens give nothing
    std::string finish();            // what was held back, incomplete characters as U+FFFD

private:
    struct State;
    std::unique_ptr<State> m_state;
};

// Holds back the longest suffix that may be the beginning of a stop string.
class StopMatcher {
public:
    explicit StopMatcher(std::vector<std::string> stops); // empty strings are ignored

    // Text that can be shown. After a match stopped() is true, the rest is discarded.
    std::string push(std::string_view text);
    std::string finish();
    bool stopped() const { return m_stopped; }

private:
    std::vector<std::string> m_stops;
    std::string m_held;
    bool m_stopped = false;
};

} // namespace puna
