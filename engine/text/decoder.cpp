#include "engine/text/decoder.h"

#include "engine/text/byte_level.h"
#include "engine/text/normalizer.h"
#include "engine/text/unicode.h"

#include <algorithm>

namespace puna {
namespace {

int hexDigit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int byteOf(std::string_view token) // <0xNN>; -1: another token
{
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
        return -1;
    const int high = hexDigit(token[3]), low = hexDigit(token[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

} // namespace

DecoderRun::DecoderRun(const std::vector<DecoderStep>& steps, bool raw_bytes, Mode mode)
    : m_steps(&steps)
    , m_states(steps.size())
    , m_raw_bytes(raw_bytes)
    , m_mode(mode)
{
    bool fused = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        m_states[i].after_fuse = fused;
        const auto kind = steps[i].kind;
        if (kind != DecoderStep::fuse && kind != DecoderStep::byte_level)
            continue;
        fused = true;
        // Only a strip at the start can work on a text that comes in parts.
        m_states[i].holds_all = std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(i) + 1, steps.end(),
            [](const DecoderStep& s) { return s.kind != DecoderStep::strip && s.kind != DecoderStep::fuse; });
    }
}

void DecoderRun::step(std::size_t index, std::string_view token, std::string& out)
{
    if (index == m_steps->size()) {
        out += token;
        return;
    }
    const DecoderStep& s = (*m_steps)[index];
    State& state = m_states[index];
    switch (s.kind) {
    case DecoderStep::byte_level: {
        std::string bytes;
        if (!(m_raw_bytes && index == 0)) {
            if (!appendStandInBytes(bytes, token))
                bytes = token;
            token = bytes;
        }
        if (state.holds_all)
            state.held += token;
        else
            bytesToText(index, token, out);
        return;
    }
    case DecoderStep::byte_fallback:
        if (const int byte = byteOf(token); byte >= 0) {
            state.held += static_cast<char>(byte);
            if (m_mode == Mode::streaming)
                flushRun(index, false, out);
            return;
        }
        flushRun(index, true, out);
        step(index + 1, token, out);
        return;
    case DecoderStep::replace_text:
        if (token.find(s.text) != std::string_view::npos) {
            std::string replaced;
            replaceAll(token, s.text, s.content, replaced);
            step(index + 1, replaced, out);
        } else
            step(index + 1, token, out);
        return;
    case DecoderStep::replace_regex: {
        std::string replaced;
        replaceAll(token, *s.regex, s.content, unicode::survey(token).late, replaced);
        step(index + 1, replaced, out);
        return;
    }
    case DecoderStep::fuse:
        if (state.holds_all)
            state.held += token;
        else if (!token.empty())
            step(index + 1, token, out);
        return;
    case DecoderStep::strip:
        strip(index, token, out);
        return;
    case DecoderStep::metaspace: {
        std::string replaced;
        replaceAll(token, s.text, s.drop_first_marks && !state.any ? "" : " ", replaced);
        state.any = true;
        step(index + 1, replaced, out);
        return;
    }
    case DecoderStep::spaces:
        if (std::exchange(state.any, true))
            step(index + 1, " ", out);
        step(index + 1, token, out);
        return;
    }
}

void DecoderRun::bytesToText(std::size_t index, std::string_view bytes, std::string& out)
{
    State& state = m_states[index];
    std::string joined;
    if (!state.held.empty()) {
        joined = std::exchange(state.held, {});
        joined += bytes;
        bytes = joined;
    }
    // Everything but an unfinished character at the end, which is at most three bytes.
    std::size_t end = bytes.size();
    for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
        const auto b = static_cast<unsigned char>(bytes[bytes.size() - back]);
        if ((b & 0xC0) == 0x80)
            continue;
        const unicode::Step last = unicode::step(bytes.data() + bytes.size() - back, back);
        if (last.kind == unicode::Step::incomplete && last.length == back)
            end = bytes.size() - back;
        break;
    }
    if (end > 0) {
        if (index + 1 == m_steps->size())
            unicode::appendRepaired(out, bytes.substr(0, end));
        else
            step(index + 1, unicode::repair(bytes.substr(0, end)), out);
    }
    state.held.assign(bytes, end);
}

// The bytes of a run of byte tokens. last: the run is over.
void DecoderRun::flushRun(std::size_t index, bool last, std::string& out)
{
    std::string run = std::exchange(m_states[index].held, {});
    if (run.empty())
        return;
    if (m_mode == Mode::whole) {
        if (unicode::survey(run).valid)
            step(index + 1, run, out);
        else
            for (std::size_t i = 0; i < run.size(); ++i)
                step(index + 1, unicode::kReplacement, out);
        return;
    }
    for (std::size_t at = 0; at < run.size();) {
        const unicode::Step s = unicode::step(run.data() + at, run.size() - at);
        if (s.kind == unicode::Step::incomplete && !last) {
            m_states[index].held = run.substr(at);
            return;
        }
        if (s.kind == unicode::Step::character)
            step(index + 1, std::string_view(run).substr(at, s.length), out);
        else
            for (int i = 0; i < s.length; ++i)
                step(index + 1, unicode::kReplacement, out);
        at += s.length;
    }
}

void DecoderRun::strip(std::size_t index, std::string_view token, std::string& out)
{
    const DecoderStep& s = (*m_steps)[index];
    State& state = m_states[index];
    if (!state.after_fuse) { // each token by itself
        for (int i = 0; i < s.start && token.starts_with(s.text); ++i)
            token.remove_prefix(s.text.size());
        for (int i = 0; i < s.stop && token.ends_with(s.text); ++i)
            token.remove_suffix(s.text.size());
        step(index + 1, token, out);
        return;
    }
    if (!state.start_done) {
        while (state.stripped < s.start && token.starts_with(s.text)) {
            token.remove_prefix(s.text.size());
            ++state.stripped;
        }
        if (token.empty() && state.stripped < s.start)
            return;
        state.start_done = true;
    }
    if (s.stop == 0) {
        if (!token.empty())
            step(index + 1, token, out);
        return;
    }
    state.held += token; // at most `stop` characters at its end may have to go
    std::size_t end = state.held.size();
    for (int i = 0; i < s.stop && std::string_view(state.held).substr(0, end).ends_with(s.text); ++i)
        end -= s.text.size();
    const std::string ready = state.held.substr(0, end);
    state.held.erase(0, end);
    if (!ready.empty())
        step(index + 1, ready, out);
}

void DecoderRun::end(std::size_t index, std::string& out)
{
    if (index == m_steps->size())
        return;
    State& state = m_states[index];
    switch ((*m_steps)[index].kind) {
    case DecoderStep::byte_level:
        if (!state.held.empty()) // one U+FFFD for an unfinished character
            step(index + 1, unicode::repair(std::exchange(state.held, {})), out);
        break;
    case DecoderStep::byte_fallback:
        flushRun(index, true, out);
        break;
    case DecoderStep::fuse:
        if (state.holds_all)
            step(index + 1, std::exchange(state.held, {}), out);
        break;
    default: // strip: what it holds is what it strips
        break;
    }
    end(index + 1, out);
}

} // namespace puna
