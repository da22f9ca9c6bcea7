#include "engine/tools/json_writer.h"

#include <cmath>
#include <cstdio>

namespace puna::tool {

namespace {

// Length of the well-formed UTF-8 character at the start of text, 0 if there is none (RFC 3629).
std::size_t characterLength(std::string_view text)
{
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80)
        return 1;
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() < length)
        return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xc0) != 0x80)
            return 0;
    if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf0 && byte(1) < 0x90)
        || (lead == 0xf4 && byte(1) > 0x8f))
        return 0;
    return length;
}

std::string quoted(std::string_view text)
{
    std::string out = "\"";
    while (!text.empty()) {
        const std::size_t length = characterLength(text);
        const char c = text.front();
        if (length == 0)
            out += "\xef\xbf\xbd";
        else if (c == '"' || c == '\\')
            out += {'\\', c};
        else if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            out += escape;
        } else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out + '"';
}

} // namespace

JsonObject& JsonObject::raw(std::string_view key, std::string_view value)
{
    m_fields += m_fields.empty() ? "{" : ", ";
    m_fields += quoted(key) + ": ";
    m_fields += value;
    return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view text)
{
    return raw(key, quoted(text));
}

JsonObject& JsonObject::add(std::string_view key, double number)
{
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", number);
    return raw(key, std::isfinite(number) ? text : "null");
}

JsonObject& JsonObject::integer(std::string_view key, std::int64_t number)
{
    return raw(key, std::to_string(number));
}

JsonObject& JsonObject::add(std::string_view key, bool flag)
{
    return raw(key, flag ? "true" : "false");
}

JsonObject& JsonObject::add(std::string_view key, std::span<const TokenId> ids)
{
    std::string list;
    for (const TokenId id : ids)
        list += (list.empty() ? "" : ", ") + std::to_string(id);
    return raw(key, "[" + list + "]");
}

JsonObject& JsonObject::add(std::string_view key, std::span<const std::string> texts)
{
    std::string list;
    for (const std::string& text : texts)
        list += (list.empty() ? "" : ", ") + quoted(text);
    return raw(key, "[" + list + "]");
}

JsonObject& JsonObject::add(std::string_view key, const JsonObject& object)
{
    return raw(key, object.text());
}

void JsonObject::print() const
{
    std::printf("%s\n", text().c_str());
}

} // namespace puna::tool
