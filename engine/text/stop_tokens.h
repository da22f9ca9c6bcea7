// Which tokens end an answer: the union of everything that a model's files say about it.
//
// generation_config.json and config.json (eos_token_id, a number or a list, also inside text_config), the tokenizer's
// EOS, a GGUF's eos, eot and eom ids, and well-known end-of-turn tokens that the chat template mentions
// (`tokenizer-and-templates.md` 4). No single one of these can be relied on.
#pragma once

#include "engine/base/result.h"
#include "engine/base/types.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class Gguf;
class Tokenizer;

struct StopTokens {
    std::vector<TokenId> ids; // sorted
    std::vector<std::string> problems; // what was ignored and why, one sentence each
};

// The union of `ids`, where they are in the vocabulary, and what the tokenizer and the template say.
// tokenizer: may be null. template_source: empty where there is no template.
StopTokens stopTokens(
    std::vector<std::int64_t> ids, const Tokenizer* tokenizer, std::string_view template_source, int vocab_size);

// The ids that a config.json or generation_config.json names. Fails (format) where they are no numbers.
Result<std::vector<std::int64_t>> eosTokenIds(std::string_view file_name, std::string_view json);

std::vector<std::int64_t> eosTokenIds(const Gguf& gguf);

} // namespace puna
