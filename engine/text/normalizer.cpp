#include "engine/text/normalizer.h"

#include "engine/text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <utility>

namespace puna {
namespace {

const icu::Normalizer2* instance(Normalizer::Step::Kind kind)
{
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* found = nullptr;
    switch (kind) {
    case Normalizer::Step::nfc:
        found = icu::Normalizer2::getNFCInstance(status);
        break;
    case Normalizer::Step::nfd:
        found = icu::Normalizer2::getNFDInstance(status);
        break;
    case Normalizer::Step::nfkc:
        found = icu::Normalizer2::getNFKCInstance(status);
        break;
    default:
        found = icu::Normalizer2::getNFKDInstance(status);
        break;
    }
    return U_SUCCESS(status) ? found : nullptr;
}

const icu::UnicodeSet& ageNine()
{
    static const icu::UnicodeSet* const set = [] {
        UErrorCode status = U_ZERO_ERROR;
        auto* s = new icu::UnicodeSet(icu::UnicodeString::fromUTF8("[:age=9.0:]"), status); // for the whole process
        s->freeze();
        return s;
    }();
    return *set;
}

bool isAscii(std::string_view text)
{
    for (const char c : text)
        if (static_cast<unsigned char>(c) >= 0x80)
            return false;
    return true;
}

bool unicodeForm(Normalizer::Step::Kind kind, std::string_view text, std::string& out)
{
    const icu::Normalizer2* normalizer = instance(kind);
    if (isAscii(text) || !normalizer || text.size() > 0x7FFFFFFF)
        return false;
    UErrorCode status = U_ZERO_ERROR;
    const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
    // Parts of normalised text are normalised, so that the filter need not be asked.
    if (normalizer->isNormalizedUTF8(piece, status) && U_SUCCESS(status))
        return false;
    status = U_ZERO_ERROR;
    const icu::FilteredNormalizer2 filtered(*normalizer, ageNine());
    out.clear();
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
    filtered.normalizeUTF8(0, piece, sink, nullptr, status);
    return U_SUCCESS(status);
}

void lowerCase(std::string_view text, std::string& out)
{
    out.clear();
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const unicode::Decoded d = unicode::decode(text.data() + at);
        at += d.length;
        if (d.c == 0x130) // the one character whose lower case is two, whatever stands around it
            out += "i\xCC\x87";
        else
            unicode::append(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(d.c))));
    }
}

std::string_view stripped(std::string_view text, bool left, bool right)
{
    while (left && !text.empty()) {
        const unicode::Decoded d = unicode::decode(text.data());
        if (!unicode::isSpace(d.c))
            break;
        text.remove_prefix(d.length);
    }
    while (right && !text.empty()) {
        const unicode::Decoded d = unicode::decodeLast(text);
        if (!unicode::isSpace(d.c))
            break;
        text.remove_suffix(d.length);
    }
    return text;
}

} // namespace

void replaceAll(std::string_view text, std::string_view from, std::string_view to, std::string& out)
{
    out.clear();
    out.reserve(text.size() + text.size() / 8 * to.size() / from.size());
    std::size_t start = 0;
    for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, start)) {
        out.append(text, start, at - start);
        out += to;
        start = at + from.size();
    }
    out.append(text, start);
}

void replaceAll(std::string_view text, const Regex& from, std::string_view to, bool late, std::string& out)
{
    out.clear();
    std::size_t start = 0;
    Regex::Matches matches(from, text, late);
    for (Regex::Match m {}; matches.next(m);) {
        out.append(text, start, m.begin - start);
        out += to;
        start = m.end;
    }
    out.append(text, start);
}

bool Normalizer::apply(std::string_view text, bool late, std::string& out) const
{
    bool changed = false;
    std::string buffer; // the text that `now` views, once changed
    std::string_view now = text;
    for (const Step& step : steps) {
        bool replaced = true;
        switch (step.kind) {
        case Step::nfc:
        case Step::nfd:
        case Step::nfkc:
        case Step::nfkd:
            replaced = unicodeForm(step.kind, now, out);
            break;
        case Step::lowercase:
            lowerCase(now, out);
            break;
        case Step::prepend:
            if (now.empty())
                replaced = false;
            else {
                out = step.text;
                out += now;
            }
            break;
        case Step::replace_text:
            if (now.find(step.text) == std::string_view::npos)
                replaced = false;
            else
                replaceAll(now, step.text, step.content, out);
            break;
        case Step::replace_regex:
            replaceAll(now, *step.regex, step.content, late, out);
            break;
        case Step::strip:
            out = stripped(now, step.left, step.right);
            break;
        }
        if (replaced) {
            std::swap(out, buffer);
            now = buffer;
            changed = true;
        }
    }
    if (changed)
        std::swap(out, buffer);
    return changed;
}

} // namespace puna
