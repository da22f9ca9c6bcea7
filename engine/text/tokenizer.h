// Tokenizer: text to token ids and back, as Hugging Face's `tokenizers` does it for the same files.
//
// Driven by tokenizer.json and tokenizer_config.json of a folder, or by a GGUF's metadata; never by a model's name.
// A component that is not known makes loading fail with its name. Immutable and thread-safe once loaded (the piece
// cache is per thread).
#pragma once

#include "engine/base/result.h"
#include "engine/base/types.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class Gguf;

class Tokenizer {
public:
    static Result<Tokenizer> fromFolder(const std::filesystem::path& folder);
    static Result<Tokenizer> fromGguf(const Gguf& gguf);
    // The two files' contents; config may be empty.
    static Result<Tokenizer> fromJson(std::string_view tokenizer_json, std::string_view tokenizer_config_json);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    struct EncodeOptions {
        bool add_special = false;   // what the post-processor puts around the text (BOS, EOS)
        bool special_as_text = false; // control tokens written in the text stay text
    };

    // Invalid UTF-8 is replaced (U+FFFD) first.
    std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const;

    // A rendered chat prompt: control tokens are recognised, except where a guard (see guard()) breaks them up.
    std::vector<TokenId> encodePrompt(std::string_view rendered) const;

    // Breaks up every control token written in a person's text with a noncharacter (U+FDD0) that encodePrompt()
    // removes again after matching, so that the text keeps its meaning but never turns into control tokens.
    std::string guard(std::string_view text) const;

    std::string decode(std::span<const TokenId> ids, bool skip_special) const;

    int vocabSize() const; // highest id + 1, added tokens included
    std::optional<TokenId> find(std::string_view content) const; // added tokens first, then the vocabulary
    bool isSpecial(TokenId id) const;
    std::optional<TokenId> bosToken() const;
    std::optional<TokenId> eosToken() const;
    std::string_view tokenText(TokenId id) const; // content as in the file; empty for unknown ids
    bool addsBos() const; // encode with add_special puts a BOS first
    std::string describe() const; // "BPE, 49152 tokens"

    struct Impl;
    const Impl& impl() const { return *m_impl; }

private:
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> m_impl;
};

} // namespace puna
