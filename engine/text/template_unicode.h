// What templates need of Unicode, as Python's str does it: code points, white space, case. Strings are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace puna::jinja {

bool isValidUtf8(std::string_view text);
std::int64_t countCodePoints(std::string_view text);
char32_t decodeAt(std::string_view text, std::size_t& offset); // and moves past it
std::size_t sizeAt(std::string_view text, std::size_t offset); // bytes of the code point that begins there
std::size_t startBefore(std::string_view text, std::size_t end); // offset of the code point that ends at end
void append(std::string& out, char32_t code_point);

bool isSpace(char32_t c); // str.isspace
bool isPrintable(char32_t c); // str.isprintable
bool isWordChar(char32_t c); // \w
bool isAlpha(char32_t c);
bool isDigit(char32_t c);
bool isNumeric(char32_t c);
bool isCased(char32_t c);
bool isUpper(char32_t c);
bool isLower(char32_t c);

std::string toUpper(std::string_view text);
std::string toLower(std::string_view text);
std::string toTitle(std::string_view text); // str.title
std::string capitalize(std::string_view text); // str.capitalize
std::string swapCase(std::string_view text);

// As std::string_view::find and rfind, but never slower than linear.
std::size_t findText(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t findLastText(std::string_view text, std::string_view what);

std::string_view stripLeft(std::string_view text);
std::string_view stripRight(std::string_view text);
inline std::string_view strip(std::string_view text)
{
    return stripRight(stripLeft(text));
}

} // namespace puna::jinja
