// Whatever the bytes are as a tokenizer.json: a refusal in one sentence, or a tokenizer whose ids exist, that decodes
// to well-formed text.
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"

#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const auto made = puna::Tokenizer::fromJson(json, {});
    if (!made) {
        if (made.error().message.empty() || made.error().message.size() > 2000)
            std::abort();
        return 0;
    }
    // The file itself is as good a text as any, and holds the contents of its own tokens.
    const std::string_view text = json.substr(0, 4096);
    const auto check = [&](const std::vector<puna::TokenId>& ids) {
        for (const puna::TokenId id : ids)
            if (id < 0 || id >= made->vocabSize())
                std::abort();
        if (!puna::unicode::survey(made->decode(ids, false)).valid)
            std::abort();
    };
    check(made->encode(text, {.add_special = true}));
    check(made->encode(text, {.special_as_text = true}));
    check(made->encodePrompt(made->guard(text)));
    return 0;
}
