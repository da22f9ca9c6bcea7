#include "engine/text/unicode.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace puna::unicode {
namespace {

#include "engine/text/unicode_tables.inc"

constexpr std::uint32_t kSpaceRanges[] = {0x9, 0xD, 0x20, 0x20, 0x85, 0x85, 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A,
    0x2028, 0x2029, 0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000};

Category search(char32_t c)
{
    const std::uint32_t key = static_cast<std::uint32_t>(c) << 4 | 0xF;
    const auto* run = std::upper_bound(std::begin(kCategoryRuns), std::end(kCategoryRuns), key);
    return static_cast<Category>(run[-1] & 0xF);
}

const std::array<Category, 128>& asciiCategories()
{
    static const auto table = [] {
        std::array<Category, 128> t {};
        for (char32_t c = 0; c < 128; ++c)
            t[c] = search(c);
        return t;
    }();
    return table;
}

// Late characters live in few blocks of 256; only those are searched.
const std::array<bool, 0x1100>& lateBlocks()
{
    static const auto table = [] {
        std::array<bool, 0x1100> t {};
        for (std::size_t i = 0; i < std::size(kLateRanges); i += 2)
            for (std::uint32_t block = kLateRanges[i] >> 8; block <= kLateRanges[i + 1] >> 8; ++block)
                t[block] = true;
        return t;
    }();
    return table;
}

bool isLate(char32_t c)
{
    std::size_t low = 0, high = std::size(kLateRanges) / 2; // the first range that ends at or after c
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (kLateRanges[2 * middle + 1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < std::size(kLateRanges) / 2 && kLateRanges[2 * low] <= c;
}

} // namespace

Category category(char32_t c)
{
    if (c < 128)
        return asciiCategories()[c];
    return search(c);
}

bool isPunctuation(char32_t c)
{
    if (c < 128)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    return category(c) == Category::p;
}

bool isSpace(char32_t c)
{
    if (c < 0x85)
        return c == ' ' || (c >= 9 && c <= 13);
    for (std::size_t i = 4; i < std::size(kSpaceRanges); i += 2)
        if (c >= kSpaceRanges[i] && c <= kSpaceRanges[i + 1])
            return true;
    return false;
}

bool isWord(char32_t c)
{
    const auto point = static_cast<UChar32>(c);
    const Category k = category(c);
    return k == Category::m || k == Category::nd || u_hasBinaryProperty(point, UCHAR_ALPHABETIC)
        || u_charType(point) == U_CONNECTOR_PUNCTUATION || c == 0x200C || c == 0x200D;
}

std::span<const std::uint32_t> wordRanges()
{
    return kWordRanges;
}
std::span<const std::uint32_t> hanRanges()
{
    return kHanRanges;
}
std::span<const std::uint32_t> spaceRanges()
{
    return kSpaceRanges;
}
std::span<const std::uint32_t> lateRanges()
{
    return kLateRanges;
}
std::span<const std::uint32_t> categoryRuns()
{
    return kCategoryRuns;
}

Step step(const char* bytes, std::size_t n)
{
    const auto byte = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const unsigned char b = byte(0);
    if (b < 0x80)
        return {1, Step::character};
    std::uint8_t length = 0;
    unsigned char low = 0x80, high = 0xBF; // what the second byte may be
    if (b >= 0xC2 && b <= 0xDF)
        length = 2;
    else if (b >= 0xE0 && b <= 0xEF) {
        length = 3;
        if (b == 0xE0)
            low = 0xA0;
        else if (b == 0xED)
            high = 0x9F;
    } else if (b >= 0xF0 && b <= 0xF4) {
        length = 4;
        if (b == 0xF0)
            low = 0x90;
        else if (b == 0xF4)
            high = 0x8F;
    } else
        return {1, Step::ill_formed};
    for (std::uint8_t i = 1; i < length; ++i) {
        if (i >= n)
            return {i, Step::incomplete};
        if (byte(i) < low || byte(i) > high)
            return {i, Step::ill_formed};
        low = 0x80;
        high = 0xBF;
    }
    return {length, Step::character};
}

Decoded decodeLast(std::string_view text)
{
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
        --at;
    return decode(text.data() + at);
}

void append(std::string& out, char32_t c)
{
    const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    const auto u = static_cast<std::uint32_t>(c);
    if (u < 0x80)
        put(u);
    else if (u < 0x800) {
        put(0xC0 | u >> 6);
        put(0x80 | (u & 0x3F));
    } else if (u < 0x10000) {
        put(0xE0 | u >> 12);
        put(0x80 | (u >> 6 & 0x3F));
        put(0x80 | (u & 0x3F));
    } else {
        put(0xF0 | u >> 18);
        put(0x80 | (u >> 12 & 0x3F));
        put(0x80 | (u >> 6 & 0x3F));
        put(0x80 | (u & 0x3F));
    }
}

Survey survey(std::string_view text)
{
    Survey found;
    const auto& late_blocks = lateBlocks();
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
        while (end - p >= 8) { // ASCII, eight at a time
            std::uint64_t word;
            std::memcpy(&word, p, 8);
            if (word & 0x8080808080808080u)
                break;
            p += 8;
        }
        while (p < end && static_cast<unsigned char>(*p) < 0x80)
            ++p;
        while (p < end && static_cast<unsigned char>(*p) >= 0x80) {
            found.ascii = false;
            const Step s = step(p, static_cast<std::size_t>(end - p));
            if (s.kind != Step::character)
                found.valid = false;
            else if (!found.late) {
                const char32_t c = decode(p).c;
                found.late = late_blocks[c >> 8] && isLate(c);
            }
            p += s.length;
        }
    }
    return found;
}

void appendRepaired(std::string& out, std::string_view text)
{
    std::size_t from = 0, at = 0;
    while (at < text.size()) {
        const Step s = step(text.data() + at, text.size() - at);
        if (s.kind != Step::character) {
            out.append(text, from, at - from);
            out += kReplacement;
            from = at + s.length;
        }
        at += s.length;
    }
    out.append(text, from);
}

std::string repair(std::string_view text)
{
    std::string out;
    out.reserve(text.size());
    appendRepaired(out, text);
    return out;
}

} // namespace puna::unicode
