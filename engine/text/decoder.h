// Decoder: from token texts back to text, as tokenizer.json's "decoder" says, one token after another.
//
// The same steps serve whole decoding and streaming. The difference: whole decoding looks at a run of byte tokens to
// its end (one U+FFFD per byte if any of it is bad), streaming lets go of every character as soon as it is complete.
// Source: `tokenizer-and-templates.md` 1.10 and 3.1.
#pragma once

#include "engine/text/regex.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

struct DecoderStep {
    enum Kind : unsigned char {
        byte_level, // stand-ins to bytes, ill-formed UTF-8 to U+FFFD; all in one
        byte_fallback, // <0xNN>
        replace_text,
        replace_regex,
        fuse, // all in one
        strip, // characters off the ends of every token, or of the whole after fuse
        metaspace,
        spaces, // joined by single spaces: where a file has no decoder
    } kind;
    std::string text {}; // looked for; the mark; the character stripped
    std::string content {}; // the replacement
    std::optional<Regex> regex {};
    int start = 0, stop = 0; // strip
    bool drop_first_marks = true; // metaspace
};

class DecoderRun {
public:
    enum class Mode : unsigned char { whole, streaming };

    // raw_bytes: the first step is byte_level and tokens come as bytes already.
    DecoderRun(const std::vector<DecoderStep>& steps, bool raw_bytes, Mode mode);

    // Appends what is ready.
    void push(std::string_view token, std::string& out) { step(0, token, out); }
    void finish(std::string& out) { end(0, out); }

private:
    struct State {
        std::string held; // bytes of a run or of an unfinished character; or text until the end
        bool any = false; // something went through
        int stripped = 0; // characters taken off the start
        bool start_done = false;
        bool after_fuse = false; // what comes in is one text in parts
        bool holds_all = false; // fuse whose text later steps must see as one
    };

    void step(std::size_t index, std::string_view token, std::string& out);
    void end(std::size_t index, std::string& out);
    void bytesToText(std::size_t index, std::string_view bytes, std::string& out);
    void flushRun(std::size_t index, bool last, std::string& out);
    void strip(std::size_t index, std::string_view token, std::string& out);

    const std::vector<DecoderStep>* m_steps;
    std::vector<State> m_states;
    bool m_raw_bytes;
    Mode m_mode;
};

} // namespace puna
