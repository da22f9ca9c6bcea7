#include "engine/model/gguf.h"
#include "engine/text/tokenizer.h"
#include "engine/tools/json_writer.h"
#include "engine/tools/tool.h"

#include <cstdio>
#include <system_error>

namespace puna::tool {

namespace {

// Without the weights: a folder that holds a tokenizer only will do.
Result<Tokenizer> openTokenizer(const std::filesystem::path& model)
{
    std::error_code failed;
    if (std::filesystem::is_directory(model, failed))
        return Tokenizer::fromFolder(model);
    const auto gguf = TRY(Gguf::open(model));
    return Tokenizer::fromGguf(*gguf);
}

} // namespace

int tokenize(const TokenizeOptions& options)
{
    const auto tokenizer = openTokenizer(options.common.model);
    if (!tokenizer)
        return fail(tokenizer.error().message);
    std::vector<TokenId> tokens;
    std::string text;
    if (options.decode) {
        tokens = *options.decode;
        for (const TokenId token : tokens)
            if (token < 0 || token >= tokenizer->vocabSize())
                return fail("Token " + std::to_string(token) + " is not in the vocabulary of "
                    + std::to_string(tokenizer->vocabSize()) + " tokens.");
        text = tokenizer->decode(tokens, false);
    } else {
        if (options.text) {
            text = *options.text;
        } else {
            auto read = readFile(options.text_file);
            if (!read)
                return fail(read.error().message);
            text = *std::move(read);
        }
        tokens = tokenizer->encode(text, {.add_special = options.add_special, .special_as_text = options.no_special});
    }
    if (options.common.json) {
        JsonObject().add("tokens", tokens).add("text", text).print();
    } else if (options.decode) {
        std::printf("%s\n", text.c_str());
    } else {
        for (std::size_t i = 0; i < tokens.size(); ++i)
            std::printf("%s%d", i ? "," : "", tokens[i]);
        std::printf("\n");
    }
    return kOk;
}

} // namespace puna::tool
