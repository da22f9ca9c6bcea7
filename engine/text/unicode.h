// UTF-8 and the character classes that tokenizers need, as Unicode 16 has them (the version of the tokenizers core).
//
// Class look-ups are a binary search, with a short cut for ASCII. Source: The Unicode Standard 16, chapter 3.9 (U+FFFD
// for maximal ill-formed subsequences, as WHATWG and Rust do it); unicode_tables.inc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace puna::unicode {

enum class Category : std::uint8_t { other, lu, ll, lt, lm, lo, m, nd, n, p, s };

Category category(char32_t c);
inline bool isNumber(char32_t c)
{
    const Category k = category(c);
    return k == Category::nd || k == Category::n;
}
bool isPunctuation(char32_t c); // P*, or ASCII punctuation
bool isSpace(char32_t c); // White_Space
bool isWord(char32_t c); // \w of the regex crate: Alphabetic, M, Nd, Pc, Join_Control

// Ranges (first, last) flattened.
std::span<const std::uint32_t> wordRanges(); // \w of Oniguruma
std::span<const std::uint32_t> hanRanges();
std::span<const std::uint32_t> spaceRanges();
std::span<const std::uint32_t> lateRanges(); // no class in Unicode 14, one in Unicode 16
// Category runs: first code point << 4 | category.
std::span<const std::uint32_t> categoryRuns();

// One step through bytes that may be anything.
struct Step {
    std::uint8_t length; // bytes; at least 1 for n > 0
    enum Kind : std::uint8_t {
        character,
        ill_formed, // a maximal subsequence that cannot become a character
        incomplete, // the bytes end before the character does
    } kind;
};
Step step(const char* bytes, std::size_t n);

// Of well-formed UTF-8 only.
struct Decoded {
    char32_t c;
    std::uint32_t length;
};
inline Decoded decode(const char* p)
{
    const auto byte = [p](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(p[i])); };
    const std::uint32_t b = byte(0);
    if (b < 0x80)
        return {b, 1};
    if (b < 0xE0)
        return {(b & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    if (b < 0xF0)
        return {(b & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    return {(b & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
Decoded decodeLast(std::string_view text); // text not empty

void append(std::string& out, char32_t c);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Survey {
    bool valid = true; // well-formed UTF-8
    bool ascii = true;
    bool late = false; // has characters that a library of Unicode 14 classifies otherwise
};
Survey survey(std::string_view text);

// Ill-formed parts replaced by U+FFFD.
std::string repair(std::string_view text);
void appendRepaired(std::string& out, std::string_view text);

} // namespace puna::unicode
