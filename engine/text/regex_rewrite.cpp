// From Oniguruma's Ruby syntax to PCRE2's: one pass over the pattern, which knows classes, groups and what the last
// atom was. Refuses what it does not know.
#include "engine/text/regex.h"
#include "engine/text/unicode.h"

#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

namespace puna {
namespace {

constexpr int kDepthMax = 100;
constexpr int kPropertiesMax = 500; // \s, \p{L} and their like in one pattern
constexpr std::size_t kPatternMax = 64 * 1024;
constexpr std::size_t kRewrittenMax = 1024 * 1024; // a class escape can grow to thousands of ranges

std::string codePoint(std::uint32_t c)
{
    char text[16];
    std::snprintf(text, sizeof text, "\\x{%x}", c);
    return text;
}

std::string rangeList(std::span<const std::uint32_t> ranges)
{
    std::string out;
    for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
        out += codePoint(ranges[i]);
        if (ranges[i + 1] != ranges[i]) {
            out += '-';
            out += codePoint(ranges[i + 1]);
        }
    }
    return out;
}

icu::UnicodeSet setOf(std::span<const std::uint32_t> ranges)
{
    icu::UnicodeSet set;
    for (std::size_t i = 0; i + 1 < ranges.size(); i += 2)
        set.add(static_cast<UChar32>(ranges[i]), static_cast<UChar32>(ranges[i + 1]));
    return set;
}

std::string rangeList(const icu::UnicodeSet& set)
{
    std::vector<std::uint32_t> flat;
    for (int32_t i = 0; i < set.getRangeCount(); ++i) {
        std::uint32_t first = static_cast<std::uint32_t>(set.getRangeStart(i));
        std::uint32_t last = static_cast<std::uint32_t>(set.getRangeEnd(i));
        if (first <= 0xDFFF && last >= 0xD800) { // surrogates are no characters, and PCRE2 refuses them
            if (first < 0xD800)
                flat.insert(flat.end(), {first, 0xD7FF});
            if (last <= 0xDFFF)
                continue;
            first = 0xE000;
        }
        flat.insert(flat.end(), {first, last});
    }
    return rangeList(flat);
}

// Classes of unicode_tables.inc by their property name.
std::optional<std::vector<std::uint32_t>> tableRanges(std::string_view name)
{
    using enum unicode::Category;
    std::uint32_t wanted = 0;
    const auto bit = [](unicode::Category k) { return 1u << static_cast<int>(k); };
    if (name == "L")
        wanted = bit(lu) | bit(ll) | bit(lt) | bit(lm) | bit(lo);
    else if (name == "N")
        wanted = bit(nd) | bit(n);
    else if (name == "Han")
        return std::vector<std::uint32_t>(unicode::hanRanges().begin(), unicode::hanRanges().end());
    else {
        constexpr std::pair<std::string_view, unicode::Category> kNames[] = {
            {"Lu", lu}, {"Ll", ll}, {"Lt", lt}, {"Lm", lm}, {"Lo", lo}, {"M", m}, {"Nd", nd}, {"P", p}, {"S", s}};
        for (const auto& [known, category] : kNames)
            if (name == known)
                wanted = bit(category);
    }
    if (!wanted)
        return std::nullopt;
    std::vector<std::uint32_t> flat;
    const auto runs = unicode::categoryRuns();
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (!(wanted >> (runs[i] & 0xF) & 1))
            continue;
        const std::uint32_t first = runs[i] >> 4, last = i + 1 < runs.size() ? (runs[i + 1] >> 4) - 1 : 0x10FFFF;
        if (!flat.empty() && flat.back() + 1 == first)
            flat.back() = last;
        else
            flat.insert(flat.end(), {first, last});
    }
    return flat;
}

class Rewriter {
public:
    Rewriter(std::string_view pattern, bool late, std::string_view where)
        : m_in(pattern)
        , m_late(late)
        , m_where(where)
    {
    }

    Result<std::string> run()
    {
        if (m_in.size() > kPatternMax)
            return refuse("is longer than 64 KiB");
        while (m_at < m_in.size()) {
            TRY(element());
            if (m_out.size() > kRewrittenMax)
                return refuse("is too large when its classes are written out");
        }
        if (!m_groups.empty())
            return refuse("has an open group");
        return std::move(m_out);
    }

private:
    Error refuse(const std::string& what) const
    {
        std::string shown(m_in.substr(0, 200));
        return {ErrorCode::unsupported,
            std::string(m_where) + ": the pattern '" + unicode::repair(shown) + "' " + what
                + "; the tokenizer cannot be used with it."};
    }

    bool more() const { return m_at < m_in.size(); }
    char peek(std::size_t ahead = 0) const { return m_at + ahead < m_in.size() ? m_in[m_at + ahead] : '\0'; }
    bool take(std::string_view text)
    {
        if (!m_in.substr(m_at).starts_with(text))
            return false;
        m_at += text.size();
        return true;
    }
    void atom(std::string_view text)
    {
        m_atom = m_out.size();
        m_out += text;
        m_quantified = false;
    }

    Result<void> element()
    {
        const char c = peek();
        switch (c) {
        case '\\':
            return escape();
        case '[': {
            ++m_at;
            const Class found = TRY(characterClass(0));
            atom(found.text);
            return {};
        }
        case '(':
            return open();
        case ')':
            if (m_groups.empty())
                return refuse("closes a group that is not open");
            ++m_at;
            m_atom = m_groups.back();
            m_groups.pop_back();
            m_out += ')';
            m_quantified = false;
            return {};
        case '|':
            ++m_at;
            m_out += '|';
            m_atom.reset();
            return {};
        case '*':
        case '+':
        case '?':
        case '{':
            return quantifier();
        default: {
            const std::size_t length =
                static_cast<unsigned char>(c) < 0x80 ? 1 : unicode::decode(m_in.data() + m_at).length;
            const std::string_view text = m_in.substr(m_at, length);
            m_at += length;
            atom(c == '}' || c == ']' ? std::string("\\") + c : std::string(text));
            return {};
        }
        }
    }

    Result<void> open()
    {
        if (m_groups.size() >= kDepthMax)
            return refuse("nests groups too deep");
        const std::size_t start = m_out.size();
        ++m_at;
        if (!take("?")) {
            m_out += "(";
        } else if (take("#")) {
            while (more() && peek() != ')')
                m_at += peek() == '\\' ? 2 : 1;
            if (!take(")"))
                return refuse("has an open comment");
            return {};
        } else {
            bool known = false;
            for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"})
                if (take(kind)) {
                    m_out += "(?";
                    m_out += kind;
                    known = true;
                    break;
                }
            if (!known) { // options; Ruby's m is PCRE2's s
                std::string options;
                while (peek() == 'i' || peek() == 'm' || peek() == '-') {
                    options += peek() == 'm' ? 's' : peek();
                    ++m_at;
                }
                if (options.empty() || options == "-")
                    return refuse(std::string("has a group '(?") + peek() + "' that is not known");
                if (take(":"))
                    m_out += "(?" + options + ":";
                else if (peek() == ')' && start == 0) {
                    ++m_at;
                    m_out += "(?" + options + ")";
                    return {};
                } else
                    return refuse("sets options in its middle");
            }
        }
        m_groups.push_back(start);
        m_atom.reset();
        return {};
    }

    Result<void> quantifier()
    {
        std::string text(1, peek());
        bool counted = false, exact = false;
        std::size_t next = m_at + 1;
        if (peek() == '{') {
            std::size_t at = next;
            std::string low, high;
            bool comma = false;
            for (; at < m_in.size() && m_in[at] >= '0' && m_in[at] <= '9'; ++at)
                low += m_in[at];
            if (at < m_in.size() && m_in[at] == ',') {
                comma = true;
                for (++at; at < m_in.size() && m_in[at] >= '0' && m_in[at] <= '9'; ++at)
                    high += m_in[at];
            }
            if (at >= m_in.size() || m_in[at] != '}' || (low.empty() && high.empty())) { // a brace, literally
                ++m_at;
                atom("\\{");
                return {};
            }
            if (low.size() > 5 || high.size() > 5)
                return refuse("repeats too often");
            counted = true;
            exact = !comma;
            text = "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
            next = at + 1;
        }
        if (!m_atom)
            return refuse("repeats nothing");
        m_at = next;
        if (m_quantified)
            wrap();
        m_out += text;
        m_quantified = true;
        if (peek() == '?' && exact) { // {n}? is an optional {n}
            ++m_at;
            wrap();
            m_out += '?';
        } else if (peek() == '?') {
            ++m_at;
            m_out += '?';
        } else if (peek() == '+' && !counted) {
            ++m_at;
            m_out += '+';
        } // {n,m}+ is a repeat of a repeat: the next call wraps it
        return {};
    }

    void wrap()
    {
        m_out.insert(*m_atom, "(?:");
        m_out += ')';
    }

    // A number in hexadecimal digits, at most `digits_max`.
    std::optional<std::uint32_t> hexadecimal(std::size_t digits_min, std::size_t digits_max)
    {
        std::uint32_t value = 0;
        std::size_t n = 0;
        for (; n < digits_max && more(); ++n, ++m_at) {
            const char c = peek();
            const int digit = c >= '0' && c <= '9' ? c - '0'
                : c >= 'a' && c <= 'f'             ? c - 'a' + 10
                : c >= 'A' && c <= 'F'             ? c - 'A' + 10
                                                   : -1;
            if (digit < 0)
                break;
            value = value << 4 | static_cast<std::uint32_t>(digit);
        }
        if (n < digits_min || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
            return std::nullopt;
        return value;
    }

    // After the backslash, the escape of one character: \n, \x.., \u...., punctuation. nullopt: it is none.
    Result<std::optional<std::uint32_t>> escapedCharacter()
    {
        const char c = peek();
        constexpr std::pair<char, std::uint32_t> kControls[] = {
            {'n', 10}, {'r', 13}, {'t', 9}, {'f', 12}, {'v', 11}, {'a', 7}, {'e', 27}};
        for (const auto& [letter, value] : kControls)
            if (c == letter) {
                ++m_at;
                return std::optional(value);
            }
        if (c == 'x' || c == 'u') {
            ++m_at;
            std::optional<std::uint32_t> value;
            if (c == 'x' && take("{")) {
                value = hexadecimal(1, 8);
                if (value && !take("}"))
                    value.reset();
            } else
                value = c == 'x' ? hexadecimal(1, 2) : hexadecimal(4, 4);
            if (!value || (c == 'x' && *value > 0x7F && m_in[m_at - 1] != '}')) // a lone byte above 7F is no character
                return refuse("has a bad hexadecimal escape");
            return value;
        }
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x80) {
            const unicode::Decoded d = unicode::decode(m_in.data() + m_at);
            m_at += d.length;
            return std::optional(static_cast<std::uint32_t>(d.c));
        }
        const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (more() && !alphanumeric) {
            ++m_at;
            return std::optional(static_cast<std::uint32_t>(byte));
        }
        return std::optional<std::uint32_t>();
    }

    // What a class escape (\s, \p{L} ...) means: text inside a class of PCRE2, and the set. Negation apart.
    struct Property {
        std::string text; // for inside a positive class
        bool bare = false; // the text can stand outside a class as it is
        std::string negated; // for inside a class, if there is a short form; else empty
        icu::UnicodeSet set; // filled only if asked for
    };
    Result<std::optional<Property>> property(bool& negate, bool want_set)
    {
        const char c = peek();
        const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        Property found;
        const auto ranges = [&](std::span<const std::uint32_t> list) {
            found.text = rangeList(list);
            if (want_set)
                found.set = setOf(list);
        };
        constexpr std::uint32_t kHexDigits[] = {'0', '9', 'A', 'F', 'a', 'f'};
        std::string name;
        switch (lower) {
        case 's':
            ranges(unicode::spaceRanges());
            break;
        case 'w':
            ranges(unicode::wordRanges());
            break;
        case 'h':
            ranges(kHexDigits);
            break;
        case 'd':
            name = "Nd";
            break;
        case 'p': {
            if (peek(1) != '{')
                return refuse("has a property without braces");
            const std::size_t end = m_in.find('}', m_at);
            if (end == std::string_view::npos || end - m_at > 60)
                return refuse("has an open property");
            name = m_in.substr(m_at + 2, end - m_at - 2);
            if (name.starts_with('^')) {
                negate = !negate;
                name.erase(0, 1);
            }
            for (const char n : name)
                if (!((n >= 'a' && n <= 'z') || (n >= 'A' && n <= 'Z') || n == '_'))
                    return refuse("has a property that is not known: " + name);
            m_at = end;
            break;
        }
        default:
            return std::optional<Property>();
        }
        ++m_at;
        if (++m_properties > kPropertiesMax)
            return refuse("has more than " + std::to_string(kPropertiesMax) + " class escapes");
        if (c != lower)
            negate = !negate;
        if (!name.empty()) {
            const auto table = tableRanges(name);
            constexpr std::string_view kCategories[] = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",
                "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs",
                "Zl", "Zp", "C", "Cc", "Cf", "Cn", "Co"};
            const bool is_category =
                std::find(std::begin(kCategories), std::end(kCategories), name) != std::end(kCategories);
            // PCRE2 takes a bare script for Script_Extensions; Oniguruma means Script.
            const std::string escaped = "{" + std::string(is_category ? "" : "sc:") + name + "}";
            found.text = "\\p" + escaped;
            found.bare = true;
            found.negated = "\\P" + escaped;
            if (table && (want_set || m_late))
                found.set = setOf(*table);
            if (table && m_late) {
                icu::UnicodeSet more = setOf(unicode::lateRanges());
                more.retainAll(found.set);
                if (!more.isEmpty()) {
                    found.text += rangeList(more);
                    found.bare = false;
                    found.negated.clear();
                }
            }
            if (!is_category || (want_set && !table)) {
                UErrorCode status = U_ZERO_ERROR;
                const std::string set_pattern = "[\\p{" + std::string(is_category ? "gc=" : "sc=") + name + "}]";
                const icu::UnicodeSet set(icu::UnicodeString::fromUTF8(set_pattern), status);
                if (U_FAILURE(status))
                    return refuse("has a property that is not known: " + name);
                if (want_set && !table)
                    found.set = set;
            }
        }
        return std::optional(std::move(found));
    }

    Result<void> escape()
    {
        ++m_at;
        if (!more())
            return refuse("ends with a backslash");
        bool negate = false;
        if (auto found = TRY(property(negate, false))) {
            if (!negate && found->bare)
                atom(found->text);
            else if (negate && !found->negated.empty())
                atom(found->negated);
            else
                atom((negate ? "[^" : "[") + found->text + "]");
            return {};
        }
        const char c = peek();
        if (c == 'b' || c == 'B') {
            ++m_at;
            const std::string w = "[" + rangeList(unicode::wordRanges()) + "]";
            const std::string in = "(?<=" + w + ")", not_in = "(?<!" + w + ")", to = "(?=" + w + ")",
                              not_to = "(?!" + w + ")";
            atom(c == 'b' ? "(?:" + in + not_to + "|" + not_in + to + ")"
                          : "(?:" + in + to + "|" + not_in + not_to + ")");
            return {};
        }
        if (c == 'A' || c == 'z' || c == 'Z' || c == 'G' || c == 'R') {
            ++m_at;
            atom(std::string("\\") + c);
            return {};
        }
        if (const auto value = TRY(escapedCharacter())) {
            atom(codePoint(*value));
            return {};
        }
        return refuse(std::string("has an escape '\\") + c + "' that is not known");
    }

    struct Class {
        std::string text; // brackets included
        icu::UnicodeSet set;
    };

    // After the opening bracket, to the closing one. Where the class is a plain one its items are translated one by
    // one; with brackets inside (a union) or && (an intersection) the set is computed and written out.
    Result<Class> characterClass(int depth)
    {
        if (depth > kDepthMax)
            return refuse("nests classes too deep");
        const bool plain = depth == 0 && isPlainClass();
        const bool negated = take("^");
        std::string items;
        icu::UnicodeSet set, intersection;
        bool intersects = false;
        bool first = true;
        for (;; first = false) {
            if (!more())
                return refuse("has an open class");
            if (items.size() > kRewrittenMax)
                return refuse("is too large when its classes are written out");
            if (peek() == ']' && !first) {
                ++m_at;
                break;
            }
            if (take("[:"))
                return refuse("has a POSIX class");
            if (peek() == '[') {
                ++m_at;
                const Class inner = TRY(characterClass(depth + 1));
                set.addAll(inner.set);
                continue;
            }
            if (take("&&")) {
                if (intersects)
                    intersection.retainAll(set);
                else
                    intersection = set;
                intersects = true;
                set.clear();
                continue;
            }
            std::uint32_t low = 0;
            if (peek() == '\\') {
                ++m_at;
                bool negate = false;
                if (auto found = TRY(property(negate, true))) {
                    if (plain) {
                        if (!negate)
                            items += found->text;
                        else if (!found->negated.empty())
                            items += found->negated;
                        else
                            items += rangeList(found->set.complement());
                    } else
                        set.addAll(negate ? found->set.complement() : found->set);
                    continue;
                }
                if (peek() == 'b') {
                    ++m_at;
                    low = 8;
                } else if (const auto value = TRY(escapedCharacter()))
                    low = *value;
                else
                    return refuse(std::string("has an escape '\\") + peek() + "' in a class that is not known");
            } else
                low = literal();
            std::uint32_t high = low;
            if (peek() == '-' && m_at + 1 < m_in.size() && peek(1) != ']' && peek(1) != '[') {
                const std::size_t dash = m_at++;
                if (peek() == '\\') {
                    ++m_at;
                    if (const auto value = TRY(escapedCharacter()))
                        high = *value;
                    else
                        m_at = dash; // [a-\s]: the dash is a character
                } else
                    high = literal();
                if (m_at == dash)
                    high = low;
                else if (high < low)
                    return refuse("has a range in reverse order");
            }
            if (plain) {
                items += codePoint(low);
                if (high != low)
                    items += "-" + codePoint(high);
            } else
                set.add(static_cast<UChar32>(low), static_cast<UChar32>(high));
        }
        Class found;
        if (plain) {
            found.text = (negated ? "[^" : "[") + items + "]";
            if (items.empty())
                return refuse("has an empty class");
            return found;
        }
        if (intersects)
            set.retainAll(intersection);
        if (negated)
            set.complement();
        found.set = set;
        const std::string list = rangeList(set);
        found.text = list.empty() ? "(?!)" : "[" + list + "]";
        return found;
    }

    std::uint32_t literal()
    {
        const unicode::Decoded d = unicode::decode(m_in.data() + m_at);
        m_at += d.length;
        return d.c;
    }

    // From after an opening bracket: no bracket and no && before the closing one.
    bool isPlainClass() const
    {
        std::size_t at = m_at;
        if (at < m_in.size() && m_in[at] == '^')
            ++at;
        for (bool first = true; at < m_in.size(); first = false) {
            if (m_in[at] == '\\')
                at += 2;
            else if (m_in[at] == ']' && !first)
                return true;
            else if (m_in[at] == '[' || m_in.substr(at).starts_with("&&"))
                return false;
            else
                ++at;
        }
        return true;
    }

    std::string_view m_in;
    bool m_late;
    std::string m_where;
    std::size_t m_at = 0;
    std::string m_out;
    std::vector<std::size_t> m_groups; // where each open group starts in the output
    std::optional<std::size_t> m_atom; // where the last atom starts in the output
    int m_properties = 0;
    bool m_quantified = false; // the last atom has a quantifier
};

} // namespace

Result<std::string> rewritePattern(std::string_view pattern, bool late, std::string_view where)
{
    return Rewriter(pattern, late, where).run();
}

} // namespace puna
