// Pretokenizer: cuts a stretch of text into the pieces that BPE works on.
//
// Steps run depth first, each handing its pieces to the next, so that nothing is stored for the common pipelines.
// With a ByteLevel step pieces are handed out as raw bytes; stand-in characters are built only where another step
// follows ByteLevel and may look at them.
// Source: `tokenizer-and-templates.md` 1.5.
#pragma once

#include "engine/text/regex.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

// The pattern that ByteLevel's use_regex implies.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Pretokenizer {
public:
    enum class Behavior : unsigned char { removed, isolated, merged_with_previous, merged_with_next, contiguous };
    enum class PrependScheme : unsigned char { always, first, never };

    struct Step {
        enum Kind : unsigned char { split, digits, punctuation, byte_level, metaspace } kind;
        Behavior behavior = Behavior::isolated;
        std::optional<Regex> regex {}; // split; byte_level with use_regex
        std::string text {}; // split at a literal text; metaspace: the mark
        bool invert = false;
        bool add_prefix_space = false; // byte_level
        PrependScheme scheme = PrependScheme::always;
        bool split_at_mark = true; // metaspace
    };

    // A reference to something that is called with every piece.
    class Sink {
    public:
        template <class F>
        Sink(F& f)
            : m_object(&f)
            , m_call([](void* object, std::string_view piece) { (*static_cast<F*>(object))(piece); })
        {
        }
        void operator()(std::string_view piece) const { m_call(m_object, piece); }

    private:
        void* m_object;
        void (*m_call)(void*, std::string_view);
    };

    Pretokenizer() = default;
    explicit Pretokenizer(std::vector<Step> steps); // at most one byte_level

    // at_start: the stretch begins where the whole text does.
    void split(std::string_view text, bool at_start, bool late, Sink sink) const;

    bool byteLevel() const { return m_byte_level; }

private:
    void run(std::size_t step, std::string_view piece, bool at_start, bool late, Sink sink) const;

    std::vector<Step> m_steps;
    bool m_byte_level = false;
    bool m_spelled = false; // steps follow byte_level: pieces reach the end as stand-ins
};

} // namespace puna
