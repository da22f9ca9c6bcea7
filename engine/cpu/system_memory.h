// The machine's memory as the kernel counts it.
#pragma once

#include "engine/base/types.h"

#include <string_view>

namespace puna {

// A field of /proc/meminfo, such as "MemAvailable"; the largest number where that is not to be had.
Bytes systemMemory(std::string_view field);

} // namespace puna
