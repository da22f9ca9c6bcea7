#include "engine/text/template_json.h"

#include "engine/text/template_unicode.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace puna::jinja {

namespace {

class Builder {
public:
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    bool null() { return put(Value()); }
    bool boolean(bool value) { return put(Value::boolean(value)); }
    bool number_integer(number_integer_t value) { return put(Value::integer(value)); }
    bool number_unsigned(number_unsigned_t value)
    {
        return put(
            value > INT64_MAX ? Value::big(std::to_string(value)) : Value::integer(static_cast<std::int64_t>(value)));
    }
    bool number_float(number_float_t value, const string_t& text)
    {
        return put(text.find_first_of(".eE") == std::string::npos ? Value::big(text) : Value::real(value));
    }
    bool string(string_t& value) { return put(Value::string(std::move(value))); }
    bool binary(binary_t&) { return false; }
    bool start_object(std::size_t) { return open(true); }
    bool start_array(std::size_t) { return open(false); }
    bool key(string_t& name)
    {
        m_open.back().key = Value::string(std::move(name));
        return true;
    }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&)
    {
        fail("not valid JSON at byte " + std::to_string(position));
    }

    Value root;

private:
    struct Container {
        bool is_object;
        Value key;
        std::vector<Value> items;
        std::vector<std::pair<Value, Value>> entries;
    };

    bool open(bool is_object)
    {
        if (m_open.size() >= static_cast<std::size_t>(kMaxNesting))
            fail("JSON nested more than " + std::to_string(kMaxNesting) + " deep");
        m_open.push_back({is_object, {}, {}, {}});
        return true;
    }
    bool close()
    {
        Container done = std::move(m_open.back());
        m_open.pop_back();
        return put(done.is_object ? makeDict(std::move(done.entries)) : Value::list(std::move(done.items)));
    }
    bool put(Value value)
    {
        if (m_open.empty())
            root = std::move(value);
        else if (m_open.back().is_object)
            m_open.back().entries.emplace_back(std::move(m_open.back().key), std::move(value));
        else
            m_open.back().items.push_back(std::move(value));
        return true;
    }

    std::vector<Container> m_open;
};

void appendQuoted(std::string& out, std::string_view text, bool ensure_ascii)
{
    static constexpr char kHex[] = "0123456789abcdef";
    const auto escape = [&](unsigned unit) {
        out += "\\u";
        for (int shift = 12; shift >= 0; shift -= 4)
            out += kHex[(unit >> shift) & 15];
    };
    workOnBytes(text.size() * 4);
    checkString(out.size() + text.size());
    out += '"';
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        static constexpr std::string_view kFrom = "\"\\\b\f\n\r\t", kTo = "\"\\bfnrt";
        if (const std::size_t known = kFrom.find(c); known != std::string_view::npos && c != '\0') {
            out += '\\';
            out += kTo[known];
            i++;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            escape(static_cast<unsigned char>(c));
            i++;
        } else if (!ensure_ascii || (static_cast<unsigned char>(c) < 0x7F)) {
            out += c;
            i++;
        } else {
            const char32_t code = decodeAt(text, i);
            if (code >= 0x10000) {
                escape(0xD800 + ((code - 0x10000) >> 10));
                escape(0xDC00 + ((code - 0x10000) & 0x3FF));
            } else {
                escape(code);
            }
        }
    }
    out += '"';
}

class Writer {
public:
    explicit Writer(const JsonStyle& style)
        : m_style(style)
    {
    }

    void write(const Value& value)
    {
        work(1);
        checkString(text.size());
        switch (value.kind()) {
        case Kind::none:
            text += "null";
            break;
        case Kind::boolean:
            text += value.asBool() ? "true" : "false";
            break;
        case Kind::real:
            text += number(value.asReal());
            break;
        case Kind::integer:
        case Kind::big:
            text += toText(value);
            break;
        case Kind::string:
            appendQuoted(text, value.text(), m_style.ensure_ascii);
            break;
        case Kind::list:
        case Kind::tuple:
            container('[', ']', value.items(), [&](const Value& item) { write(item); });
            break;
        case Kind::dict:
            if (m_style.sort_keys) {
                auto entries = value.asDict().entries;
                std::stable_sort(entries.begin(), entries.end(),
                    [](const auto& a, const auto& b) { return lessThan(a.first, b.first); });
                object(entries);
            } else {
                object(value.asDict().entries);
            }
            break;
        default:
            fail(std::string("Object of type ") + typeName(value) + " is not JSON serializable");
        }
    }

    std::string text;

private:
    static std::string number(double value)
    {
        return std::isnan(value) ? "NaN"
            : std::isinf(value)  ? (value < 0 ? "-Infinity" : "Infinity")
                                 : formatReal(value);
    }

    void object(const std::vector<std::pair<Value, Value>>& entries)
    {
        container('{', '}', entries, [&](const auto& entry) {
            const Value& key = entry.first;
            if (key.isString()) {
                appendQuoted(text, key.text(), m_style.ensure_ascii);
            } else if (key.is(Kind::none)) {
                text += "\"null\"";
            } else if (key.is(Kind::boolean)) {
                text += key.asBool() ? "\"true\"" : "\"false\"";
            } else if (key.is(Kind::real)) {
                text += '"' + number(key.asReal()) + '"';
            } else if (key.is(Kind::integer) || key.is(Kind::big)) {
                text += '"' + toText(key) + '"';
            } else {
                fail(std::string("keys must be str, int, float, bool or None, not ") + typeName(key));
            }
            text += m_style.key_separator;
            write(entry.second);
        });
    }

    template <class Items, class WriteItem>
    void container(char open, char close, const Items& items, WriteItem write_item)
    {
        text += open;
        if (!items.empty()) {
            m_level++;
            bool first = true;
            for (const auto& item : items) {
                if (!first)
                    text += m_style.item_separator;
                first = false;
                newLine();
                write_item(item);
            }
            m_level--;
            newLine();
        }
        text += close;
    }

    void newLine()
    {
        if (!m_style.indent)
            return;
        checkString(text.size() + m_style.indent->size() * static_cast<std::size_t>(m_level));
        workOnBytes(m_style.indent->size() * static_cast<std::size_t>(m_level));
        text += '\n';
        for (int i = 0; i < m_level; i++)
            text += *m_style.indent;
    }

    const JsonStyle& m_style;
    int m_level = 0;
};

} // namespace

Value parseJson(std::string_view text)
{
    Builder builder;
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    return builder.root;
}

std::string toJson(const Value& value, const JsonStyle& style)
{
    Writer writer(style);
    writer.write(value);
    checkString(writer.text.size());
    return std::move(writer.text);
}

} // namespace puna::jinja
