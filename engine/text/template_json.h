// JSON for templates: contexts in, the filter tojson out (Python's json.dumps).
#pragma once

#include "engine/text/template_value.h"

#include <optional>
#include <string>
#include <string_view>

namespace puna::jinja {

// Key order is kept, the last of duplicate keys wins, integers stay exact. Throws a Failure that says where and why.
Value parseJson(std::string_view text);

struct JsonStyle {
    bool ensure_ascii = false;
    std::optional<std::string> indent; // of one level; none: on one line
    std::string item_separator = ", ", key_separator = ": ";
    bool sort_keys = false;
};
std::string toJson(const Value& value, const JsonStyle& style = {});

} // namespace puna::jinja
