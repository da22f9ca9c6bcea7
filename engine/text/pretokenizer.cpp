#include "engine/text/pretokenizer.h"

#include "engine/text/byte_level.h"
#include "engine/text/normalizer.h"
#include "engine/text/unicode.h"

#include <utility>

namespace puna {
namespace {

using Behavior = Pretokenizer::Behavior;

struct Segment {
    std::size_t begin, end;
    bool match;
};

// The whole text as matches and the gaps between them, in order; empty matches included.
template <class Found> class Segments {
public:
    Segments(std::string_view text, Found found)
        : m_size(text.size())
        , m_found(std::move(found))
    {
    }
    bool next(Segment& segment)
    {
        if (m_pending) {
            m_pending = false;
            m_at = m_match.end;
            segment = {m_match.begin, m_match.end, true};
            return true;
        }
        if (!m_done && m_found(m_match)) {
            if (m_match.begin > m_at) {
                segment = {m_at, m_match.begin, false};
                m_pending = true;
                return true;
            }
            m_at = m_match.end;
            segment = {m_match.begin, m_match.end, true};
            return true;
        }
        m_done = true;
        if (m_at >= m_size)
            return false;
        segment = {m_at, m_size, false};
        m_at = m_size;
        return true;
    }

private:
    std::size_t m_size, m_at = 0;
    Found m_found;
    Regex::Match m_match {};
    bool m_pending = false, m_done = false;
};

// The pieces that a behaviour makes of them; as the core's NormalizedString::split. Empty pieces never appear.
template <class Found, class Emit>
void cut(std::string_view text, Found found, Behavior behavior, bool invert, const Emit& emit)
{
    Segments<Found> segments(text, std::move(found));
    Segment s {};
    const auto give = [&](std::size_t begin, std::size_t end) {
        if (end > begin)
            emit(begin, end);
    };
    switch (behavior) {
    case Behavior::isolated:
        while (segments.next(s))
            give(s.begin, s.end);
        return;
    case Behavior::removed:
        while (segments.next(s))
            if (s.match == invert)
                give(s.begin, s.end);
        return;
    case Behavior::contiguous:
    case Behavior::merged_with_previous: {
        bool any = false, previous_match = false;
        std::size_t begin = 0, end = 0;
        while (segments.next(s)) {
            const bool match = s.match != invert;
            const bool joins = behavior == Behavior::contiguous ? match == previous_match : match && !previous_match;
            if (!(any && joins)) {
                give(begin, end);
                begin = s.begin;
            }
            end = s.end;
            any = true;
            previous_match = match;
        }
        give(begin, end);
        return;
    }
    case Behavior::merged_with_next: { // the mirror image: worked from the right
        std::vector<Segment> all, joined;
        while (segments.next(s))
            all.push_back({s.begin, s.end, s.match != invert});
        bool previous_match = false;
        for (auto it = all.rbegin(); it != all.rend(); ++it) {
            if (it->match && !previous_match && !joined.empty())
                joined.back().begin = it->begin;
            else
                joined.push_back(*it);
            previous_match = it->match;
        }
        for (auto it = joined.rbegin(); it != joined.rend(); ++it)
            give(it->begin, it->end);
        return;
    }
    }
}

auto findText(std::string_view text, std::string_view wanted)
{
    return [text, wanted, at = std::size_t {0}](Regex::Match& m) mutable {
        const std::size_t found = text.find(wanted, at);
        if (found == std::string_view::npos)
            return false;
        at = found + wanted.size();
        m = {found, at};
        return true;
    };
}

template <class Predicate> auto findCharacter(std::string_view text, Predicate predicate)
{
    return [text, predicate, at = std::size_t {0}](Regex::Match& m) mutable {
        while (at < text.size()) {
            const unicode::Decoded d = unicode::decode(text.data() + at);
            const std::size_t begin = at;
            at += d.length;
            if (predicate(d.c)) {
                m = {begin, at};
                return true;
            }
        }
        return false;
    };
}

auto findRegex(std::string_view text, const Regex& regex, bool late)
{
    return [matches = Regex::Matches(regex, text, late)](Regex::Match& m) mutable { return matches.next(m); };
}

} // namespace

Pretokenizer::Pretokenizer(std::vector<Step> steps)
    : m_steps(std::move(steps))
{
    for (const Step& step : m_steps)
        if (step.kind == Step::byte_level)
            m_byte_level = true;
    m_spelled = m_byte_level && m_steps.back().kind != Step::byte_level;
}

void Pretokenizer::split(std::string_view text, bool at_start, bool late, Sink sink) const
{
    if (!m_spelled) {
        run(0, text, at_start, late, sink);
        return;
    }
    std::string bytes;
    auto unspell = [&](std::string_view piece) {
        bytes.clear();
        if (appendStandInBytes(bytes, piece)) // else a step has put other characters in; BPE would not know them
            sink(bytes);
    };
    run(0, text, at_start, late, unspell);
}

void Pretokenizer::run(std::size_t index, std::string_view piece, bool at_start, bool late, Sink sink) const
{
    if (piece.empty())
        return;
    if (index == m_steps.size()) {
        sink(piece);
        return;
    }
    const Step& step = m_steps[index];
    const std::size_t next = index + 1;
    const bool last = next == m_steps.size();
    std::string_view text = piece;
    const auto emit = [&](std::size_t begin, std::size_t end) {
        const std::string_view part = text.substr(begin, end - begin);
        if (last)
            sink(part);
        else
            run(next, part, at_start && begin == 0, late, sink);
    };
    switch (step.kind) {
    case Step::split:
        if (step.regex)
            cut(text, findRegex(text, *step.regex, late), step.behavior, step.invert, emit);
        else
            cut(text, findText(text, step.text), step.behavior, step.invert, emit);
        return;
    case Step::digits:
        cut(text, findCharacter(text, unicode::isNumber), step.behavior, false, emit);
        return;
    case Step::punctuation:
        cut(text, findCharacter(text, unicode::isPunctuation), step.behavior, false, emit);
        return;
    case Step::byte_level: {
        std::string prefixed, spelled;
        if (step.add_prefix_space && text.front() != ' ') {
            prefixed = " ";
            prefixed += text;
            text = prefixed;
        }
        const auto spell = [&](std::size_t begin, std::size_t end) {
            if (last) {
                sink(text.substr(begin, end - begin));
                return;
            }
            spelled.clear();
            appendStandIns(spelled, text.substr(begin, end - begin));
            run(next, spelled, at_start && begin == 0, late, sink);
        };
        if (step.regex)
            cut(text, findRegex(text, *step.regex, late), Behavior::isolated, false, spell);
        else
            spell(0, text.size());
        return;
    }
    case Step::metaspace: {
        std::string marked;
        replaceAll(text, " ", step.text, marked);
        const bool prepend = step.scheme == PrependScheme::always || (step.scheme == PrependScheme::first && at_start);
        if (prepend && !marked.starts_with(step.text))
            marked.insert(0, step.text);
        text = marked;
        if (step.split_at_mark)
            cut(text, findText(text, step.text), Behavior::merged_with_next, false, emit);
        else
            emit(0, text.size());
        return;
    }
    }
}

} // namespace puna
