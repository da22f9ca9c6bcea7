#include "engine/cpu/system_memory.h"

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace puna {

Bytes systemMemory(std::string_view field)
{
    std::ifstream meminfo("/proc/meminfo");
    for (std::string line; std::getline(meminfo, line);)
        if (line.starts_with(field) && line[field.size()] == ':')
            return Bytes {std::atoll(line.c_str() + field.size() + 1) * 1024};
    return Bytes {std::numeric_limits<std::int64_t>::max()};
}

} // namespace puna
