// Text from files of unknown origin, made fit to stand in a message: names of tensors, keys, architectures.
#pragma once

#include <string>
#include <string_view>

namespace puna {

// Valid UTF-8, at most `limit` bytes (then "..."); control, bidirectional and invalid bytes become "?".
std::string printable(std::string_view text, std::size_t limit = 100);

} // namespace puna
