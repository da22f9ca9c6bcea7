// JsonObject: an object for stdout, fields in the order in which they are added. Strings that are not UTF-8 have
// U+FFFD in place of what is not; numbers that are not finite become null.
#pragma once

#include "engine/base/types.h"

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace puna::tool {

class JsonObject {
public:
    JsonObject& add(std::string_view key, std::string_view text);
    JsonObject& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
    JsonObject& add(std::string_view key, double number);
    JsonObject& add(std::string_view key, std::integral auto number)
    {
        return integer(key, static_cast<std::int64_t>(number));
    }
    JsonObject& add(std::string_view key, bool flag);
    JsonObject& add(std::string_view key, std::span<const TokenId> ids);
    JsonObject& add(std::string_view key, std::span<const std::string> texts);
    JsonObject& add(std::string_view key, const JsonObject& object);

    std::string text() const { return m_fields.empty() ? "{}" : m_fields + "}"; }
    void print() const; // one line on stdout

private:
    JsonObject& integer(std::string_view key, std::int64_t number);
    JsonObject& raw(std::string_view key, std::string_view value);

    std::string m_fields;
};

} // namespace puna::tool
