// Python's two ways of formatting: 'format' % values and 'format'.format(values).
#pragma once

#include "engine/text/template_builtins.h"

#include <string>

namespace puna::jinja {

Value formatPercent(const Value& format, const Value& values); // values: a tuple, a dict or one value
Value formatBraces(const Value& format, const Arguments& arguments);

std::string formatFixed(double value, int digits); // "%.*f", in any locale

} // namespace puna::jinja
