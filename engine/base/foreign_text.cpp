#include "engine/base/foreign_text.h"

#include <cstdint>

namespace puna {

namespace {

// Length of the UTF-8 character at the front of text, its code point in `c`; 0 where there is none.
std::size_t character(std::string_view text, std::uint32_t& c)
{
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
    if (length == 0 || length > text.size() || lead > 0xf4)
        return 0;
    c = length == 1 ? lead : lead & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (byte(i) & 0x3fu);
    }
    constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    return c < kSmallest[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : length;
}

bool misleads(std::uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e)
        || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0x61c;
}

} // namespace

std::string printable(std::string_view text, std::size_t limit)
{
    std::string out;
    while (!text.empty()) {
        std::uint32_t c = 0;
        const std::size_t length = character(text, c);
        const bool fit = length != 0 && !misleads(c);
        if (out.size() + (fit ? length : 1) > limit)
            return out + "...";
        if (fit)
            out.append(text.substr(0, length));
        else
            out += '?';
        text.remove_prefix(length ? length : 1);
    }
    return out;
}

} // namespace puna
