#include "engine/text/template_unicode.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstring>

namespace puna::jinja {

namespace {

bool isAscii(std::string_view text)
{
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool asciiSpace(char c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
}

char asciiUpper(char c)
{
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
char asciiLower(char c)
{
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

icu::UnicodeString fromUtf8(std::string_view text)
{
    return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
}

std::string toUtf8(const icu::UnicodeString& text)
{
    std::string out;
    text.toUTF8String(out);
    return out;
}

// Long texts are mapped piece by piece, to bound the memory of their UTF-16 form. Pieces end at a space if they can,
// since some mappings depend on what stands beside a letter.
template <class Map> std::string mapCase(std::string_view text, Map map)
{
    constexpr std::size_t kPiece = 64 << 10;
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        std::size_t end = text.size();
        if (end > kPiece) {
            const std::size_t space = text.rfind(' ', kPiece);
            end = space != std::string_view::npos && space > 0 ? space : startBefore(text, kPiece + 1);
        }
        out += toUtf8(map(fromUtf8(text.substr(0, end))));
        text.remove_prefix(end);
    }
    return out;
}

// The title-case mapping of one character, which may be several ("ß" gives "Ss").
void appendTitle(std::string& out, char32_t c)
{
    const auto simple = static_cast<char32_t>(u_totitle(static_cast<UChar32>(c)));
    const icu::UnicodeString upper = icu::UnicodeString(static_cast<UChar32>(c)).toUpper(icu::Locale::getRoot());
    if (simple != c || upper.countChar32() <= 1) {
        append(out, simple);
        return;
    }
    const std::int32_t rest = upper.moveIndex32(0, 1);
    icu::UnicodeString tail = upper.tempSubString(rest);
    append(out, static_cast<char32_t>(upper.char32At(0)));
    out += toUtf8(tail.toLower(icu::Locale::getRoot()));
}

} // namespace

bool isValidUtf8(std::string_view text)
{
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
        const unsigned lead = byte(i);
        const std::size_t size = lead < 0x80 ? 1
            : lead < 0xC2                    ? 0
            : lead < 0xE0                    ? 2
            : lead < 0xF0                    ? 3
            : lead < 0xF5                    ? 4
                                             : 0;
        if (size == 0 || i + size > text.size())
            return false;
        for (std::size_t k = 1; k < size; k++)
            if ((byte(i + k) & 0xC0) != 0x80)
                return false;
        if ((lead == 0xE0 && byte(i + 1) < 0xA0) || (lead == 0xED && byte(i + 1) > 0x9F)
            || (lead == 0xF0 && byte(i + 1) < 0x90) || (lead == 0xF4 && byte(i + 1) > 0x8F))
            return false;
        i += size;
    }
    return true;
}

std::int64_t countCodePoints(std::string_view text)
{
    return std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::size_t sizeAt(std::string_view text, std::size_t offset)
{
    const auto lead = static_cast<unsigned char>(text[offset]);
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return std::min(size, text.size() - offset);
}

std::size_t startBefore(std::string_view text, std::size_t end)
{
    std::size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
        start--;
    return start;
}

char32_t decodeAt(std::string_view text, std::size_t& offset)
{
    const std::size_t size = sizeAt(text, offset);
    const auto lead = static_cast<unsigned char>(text[offset]);
    char32_t c = size == 1 ? lead : lead & (0x7Fu >> size);
    for (std::size_t k = 1; k < size; k++)
        c = (c << 6) | (static_cast<unsigned char>(text[offset + k]) & 0x3Fu);
    offset += size;
    return c;
}

void append(std::string& out, char32_t c)
{
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0 | (c >> 6));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xE0 | (c >> 12));
        out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | (c >> 18));
        out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
        out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    }
}

bool isSpace(char32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680
        || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool isPrintable(char32_t c)
{
    if (c < 0x7F)
        return c >= 0x20;
    const std::int32_t hidden = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK | U_GC_CN_MASK | U_GC_Z_MASK;
    return (U_GET_GC_MASK(static_cast<UChar32>(c)) & hidden) == 0;
}

bool isWordChar(char32_t c)
{
    return c == '_' || isAlpha(c) || isNumeric(c);
}

bool isAlpha(char32_t c)
{
    return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0;
}

bool isDigit(char32_t c)
{
    const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
    return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}

bool isNumeric(char32_t c)
{
    return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool isCased(char32_t c)
{
    return u_isUUppercase(static_cast<UChar32>(c)) || u_isULowercase(static_cast<UChar32>(c))
        || u_istitle(static_cast<UChar32>(c));
}

bool isUpper(char32_t c)
{
    return u_isUUppercase(static_cast<UChar32>(c));
}
bool isLower(char32_t c)
{
    return u_isULowercase(static_cast<UChar32>(c));
}

std::string toUpper(std::string_view text)
{
    if (!isAscii(text))
        return mapCase(text, [](icu::UnicodeString piece) { return piece.toUpper(icu::Locale::getRoot()); });
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), asciiUpper);
    return out;
}

std::string toLower(std::string_view text)
{
    if (!isAscii(text))
        return mapCase(text, [](icu::UnicodeString piece) { return piece.toLower(icu::Locale::getRoot()); });
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), asciiLower);
    return out;
}

std::string toTitle(std::string_view text)
{
    // Lowering the whole text first gives every letter its mapping in context (the final sigma).
    std::string out;
    out.reserve(text.size());
    bool after_cased = false;
    std::size_t word = std::string::npos; // where the letters that follow the first of a word begin
    const auto flush = [&](std::size_t end) {
        if (word != std::string::npos)
            out += toLower(text.substr(word, end - word));
        word = std::string::npos;
    };
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = decodeAt(text, i);
        if (after_cased) {
            if (word == std::string::npos)
                word = at;
        } else {
            flush(at);
            appendTitle(out, c);
        }
        after_cased = isCased(c);
    }
    flush(text.size());
    return out;
}

std::string capitalize(std::string_view text)
{
    if (text.empty())
        return {};
    std::string out;
    std::size_t first = 0;
    appendTitle(out, decodeAt(text, first));
    return out + toLower(text.substr(first));
}

std::string swapCase(std::string_view text)
{
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = decodeAt(text, i);
        const std::string_view letter = text.substr(at, i - at);
        out += isUpper(c) ? toLower(letter) : isLower(c) ? toUpper(letter) : std::string(letter);
    }
    return out;
}

std::size_t findText(std::string_view text, std::string_view what, std::size_t from)
{
    if (from > text.size())
        return std::string_view::npos;
    const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
    return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

std::size_t findLastText(std::string_view text, std::string_view what)
{
    if (what.size() < 8)
        return text.rfind(what);
    const std::string reversed(text.rbegin(), text.rend());
    const std::size_t found = findText(reversed, std::string(what.rbegin(), what.rend()));
    return found == std::string_view::npos ? found : text.size() - found - what.size();
}

std::string_view stripLeft(std::string_view text)
{
    while (!text.empty()) {
        if (static_cast<unsigned char>(text[0]) < 0x80) {
            if (!asciiSpace(text[0]))
                break;
            text.remove_prefix(1);
            continue;
        }
        std::size_t next = 0;
        if (!isSpace(decodeAt(text, next)))
            break;
        text.remove_prefix(next);
    }
    return text;
}

std::string_view stripRight(std::string_view text)
{
    while (!text.empty()) {
        const std::size_t start = startBefore(text, text.size());
        std::size_t offset = start;
        if (!isSpace(decodeAt(text, offset)))
            break;
        text.remove_suffix(text.size() - start);
    }
    return text;
}

} // namespace puna::jinja
