#include "engine/text/byte_level.h"

#include "engine/text/unicode.h"

#include <array>
#include <cstdint>

namespace puna {
namespace {

struct Tables {
    std::array<std::uint16_t, 256> stand_in {};
    std::array<std::int16_t, 0x144> byte {}; // -1: no stand-in

    Tables()
    {
        byte.fill(-1);
        std::uint16_t next = 0x100;
        for (std::uint16_t b = 0; b < 256; ++b) {
            const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            stand_in[b] = itself ? b : next++;
            byte[stand_in[b]] = static_cast<std::int16_t>(b);
        }
    }
};

const Tables& tables()
{
    static const Tables t;
    return t;
}

} // namespace

void appendStandIns(std::string& out, std::string_view bytes)
{
    for (const char b : bytes)
        unicode::append(out, tables().stand_in[static_cast<unsigned char>(b)]);
}

bool appendStandInBytes(std::string& out, std::string_view spelling)
{
    const std::size_t before = out.size();
    const Tables& t = tables();
    for (std::size_t at = 0; at < spelling.size();) {
        const unicode::Decoded d = unicode::decode(spelling.data() + at);
        if (d.c >= t.byte.size() || t.byte[d.c] < 0) {
            out.resize(before);
            return false;
        }
        out.push_back(static_cast<char>(t.byte[d.c]));
        at += d.length;
    }
    return true;
}

} // namespace puna
