// What goes into the engine and what comes out of it, as plain values.
#pragma once

#include "engine/base/result.h"
#include "engine/base/types.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace puna {

using JobId = std::int64_t; // unique within one Engine, rising

struct SamplingParams {
    float temperature = 0.8f; // 0: greedy
    int top_k = 0;            // 0: off
    float top_p = 1.0f;       // 1: off
    float min_p = 0.05f;      // 0: off
    float repetition_penalty = 1.0f; // 1: off
    int repetition_range = -1;       // tokens looked back at; -1: all
    std::uint64_t seed = 0;          // same seed, same request, same device: same answer
};

struct ChatMessage {
    std::string role; // system, user, assistant
    std::string content; // UTF-8
};

// A conversation to be answered: rendered by the model's chat template. Control tokens written out in a message's
// text stay text.
struct ChatPrompt {
    std::vector<ChatMessage> messages;
    std::string variables_json = "{}"; // further template variables, an object
};

struct TextPrompt {
    std::string text; // continued as it is; the tokenizer's own BOS rule applies
};

struct TokenPrompt {
    std::vector<TokenId> tokens;
};

struct GenerationRequest {
    std::variant<ChatPrompt, TextPrompt, TokenPrompt> prompt;
    SamplingParams sampling;
    int max_tokens = -1; // new ones; -1: until the context is full
    std::vector<std::string> stop; // strings that end the answer; at most 64 of 1 KiB
    bool ignore_eos = false; // for benchmarks
};

struct Statistics {
    int prompt_tokens = 0;
    int reused_tokens = 0; // of the prompt, taken from the cache
    int tokens = 0;        // generated
    double prefill_s = 0.0;
    double decode_s = 0.0;
    double first_token_s = 0.0; // from submit to the first generated token

    double prefillTokensPerSecond() const { return prefill_s > 0 ? (prompt_tokens - reused_tokens) / prefill_s : 0.0; }
    double decodeTokensPerSecond() const { return decode_s > 0 ? (tokens - 1) / decode_s : 0.0; }
};

enum class FinishReason : std::uint8_t { stop, length, cancelled, failed };

// The prompt has been rendered, tokenised and accepted.
struct StartedEvent {
    std::vector<TokenId> prompt_tokens;
    int reused_tokens = 0;
    std::string note; // a visible line about what was changed to please the template; usually empty
    bool starts_thinking = false; // the prompt ends inside an opened thinking block
};

struct PrefillEvent {
    int done = 0; // prompt tokens processed, reused ones included
    int total = 0;
};

struct TextEvent {
    std::string text; // whole UTF-8 characters
    std::vector<TokenId> tokens; // that were drawn since the last event, also those whose text is held back
};

struct FinishedEvent {
    FinishReason reason = FinishReason::stop;
    Statistics statistics;
    Error error{ErrorCode::cancelled, {}}; // when failed
};

struct Event {
    JobId job = 0;
    std::variant<StartedEvent, PrefillEvent, TextEvent, FinishedEvent> what;
};

} // namespace puna
