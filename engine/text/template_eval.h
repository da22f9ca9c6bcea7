// Rendering: a walk over a Program's tree with a context of variables. Bounded in steps, memory, output and depth.
#pragma once

#include "engine/text/template_parser.h"

#include <cstdint>
#include <string>

namespace puna::jinja {

// context: a dict of variables. Throws a Failure with its line.
std::string render(const Program& program, const Value& context, std::int64_t now);

} // namespace puna::jinja
