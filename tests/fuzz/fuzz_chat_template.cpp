// A template, and after its first zero byte, if there is one, the JSON of its variables.
#include "engine/text/chat_prompt.h"
#include "engine/text/chat_template.h"

#include <algorithm>
#include <cstdlib>

using namespace puna;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto* text = reinterpret_cast<const char*>(data);
    const auto* zero = std::find(text, text + size, '\0');
    const Result<ChatTemplate> compiled = ChatTemplate::compile(std::string(text, zero));
    if (!compiled)
        return 0;
    static constexpr const char* kContext = R"({"messages": [{"role": "system", "content": "Be brief. é\n"},
        {"role": "user", "content": "<b>Hi</b> 'there'"}, {"role": "assistant", "content": null, "tool_calls":
        [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]}, {"role": "user", "content": ""}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "add_generation_prompt": true, "bos_token": "<s>", "x": [3, 1, 2], "s": "a b,c", "n": 7, "d": {"b": 1, "a": 2}})";
    const Rendering rendering =
        compiled->render(zero == text + size ? std::string(kContext) : std::string(zero + 1, text + size), 0);
    if (rendering.failure && !rendering.text.empty())
        std::abort();
    compiled->switches();
    const ChatMessage messages[] {{"system", "s"}, {"user", "u"}, {"user", "v"}};
    if (zero == text + size && !renderChat(*compiled, messages, "{}", "<s>", "</s>"))
        return 0;
    return 0;
}
