// Bpe: byte-pair encoding of one piece of text, as the tokenizers core does it.
//
// A piece starts as one symbol per character (per byte for byte-level vocabularies); the adjacent pair of lowest rank,
// leftmost among equals, is merged until none is left. O(n log n); a rescan beats the heap for short pieces. Immutable
// once made; every thread has a cache of short pieces (2 MiB).
// Source: `tokenizer-and-templates.md` 1.9; Sennrich, Haddow, Birch 2016.
#pragma once

#include "engine/base/result.h"
#include "engine/text/vocabulary.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class Bpe {
public:
    struct Options {
        bool byte_level = false; // pieces are raw bytes; the vocabulary spells them with stand-in characters
        bool byte_fallback = false; // a character without a token becomes its bytes as <0xNN>
        bool fuse_unk = false;
        bool ignore_merges = false; // a piece that is a token needs no merging
        TokenId unk = kNoToken; // for characters without a token; kNoToken: they vanish
    };

    struct Merge {
        TokenId left, right, result;
        std::uint32_t rank; // smaller first; several merges may share one
    };

    // Ids of the merges are in the vocabulary. Of two merges with the same pair the later one counts.
    Bpe(Vocabulary vocabulary, std::vector<Merge> merges, Options options);

    void encode(std::string_view piece, std::vector<TokenId>& out) const;

    const Vocabulary& vocabulary() const { return m_vocabulary; }
    const Options& options() const { return m_options; }

    // What the token spells: for byte-level vocabularies its bytes (its own text where that is not in stand-ins).
    std::string_view bytes(TokenId id) const { return m_options.byte_level ? m_bytes.text(id) : m_vocabulary.text(id); }

private:
    struct MergeSlot {
        std::uint64_t key; // left << 32 | right
        std::uint32_t rank;
        TokenId result;
    };
    struct BytesById { // no look-up by text: two tokens may spell the same
        std::string arena;
        std::vector<std::uint64_t> ends;
        std::string_view text(TokenId id) const
        {
            if (id < 0 || static_cast<std::size_t>(id) >= ends.size())
                return {};
            const auto i = static_cast<std::size_t>(id);
            const std::uint64_t from = i ? ends[i - 1] : 0;
            return std::string_view(arena).substr(from, ends[i] - from);
        }
    };

    const MergeSlot* findMerge(TokenId left, TokenId right) const;
    void symbols(std::string_view piece, std::vector<TokenId>& out) const;
    void encodeUncached(std::string_view piece, std::vector<TokenId>& out) const;
    void encodeCached(std::string_view piece, std::vector<TokenId>& out) const;
    void mergeShort(std::vector<TokenId>& ids, std::size_t from) const;
    void mergeLong(std::vector<TokenId>& ids, std::size_t from) const;
    void findCuts(const std::vector<Merge>& merges);
    bool mayCut(std::string_view text, std::size_t at) const;

    Vocabulary m_vocabulary;
    BytesById m_bytes; // byte-level only
    Options m_options;
    std::vector<MergeSlot> m_merges; // open addressing, at most half full
    int m_merge_shift = 0;
    std::array<TokenId, 256> m_byte_tokens {}; // of <0xNN>; byte fallback
    std::array<TokenId, 256> m_first {}; // byte-level: of one byte; else of one ASCII character
    bool m_cuts = false; // long pieces can be cut before a mark (U+2581) that follows anything but m_before_mark
    std::vector<char32_t> m_before_mark; // sorted
    std::uint64_t m_identity; // tells the caches of different tokenizers apart
};

} // namespace puna
