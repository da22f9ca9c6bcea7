// What a Tokenizer is made of. tokenizer_json.cpp and tokenizer_gguf.cpp fill TokenizerParts; tokenizer.cpp checks
// and assembles them, and is the only one to run them.
#pragma once

#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

struct TokenizerParts {
    Vocabulary vocabulary; // the model's own; most added tokens are in it as well
    std::vector<Bpe::Merge> merges;
    Bpe::Options options; // byte_level is set by assemble
    std::vector<AddedToken> added; // ids set
    Normalizer normalizer;
    Pretokenizer pretokenizer;
    std::vector<DecoderStep> decoder;
    std::vector<TokenId> prefix, suffix; // what the post-processor puts around a text
    std::optional<TokenId> bos, eos;
};

struct Tokenizer::Impl {
    explicit Impl(TokenizerParts parts);
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    struct Mode {
        bool special_as_text = false;
        bool guarded = false;
    };
    void encode(std::string_view text, Mode mode, std::vector<TokenId>& out) const;
    void encodeStretch(std::string_view text, bool at_start, bool late, Mode mode, std::vector<TokenId>& out) const;

    const AddedToken* added(TokenId id) const
    {
        const auto i = static_cast<std::size_t>(id);
        return id >= 0 && i < m_added_by_id.size() && m_added_by_id[i] >= 0
            ? &m_added[static_cast<std::size_t>(m_added_by_id[i])]
            : nullptr;
    }
    bool known(TokenId id) const { return added(id) || m_bpe.vocabulary().contains(id); }
    std::string_view text(TokenId id) const;
    // What the decoder works on: bytes where it begins with ByteLevel.
    std::string_view decoderInput(TokenId id) const;
    DecoderRun decoderRun(DecoderRun::Mode mode) const { return {m_decoder, m_raw_bytes, mode}; }

    Bpe m_bpe;
    std::vector<AddedToken> m_added; // never changes: the matchers point into it
    std::vector<std::int32_t> m_added_by_id;
    std::vector<std::string> m_added_bytes; // of m_added, for decoderInput
    Normalizer m_normalizer;
    Pretokenizer m_pretokenizer;
    AddedTokenMatcher m_raw_matcher, m_normalized_matcher;
    PatternTrie m_control_raw; // contents of control tokens
    PatternTrie m_control_normalized; // normalised contents of those that are looked for after normalisation
    std::vector<DecoderStep> m_decoder;
    bool m_raw_bytes; // decoder begins with ByteLevel and the vocabulary is byte-level
    std::vector<TokenId> m_prefix, m_suffix;
    std::optional<TokenId> m_bos, m_eos;
    TokenId m_id_end;
};

// Takes two sides of a merge as texts and adds it; false if a part or the result is not in the vocabulary.
bool addMerge(TokenizerParts& parts, std::string_view left, std::string_view right, std::uint32_t rank);

} // namespace puna
