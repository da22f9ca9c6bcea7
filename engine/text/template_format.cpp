#include "engine/text/template_format.h"

#include "engine/text/template_unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace puna::jinja {

namespace {

constexpr std::int64_t kMaxWidth = 1 << 20; // of one formatted value
constexpr int kMaxPrecision = 1000;

struct Spec {
    char32_t fill = ' ';
    char align = 0; // < > ^ =; 0: the type's own
    char sign = '-'; // - + or space
    bool alternative = false;
    bool zero = false;
    bool comma = false;
    std::int64_t width = 0;
    std::int64_t precision = -1;
    char type = 0;
};

std::string realDigits(double value, char type, std::int64_t precision) // of the magnitude
{
    const bool upper = type == 'F' || type == 'E' || type == 'G';
    std::string out;
    if (std::isnan(value)) {
        out = "nan";
    } else if (std::isinf(value)) {
        out = "inf";
    } else {
        const int digits = static_cast<int>(std::min<std::int64_t>(precision < 0 ? 6 : precision, kMaxPrecision));
        const char lower = static_cast<char>(type | 0x20);
        const auto how = lower == 'e' ? std::chars_format::scientific
            : lower == 'g'            ? std::chars_format::general
                                      : std::chars_format::fixed;
        std::string buffer(static_cast<std::size_t>(digits) + 400, '\0');
        const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(value), how,
            lower == 'g' && digits == 0 ? 1 : digits)
                             .ptr;
        out.assign(buffer.data(), end);
    }
    return upper ? toUpper(out) : out;
}

std::string integerDigits(std::int64_t value, int base, bool upper) // of the magnitude
{
    char buffer[72];
    const std::uint64_t magnitude =
        value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr;
    const std::string digits(buffer, end);
    return upper ? toUpper(digits) : digits;
}

// sign, prefix and body in a field.
std::string inField(const Spec& spec, std::string sign, std::string body, char default_align)
{
    const std::int64_t length = countCodePoints(sign) + countCodePoints(body);
    const std::int64_t space = std::max<std::int64_t>(spec.width - length, 0);
    std::string pad;
    const auto fill = [&](std::int64_t count) {
        std::string out;
        for (std::int64_t i = 0; i < count; i++)
            append(out, spec.fill);
        workOnBytes(out.size() * 4);
        return out;
    };
    switch (spec.align ? spec.align : default_align) {
    case '<':
        return sign + body + fill(space);
    case '^':
        return fill(space / 2) + sign + body + fill(space - space / 2);
    case '=':
        return sign + fill(space) + body;
    default:
        return fill(space) + sign + body;
    }
}

std::string signOf(bool negative, char sign)
{
    return negative ? "-" : sign == '-' ? "" : std::string(1, sign);
}

std::string prefixOf(char type)
{
    return type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : type == 'b' ? "0b" : "";
}

int baseOf(char type)
{
    return type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
}

std::string firstCharacters(const std::string& text, std::int64_t count)
{
    std::size_t end = 0;
    for (std::int64_t i = 0; i < count && end < text.size(); i++)
        end += sizeAt(text, end);
    return text.substr(0, end);
}

class Scanner {
public:
    explicit Scanner(std::string_view text)
        : m_text(text)
    {
    }
    bool done() const { return m_at >= m_text.size(); }
    char peek() const { return done() ? '\0' : m_text[m_at]; }
    char take() { return done() ? '\0' : m_text[m_at++]; }
    bool skip(char c)
    {
        const bool there = !done() && peek() == c;
        m_at += there;
        return there;
    }
    std::optional<std::int64_t> number()
    {
        std::int64_t value = 0;
        const auto result = std::from_chars(m_text.data() + m_at, m_text.data() + m_text.size(), value);
        if (peek() == '-' || peek() == '+' || result.ptr == m_text.data() + m_at)
            return {};
        if (result.ec != std::errc() || value > kMaxWidth)
            fail("a width in a format is too large");
        m_at = static_cast<std::size_t>(result.ptr - m_text.data());
        return value;
    }
    std::string_view until(std::string_view stops)
    {
        const std::size_t begin = m_at;
        m_at = std::min(m_text.find_first_of(stops, m_at), m_text.size());
        return m_text.substr(begin, m_at - begin);
    }

private:
    std::string_view m_text;
    std::size_t m_at = 0;
};

std::int64_t wantInteger(const Value& value, char type)
{
    if (value.isUndefined())
        fail(value.undefinedMessage());
    if (value.is(Kind::real) && (type == 'd' || type == 'i' || type == 'u')) {
        const double real = std::trunc(value.asReal());
        if (!(std::fabs(real) < 9.2e18))
            fail("an integer beyond 64 bits");
        return static_cast<std::int64_t>(real);
    }
    if (!value.isInteger())
        fail(std::string("%") + type + " format: an integer is required, not " + typeName(value));
    return value.asInteger();
}

double wantReal(const Value& value)
{
    if (value.isUndefined())
        fail(value.undefinedMessage());
    if (!value.isNumber())
        fail(std::string("must be real number, not ") + typeName(value));
    return value.asReal();
}

std::string character(const Value& value)
{
    if (value.isString() && value.asString().length == 1)
        return value.text();
    const std::int64_t code = wantInteger(value, 'c');
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        fail("%c arg not in range(0x110000)");
    std::string out;
    append(out, static_cast<char32_t>(code));
    return out;
}

std::string onePercent(Spec spec, const Value& value, bool safe)
{
    std::string sign, body;
    switch (spec.type) {
    case 's':
    case 'r':
    case 'a':
        body = spec.type == 's' ? toText(value) : toRepr(value);
        if (safe && !(spec.type == 's' && value.isSafe()))
            body = escapeHtml(body);
        if (spec.precision >= 0)
            body = firstCharacters(body, spec.precision);
        spec.zero = false;
        break;
    case 'c':
        body = character(value);
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
        const std::int64_t number = wantInteger(value, spec.type);
        sign = signOf(number < 0, spec.sign);
        body = integerDigits(number, baseOf(spec.type), spec.type == 'X');
        if (static_cast<std::int64_t>(body.size()) < spec.precision)
            body.insert(
                0, static_cast<std::size_t>(std::min<std::int64_t>(spec.precision, kMaxWidth)) - body.size(), '0');
        if (spec.alternative)
            sign += prefixOf(spec.type);
        break;
    }
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': {
        const double number = wantReal(value);
        sign = signOf(std::signbit(number), spec.sign);
        body = realDigits(number, spec.type, spec.precision);
        break;
    }
    default:
        fail(std::string("unsupported format character '") + spec.type + "'");
    }
    if (spec.zero && spec.align != '<') {
        spec.fill = U'0';
        spec.align = '=';
    }
    return inField(spec, std::move(sign), std::move(body), '>');
}

// format(value, spec) of Python.
std::string formatValue(const Value& value, std::string_view text)
{
    if (text.empty())
        return toText(value);
    Spec spec;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    std::size_t first = 0;
    const char32_t leading = decodeAt(text, first);
    if (first < text.size() && is_align(text[first])) {
        spec.fill = leading;
        spec.align = text[first];
        text.remove_prefix(first + 1);
    } else if (is_align(text[0])) {
        spec.align = text[0];
        text.remove_prefix(1);
    }
    Scanner scan(text);
    if (scan.peek() == '+' || scan.peek() == '-' || scan.peek() == ' ')
        spec.sign = scan.take();
    spec.alternative = scan.skip('#');
    if (scan.skip('0') && !spec.align) {
        spec.fill = U'0';
        spec.align = '=';
    }
    spec.width = scan.number().value_or(0);
    spec.comma = scan.skip(',');
    if (scan.skip('.')) {
        const auto precision = scan.number();
        if (!precision)
            fail("Format specifier missing precision");
        spec.precision = *precision;
    }
    spec.type = scan.take();
    if (!scan.done())
        fail("Invalid format specifier");
    const auto grouped = [&](std::string digits) {
        if (spec.comma) {
            const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
            for (std::size_t i = whole; i > 3; i -= 3)
                digits.insert(i - 3, ",");
        }
        return digits;
    };
    if (value.isString() || (!value.isNumber() && spec.type == 0)) {
        if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.comma || spec.sign != '-')
            fail(std::string("Unknown format code for object of type '") + typeName(value) + "'");
        std::string body = toText(value);
        if (spec.precision >= 0)
            body = firstCharacters(body, spec.precision);
        return inField(spec, {}, std::move(body), '<');
    }
    const bool integral =
        value.isInteger() && (spec.type == 0 || std::string_view("bdoxX").find(spec.type) != std::string_view::npos);
    if (integral) {
        const std::int64_t number = value.asInteger();
        std::string sign = signOf(number < 0, spec.sign);
        if (spec.alternative)
            sign += prefixOf(spec.type);
        return inField(spec, std::move(sign), grouped(integerDigits(number, baseOf(spec.type), spec.type == 'X')), '>');
    }
    if (spec.type == 'c')
        return inField(spec, {}, character(value), '<');
    const double number = wantReal(value);
    std::string body;
    if (spec.type == 0 && spec.precision < 0)
        body = formatReal(std::fabs(number));
    else if (spec.type == '%')
        body = realDigits(number * 100, 'f', spec.precision) + "%";
    else if (spec.type == 0 || std::string_view("fFeEgG").find(spec.type) != std::string_view::npos)
        body = realDigits(number, spec.type ? spec.type : 'g', spec.precision);
    else
        fail(std::string("Unknown format code '") + spec.type + "'");
    return inField(spec, signOf(std::signbit(number), spec.sign), grouped(std::move(body)), '>');
}

} // namespace

std::string formatFixed(double value, int digits)
{
    return (std::signbit(value) ? "-" : "") + realDigits(value, 'f', digits);
}

Value formatPercent(const Value& format, const Value& values)
{
    const std::string& text = format.text();
    std::string out;
    std::size_t used = 0;
    bool by_name = false;
    const auto next = [&]() -> Value {
        if (!values.is(Kind::tuple)) {
            if (used++ > 0)
                fail("not enough arguments for format string");
            return values;
        }
        if (used >= values.items().size())
            fail("not enough arguments for format string");
        return values.items()[used++];
    };
    workOnBytes(text.size() * 4);
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t percent = std::min(text.find('%', i), text.size());
        out.append(text, i, percent - i);
        checkString(out.size());
        if (percent == text.size())
            break;
        i = percent + 1;
        Spec spec;
        Value named;
        bool has_name = false;
        const auto peek = [&] { return i < text.size() ? text[i] : '\0'; };
        if (peek() == '(') {
            const std::size_t close = text.find(')', i);
            if (close == std::string::npos)
                fail("incomplete format key");
            if (!values.is(Kind::dict))
                fail("format requires a mapping");
            const Value* value = values.asDict().find(std::string_view(text).substr(i + 1, close - i - 1));
            if (!value)
                fail("the format's key '" + text.substr(i + 1, std::min<std::size_t>(close - i - 1, 60))
                    + "' is missing");
            named = *value;
            has_name = by_name = true;
            i = close + 1;
        }
        for (bool flags = true; flags;) {
            switch (peek()) {
            case '-':
                spec.align = '<';
                break;
            case '+':
                spec.sign = '+';
                break;
            case ' ':
                if (spec.sign != '+')
                    spec.sign = ' ';
                break;
            case '#':
                spec.alternative = true;
                break;
            case '0':
                spec.zero = true;
                break;
            default:
                flags = false;
            }
            i += flags;
        }
        const auto number = [&]() -> std::int64_t {
            std::int64_t value = 0;
            if (peek() == '*') {
                i++;
                value = wantInteger(next(), '*');
            } else {
                for (; peek() >= '0' && peek() <= '9'; i++)
                    value = std::min<std::int64_t>(value * 10 + (peek() - '0'), kMaxWidth + 1);
            }
            if (value > kMaxWidth || value < -kMaxWidth)
                fail("a width in a format is too large");
            return value;
        };
        spec.width = number();
        if (spec.width < 0) {
            spec.align = '<';
            spec.width = -spec.width;
        }
        if (peek() == '.') {
            i++;
            spec.precision = std::max<std::int64_t>(number(), 0);
        }
        while (peek() == 'h' || peek() == 'l' || peek() == 'L')
            i++;
        if (i >= text.size())
            fail("incomplete format");
        spec.type = text[i++];
        work(4);
        if (spec.type == '%') {
            out += '%';
            continue;
        }
        out += onePercent(spec, has_name ? named : next(), format.isSafe());
        checkString(out.size());
    }
    // What can be subscripted counts as a mapping, which may have more than the format asks for.
    const bool mapping =
        values.is(Kind::dict) || values.is(Kind::list) || values.is(Kind::range) || values.isUndefined();
    const std::size_t given = values.is(Kind::tuple) ? values.items().size() : mapping ? 0 : 1;
    if (!by_name && used < given)
        fail("not all arguments converted during string formatting");
    return Value::string(std::move(out), format.isSafe());
}

Value formatBraces(const Value& format, const Arguments& arguments)
{
    const std::string& text = format.text();
    std::string out;
    std::size_t automatic = 0;
    workOnBytes(text.size() * 4);
    const auto lookup = [&](std::string_view name) -> Value {
        const bool digits = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
        if (name.empty() || digits) {
            std::size_t index = automatic;
            if (name.empty())
                automatic++;
            else
                std::from_chars(name.data(), name.data() + name.size(), index);
            if (index >= arguments.positional.size() || name.size() > 9)
                fail("Replacement index " + std::string(name.empty() ? std::to_string(index) : name.substr(0, 20))
                    + " out of range for positional args tuple");
            return arguments.positional[index];
        }
        for (const auto& [key, value] : arguments.keywords)
            if (key == name)
                return value;
        fail("the format's field '" + std::string(name.substr(0, 60)) + "' is missing");
    };
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t brace = std::min(text.find_first_of("{}", i), text.size());
        out.append(text, i, brace - i);
        checkString(out.size());
        if (brace == text.size())
            break;
        i = brace + 1;
        if (i < text.size() && text[i] == text[brace]) {
            out += text[i++];
            continue;
        }
        if (text[brace] == '}')
            fail("Single '}' encountered in format string");
        const std::size_t close = text.find('}', i);
        if (close == std::string::npos)
            fail("expected '}' before end of string");
        const std::string_view field = std::string_view(text).substr(i, close - i);
        if (field.find('{') != std::string_view::npos)
            fail("fields inside a format's field are not supported");
        i = close + 1;
        const std::size_t colon = std::min(field.find(':'), field.size());
        std::string_view name = field.substr(0, colon);
        const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : std::string_view();
        char conversion = 0;
        if (const std::size_t bang = name.find('!'); bang != std::string_view::npos) {
            if (bang + 2 != name.size() || (name[bang + 1] != 'r' && name[bang + 1] != 's' && name[bang + 1] != 'a'))
                fail("Unknown conversion specifier in a format");
            conversion = name[bang + 1];
            name = name.substr(0, bang);
        }
        Scanner path(name);
        Value value = lookup(path.until(".["));
        while (!path.done()) {
            if (path.skip('.')) {
                const std::string_view attribute = path.until(".[");
                value = getAttribute(value, attribute, findMethod(attribute));
            } else {
                path.skip('[');
                const std::string_view key = path.until("]");
                if (!path.skip(']'))
                    fail("Missing ']' in format string");
                std::int64_t index = 0;
                const auto end = std::from_chars(key.data(), key.data() + key.size(), index).ptr;
                value = getItem(value,
                    end == key.data() + key.size() && !key.empty() ? Value::integer(index)
                                                                   : Value::string(std::string(key)));
            }
        }
        std::string piece;
        if (conversion != 0)
            piece = formatValue(Value::string(conversion == 's' ? toText(value) : toRepr(value)), spec);
        else
            piece = formatValue(value, spec);
        work(8);
        out += format.isSafe() && !value.isSafe() ? escapeHtml(piece) : piece;
        checkString(out.size());
    }
    return Value::string(std::move(out), format.isSafe());
}

} // namespace puna::jinja
