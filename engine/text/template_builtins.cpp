#include "engine/text/template_builtins.h"

#include "engine/text/template_format.h"
#include "engine/text/template_json.h"
#include "engine/text/template_unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <functional>
#include <iterator>
#include <locale.h>

namespace puna::jinja {

namespace {

template <class Row, std::size_t N> int findRow(const Row (&rows)[N], std::string_view name)
{
    for (std::size_t i = 0; i < N; i++)
        if (rows[i].name == name)
            return static_cast<int>(i);
    return -1;
}

void put(std::string& out, std::string_view text)
{
    checkString(out.size() + text.size());
    workOnBytes(text.size());
    out += text;
}

void refuseUndefined(const Value& value)
{
    if (value.isUndefined())
        fail(value.undefinedMessage());
}

// Jinja's soft_str: text, marked if it was.
Value softText(const Value& value)
{
    return value.isString() ? value : Value::string(toText(value));
}

std::string upperOf(std::string_view text)
{
    workOnBytes(text.size() * (static_cast<std::size_t>(countCodePoints(text)) == text.size() ? 4 : 32));
    return toUpper(text);
}

std::string lowerOf(std::string_view text)
{
    workOnBytes(text.size() * (static_cast<std::size_t>(countCodePoints(text)) == text.size() ? 4 : 32));
    return toLower(text);
}

// Something computed when it is first asked for.
class Deferred final : public Iterator {
public:
    Deferred(int nesting, std::function<std::vector<Value>()> fill)
        : Iterator("generator", nesting)
        , m_fill(std::move(fill))
    {
    }
    bool next(Value& out) override
    {
        work(1);
        if (m_fill) {
            m_items = m_fill();
            m_fill = nullptr;
            if (Meter* meter = Meter::current())
                meter->work(static_cast<std::int64_t>(m_items.size()));
        }
        if (m_at >= m_items.size())
            return false;
        out = m_items[m_at++];
        return true;
    }

private:
    std::function<std::vector<Value>()> m_fill;
    std::vector<Value> m_items;
    std::size_t m_at = 0;
};

Value deferred(const Value& over, std::function<std::vector<Value>()> fill)
{
    return Value::own(Kind::iterator, new Deferred(over.depth() + 3, std::move(fill)));
}

// Every element passed through a step that may drop it.
class Mapped final : public Iterator {
public:
    Mapped(Value over, std::function<bool(Value&)> step)
        : Iterator("generator", over.depth() + 2)
        , m_over(std::move(over))
        , m_step(std::move(step))
    {
    }
    bool next(Value& out) override
    {
        if (!m_started) {
            m_started = true;
            if (truth(m_over))
                m_source = iterate(m_over);
        }
        while (m_source.is(Kind::iterator) && m_source.asIterator().next(out))
            if (m_step(out))
                return true;
        return false;
    }

private:
    Value m_over, m_source;
    std::function<bool(Value&)> m_step;
    bool m_started = false;
};

Value mapped(const Value& over, std::function<bool(Value&)> step)
{
    return Value::own(Kind::iterator, new Mapped(over, std::move(step)));
}

// "a.0.b" as Jinja's make_attrgetter reads it. none: the item itself.
std::function<Value(const Value&)> attributeGetter(const Value& attribute)
{
    if (attribute.is(Kind::none))
        return [](const Value& item) { return item; };
    std::vector<Value> path;
    if (attribute.isString()) {
        const std::string& text = attribute.text();
        for (std::size_t from = 0; from <= text.size();) {
            const std::size_t dot = std::min(text.find('.', from), text.size());
            const std::string part = text.substr(from, dot - from);
            std::int64_t index = 0;
            const auto end = std::from_chars(part.data(), part.data() + part.size(), index).ptr;
            const bool is_index = !part.empty() && part[0] != '-' && end == part.data() + part.size();
            path.push_back(is_index ? Value::integer(index) : Value::string(part));
            from = dot + 1;
        }
    } else {
        path.push_back(attribute);
    }
    return [path = std::move(path)](const Value& item) {
        Value value = item;
        for (const Value& part : path)
            value = getItem(value, part);
        return value;
    };
}

Value foldCase(const Value& value)
{
    return value.isString() ? Value::string(lowerOf(value.text())) : value;
}

std::function<Value(const Value&)> sortKey(const Value& attribute, bool case_sensitive)
{
    return [get = attributeGetter(attribute), case_sensitive](const Value& item) {
        Value key = get(item);
        return case_sensitive ? key : foldCase(key);
    };
}

std::vector<Value> sorted(std::vector<Value> items, const std::function<Value(const Value&)>& key, bool reverse)
{
    std::vector<std::pair<Value, std::size_t>> order;
    order.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); i++)
        order.emplace_back(key(items[i]), i);
    work(static_cast<std::int64_t>(items.size()));
    std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        return reverse ? lessThan(b.first, a.first) : lessThan(a.first, b.first);
    });
    std::vector<Value> out;
    out.reserve(items.size());
    for (const auto& entry : order)
        out.push_back(std::move(items[entry.second]));
    return out;
}

// --- numbers ---------------------------------------------------------------------------------------------------

[[noreturn]] void overflow()
{
    fail("an integer beyond 64 bits");
}

[[noreturn]] void badOperands(const char* op, const Value& a, const Value& b)
{
    refuseUndefined(a);
    refuseUndefined(b);
    if (a.is(Kind::big) || b.is(Kind::big))
        overflow();
    fail(std::string("unsupported operand type(s) for ") + op + ": '" + typeName(a) + "' and '" + typeName(b) + "'");
}

std::optional<std::int64_t> parseInteger(std::string_view text, std::int64_t base)
{
    text = strip(text);
    bool minus = false;
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
        minus = text[0] == '-';
        text.remove_prefix(1);
    }
    if (text.size() > 2 && text[0] == '0') {
        const char letter = static_cast<char>(text[1] | 0x20);
        const std::int64_t radix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
        if (radix != 0 && (base == radix || base == 0)) {
            base = radix;
            text.remove_prefix(text[2] == '_' ? 3 : 2);
        }
    }
    if (base == 0)
        base = 10;
    if (base < 2 || base > 36 || text.empty() || text.front() == '_' || text.back() == '_'
        || text.find("__") != std::string_view::npos)
        return {};
    std::string digits = minus ? "-" : "";
    std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
    std::int64_t value = 0;
    if (digits.size() > 1 && digits[minus ? 1 : 0] == '-')
        return {};
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
    if (result.ptr != digits.data() + digits.size())
        return {};
    if (result.ec == std::errc::result_out_of_range)
        overflow();
    return value;
}

std::optional<double> parseReal(std::string_view text)
{
    text = strip(text);
    if (!text.empty() && text[0] == '+')
        text.remove_prefix(1);
    if (text.empty() || text[0] == '+')
        return {};
    std::string digits(text);
    std::erase(digits, '_');
    double value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ptr != digits.data() + digits.size())
        return {};
    if (result.ec == std::errc::result_out_of_range)
        return std::abs(value) < 1 ? 0.0 : value < 0 ? -HUGE_VAL : HUGE_VAL;
    return value;
}

std::optional<std::int64_t> truncated(double value)
{
    if (std::isnan(value) || std::isinf(value))
        return {};
    if (value >= 9.2233720368547758e18 || value < -9.2233720368547758e18)
        overflow();
    return static_cast<std::int64_t>(value);
}

Value repeat(const Value& what, std::int64_t times)
{
    times = std::max<std::int64_t>(times, 0);
    const auto count = static_cast<std::size_t>(times);
    if (what.isString()) {
        const std::string& text = what.text();
        if (text.size() != 0 && count > kMaxString / text.size())
            checkString(kMaxString + 1);
        workOnBytes(text.size() * count);
        std::string out;
        out.reserve(text.size() * count);
        for (std::size_t i = 0; i < (text.empty() ? 0 : count); i++)
            out += text;
        return Value::string(std::move(out), what.isSafe());
    }
    const std::vector<Value>& items = what.items();
    if (!items.empty() && count > kMaxList / items.size())
        checkList(kMaxList + 1);
    work(static_cast<std::int64_t>(items.size() * count));
    std::vector<Value> out;
    out.reserve(items.size() * count);
    for (std::size_t i = 0; i < (items.empty() ? 0 : count); i++)
        out.insert(out.end(), items.begin(), items.end());
    return what.is(Kind::list) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

double floorModulo(double a, double b)
{
    double rest = std::fmod(a, b);
    if (rest != 0.0 && (rest < 0) != (b < 0))
        rest += b;
    else if (rest == 0.0)
        rest = std::copysign(0.0, b);
    return rest;
}

Value power(const Value& a, const Value& b)
{
    if (a.isInteger() && b.isInteger() && b.asInteger() >= 0) {
        std::int64_t base = a.asInteger(), result = 1;
        for (std::int64_t n = b.asInteger(); n > 0; n >>= 1) {
            if ((n & 1) != 0 && __builtin_mul_overflow(result, base, &result))
                overflow();
            if (n > 1 && __builtin_mul_overflow(base, base, &base))
                overflow();
        }
        return Value::integer(result);
    }
    const double x = a.asReal(), y = b.asReal();
    if (x == 0.0 && y < 0.0)
        fail("0.0 cannot be raised to a negative power");
    if (x < 0.0 && y != std::floor(y))
        fail("a negative number cannot be raised to a fraction");
    const double result = std::pow(x, y);
    if (std::isinf(result) && !std::isinf(x) && !std::isinf(y))
        fail("the result of a power is too large");
    return Value::real(result);
}

} // namespace

MethodObject::MethodObject(Value of, int which)
    : Object(sizeof(MethodObject), of.depth() + 1)
    , self(std::move(of))
    , method(which)
{
}

std::string escapeHtml(std::string_view text)
{
    std::string out;
    workOnBytes(text.size() * 8);
    for (const char c : text) {
        switch (c) {
        case '&':
            out += "&amp;";
            break;
        case '<':
            out += "&lt;";
            break;
        case '>':
            out += "&gt;";
            break;
        case '"':
            out += "&#34;";
            break;
        case '\'':
            out += "&#39;";
            break;
        default:
            out += c;
        }
    }
    checkString(out.size());
    return out;
}

Value calculate(Arithmetic op, const Value& a, const Value& b)
{
    if (a.isInteger() && b.isInteger()) {
        const std::int64_t x = a.asInteger(), y = b.asInteger();
        std::int64_t result = 0;
        switch (op) {
        case Arithmetic::add:
            if (__builtin_add_overflow(x, y, &result))
                overflow();
            return Value::integer(result);
        case Arithmetic::subtract:
            if (__builtin_sub_overflow(x, y, &result))
                overflow();
            return Value::integer(result);
        case Arithmetic::multiply:
            if (__builtin_mul_overflow(x, y, &result))
                overflow();
            return Value::integer(result);
        case Arithmetic::power:
            return power(a, b);
        case Arithmetic::divide:
            if (y == 0)
                fail("division by zero");
            return Value::real(static_cast<double>(x) / static_cast<double>(y));
        case Arithmetic::floor_divide:
        case Arithmetic::modulo: {
            if (y == 0)
                fail("integer division or modulo by zero");
            if (y == -1) {
                if (op == Arithmetic::modulo)
                    return Value::integer(0);
                return negative(Value::integer(x));
            }
            const std::int64_t rest = x % y, adjust = rest != 0 && (rest < 0) != (y < 0);
            return Value::integer(op == Arithmetic::modulo ? rest + (adjust ? y : 0) : x / y - adjust);
        }
        }
    }
    if (a.isNumber() && b.isNumber()) {
        const double x = a.asReal(), y = b.asReal();
        switch (op) {
        case Arithmetic::add:
            return Value::real(x + y);
        case Arithmetic::subtract:
            return Value::real(x - y);
        case Arithmetic::multiply:
            return Value::real(x * y);
        case Arithmetic::power:
            return power(a, b);
        case Arithmetic::divide:
        case Arithmetic::floor_divide:
        case Arithmetic::modulo:
            if (y == 0.0)
                fail("float division by zero");
            if (op == Arithmetic::divide)
                return Value::real(x / y);
            return Value::real(
                op == Arithmetic::modulo ? floorModulo(x, y) : std::floor((x - floorModulo(x, y)) / y + 0.5));
        }
    }
    switch (op) {
    case Arithmetic::add:
        if (a.isString() && b.isString()) {
            const bool safe = a.isSafe() || b.isSafe();
            const auto part = [&](const Value& value) {
                return safe && !value.isSafe() ? escapeHtml(value.text()) : value.text();
            };
            checkString(a.text().size() + b.text().size());
            return Value::string(part(a) + part(b), safe);
        }
        if (a.isSequence() && a.kind() == b.kind()) {
            checkList(a.items().size() + b.items().size());
            work(static_cast<std::int64_t>(a.items().size() + b.items().size()));
            std::vector<Value> items;
            items.reserve(a.items().size() + b.items().size());
            items.insert(items.end(), a.items().begin(), a.items().end());
            items.insert(items.end(), b.items().begin(), b.items().end());
            return a.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
        }
        if (!b.isUndefined() && (a.isString() || a.isSequence())) {
            const char* type = a.isString() ? "str" : typeName(a);
            fail(std::string("can only concatenate ") + type + " (not \"" + typeName(b) + "\") to " + type);
        }
        badOperands("+", a, b);
    case Arithmetic::subtract:
        badOperands("-", a, b);
    case Arithmetic::multiply:
        if ((a.isString() || a.isSequence()) && b.isInteger())
            return repeat(a, b.asInteger());
        if ((b.isString() || b.isSequence()) && a.isInteger())
            return repeat(b, a.asInteger());
        badOperands("*", a, b);
    case Arithmetic::divide:
        badOperands("/", a, b);
    case Arithmetic::floor_divide:
        badOperands("//", a, b);
    case Arithmetic::modulo:
        if (a.isString())
            return formatPercent(a, b);
        badOperands("%", a, b);
    default:
        badOperands("** or pow()", a, b);
    }
}

Value negative(const Value& a)
{
    if (a.isInteger()) {
        if (a.asInteger() == INT64_MIN)
            overflow();
        return Value::integer(-a.asInteger());
    }
    if (a.is(Kind::real))
        return Value::real(-a.asReal());
    refuseUndefined(a);
    if (a.is(Kind::big))
        overflow();
    fail(std::string("bad operand type for unary -: '") + typeName(a) + "'");
}

// --- parameters ------------------------------------------------------------------------------------------------

Parameters::Parameters(const char* function, const Arguments& arguments, std::initializer_list<std::string_view> names,
    std::size_t required)
    : m_function(function)
{
    if (arguments.positional.size() > names.size())
        fail(std::string(function) + " takes at most " + std::to_string(names.size()) + " argument(s), "
            + std::to_string(arguments.positional.size()) + " given");
    for (std::size_t i = 0; i < arguments.positional.size(); i++)
        m_values[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.keywords) {
        const auto known = std::find(names.begin(), names.end(), name);
        if (known == names.end())
            fail(std::string(function) + " got an unexpected keyword argument '" + std::string(name) + "'");
        const auto index = static_cast<std::size_t>(known - names.begin());
        if (m_values[index])
            fail(std::string(function) + " got multiple values for argument '" + std::string(name) + "'");
        m_values[index] = &value;
    }
    for (std::size_t i = 0; i < required; i++)
        if (!m_values[i])
            fail(std::string(function) + " misses its argument '" + std::string(names.begin()[i]) + "'");
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t fallback) const
{
    if (!has(i))
        return fallback;
    refuseUndefined(*m_values[i]);
    if (!m_values[i]->isInteger())
        fail(std::string(m_function) + " expects an integer, not '" + typeName(*m_values[i]) + "'");
    return m_values[i]->asInteger();
}

std::string Parameters::text(std::size_t i, std::string_view fallback) const
{
    if (!has(i))
        return std::string(fallback);
    refuseUndefined(*m_values[i]);
    if (!m_values[i]->isString())
        fail(std::string(m_function) + " expects a text, not '" + typeName(*m_values[i]) + "'");
    return m_values[i]->text();
}

// --- methods ---------------------------------------------------------------------------------------------------

namespace {

enum class M : std::uint8_t {
    // dict
    clear,
    copy,
    fromkeys,
    get,
    items,
    keys,
    pop,
    popitem,
    setdefault,
    update,
    values,
    // list
    append,
    count,
    extend,
    index,
    insert,
    remove,
    reverse,
    sort,
    // str
    capitalize,
    center,
    endswith,
    find,
    format,
    isalnum,
    isalpha,
    isdecimal,
    isdigit,
    islower,
    isnumeric,
    isspace,
    istitle,
    isupper,
    join,
    ljust,
    lower,
    lstrip,
    partition,
    removeprefix,
    removesuffix,
    replace,
    rfind,
    rindex,
    rjust,
    rpartition,
    rsplit,
    rstrip,
    split,
    splitlines,
    startswith,
    strip,
    swapcase,
    title,
    upper,
    zfill,
    // loop, cycler
    changed,
    cycle,
    next,
    reset,
};

enum : std::uint8_t { kDict = 1, kList = 2, kTuple = 4, kString = 8, kLoop = 16, kCycler = 32 };

struct MethodRow {
    std::string_view name;
    std::uint8_t owners; // types that have it
    std::uint8_t refused; // types where it would change the value
};

// In the order of M.
constexpr MethodRow kMethods[] {
    {"clear", kDict | kList, kDict | kList},
    {"copy", kDict | kList, 0},
    {"fromkeys", kDict, kDict},
    {"get", kDict, 0},
    {"items", kDict, 0},
    {"keys", kDict, 0},
    {"pop", kDict | kList, kDict | kList},
    {"popitem", kDict, kDict},
    {"setdefault", kDict, kDict},
    {"update", kDict, kDict},
    {"values", kDict, 0},
    {"append", kList, kList},
    {"count", kList | kTuple | kString, 0},
    {"extend", kList, kList},
    {"index", kList | kTuple | kString, 0},
    {"insert", kList, kList},
    {"remove", kList, kList},
    {"reverse", kList, kList},
    {"sort", kList, kList},
    {"capitalize", kString, 0},
    {"center", kString, 0},
    {"endswith", kString, 0},
    {"find", kString, 0},
    {"format", kString, 0},
    {"isalnum", kString, 0},
    {"isalpha", kString, 0},
    {"isdecimal", kString, 0},
    {"isdigit", kString, 0},
    {"islower", kString, 0},
    {"isnumeric", kString, 0},
    {"isspace", kString, 0},
    {"istitle", kString, 0},
    {"isupper", kString, 0},
    {"join", kString, 0},
    {"ljust", kString, 0},
    {"lower", kString, 0},
    {"lstrip", kString, 0},
    {"partition", kString, 0},
    {"removeprefix", kString, 0},
    {"removesuffix", kString, 0},
    {"replace", kString, 0},
    {"rfind", kString, 0},
    {"rindex", kString, 0},
    {"rjust", kString, 0},
    {"rpartition", kString, 0},
    {"rsplit", kString, 0},
    {"rstrip", kString, 0},
    {"split", kString, 0},
    {"splitlines", kString, 0},
    {"startswith", kString, 0},
    {"strip", kString, 0},
    {"swapcase", kString, 0},
    {"title", kString, 0},
    {"upper", kString, 0},
    {"zfill", kString, 0},
    {"changed", kLoop, 0},
    {"cycle", kLoop, 0},
    {"next", kCycler, 0},
    {"reset", kCycler, 0},
};
static_assert(std::size(kMethods) == static_cast<std::size_t>(M::reset) + 1);

std::uint8_t ownerBit(const Value& value)
{
    switch (value.kind()) {
    case Kind::dict:
        return kDict;
    case Kind::list:
        return kList;
    case Kind::tuple:
        return kTuple;
    case Kind::string:
        return kString;
    case Kind::loop:
        return kLoop;
    case Kind::cycler:
        return kCycler;
    default:
        return 0;
    }
}

struct Cycler final : Object {
    explicit Cycler(Value of)
        : Object(sizeof(Cycler), of.depth() + 1)
        , items(std::move(of))
    {
    }
    const Value items;
    std::size_t at = 0;
};

struct Joiner final : Object {
    explicit Joiner(Value with)
        : Object(sizeof(Joiner), 1)
        , separator(std::move(with))
    {
    }
    const Value separator;
    bool used = false;
};

std::size_t offsetOf(const StringObject& string, std::int64_t index) // of a code point; the end for those beyond
{
    if (index >= string.length)
        return string.text.size();
    if (string.ascii())
        return static_cast<std::size_t>(index);
    std::size_t offset = 0;
    for (std::int64_t i = 0; i < index; i++)
        offset += sizeAt(string.text, offset);
    workOnBytes(offset * 8);
    return offset;
}

std::string_view stripOf(std::string_view text, const std::string& characters, bool left, bool right)
{
    workOnBytes((text.size() + 1) * (characters.size() + 1) * 6);
    const auto in_set = [&](std::size_t from, std::size_t size) {
        for (std::size_t i = 0; i < characters.size(); i += sizeAt(characters, i))
            if (characters.compare(i, sizeAt(characters, i), text.substr(from, size)) == 0)
                return true;
        return false;
    };
    while (left && !text.empty() && in_set(0, sizeAt(text, 0)))
        text.remove_prefix(sizeAt(text, 0));
    while (right && !text.empty()) {
        const std::size_t start = startBefore(text, text.size());
        if (!in_set(start, text.size() - start))
            break;
        text.remove_suffix(text.size() - start);
    }
    return text;
}

std::vector<std::string_view> splitOnSpace(std::string_view text, std::int64_t limit, bool from_right)
{
    std::vector<std::string_view> parts;
    workOnBytes(text.size() * 8);
    text = from_right ? stripRight(text) : stripLeft(text);
    while (!text.empty()) {
        if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
            parts.push_back(text);
            break;
        }
        checkList(parts.size() + 1);
        if (!from_right) {
            std::size_t end = 0;
            while (end < text.size()) {
                std::size_t after = end;
                if (isSpace(decodeAt(text, after)))
                    break;
                end = after;
            }
            parts.push_back(text.substr(0, end));
            text = stripLeft(text.substr(end));
        } else {
            std::size_t start = text.size();
            while (start > 0) {
                std::size_t before = startBefore(text, start), at = before;
                if (isSpace(decodeAt(text, at)))
                    break;
                start = before;
            }
            parts.push_back(text.substr(start));
            text = stripRight(text.substr(0, start));
        }
    }
    if (from_right)
        std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<std::string_view> splitOn(
    std::string_view text, const std::string& separator, std::int64_t limit, bool from_right)
{
    if (separator.empty())
        fail("empty separator");
    workOnBytes(text.size() * 4);
    std::vector<std::string_view> parts;
    for (;;) {
        const bool more = limit < 0 || static_cast<std::int64_t>(parts.size()) < limit;
        const std::size_t found = !more ? std::string_view::npos
            : from_right                ? findLastText(text, separator)
                                        : findText(text, separator);
        checkList(parts.size() + 1);
        if (from_right && more)
            workOnBytes(text.size());
        if (found == std::string_view::npos) {
            parts.push_back(text);
            break;
        }
        parts.push_back(from_right ? text.substr(found + separator.size()) : text.substr(0, found));
        text = from_right ? text.substr(0, found) : text.substr(found + separator.size());
    }
    if (from_right)
        std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<std::string_view> splitLines(std::string_view text, bool keep_ends)
{
    std::vector<std::string_view> lines;
    workOnBytes(text.size() * 8);
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = i;
        const char32_t c = decodeAt(text, i);
        const bool breaks =
            (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (!breaks)
            continue;
        if (c == '\r' && i < text.size() && text[i] == '\n')
            i++;
        checkList(lines.size() + 1);
        lines.push_back(text.substr(start, (keep_ends ? i : end) - start));
        start = i;
    }
    if (start < text.size())
        lines.push_back(text.substr(start));
    return lines;
}

Value texts(const std::vector<std::string_view>& parts, bool safe)
{
    std::vector<Value> items;
    items.reserve(parts.size());
    for (const std::string_view part : parts)
        items.push_back(Value::string(std::string(part), safe));
    return Value::list(std::move(items));
}

std::string replaceIn(std::string_view text, std::string_view from, std::string_view to, std::int64_t limit)
{
    std::string out;
    workOnBytes(text.size() * 4);
    if (limit < 0)
        limit = INT64_MAX;
    if (from.empty()) { // before every character and at the end
        std::size_t i = 0;
        for (; limit > 0; limit--) {
            put(out, to);
            if (i >= text.size())
                break;
            const std::size_t size = sizeAt(text, i);
            put(out, text.substr(i, size));
            i += size;
        }
        if (i < text.size())
            put(out, text.substr(i));
        return out;
    }
    for (; limit > 0; limit--) {
        const std::size_t found = findText(text, from);
        if (found == std::string_view::npos)
            break;
        put(out, text.substr(0, found));
        put(out, to);
        work(1);
        text.remove_prefix(found + from.size());
    }
    put(out, text);
    return out;
}

std::string padded(
    const StringObject& string, std::int64_t width, const std::string& fill, int where) // -1 left, 0 both, 1 right
{
    if (countCodePoints(fill) != 1)
        fail("The fill character must be exactly one character long");
    const std::int64_t space = width - string.length;
    if (space <= 0)
        return string.text;
    if (static_cast<std::size_t>(space) > kMaxString)
        checkString(kMaxString + 1);
    const std::int64_t left = where < 0 ? space : where > 0 ? 0 : space / 2 + (space & width & 1);
    std::string out;
    const auto pad = [&](std::int64_t count) {
        checkString(out.size() + static_cast<std::size_t>(count) * fill.size());
        workOnBytes(static_cast<std::size_t>(count) * fill.size() * 4);
        for (std::int64_t i = 0; i < count; i++)
            out += fill;
    };
    pad(left);
    put(out, string.text);
    pad(space - left);
    return out;
}

template <class Predicate> bool allCharacters(const std::string& text, Predicate predicate)
{
    workOnBytes(text.size() * 8);
    for (std::size_t i = 0; i < text.size();)
        if (!predicate(decodeAt(text, i)))
            return false;
    return !text.empty();
}

bool hasCase(const std::string& text, bool upper) // isupper, islower
{
    bool any = false;
    workOnBytes(text.size() * 8);
    for (std::size_t i = 0; i < text.size();) {
        const char32_t c = decodeAt(text, i);
        if (upper ? isLower(c) : isUpper(c))
            return false;
        any |= isCased(c);
    }
    return any;
}

bool affix(const StringObject& self, const Arguments& arguments, bool at_end)
{
    const char* function = at_end ? "endswith" : "startswith";
    const Parameters parameters(function, arguments, {"prefix", "start", "end"}, 1);
    const auto clamp = [&](std::int64_t index) {
        return std::clamp<std::int64_t>(index < 0 ? index + self.length : index, 0, self.length);
    };
    const bool has_end = parameters.has(2) && !parameters[2].is(Kind::none);
    const bool has_start = parameters.has(1) && !parameters[1].is(Kind::none);
    const std::int64_t start = has_start ? parameters.integer(1, 0) : 0;
    const std::size_t from = offsetOf(self, clamp(start));
    const std::size_t to = has_end ? offsetOf(self, clamp(parameters.integer(2, 0))) : self.text.size();
    if (start > self.length || to < from)
        return false;
    const std::string_view text = std::string_view(self.text).substr(from, to - from);
    const auto matches = [&](const Value& piece) {
        if (!piece.isString())
            fail(std::string(function) + " first arg must be str or a tuple of str, not " + typeName(piece));
        workOnBytes(piece.text().size());
        return at_end ? text.ends_with(piece.text()) : text.starts_with(piece.text());
    };
    const Value& pieces = parameters[0];
    refuseUndefined(pieces);
    if (pieces.is(Kind::tuple))
        return std::any_of(pieces.items().begin(), pieces.items().end(), matches);
    return matches(pieces);
}

Value findIn(const StringObject& self, const Arguments& arguments, const char* function, bool from_right, bool must)
{
    const Parameters parameters(function, arguments, {"sub", "start", "end"}, 1);
    const std::string sub = parameters.text(0, {});
    const auto clamp = [&](std::int64_t index) {
        return std::clamp<std::int64_t>(index < 0 ? index + self.length : index, 0, self.length);
    };
    const std::int64_t start = parameters.integer(1, 0);
    const std::size_t from = offsetOf(self, clamp(start));
    const std::size_t to = offsetOf(self, clamp(parameters.integer(2, self.length)));
    workOnBytes(self.text.size() * 4);
    std::size_t found = std::string_view::npos;
    if (from <= to && start <= self.length) {
        const std::string_view text = std::string_view(self.text).substr(from, to - from);
        found = from_right ? findLastText(text, sub) : findText(text, sub);
    }
    if (found == std::string_view::npos) {
        if (must)
            fail("substring not found");
        return Value::integer(-1);
    }
    return Value::integer(countCodePoints(std::string_view(self.text).substr(0, from + found)));
}

std::int64_t countIn(const std::string& text, const std::string& sub)
{
    if (sub.empty())
        return countCodePoints(text) + 1;
    std::int64_t count = 0;
    workOnBytes(text.size() * 4);
    for (std::size_t from = findText(text, sub); from != std::string::npos;
         from = findText(text, sub, from + sub.size()))
        count++;
    return count;
}

Value stringMethod(M method, const Value& self, Arguments& arguments)
{
    const StringObject& string = self.asString();
    const std::string& text = string.text;
    const bool safe = self.isSafe();
    const char* name = kMethods[static_cast<std::size_t>(method)].name.data();
    const auto none = [&] { const Parameters parameters(name, arguments, {}); };
    const auto result = [&](std::string out) { return Value::string(std::move(out), safe); };
    const auto quoted = [&](const Value& value) { // what a marked text does to its arguments
        return safe && !value.isSafe() ? escapeHtml(value.text()) : value.text();
    };
    workOnBytes(text.size());
    switch (method) {
    case M::capitalize:
        none();
        workOnBytes(text.size() * 32);
        return result(capitalize(text));
    case M::lower:
        none();
        return result(lowerOf(text));
    case M::upper:
        none();
        return result(upperOf(text));
    case M::title:
        none();
        workOnBytes(text.size() * 32);
        return result(toTitle(text));
    case M::swapcase:
        none();
        workOnBytes(text.size() * 128);
        return result(swapCase(text));
    case M::strip:
    case M::lstrip:
    case M::rstrip: {
        const Parameters parameters(name, arguments, {"chars"});
        const bool left = method != M::rstrip, right = method != M::lstrip;
        if (parameters.has(0) && !parameters[0].is(Kind::none))
            return result(std::string(stripOf(text, parameters.text(0, {}), left, right)));
        std::string_view stripped = text;
        if (left)
            stripped = stripLeft(stripped);
        if (right)
            stripped = stripRight(stripped);
        return result(std::string(stripped));
    }
    case M::split:
    case M::rsplit: {
        const Parameters parameters(name, arguments, {"sep", "maxsplit"});
        const std::int64_t limit = parameters.integer(1, -1);
        if (parameters.has(0) && !parameters[0].is(Kind::none))
            return texts(splitOn(text, parameters.text(0, {}), limit, method == M::rsplit), safe);
        return texts(splitOnSpace(text, limit, method == M::rsplit), safe);
    }
    case M::splitlines: {
        const Parameters parameters(name, arguments, {"keepends"});
        return texts(splitLines(text, parameters.flag(0)), safe);
    }
    case M::partition:
    case M::rpartition: {
        const Parameters parameters(name, arguments, {"sep"}, 1);
        const std::string separator = parameters.text(0, {});
        if (separator.empty())
            fail("empty separator");
        workOnBytes(text.size() * 4);
        const std::size_t found = method == M::partition ? findText(text, separator) : findLastText(text, separator);
        if (found == std::string::npos)
            return method == M::partition ? Value::tuple({self, result({}), result({})})
                                          : Value::tuple({result({}), result({}), self});
        return Value::tuple(
            {result(text.substr(0, found)), result(separator), result(text.substr(found + separator.size()))});
    }
    case M::startswith:
        return Value::boolean(affix(string, arguments, false));
    case M::endswith:
        return Value::boolean(affix(string, arguments, true));
    case M::replace: {
        const Parameters parameters(name, arguments, {"old", "new", "count"}, 2);
        parameters.text(0, {});
        parameters.text(1, {});
        return result(replaceIn(text, quoted(parameters[0]), quoted(parameters[1]), parameters.integer(2, -1)));
    }
    case M::removeprefix:
    case M::removesuffix: {
        const Parameters parameters(name, arguments, {"affix"}, 1);
        const std::string piece = parameters.text(0, {});
        if (method == M::removeprefix)
            return result(text.starts_with(piece) ? text.substr(piece.size()) : text);
        return result(text.ends_with(piece) ? text.substr(0, text.size() - piece.size()) : text);
    }
    case M::find:
        return findIn(string, arguments, name, false, false);
    case M::rfind:
        return findIn(string, arguments, name, true, false);
    case M::index:
        return findIn(string, arguments, name, false, true);
    case M::rindex:
        return findIn(string, arguments, name, true, true);
    case M::count: {
        const Parameters parameters(name, arguments, {"sub"}, 1);
        return Value::integer(countIn(text, parameters.text(0, {})));
    }
    case M::join: {
        const Parameters parameters(name, arguments, {"iterable"}, 1);
        std::string out;
        std::size_t i = 0;
        for (const Value& item : collect(parameters[0])) {
            if (!item.isString())
                fail("sequence item " + std::to_string(i) + ": expected str instance, " + typeName(item) + " found");
            if (i++ > 0)
                put(out, text);
            put(out, quoted(item));
        }
        return result(std::move(out));
    }
    case M::center:
    case M::ljust:
    case M::rjust: {
        const Parameters parameters(name, arguments, {"width", "fillchar"}, 1);
        const int where = method == M::center ? 0 : method == M::ljust ? 1 : -1;
        return result(padded(string, parameters.integer(0, 0), parameters.text(1, " "), where));
    }
    case M::zfill: {
        const Parameters parameters(name, arguments, {"width"}, 1);
        const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
        const Value digits = Value::string(text.substr(sign));
        const std::int64_t width = parameters.integer(0, 0);
        return result(text.substr(0, sign)
            + padded(digits.asString(), width < 1 ? 0 : width - static_cast<std::int64_t>(sign), "0", -1));
    }
    case M::format:
        return formatBraces(self, arguments);
    case M::isalnum:
        none();
        return Value::boolean(allCharacters(text, [](char32_t c) { return isAlpha(c) || isNumeric(c); }));
    case M::isalpha:
        none();
        return Value::boolean(allCharacters(text, isAlpha));
    case M::isdecimal:
    case M::isdigit:
        none();
        return Value::boolean(allCharacters(text, isDigit));
    case M::isnumeric:
        none();
        return Value::boolean(allCharacters(text, isNumeric));
    case M::isspace:
        none();
        return Value::boolean(allCharacters(text, isSpace));
    case M::islower:
        none();
        return Value::boolean(hasCase(text, false));
    case M::isupper:
        none();
        return Value::boolean(hasCase(text, true));
    case M::istitle:
        none();
        return Value::boolean(!text.empty() && toTitle(text) == text && upperOf(text) != lowerOf(text));
    default:
        fail(std::string("'str object' has no attribute '") + name + "'");
    }
}

Value sequenceMethod(M method, const Value& self, const Arguments& arguments)
{
    const std::vector<Value>& items = self.items();
    if (method == M::copy) {
        const Parameters parameters("copy", arguments, {});
        return self;
    }
    work(static_cast<std::int64_t>(items.size()));
    if (method == M::count) {
        const Parameters parameters("count", arguments, {"value"}, 1);
        return Value::integer(
            std::count_if(items.begin(), items.end(), [&](const Value& item) { return equals(item, parameters[0]); }));
    }
    const Parameters parameters("index", arguments, {"value"}, 1);
    const auto found =
        std::find_if(items.begin(), items.end(), [&](const Value& item) { return equals(item, parameters[0]); });
    if (found == items.end())
        fail(toRepr(parameters[0]) + " is not in list");
    return Value::integer(found - items.begin());
}

Value dictMethod(M method, const Value& self, const Arguments& arguments)
{
    if (method == M::get) {
        const Parameters parameters("get", arguments, {"key", "default"}, 1);
        if (!arguments.keywords.empty())
            fail("dict.get() takes no keyword arguments");
        if (const Value* value = self.asDict().find(parameters[0]))
            return *value;
        return parameters.valueOr(1, Value());
    }
    const Parameters parameters("dict method", arguments, {});
    switch (method) {
    case M::copy:
        return self;
    case M::keys:
        return makeView(self, ViewObject::What::keys);
    case M::values:
        return makeView(self, ViewObject::What::values);
    default:
        return makeView(self, ViewObject::What::items);
    }
}

Value cyclerMethod(M method, const Value& self)
{
    auto& cycler = static_cast<Cycler&>(*self.object());
    if (method == M::reset) {
        cycler.at = 0;
        return Value();
    }
    const Value value = cycler.items.items()[cycler.at];
    cycler.at = (cycler.at + 1) % cycler.items.items().size();
    return value;
}

bool isDunder(std::string_view name)
{
    return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

std::string objectName(const Value& value)
{
    return value.is(Kind::none) ? "'None'" : std::string("'") + typeName(value) + " object'";
}

Value unsafe(const Value& of, std::string_view name)
{
    return Value::undefined(
        "access to attribute '" + std::string(name) + "' of '" + typeName(of) + "' object is unsafe.");
}

Value missing(const Value& of, std::string_view name)
{
    return Value::undefined(objectName(of) + " has no attribute '" + std::string(name) + "'");
}

// What Python's getattr finds, or nothing.
std::optional<Value> findAttribute(const Value& of, std::string_view name, int method)
{
    if (isDunder(name))
        return unsafe(of, name);
    if (method >= 0) {
        const std::uint8_t owner = ownerBit(of);
        if (kMethods[method].refused & owner)
            return unsafe(of, name);
        if (kMethods[method].owners & owner)
            return Value::own(Kind::method, new MethodObject(of, method));
    }
    if (of.is(Kind::space)) {
        if (const Value* value = of.asSpace()->find(name))
            return *value;
    } else if (of.is(Kind::loop)) {
        return static_cast<LoopObject&>(*of.object()).attribute(name);
    } else if (of.is(Kind::cycler) && name == "current") {
        const auto& cycler = static_cast<const Cycler&>(*of.object());
        return cycler.items.items()[cycler.at];
    } else if (of.is(Kind::range) && (name == "start" || name == "stop" || name == "step")) {
        const RangeObject& range = of.asRange();
        return Value::integer(name == "start" ? range.start : name == "stop" ? range.stop : range.step);
    }
    return {};
}

} // namespace

int findMethod(std::string_view name)
{
    return findRow(kMethods, name);
}

bool hasMethod(const Value& self, int method)
{
    const std::uint8_t owner = ownerBit(self);
    return (kMethods[method].owners & owner & ~kMethods[method].refused & ~kLoop) != 0;
}

Value callMethod(int method, const Value& self, Arguments arguments)
{
    work(2);
    switch (self.kind()) {
    case Kind::string:
        return stringMethod(static_cast<M>(method), self, arguments);
    case Kind::list:
    case Kind::tuple:
        return sequenceMethod(static_cast<M>(method), self, arguments);
    case Kind::dict:
        return dictMethod(static_cast<M>(method), self, arguments);
    case Kind::cycler:
        return cyclerMethod(static_cast<M>(method), self);
    case Kind::joiner: {
        auto& joiner = static_cast<Joiner&>(*self.object());
        return std::exchange(joiner.used, true) ? joiner.separator : Value::string({});
    }
    default:
        fail(std::string("'") + typeName(self) + "' object is not callable");
    }
}

Value getAttribute(const Value& of, std::string_view name, int method)
{
    refuseUndefined(of);
    if (std::optional<Value> value = findAttribute(of, name, method))
        return std::move(*value);
    if (of.is(Kind::dict))
        if (const Value* value = of.asDict().find(name))
            return *value;
    return missing(of, name);
}

Value getItem(const Value& of, const Value& key)
{
    refuseUndefined(of);
    if (key.isInteger()) {
        const std::int64_t index = key.asInteger();
        const auto resolve = [&](std::int64_t size) { return index < 0 ? index + size : index; };
        switch (of.kind()) {
        case Kind::list:
        case Kind::tuple: {
            const auto size = static_cast<std::int64_t>(of.items().size());
            const std::int64_t at = resolve(size);
            if (at >= 0 && at < size)
                return of.items()[static_cast<std::size_t>(at)];
            break;
        }
        case Kind::string: {
            const std::int64_t at = resolve(of.asString().length);
            if (at >= 0 && at < of.asString().length) {
                const std::size_t offset = offsetOf(of.asString(), at);
                return Value::string(of.text().substr(offset, sizeAt(of.text(), offset)), of.isSafe());
            }
            break;
        }
        case Kind::range: {
            const std::int64_t at = resolve(of.asRange().size);
            if (at >= 0 && at < of.asRange().size)
                return Value::integer(of.asRange().at(at));
            break;
        }
        default:
            break;
        }
    }
    if (of.is(Kind::dict) && !key.is(Kind::list) && !key.is(Kind::dict))
        if (const Value* value = of.asDict().find(key))
            return *value;
    if (key.isString()) {
        if (std::optional<Value> value = findAttribute(of, key.text(), findMethod(key.text())))
            return std::move(*value);
        return missing(of, key.text());
    }
    return Value::undefined(objectName(of) + " has no element " + toRepr(key).substr(0, 100));
}

Value getSlice(const Value& of, const Value& start, const Value& stop, const Value& step)
{
    refuseUndefined(of);
    if (!of.isSequence() && !of.isString() && !of.is(Kind::range))
        fail(std::string("'") + typeName(of) + "' object cannot be sliced");
    for (const Value* bound : {&start, &stop, &step})
        if (!bound->is(Kind::none) && !bound->isInteger())
            fail("slice indices must be integers or none");
    const std::int64_t stride = step.is(Kind::none) ? 1 : step.asInteger();
    if (stride == 0)
        fail("slice step cannot be zero");
    const std::int64_t size = lengthOf(of);
    const auto bound = [&](const Value& value, std::int64_t fallback) {
        if (value.is(Kind::none))
            return fallback;
        std::int64_t at = value.asInteger();
        if (at < 0)
            at = std::max<std::int64_t>(at, -size - 1) + size;
        return stride > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
    };
    const std::int64_t from = bound(start, stride > 0 ? 0 : size - 1);
    const std::int64_t to = bound(stop, stride > 0 ? size : -1);
    if (of.isString() && stride == 1) {
        const std::size_t begin = offsetOf(of.asString(), from);
        const std::size_t end = std::max(begin, offsetOf(of.asString(), to));
        return Value::string(of.text().substr(begin, end - begin), of.isSafe());
    }
    std::vector<std::int64_t> picks;
    for (std::int64_t i = from; stride > 0 ? i < to : i > to;) {
        picks.push_back(i);
        if (__builtin_add_overflow(i, stride, &i))
            break;
        if (picks.size() % 1024 == 0)
            work(1024);
    }
    work(static_cast<std::int64_t>(picks.size()));
    if (of.isString()) {
        const std::string& text = of.text();
        std::vector<std::uint32_t> offsets;
        if (!of.asString().ascii()) {
            work(size);
            offsets.reserve(static_cast<std::size_t>(size));
            for (std::size_t i = 0; i < text.size(); i += sizeAt(text, i))
                offsets.push_back(static_cast<std::uint32_t>(i));
        }
        std::string out;
        for (const std::int64_t pick : picks) {
            const std::size_t offset =
                offsets.empty() ? static_cast<std::size_t>(pick) : offsets[static_cast<std::size_t>(pick)];
            out.append(text, offset, sizeAt(text, offset));
        }
        return Value::string(std::move(out), of.isSafe());
    }
    if (of.is(Kind::range)) {
        const RangeObject& range = of.asRange();
        const std::int64_t by = stride * range.step; // both are small once more than one element is picked
        const std::int64_t first = range.start + from * range.step;
        if (picks.empty())
            return makeRange(first, first, 1);
        if (picks.size() == 1)
            return makeRange(range.at(from), range.at(from) + 1, 1);
        return makeRange(first, range.start + to * range.step, by);
    }
    std::vector<Value> items;
    items.reserve(picks.size());
    for (const std::int64_t pick : picks)
        items.push_back(of.items()[static_cast<std::size_t>(pick)]);
    return of.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

// --- tests -----------------------------------------------------------------------------------------------------

namespace {

enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge };

bool compare(Compare how, const Value& a, const Value& b)
{
    switch (how) {
    case Compare::eq:
        return equals(a, b);
    case Compare::ne:
        return !equals(a, b);
    case Compare::lt:
        return lessThan(a, b, "<");
    case Compare::le:
        return lessThan(a, b, "<=") || equals(a, b);
    case Compare::gt:
        return lessThan(b, a, ">");
    default:
        return lessThan(b, a, ">=") || equals(a, b);
    }
}

using Test = bool (*)(const Value& subject, const Arguments& arguments);

template <Compare how> bool compareTest(const Value& subject, const Arguments& arguments)
{
    const Parameters parameters("comparison", arguments, {"other"}, 1);
    return compare(how, subject, parameters[0]);
}

template <bool (*check)(const Value&)> bool plainTest(const Value& subject, const Arguments& arguments)
{
    const Parameters parameters("test", arguments, {});
    return check(subject);
}

bool isOdd(const Value& value)
{
    return equals(calculate(Arithmetic::modulo, value, Value::integer(2)), Value::integer(1));
}
bool isEven(const Value& value)
{
    return equals(calculate(Arithmetic::modulo, value, Value::integer(2)), Value::integer(0));
}
bool isDefined(const Value& value)
{
    return !value.isUndefined();
}
bool isUndefinedTest(const Value& value)
{
    return value.isUndefined();
}
bool isNone(const Value& value)
{
    return value.is(Kind::none);
}
bool isStringTest(const Value& value)
{
    return value.isString();
}
bool isBoolean(const Value& value)
{
    return value.is(Kind::boolean);
}
bool isTrue(const Value& value)
{
    return value.is(Kind::boolean) && value.asBool();
}
bool isFalse(const Value& value)
{
    return value.is(Kind::boolean) && !value.asBool();
}
bool isIntegerTest(const Value& value)
{
    return value.is(Kind::integer) || value.is(Kind::big);
}
bool isFloat(const Value& value)
{
    return value.is(Kind::real);
}
bool isNumberTest(const Value& value)
{
    return value.isNumber() || value.is(Kind::big);
}
bool isMapping(const Value& value)
{
    return value.is(Kind::dict);
}
bool isIterableTest(const Value& value)
{
    return isIterable(value);
}
bool isSequenceTest(const Value& value)
{
    return value.isString() || value.isSequence() || value.is(Kind::dict) || value.is(Kind::range)
        || value.isUndefined();
}
bool isCallable(const Value& value)
{
    return value.is(Kind::builtin) || value.is(Kind::macro) || value.is(Kind::method) || value.is(Kind::joiner)
        || value.is(Kind::loop) || value.isUndefined();
}
bool isUpperTest(const Value& value)
{
    return hasCase(toText(value), true);
}
bool isLowerTest(const Value& value)
{
    return hasCase(toText(value), false);
}
bool isEscaped(const Value& value)
{
    return value.isSafe();
}

bool isDivisible(const Value& subject, const Arguments& arguments)
{
    const Parameters parameters("divisibleby", arguments, {"num"}, 1);
    return equals(calculate(Arithmetic::modulo, subject, parameters[0]), Value::integer(0));
}

bool isSame(const Value& subject, const Arguments& arguments)
{
    const Parameters parameters("sameas", arguments, {"other"}, 1);
    const Value& other = parameters[0];
    if (subject.kind() != other.kind())
        return false;
    const bool plain = subject.kind() < Kind::undefined || subject.isString();
    return plain ? equals(subject, other) : subject.object() == other.object();
}

bool isIn(const Value& subject, const Arguments& arguments)
{
    const Parameters parameters("in", arguments, {"seq"}, 1);
    return contains(parameters[0], subject);
}

bool isFilter(const Value& subject, const Arguments&)
{
    return subject.isString() && findFilter(subject.text()) >= 0;
}
bool isTest(const Value& subject, const Arguments&)
{
    return subject.isString() && findTest(subject.text()) >= 0;
}

struct TestRow {
    std::string_view name;
    Test test;
};

constexpr TestRow kTests[] {
    {"defined", plainTest<isDefined>},
    {"undefined", plainTest<isUndefinedTest>},
    {"none", plainTest<isNone>},
    {"string", plainTest<isStringTest>},
    {"mapping", plainTest<isMapping>},
    {"iterable", plainTest<isIterableTest>},
    {"sequence", plainTest<isSequenceTest>},
    {"boolean", plainTest<isBoolean>},
    {"true", plainTest<isTrue>},
    {"false", plainTest<isFalse>},
    {"integer", plainTest<isIntegerTest>},
    {"float", plainTest<isFloat>},
    {"number", plainTest<isNumberTest>},
    {"odd", plainTest<isOdd>},
    {"even", plainTest<isEven>},
    {"divisibleby", isDivisible},
    {"callable", plainTest<isCallable>},
    {"upper", plainTest<isUpperTest>},
    {"lower", plainTest<isLowerTest>},
    {"escaped", plainTest<isEscaped>},
    {"sameas", isSame},
    {"in", isIn},
    {"filter", isFilter},
    {"test", isTest},
    {"eq", compareTest<Compare::eq>},
    {"equalto", compareTest<Compare::eq>},
    {"==", compareTest<Compare::eq>},
    {"ne", compareTest<Compare::ne>},
    {"!=", compareTest<Compare::ne>},
    {"lt", compareTest<Compare::lt>},
    {"lessthan", compareTest<Compare::lt>},
    {"<", compareTest<Compare::lt>},
    {"le", compareTest<Compare::le>},
    {"<=", compareTest<Compare::le>},
    {"gt", compareTest<Compare::gt>},
    {"greaterthan", compareTest<Compare::gt>},
    {">", compareTest<Compare::gt>},
    {"ge", compareTest<Compare::ge>},
    {">=", compareTest<Compare::ge>},
};

// --- filters ---------------------------------------------------------------------------------------------------

using Filter = Value (*)(const Value& subject, Arguments& arguments, Host& host);

Value filterAbs(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("abs", arguments, {});
    if (subject.isInteger())
        return subject.asInteger() < 0 ? negative(subject) : Value::integer(subject.asInteger());
    if (subject.is(Kind::real))
        return Value::real(std::fabs(subject.asReal()));
    refuseUndefined(subject);
    fail(std::string("bad operand type for abs(): '") + typeName(subject) + "'");
}

Value filterAttr(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("attr", arguments, {"name"}, 1);
    refuseUndefined(subject);
    const std::string name = parameters.text(0, {});
    if (std::optional<Value> value = findAttribute(subject, name, findMethod(name)))
        return std::move(*value);
    return missing(subject, name);
}

Value filterBatch(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("batch", arguments, {"linecount", "fill_with"}, 1);
    const std::int64_t size = parameters.integer(0, 0);
    const Value fill = parameters.valueOr(1, Value());
    return deferred(subject, [=] {
        std::vector<Value> out, row;
        for (const Value& item : collect(subject)) {
            if (static_cast<std::int64_t>(row.size()) == size)
                out.push_back(Value::list(std::exchange(row, {})));
            row.push_back(item);
        }
        if (!row.empty()) {
            if (!fill.is(Kind::none) && size > static_cast<std::int64_t>(kMaxList))
                checkList(kMaxList + 1);
            while (!fill.is(Kind::none) && static_cast<std::int64_t>(row.size()) < size)
                row.push_back(fill);
            out.push_back(Value::list(std::move(row)));
        }
        return out;
    });
}

Value filterSlice(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("slice", arguments, {"slices", "fill_with"}, 1);
    const std::int64_t count = parameters.integer(0, 0);
    const Value fill = parameters.valueOr(1, Value());
    return deferred(subject, [=] {
        const std::vector<Value> items = collect(subject);
        if (count <= 0 || count > static_cast<std::int64_t>(kMaxList))
            fail("slice expects a positive number of slices");
        const auto size = static_cast<std::int64_t>(items.size());
        const std::int64_t each = size / count, longer = size % count;
        std::vector<Value> out;
        std::size_t at = 0;
        work(count);
        for (std::int64_t i = 0; i < count; i++) {
            const auto end = at + static_cast<std::size_t>(each + (i < longer));
            std::vector<Value> row(
                items.begin() + static_cast<std::ptrdiff_t>(at), items.begin() + static_cast<std::ptrdiff_t>(end));
            if (!fill.is(Kind::none) && longer != 0 && i >= longer)
                row.push_back(fill);
            out.push_back(Value::list(std::move(row)));
            at = end;
        }
        return out;
    });
}

Value filterCapitalize(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("capitalize", arguments, {});
    const std::string text = toText(subject);
    workOnBytes(text.size() * 32);
    return Value::string(capitalize(text), subject.isSafe());
}

Value filterCenter(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("center", arguments, {"width"});
    const Value text = softText(subject);
    return Value::string(padded(text.asString(), parameters.integer(0, 80), " ", 0), subject.isSafe());
}

Value filterDefault(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("default", arguments, {"default_value", "boolean"});
    const bool replaces = subject.isUndefined() || (parameters.flag(1) && !truth(subject));
    return replaces ? parameters.valueOr(0, Value::string({})) : subject;
}

Value filterDictsort(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
    const std::string by = parameters.text(1, "key");
    if (by != "key" && by != "value")
        fail("dictsort sorts by either \"key\" or \"value\"");
    refuseUndefined(subject);
    if (!subject.is(Kind::dict))
        fail(objectName(subject) + " has no attribute 'items'");
    return Value::list(sorted(collect(makeView(subject, ViewObject::What::items)),
        sortKey(Value::integer(by == "value"), parameters.flag(0)), parameters.flag(2)));
}

Value filterEscape(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("escape", arguments, {});
    return subject.isSafe() ? subject : Value::string(escapeHtml(toText(subject)), true);
}

Value filterForceEscape(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("forceescape", arguments, {});
    return Value::string(escapeHtml(toText(subject)), true);
}

Value filterFilesize(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("filesizeformat", arguments, {"binary"});
    refuseUndefined(subject);
    const std::optional<double> number = subject.isString() ? parseReal(subject.text())
        : subject.isNumber()                                ? std::optional(subject.asReal())
                                                            : std::nullopt;
    if (!number)
        fail("filesizeformat expects a number");
    const double base = parameters.flag(0) ? 1024 : 1000;
    static constexpr const char* kDecimal[] {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static constexpr const char* kBinary[] {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    if (*number == 1)
        return Value::string("1 Byte");
    if (*number < base)
        return Value::string(std::to_string(static_cast<std::int64_t>(std::max(*number, -9e18))) + " Bytes");
    double unit = base;
    for (std::size_t i = 0; i < 8; i++, unit *= base)
        if (*number < unit * base || i == 7)
            return Value::string(formatFixed(*number / unit, 1) + " " + (parameters.flag(0) ? kBinary : kDecimal)[i]);
    return Value();
}

Value filterFirst(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("first", arguments, {});
    Value item;
    if (iterate(subject).asIterator().next(item))
        return item;
    return Value::undefined("No first item, sequence was empty.");
}

Value filterLast(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("last", arguments, {});
    if (subject.is(Kind::iterator) || !isIterable(subject))
        fail(std::string("'") + typeName(subject) + "' object is not reversible");
    const std::int64_t size = lengthOf(subject);
    if (size == 0)
        return Value::undefined("No last item, sequence was empty.");
    if (subject.is(Kind::dict))
        return subject.asDict().entries.back().first;
    if (subject.is(Kind::view))
        return subject.asView().at(static_cast<std::size_t>(size - 1));
    const Value item = getItem(subject, Value::integer(-1));
    return item.isString() && subject.isString() ? item.marked(false) : item;
}

Value filterFloat(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("float", arguments, {"default"});
    refuseUndefined(subject);
    if (subject.isNumber())
        return Value::real(subject.asReal());
    if (subject.isString())
        if (const std::optional<double> value = parseReal(subject.text()))
            return Value::real(*value);
    return parameters.valueOr(0, Value::real(0.0));
}

Value filterInt(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("int", arguments, {"default", "base"});
    refuseUndefined(subject);
    std::optional<std::int64_t> value;
    if (subject.isInteger()) {
        value = subject.asInteger();
    } else if (subject.is(Kind::big)) {
        return subject;
    } else if (subject.is(Kind::real)) {
        value = truncated(subject.asReal());
    } else if (subject.isString()) {
        value = parseInteger(subject.text(), parameters.integer(1, 10));
        if (!value)
            if (const std::optional<double> real = parseReal(subject.text()))
                value = truncated(*real);
    }
    return value ? Value::integer(*value) : parameters.valueOr(0, Value::integer(0));
}

Value filterFormat(const Value& subject, Arguments& arguments, Host&)
{
    const Value format = softText(subject);
    if (!arguments.positional.empty() && !arguments.keywords.empty())
        fail("can't handle positional and keyword arguments at the same time");
    if (arguments.keywords.empty())
        return formatPercent(format, Value::tuple(std::move(arguments.positional)));
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : arguments.keywords)
        entries.emplace_back(Value::string(std::string(name)), std::move(value));
    return formatPercent(format, makeDict(std::move(entries)));
}

Value filterGroupby(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const bool case_sensitive = parameters.flag(2);
    const auto get = [base = attributeGetter(parameters[0]), fallback = parameters.valueOr(1, Value())](
                         const Value& item) {
        Value value = base(item);
        return value.isUndefined() && !fallback.is(Kind::none) ? fallback : value;
    };
    const auto key = [&](const Value& item) { return case_sensitive ? get(item) : foldCase(get(item)); };
    std::vector<Value> groups, members;
    Value current;
    const auto close = [&] {
        if (!members.empty()) {
            Value head = case_sensitive ? current : get(members.front());
            groups.push_back(Value::tuple({std::move(head), Value::list(std::exchange(members, {}))}));
        }
    };
    for (Value& item : sorted(collect(subject), key, false)) {
        Value now = key(item);
        if (members.empty() || !equals(now, current)) {
            close();
            current = std::move(now);
        }
        members.push_back(std::move(item));
    }
    close();
    return Value::list(std::move(groups));
}

Value filterIndent(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("indent", arguments, {"width", "first", "blank"});
    std::string space;
    if (parameters.has(0) && parameters[0].isString())
        space = parameters[0].text();
    else
        space = repeat(Value::string(" "), parameters.integer(0, 4)).text();
    refuseUndefined(subject);
    if (!subject.isString())
        fail(std::string("unsupported operand type(s) for +=: '") + typeName(subject) + "' and 'str'");
    const std::string text = subject.text() + "\n";
    const bool blank = parameters.flag(2);
    std::string out;
    bool first = true;
    for (const std::string_view line : splitLines(text, false)) {
        if (!first)
            put(out, "\n");
        if (first ? parameters.flag(1) : (blank || !line.empty()))
            put(out, space);
        put(out, line);
        first = false;
    }
    return Value::string(std::move(out), subject.isSafe());
}

Value filterItems(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("items", arguments, {});
    return deferred(subject, [subject] {
        if (subject.isUndefined())
            return std::vector<Value>();
        if (!subject.is(Kind::dict))
            fail("Can only get item pairs from a mapping.");
        return collect(makeView(subject, ViewObject::What::items));
    });
}

Value filterJoin(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("join", arguments, {"d", "attribute"});
    const std::string separator = parameters.has(0) ? toText(parameters[0]) : std::string();
    const auto get = attributeGetter(parameters.valueOr(1, Value()));
    std::string out;
    bool first = true;
    const Value items = iterate(subject);
    for (Value item; items.asIterator().next(item);) {
        if (!first)
            put(out, separator);
        first = false;
        appendText(out, get(item));
    }
    return Value::string(std::move(out));
}

Value filterLength(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("length", arguments, {});
    return Value::integer(lengthOf(subject));
}

Value filterList(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("list", arguments, {});
    return Value::list(collect(subject));
}

Value filterLower(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("lower", arguments, {});
    return Value::string(lowerOf(toText(subject)), subject.isSafe());
}

Value filterUpper(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("upper", arguments, {});
    return Value::string(upperOf(toText(subject)), subject.isSafe());
}

Value filterMap(const Value& subject, Arguments& arguments, Host& host)
{
    if (arguments.positional.empty()) {
        const Parameters parameters("map", arguments, {"attribute", "default"}, 1);
        const Value fallback = parameters.valueOr(1, Value());
        return mapped(subject, [get = attributeGetter(parameters[0]), fallback](Value& item) {
            item = get(item);
            if (item.isUndefined() && !fallback.is(Kind::none))
                item = fallback;
            return true;
        });
    }
    const Value name = arguments.positional[0];
    return mapped(subject,
        [name, &host,
            rest = Arguments {{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.keywords}](
            Value& item) {
            const int filter = findFilter(toText(name));
            if (filter < 0)
                fail("No filter named '" + toText(name) + "'.");
            item = applyFilter(filter, item, rest, host);
            return true;
        });
}

Value choose(const Value& subject, const Arguments& arguments, bool by_attribute, bool keep)
{
    std::function<Value(const Value&)> get = attributeGetter(Value());
    std::size_t used = 0;
    if (by_attribute) {
        if (arguments.positional.empty())
            fail("Missing parameter for attribute name");
        get = attributeGetter(arguments.positional[used++]);
    }
    if (arguments.positional.size() == used)
        return mapped(subject, [get, keep](Value& item) { return truth(get(item)) == keep; });
    const Value name = arguments.positional[used++];
    const auto from = arguments.positional.begin() + static_cast<std::ptrdiff_t>(used);
    return mapped(subject,
        [get, keep, name, rest = Arguments {{from, arguments.positional.end()}, arguments.keywords}](Value& item) {
            const int test = findTest(toText(name));
            if (test < 0)
                fail("No test named '" + toText(name) + "'.");
            return applyTest(test, get(item), rest) == keep;
        });
}

Value filterSelect(const Value& subject, Arguments& arguments, Host&)
{
    return choose(subject, arguments, false, true);
}
Value filterReject(const Value& subject, Arguments& arguments, Host&)
{
    return choose(subject, arguments, false, false);
}
Value filterSelectattr(const Value& subject, Arguments& arguments, Host&)
{
    return choose(subject, arguments, true, true);
}
Value filterRejectattr(const Value& subject, Arguments& arguments, Host&)
{
    return choose(subject, arguments, true, false);
}

Value extreme(const char* name, const Value& subject, const Arguments& arguments, bool largest)
{
    const Parameters parameters(name, arguments, {"case_sensitive", "attribute"});
    const auto key = sortKey(parameters.valueOr(1, Value()), parameters.flag(0));
    const std::vector<Value> items = collect(subject);
    if (items.empty())
        return Value::undefined("No aggregated item, sequence was empty.");
    const Value* best = &items[0];
    Value best_key = key(items[0]);
    for (std::size_t i = 1; i < items.size(); i++) {
        const Value& item = items[i];
        Value now = key(item);
        if (largest ? lessThan(best_key, now) : lessThan(now, best_key)) {
            best = &item;
            best_key = std::move(now);
        }
    }
    return *best;
}

Value filterMax(const Value& subject, Arguments& arguments, Host&)
{
    return extreme("max", subject, arguments, true);
}
Value filterMin(const Value& subject, Arguments& arguments, Host&)
{
    return extreme("min", subject, arguments, false);
}

Value filterReplace(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("replace", arguments, {"old", "new", "count"}, 2);
    const bool limited = parameters.has(2) && !parameters[2].is(Kind::none);
    return Value::string(replaceIn(
        toText(subject), toText(parameters[0]), toText(parameters[1]), limited ? parameters.integer(2, -1) : -1));
}

Value filterReverse(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("reverse", arguments, {});
    if (subject.isString())
        return getSlice(subject, Value(), Value(), Value::integer(-1));
    std::vector<Value> items = collect(subject);
    std::reverse(items.begin(), items.end());
    const char* name = subject.is(Kind::list) ? "list_reverseiterator" : "reversed";
    return makeIterator(Value::list(std::move(items)), name);
}

Value filterRound(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("round", arguments, {"precision", "method"});
    const std::int64_t precision = std::clamp<std::int64_t>(parameters.integer(0, 0), -400, 400);
    const std::string method = parameters.text(1, "common");
    if (method != "common" && method != "ceil" && method != "floor")
        fail("method must be common, ceil or floor");
    refuseUndefined(subject);
    if (!subject.isNumber())
        fail(std::string("type ") + typeName(subject) + " doesn't define __round__ method");
    const double value = subject.asReal();
    if (method == "common") {
        if (subject.isInteger() && precision >= 0)
            return Value::integer(subject.asInteger());
        if (precision >= 0)
            return Value::real(std::isfinite(value)
                    ? parseReal(formatFixed(value, static_cast<int>(precision))).value_or(value)
                    : value);
        const double unit = std::pow(10.0, static_cast<double>(-precision));
        const double rounded = std::nearbyint(value / unit) * unit;
        return subject.isInteger() ? Value::integer(truncated(rounded).value_or(0)) : Value::real(rounded);
    }
    const double unit = std::pow(10.0, static_cast<double>(precision));
    const double scaled = value * unit;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value filterSafe(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("safe", arguments, {});
    return Value::string(toText(subject), true);
}

Value filterSort(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
    const Value attribute = parameters.valueOr(2, Value());
    std::vector<std::function<Value(const Value&)>> keys;
    if (attribute.isString()) {
        for (const std::string_view part : splitOn(attribute.text(), ",", -1, false))
            keys.push_back(sortKey(Value::string(std::string(part)), parameters.flag(1)));
    } else {
        keys.push_back(sortKey(attribute, parameters.flag(1)));
    }
    // Keys are compared as sequences even if there is one: equal ones need no order.
    const auto key = [&](const Value& item) {
        std::vector<Value> parts;
        for (const auto& part : keys)
            parts.push_back(part(item));
        return Value::tuple(std::move(parts));
    };
    return Value::list(sorted(collect(subject), key, parameters.flag(0)));
}

Value filterString(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("string", arguments, {});
    return softText(subject);
}

Value filterStriptags(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("striptags", arguments, {});
    std::string text = toText(subject);
    const auto remove = [&](std::string_view open, std::string_view close) {
        std::string out;
        std::size_t from = 0;
        for (;;) {
            const std::size_t begin = text.find(open, from);
            const std::size_t end = begin == std::string::npos ? begin : text.find(close, begin + open.size());
            if (end == std::string::npos)
                break;
            out.append(text, from, begin - from);
            from = end + close.size();
        }
        out.append(text, from);
        text = std::move(out);
    };
    workOnBytes(text.size() * 16);
    remove("<!--", "-->");
    remove("<", ">");
    std::string out;
    for (const std::string_view word : splitOnSpace(text, -1, false))
        out += (out.empty() ? "" : " ") + std::string(word);
    static constexpr std::pair<std::string_view, std::string_view> kEntities[] {
        {"&lt;", "<"},
        {"&gt;", ">"},
        {"&quot;", "\""},
        {"&#34;", "\""},
        {"&#39;", "'"},
        {"&amp;", "&"},
    };
    for (const auto& [entity, character] : kEntities)
        out = replaceIn(out, entity, character, -1);
    return Value::string(std::move(out));
}

Value filterSum(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("sum", arguments, {"attribute", "start"});
    const auto get = attributeGetter(parameters.valueOr(0, Value()));
    Value total = parameters.valueOr(1, Value::integer(0));
    if (total.isString())
        fail("sum() can't sum strings [use ''.join(seq) instead]");
    for (const Value& item : collect(subject))
        total = calculate(Arithmetic::add, total, get(item));
    return total;
}

Value filterTitle(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("title", arguments, {});
    const std::string text = toText(subject);
    std::string out;
    workOnBytes(text.size() * 32);
    for (std::size_t i = 0; i < text.size();) {
        const auto breaks = [&](std::size_t at) {
            std::size_t after = at;
            const char32_t c = decodeAt(text, after);
            return isSpace(c)
                || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
        };
        std::size_t end = i;
        const bool gap = breaks(i);
        while (end < text.size() && breaks(end) == gap)
            end += sizeAt(text, end);
        const std::string_view word = std::string_view(text).substr(i, end - i);
        const std::size_t first = sizeAt(word, 0);
        out += toUpper(word.substr(0, first)) + lowerOf(word.substr(first));
        i = end;
    }
    return Value::string(std::move(out));
}

Value filterTojson(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = parameters.flag(0);
    style.sort_keys = parameters.flag(3);
    if (parameters.has(1) && !parameters[1].is(Kind::none)) {
        style.indent = parameters[1].isString() ? parameters[1].text()
                                                : repeat(Value::string(" "), parameters.integer(1, 0)).text();
        style.item_separator = ",";
    }
    if (parameters.has(2) && !parameters[2].is(Kind::none)) {
        const std::vector<Value> separators = collect(parameters[2]);
        if (separators.size() != 2 || !separators[0].isString() || !separators[1].isString())
            fail("tojson expects two texts as separators");
        style.item_separator = separators[0].text();
        style.key_separator = separators[1].text();
    }
    return Value::string(toJson(subject, style));
}

Value filterTrim(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("trim", arguments, {"chars"});
    const std::string text = toText(subject);
    const bool set = parameters.has(0) && !parameters[0].is(Kind::none);
    return Value::string(
        std::string(set ? stripOf(text, parameters.text(0, {}), true, true) : strip(text)), subject.isSafe());
}

Value filterTruncate(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
    const std::int64_t length = parameters.integer(0, 255);
    const Value end = Value::string(parameters.text(2, "..."));
    const std::int64_t leeway = parameters.has(3) && !parameters[3].is(Kind::none) ? parameters.integer(3, 5) : 5;
    if (length < end.asString().length || leeway < 0 || leeway > static_cast<std::int64_t>(kMaxString))
        fail("truncate expects a length of at least " + std::to_string(end.asString().length));
    if (lengthOf(subject) - leeway <= length)
        return subject;
    if (!subject.isString())
        fail(std::string("truncate expects a text, not '") + typeName(subject) + "'");
    const Value& text = subject;
    std::string cut = text.text().substr(0, offsetOf(text.asString(), length - end.asString().length));
    if (!parameters.flag(1))
        cut = cut.substr(0, std::min(cut.rfind(' '), cut.size()));
    return Value::string(cut + end.text(), subject.isSafe());
}

Value filterUnique(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
    return deferred(subject, [subject, key = sortKey(parameters.valueOr(1, Value()), parameters.flag(0))] {
        std::vector<Value> out;
        std::unordered_multimap<std::size_t, Value> seen;
        for (const Value& item : collect(subject)) {
            Value now = key(item);
            const std::size_t hash = hashOf(now);
            const auto [begin, end] = seen.equal_range(hash);
            if (std::any_of(begin, end, [&](const auto& entry) { return equals(entry.second, now); }))
                continue;
            work(8);
            seen.emplace(hash, std::move(now));
            out.push_back(item);
        }
        return out;
    });
}

std::string quoteUrl(std::string_view text, bool in_query)
{
    static constexpr char kHex[] = "0123456789ABCDEF";
    std::string out;
    workOnBytes(text.size() * 16);
    for (const char c : text) {
        const bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (letter || std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !in_query)) {
            out += c;
        } else if (c == ' ' && in_query) {
            out += '+';
        } else {
            out += '%';
            out += kHex[static_cast<unsigned char>(c) >> 4];
            out += kHex[static_cast<unsigned char>(c) & 15];
        }
    }
    checkString(out.size());
    return out;
}

Value filterUrlencode(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("urlencode", arguments, {});
    if (subject.isString() || !isIterable(subject))
        return Value::string(quoteUrl(toText(subject), false));
    std::string out;
    for (const Value& pair : collect(subject.is(Kind::dict) ? makeView(subject, ViewObject::What::items) : subject)) {
        const std::vector<Value> parts = collect(pair);
        if (parts.size() != 2)
            fail("urlencode expects pairs");
        put(out, (out.empty() ? "" : "&") + quoteUrl(toText(parts[0]), true) + "=" + quoteUrl(toText(parts[1]), true));
    }
    return Value::string(std::move(out));
}

Value filterWordcount(const Value& subject, Arguments& arguments, Host&)
{
    const Parameters parameters("wordcount", arguments, {});
    const std::string text = toText(subject);
    std::int64_t count = 0;
    bool inside = false;
    workOnBytes(text.size() * 8);
    for (std::size_t i = 0; i < text.size();) {
        const bool word = isWordChar(decodeAt(text, i));
        count += word && !inside;
        inside = word;
    }
    return Value::integer(count);
}

struct FilterRow {
    std::string_view name;
    Filter filter;
};

constexpr FilterRow kFilters[] {
    {"tojson", filterTojson},
    {"trim", filterTrim},
    {"length", filterLength},
    {"string", filterString},
    {"items", filterItems},
    {"join", filterJoin},
    {"selectattr", filterSelectattr},
    {"list", filterList},
    {"default", filterDefault},
    {"safe", filterSafe},
    {"map", filterMap},
    {"lower", filterLower},
    {"upper", filterUpper},
    {"dictsort", filterDictsort},
    {"last", filterLast},
    {"reject", filterReject},
    {"capitalize", filterCapitalize},
    {"rejectattr", filterRejectattr},
    {"title", filterTitle},
    {"int", filterInt},
    {"replace", filterReplace},
    {"indent", filterIndent},
    {"first", filterFirst},
    {"unique", filterUnique},
    {"sort", filterSort},
    {"abs", filterAbs},
    {"attr", filterAttr},
    {"batch", filterBatch},
    {"center", filterCenter},
    {"count", filterLength},
    {"d", filterDefault},
    {"e", filterEscape},
    {"escape", filterEscape},
    {"filesizeformat", filterFilesize},
    {"float", filterFloat},
    {"forceescape", filterForceEscape},
    {"format", filterFormat},
    {"groupby", filterGroupby},
    {"max", filterMax},
    {"min", filterMin},
    {"reverse", filterReverse},
    {"round", filterRound},
    {"select", filterSelect},
    {"slice", filterSlice},
    {"striptags", filterStriptags},
    {"sum", filterSum},
    {"truncate", filterTruncate},
    {"urlencode", filterUrlencode},
    {"wordcount", filterWordcount},
};

// --- functions -------------------------------------------------------------------------------------------------

using Function = Value (*)(Arguments& arguments, Host& host);

Value callRange(Arguments& arguments, Host&)
{
    const std::size_t count = arguments.positional.size();
    if (count == 0 || count > 3 || !arguments.keywords.empty())
        fail("range expects one to three integers");
    std::int64_t bounds[3] {};
    for (std::size_t i = 0; i < count; i++) {
        refuseUndefined(arguments.positional[i]);
        if (!arguments.positional[i].isInteger())
            fail(std::string("'") + typeName(arguments.positional[i]) + "' object cannot be interpreted as an integer");
        bounds[i] = arguments.positional[i].asInteger();
    }
    return count == 1 ? makeRange(0, bounds[0], 1) : makeRange(bounds[0], bounds[1], count == 3 ? bounds[2] : 1);
}

std::vector<std::pair<Value, Value>> dictEntries(const char* function, const Arguments& arguments)
{
    std::vector<std::pair<Value, Value>> entries;
    if (arguments.positional.size() > 1)
        fail(std::string(function) + " expects at most one positional argument");
    if (!arguments.positional.empty()) {
        const Value& of = arguments.positional[0];
        if (of.is(Kind::dict)) {
            entries = of.asDict().entries;
        } else {
            for (const Value& pair : collect(of)) {
                std::vector<Value> parts = collect(pair);
                if (parts.size() != 2)
                    fail(std::string(function) + " expects pairs of keys and values");
                entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
            }
        }
    }
    for (const auto& [name, value] : arguments.keywords)
        entries.emplace_back(Value::string(std::string(name)), value);
    return entries;
}

Value callDict(Arguments& arguments, Host&)
{
    return makeDict(dictEntries("dict", arguments));
}

Value callNamespace(Arguments& arguments, Host& host)
{
    Namespace* space = host.newNamespace();
    for (auto& [key, value] : dictEntries("namespace", arguments))
        space->set(toText(key), std::move(value));
    return Value::space(space);
}

Value callRaise(Arguments& arguments, Host&)
{
    const Parameters parameters("raise_exception", arguments, {"message"}, 1);
    throw Failure {toText(parameters[0]), 0, true};
}

Value callStrftime(Arguments& arguments, Host& host)
{
    const Parameters parameters("strftime_now", arguments, {"format"}, 1);
    const std::string format = parameters.text(0, {});
    if (format.size() > 4096 || format.find('\0') != std::string::npos)
        fail("strftime_now expects a short format");
    // A time without a zone has no offset and, here, no fraction of a second.
    std::string plain;
    for (std::size_t i = 0; i < format.size(); i++) {
        const char next = i + 1 < format.size() ? format[i + 1] : ' ';
        if (format[i] != '%' || (next != 'f' && next != 'z' && next != 'Z' && next != '%')) {
            plain += format[i];
            continue;
        }
        plain += next == 'f' ? "000000" : next == '%' ? "%%" : "";
        i++;
    }
    if (plain.empty())
        return Value::string({});
    static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
    const std::time_t seconds = host.now();
    std::tm local {};
    if (!localtime_r(&seconds, &local))
        fail("the clock shows no date");
    char buffer[8192];
    const std::size_t size = strftime_l(buffer, sizeof buffer, plain.c_str(), &local, c_locale);
    if (size == 0)
        fail("strftime_now's format gives too long a text");
    return Value::string(std::string(buffer, size));
}

Value callCycler(Arguments& arguments, Host&)
{
    if (arguments.positional.empty() || !arguments.keywords.empty())
        fail("at least one item has to be provided");
    return Value::own(Kind::cycler, new Cycler(Value::tuple(std::move(arguments.positional))));
}

Value callJoiner(Arguments& arguments, Host&)
{
    const Parameters parameters("joiner", arguments, {"sep"});
    return Value::own(Kind::joiner, new Joiner(Value::string(parameters.text(0, ", "))));
}

Value callSelf(Arguments&, Host&) // stands for the template, of which nothing can be reached
{
    fail("'self' cannot be called");
}

struct FunctionRow {
    std::string_view name;
    Function function;
};

constexpr FunctionRow kFunctions[] {
    {"raise_exception", callRaise},
    {"namespace", callNamespace},
    {"strftime_now", callStrftime},
    {"range", callRange},
    {"dict", callDict},
    {"cycler", callCycler},
    {"joiner", callJoiner},
    {"self", callSelf},
};

} // namespace

int findFilter(std::string_view name)
{
    return findRow(kFilters, name);
}
int findTest(std::string_view name)
{
    return findRow(kTests, name);
}
int findFunction(std::string_view name)
{
    return findRow(kFunctions, name);
}

Value applyFilter(int filter, const Value& subject, Arguments arguments, Host& host)
{
    work(6);
    return kFilters[filter].filter(subject, arguments, host);
}

bool applyTest(int test, const Value& subject, const Arguments& arguments)
{
    work(1);
    return kTests[test].test(subject, arguments);
}

Value callFunction(int function, Arguments arguments, Host& host)
{
    work(2);
    return kFunctions[function].function(arguments, host);
}

} // namespace puna::jinja
