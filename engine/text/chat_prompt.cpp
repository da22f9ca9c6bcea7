#include "engine/text/chat_prompt.h"

#include "engine/text/chat_template.h"
#include "engine/text/template_json.h"
#include "engine/text/template_unicode.h"

#include <vector>

namespace puna {

namespace {

std::string jsonQuoted(std::string_view text)
{
    return jinja::toJson(jinja::Value::string(std::string(text)));
}

std::string asJson(std::span<const ChatMessage> messages)
{
    std::string json = "[";
    for (const ChatMessage& message : messages)
        json += (json.size() > 1 ? ", " : "") + std::string("{\"role\": ") + jsonQuoted(message.role)
            + ", \"content\": " + jsonQuoted(message.content) + "}";
    return json + "]";
}

// The inside of an object of variables, to be followed by more of them; or why it is none.
Result<std::string> members(std::string_view object)
{
    if (jinja::strip(object).empty())
        return std::string();
    const jinja::Value variables = jinja::parseJson(object);
    if (!variables.is(jinja::Kind::dict))
        return Error {ErrorCode::argument, "The template's variables are not a JSON object."};
    if (variables.asDict().entries.empty())
        return std::string();
    const std::string json = jinja::toJson(variables);
    return json.substr(1, json.size() - 2) + ", ";
}

bool repeatsRoles(const std::vector<ChatMessage>& messages)
{
    for (std::size_t i = 1; i < messages.size(); i++)
        if (messages[i].role == messages[i - 1].role)
            return true;
    return false;
}

std::vector<ChatMessage> joinRepeated(const std::vector<ChatMessage>& messages)
{
    std::vector<ChatMessage> joined;
    for (const ChatMessage& message : messages) {
        if (!joined.empty() && joined.back().role == message.role)
            joined.back().content += "\n\n" + message.content;
        else
            joined.push_back(message);
    }
    return joined;
}

// System messages become the beginning of the user message that follows.
std::vector<ChatMessage> foldSystem(const std::vector<ChatMessage>& messages)
{
    std::vector<ChatMessage> folded;
    std::string pending;
    for (const ChatMessage& message : messages) {
        if (message.role == "system") {
            pending += message.content + "\n\n";
        } else {
            folded.push_back(message);
            if (message.role == "user")
                folded.back().content.insert(0, std::exchange(pending, {}));
        }
    }
    if (!pending.empty())
        folded.push_back({"user", pending.substr(0, pending.size() - 2)});
    return folded;
}

} // namespace

Result<RenderedPrompt> renderChat(const ChatTemplate& chat_template, std::span<const ChatMessage> messages,
    std::string_view variables_json, std::string_view bos_token, std::string_view eos_token)
{
    const auto invalid = [](std::string_view text) { return !jinja::isValidUtf8(text); };
    for (const ChatMessage& message : messages)
        if (invalid(message.role) || invalid(message.content))
            return Error {ErrorCode::argument, "A message is not UTF-8 text."};
    if (invalid(bos_token) || invalid(eos_token))
        return Error {ErrorCode::format, "The model's BOS or EOS token is not UTF-8 text."};

    std::string variables = "{\"tools\": null, \"documents\": null, \"add_generation_prompt\": true, ";
    try {
        if (!bos_token.empty())
            variables += "\"bos_token\": " + jsonQuoted(bos_token) + ", ";
        if (!eos_token.empty())
            variables += "\"eos_token\": " + jsonQuoted(eos_token) + ", ";
        variables += TRY(members(variables_json));
    } catch (const jinja::Failure& failure) {
        return Error {ErrorCode::argument, "The template's variables are " + failure.message + "."};
    }
    const auto render = [&](const std::vector<ChatMessage>& list) {
        try {
            return chat_template.render(variables + "\"messages\": " + asJson(list) + "}");
        } catch (const jinja::Failure& failure) { // a message too long to be quoted
            return Rendering {{}, TemplateFailure {failure.message, 0, false}};
        }
    };

    const std::vector<ChatMessage> original(messages.begin(), messages.end());
    Rendering rendering = render(original);
    const std::optional<TemplateFailure> first = rendering.failure;
    std::string note;
    if (first && first->raised) {
        bool has_system = false;
        for (const ChatMessage& message : original)
            has_system |= message.role == "system";
        if (repeatsRoles(original)) {
            rendering = render(joinRepeated(original));
            note = "This model's template wants roles to alternate: consecutive messages of one role were joined.";
        }
        if (rendering.failure && has_system) {
            const std::vector<ChatMessage> folded = foldSystem(original);
            rendering = render(joinRepeated(folded));
            note = "This model's template accepts no such system message: it was put at the beginning of the user's "
                   "message.";
            if (repeatsRoles(folded))
                note += " Consecutive messages of one role were joined.";
        }
    }
    if (rendering.failure)
        return Error {ErrorCode::argument,
            "This model's template refused: " + first->message
                + (first->line > 0 ? " (line " + std::to_string(first->line) + ")" : "")};
    RenderedPrompt prompt;
    prompt.starts_thinking = jinja::stripRight(rendering.text).ends_with("<think>");
    prompt.text = std::move(rendering.text);
    prompt.note = std::move(note);
    return prompt;
}

} // namespace puna
