// From a conversation to the text that a model is prompted with: its chat template, rendered with the variables that
// Hugging Face's chat templates expect, and help where a template is strict (`tokenizer-and-templates.md` 5.5).
//
// A template that refuses a system message or roles that do not alternate is given, once, a conversation folded to
// its taste, and the caller gets a line to show. Nothing else is ever changed, and nothing is appended.
#pragma once

#include "engine/base/result.h"
#include "engine/run/event.h"

#include <span>
#include <string>
#include <string_view>

namespace puna {

class ChatTemplate;

struct RenderedPrompt {
    std::string text;
    std::string note; // a visible line about what was folded; usually empty
    bool starts_thinking = false; // the text ends inside an opened <think>
};

// variables_json: an object of further variables; they may replace tools, documents and add_generation_prompt (none,
// none and true otherwise), not messages. An empty bos_token or eos_token is left undefined.
// Fails (argument) with "This model's template refused: MESSAGE (line N)".
Result<RenderedPrompt> renderChat(const ChatTemplate& chat_template, std::span<const ChatMessage> messages,
    std::string_view variables_json, std::string_view bos_token, std::string_view eos_token);

} // namespace puna
