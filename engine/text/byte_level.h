// GPT-2's stand-in characters: every byte is spelled as one printable character, so that any bytes can be a JSON
// string. Bytes 21-7E, A1-AC and AE-FF (hex) stand for themselves; the other 68, in rising order, are U+0100, U+0101
// ...
#pragma once

#include <string>
#include <string_view>

namespace puna {

void appendStandIns(std::string& out, std::string_view bytes);

// Back to bytes. False, with `out` as it was, if some character is not a stand-in. `spelling` is well-formed UTF-8.
bool appendStandInBytes(std::string& out, std::string_view spelling);

} // namespace puna
