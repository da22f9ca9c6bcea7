#include "engine/text/template_value.h"

#include "engine/text/template_unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

namespace puna::jinja {

namespace {

thread_local Meter* t_meter = nullptr;

constexpr std::size_t kSmallDict = 8; // entries searched one by one

int deepest(const std::vector<Value>& values)
{
    int depth = 0;
    for (const Value& value : values)
        depth = std::max(depth, value.depth());
    return depth;
}

int deepest(const std::vector<std::pair<Value, Value>>& entries)
{
    int depth = 0;
    for (const auto& [key, value] : entries)
        depth = std::max({depth, key.depth(), value.depth()});
    return depth;
}

class SequenceIterator final : public Iterator {
public:
    SequenceIterator(Value of, const char* name)
        : Iterator(name, of.depth() + 1)
        , m_of(std::move(of))
    {
    }
    bool next(Value& out) override
    {
        work(1);
        switch (m_of.kind()) {
        case Kind::list:
        case Kind::tuple:
            if (m_at >= m_of.items().size())
                return false;
            out = m_of.items()[m_at++];
            return true;
        case Kind::dict:
            if (m_at >= m_of.asDict().entries.size())
                return false;
            out = m_of.asDict().entries[m_at++].first;
            return true;
        case Kind::view:
            if (m_at >= m_of.asView().size())
                return false;
            out = m_of.asView().at(m_at++);
            return true;
        case Kind::range:
            if (m_at >= static_cast<std::size_t>(m_of.asRange().size))
                return false;
            out = Value::integer(m_of.asRange().at(static_cast<std::int64_t>(m_at++)));
            return true;
        case Kind::string: {
            const std::string& text = m_of.text();
            if (m_at >= text.size())
                return false;
            const std::size_t size = sizeAt(text, m_at);
            out = Value::string(text.substr(m_at, size));
            m_at += size;
            return true;
        }
        default:
            return false; // undefined: empty
        }
    }

private:
    Value m_of;
    std::size_t m_at = 0;
};

bool isHashableNumber(const Value& value, std::int64_t& integer)
{
    if (value.isInteger()) {
        integer = value.asInteger();
        return true;
    }
    if (value.is(Kind::real)) {
        const double real = value.asReal();
        if (real >= -9.2e18 && real <= 9.2e18 && real == std::floor(real)) {
            integer = static_cast<std::int64_t>(real);
            return true;
        }
    }
    return false;
}

int compareNumbers(const Value& a, const Value& b) // -1, 0, 1; 2: not ordered
{
    if (a.isInteger() && b.isInteger())
        return a.asInteger() < b.asInteger() ? -1 : a.asInteger() > b.asInteger();
    const double x = a.asReal(), y = b.asReal();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

void appendRepr(std::string& out, const Value& value);

void appendStringRepr(std::string& out, const std::string& text)
{
    const bool double_quotes = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
    const char quote = double_quotes ? '"' : '\'';
    static constexpr char kHex[] = "0123456789abcdef";
    out += quote;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const char32_t c = decodeAt(text, i);
        if (c == static_cast<char32_t>(quote) || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (isPrintable(c)) {
            out.append(text, at, i - at);
        } else {
            const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
            out += '\\';
            out += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
            for (int k = digits - 1; k >= 0; k--)
                out += kHex[(c >> (4 * k)) & 15];
        }
    }
    out += quote;
}

void appendSequence(std::string& out, const std::vector<Value>& items)
{
    for (std::size_t i = 0; i < items.size(); i++) {
        if (i > 0)
            out += ", ";
        appendRepr(out, items[i]);
    }
}

// Namespaces can hold each other, so their printing is bounded by itself.
thread_local int t_printing = 0;

class Printing {
public:
    Printing()
    {
        if (++t_printing > kMaxNesting) {
            t_printing--;
            fail("a namespace that contains itself cannot be printed");
        }
    }
    ~Printing() { t_printing--; }
    Printing(const Printing&) = delete;
    Printing& operator=(const Printing&) = delete;
};

void appendRepr(std::string& out, const Value& value)
{
    work(1);
    checkString(out.size());
    switch (value.kind()) {
    case Kind::string:
        workOnBytes(value.text().size() * 8);
        if (value.isSafe())
            out += "Markup(";
        appendStringRepr(out, value.text());
        if (value.isSafe())
            out += ')';
        break;
    case Kind::list:
        out += '[';
        appendSequence(out, value.items());
        out += ']';
        break;
    case Kind::tuple:
        out += '(';
        appendSequence(out, value.items());
        out += value.items().size() == 1 ? ",)" : ")";
        break;
    case Kind::dict: {
        out += '{';
        bool first = true;
        for (const auto& [key, item] : value.asDict().entries) {
            if (!first)
                out += ", ";
            first = false;
            appendRepr(out, key);
            out += ": ";
            appendRepr(out, item);
        }
        out += '}';
        break;
    }
    case Kind::view: {
        const ViewObject& view = value.asView();
        out += typeName(value);
        out += "([";
        for (std::size_t i = 0; i < view.size(); i++) {
            if (i > 0)
                out += ", ";
            appendRepr(out, view.at(i));
        }
        out += "])";
        break;
    }
    case Kind::range: {
        const RangeObject& range = value.asRange();
        out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
        if (range.step != 1)
            out += ", " + std::to_string(range.step);
        out += ')';
        break;
    }
    case Kind::space: {
        const Printing guard;
        out += "<Namespace {";
        bool first = true;
        for (const auto& [name, item] : value.asSpace()->entries) {
            if (!first)
                out += ", ";
            first = false;
            appendStringRepr(out, name);
            out += ": ";
            appendRepr(out, item);
        }
        out += "}>";
        break;
    }
    case Kind::undefined:
        out += "Undefined";
        break;
    case Kind::none:
        out += "None";
        break;
    case Kind::boolean:
        out += value.asBool() ? "True" : "False";
        break;
    case Kind::integer:
        out += std::to_string(value.asInteger());
        break;
    case Kind::big:
        out += value.text();
        break;
    case Kind::real:
        out += formatReal(value.asReal());
        break;
    default: {
        const std::string text = value.is(Kind::builtin) ? std::string() : value.object()->print();
        out += text.empty() ? std::string("<") + typeName(value) + ">" : text;
    }
    }
}

} // namespace

void fail(std::string message)
{
    throw Failure {std::move(message), 0, false};
}

Meter* Meter::current()
{
    return t_meter;
}

Meter::Use::Use(Meter& meter)
    : m_before(t_meter)
{
    t_meter = &meter;
}

Meter::Use::~Use()
{
    t_meter = m_before;
}

void Meter::tooMuchWork()
{
    fail("it takes more than " + std::to_string(kMaxSteps) + " steps");
}

void Meter::tooMuchMemory(std::int64_t bytes)
{
    m_live -= bytes;
    fail("its values take more than " + std::to_string(kMaxLive >> 20) + " MiB");
}

void work(std::int64_t steps)
{
    if (t_meter)
        t_meter->work(steps);
}

void workOnBytes(std::size_t bytes)
{
    work(static_cast<std::int64_t>(bytes / 32));
}

void checkString(std::size_t bytes)
{
    if (bytes > kMaxString)
        fail("a text longer than " + std::to_string(kMaxString >> 20) + " MiB");
}

void checkList(std::size_t elements)
{
    if (elements > kMaxList)
        fail("a list of more than " + std::to_string(kMaxList) + " elements");
}

// --- objects ---------------------------------------------------------------------------------------------------

Object::Object(std::size_t bytes, int nesting)
    : depth(nesting)
    , m_meter(t_meter)
    , m_bytes(static_cast<std::int64_t>(bytes))
{
    if (nesting > kMaxNesting)
        fail("values nested more than " + std::to_string(kMaxNesting) + " deep");
    if (m_meter)
        m_meter->take(m_bytes);
}

Object::~Object()
{
    if (m_meter)
        m_meter->give(m_bytes);
}

UndefinedObject::UndefinedObject(std::string words)
    : Object(sizeof(UndefinedObject) + words.capacity(), 0)
    , message(std::move(words))
{
}

StringObject::StringObject(std::string content)
    : Object(sizeof(StringObject) + content.capacity(), 0)
    , text(std::move(content))
    , length(countCodePoints(text))
{
}

ListObject::ListObject(std::vector<Value> content)
    : Object(sizeof(ListObject) + content.capacity() * sizeof(Value), deepest(content) + 1)
    , items(std::move(content))
{
}

Dict::Dict(std::vector<std::pair<Value, Value>> content)
    : Object(sizeof(Dict) + content.size() * (sizeof(content[0]) + (content.size() > kSmallDict ? 64 : 0)),
        deepest(content) + 1)
{
    if (content.size() <= kSmallDict) {
        entries.reserve(content.size());
        for (auto& added : content) {
            hashOf(added.first); // or fails
            const auto same = std::find_if(
                entries.begin(), entries.end(), [&](const auto& entry) { return equals(entry.first, added.first); });
            if (same == entries.end())
                entries.push_back(std::move(added));
            else
                same->second = std::move(added.second);
        }
        return;
    }
    work(static_cast<std::int64_t>(content.size() * 4));
    entries.reserve(content.size());
    m_index.reserve(content.size());
    for (auto& added : content) {
        const std::size_t hash = hashOf(added.first);
        const auto [begin, end] = m_index.equal_range(hash);
        const auto same =
            std::find_if(begin, end, [&](const auto& slot) { return equals(entries[slot.second].first, added.first); });
        if (same != end) {
            entries[same->second].second = std::move(added.second);
        } else {
            m_index.emplace(hash, static_cast<std::uint32_t>(entries.size()));
            entries.push_back(std::move(added));
        }
    }
}

const Value* Dict::find(const Value& key) const
{
    const std::size_t hash = hashOf(key);
    if (m_index.empty()) {
        for (const auto& [name, value] : entries)
            if (equals(name, key))
                return &value;
        return nullptr;
    }
    const auto [begin, end] = m_index.equal_range(hash);
    for (auto slot = begin; slot != end; ++slot)
        if (equals(entries[slot->second].first, key))
            return &entries[slot->second].second;
    return nullptr;
}

const Value* Dict::find(std::string_view key) const
{
    const auto same = [&](const Value& name) { return name.isString() && name.text() == key; };
    if (m_index.empty()) {
        for (const auto& [name, value] : entries)
            if (same(name))
                return &value;
        return nullptr;
    }
    const auto [begin, end] = m_index.equal_range(std::hash<std::string_view> {}(key));
    for (auto slot = begin; slot != end; ++slot)
        if (same(entries[slot->second].first))
            return &entries[slot->second].second;
    return nullptr;
}

ViewObject::ViewObject(Value of, What which)
    : Object(sizeof(ViewObject), of.depth() + 1)
    , dict(std::move(of))
    , what(which)
{
}

Value ViewObject::at(std::size_t index) const
{
    const auto& [key, value] = dict.asDict().entries[index];
    return what == What::keys ? key : what == What::values ? value : Value::tuple({key, value});
}

std::size_t ViewObject::size() const
{
    return dict.asDict().entries.size();
}

RangeObject::RangeObject(std::int64_t first, std::int64_t limit, std::int64_t stride, std::int64_t count)
    : Object(sizeof(RangeObject), 1)
    , start(first)
    , stop(limit)
    , step(stride)
    , size(count)
{
}

Iterator::Iterator(const char* name, int nesting)
    : Object(256, nesting)
    , type_name(name)
{
}

const Value* Namespace::find(std::string_view name) const
{
    for (const auto& [key, value] : entries)
        if (key == name)
            return &value;
    return nullptr;
}

void Namespace::set(std::string_view name, Value value)
{
    work(static_cast<std::int64_t>(entries.size()) / 4);
    for (auto& [key, old] : entries) {
        if (key == name) {
            old = std::move(value);
            return;
        }
    }
    if (Meter* meter = Meter::current())
        meter->take(static_cast<std::int64_t>(64 + name.size()));
    entries.emplace_back(std::string(name), std::move(value));
}

// --- values ----------------------------------------------------------------------------------------------------

Value Value::own(Kind kind, Object* object)
{
    Value value;
    object->refs.fetch_add(1, std::memory_order_relaxed);
    value.m_kind = kind;
    value.m_data.object = object;
    return value;
}

Value Value::boolean(bool content)
{
    Value value;
    value.m_kind = Kind::boolean;
    value.m_data.boolean = content;
    return value;
}

Value Value::integer(std::int64_t content)
{
    Value value;
    value.m_kind = Kind::integer;
    value.m_data.integer = content;
    return value;
}

Value Value::real(double content)
{
    Value value;
    value.m_kind = Kind::real;
    value.m_data.real = content;
    return value;
}

Value Value::space(Namespace* content)
{
    Value value;
    value.m_kind = Kind::space;
    value.m_data.space = content;
    return value;
}

Value Value::builtin(int id)
{
    Value value = integer(id);
    value.m_kind = Kind::builtin;
    return value;
}

Value Value::undefined(std::string message)
{
    return own(Kind::undefined, new UndefinedObject(std::move(message)));
}

Value Value::big(std::string digits)
{
    return own(Kind::big, new StringObject(std::move(digits)));
}

Value Value::string(std::string content, bool safe)
{
    checkString(content.size());
    workOnBytes(content.size());
    Value value = own(Kind::string, new StringObject(std::move(content)));
    value.m_safe = safe;
    return value;
}

Value Value::list(std::vector<Value> content)
{
    checkList(content.size());
    work(static_cast<std::int64_t>(content.size() / 2 + 4));
    return own(Kind::list, new ListObject(std::move(content)));
}

Value Value::tuple(std::vector<Value> content)
{
    checkList(content.size());
    work(static_cast<std::int64_t>(content.size() / 2 + 4));
    return own(Kind::tuple, new ListObject(std::move(content)));
}

const std::string& Value::text() const
{
    return static_cast<const StringObject*>(m_data.object)->text;
}
const StringObject& Value::asString() const
{
    return *static_cast<const StringObject*>(m_data.object);
}
const std::vector<Value>& Value::items() const
{
    return static_cast<const ListObject*>(m_data.object)->items;
}
const Dict& Value::asDict() const
{
    return *static_cast<const Dict*>(m_data.object);
}
const ViewObject& Value::asView() const
{
    return *static_cast<const ViewObject*>(m_data.object);
}
const RangeObject& Value::asRange() const
{
    return *static_cast<const RangeObject*>(m_data.object);
}
Iterator& Value::asIterator() const
{
    return *static_cast<Iterator*>(m_data.object);
}
const std::string& Value::undefinedMessage() const
{
    return static_cast<const UndefinedObject*>(m_data.object)->message;
}

Value Value::marked(bool safe) const
{
    Value value = *this;
    value.m_safe = safe;
    return value;
}

Value makeDict(std::vector<std::pair<Value, Value>> entries)
{
    checkList(entries.size());
    return Value::own(Kind::dict, new Dict(std::move(entries)));
}

Value makeView(Value dict, ViewObject::What what)
{
    return Value::own(Kind::view, new ViewObject(std::move(dict), what));
}

Value makeRange(std::int64_t start, std::int64_t stop, std::int64_t step)
{
    if (step == 0)
        fail("range() arg 3 must not be zero");
    // In 128 bits nothing here can overflow.
    __extension__ using Wide = __int128;
    const Wide span = step > 0 ? Wide(stop) - start : Wide(start) - stop;
    const Wide stride = step > 0 ? Wide(step) : -Wide(step);
    const Wide size = span <= 0 ? 0 : (span + stride - 1) / stride;
    if (size > kMaxRange)
        fail("a range of more than " + std::to_string(kMaxRange) + " elements");
    return Value::own(Kind::range, new RangeObject(start, stop, step, static_cast<std::int64_t>(size)));
}

bool isIterable(const Value& value)
{
    switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::iterator:
    case Kind::loop:
        return true;
    default:
        return false;
    }
}

Value makeIterator(Value of, const char* type_name)
{
    return Value::own(Kind::iterator, new SequenceIterator(std::move(of), type_name));
}

Value iterate(const Value& value)
{
    if (value.is(Kind::iterator))
        return value;
    if (!isIterable(value) || value.is(Kind::loop))
        fail(std::string("'") + typeName(value) + "' object is not iterable");
    return makeIterator(value, "iterator");
}

std::vector<Value> collect(const Value& value)
{
    if (value.isSequence())
        return value.items();
    std::vector<Value> items;
    const Value iterator = iterate(value);
    for (Value item; iterator.asIterator().next(item);) {
        checkList(items.size() + 1);
        items.push_back(std::move(item));
    }
    return items;
}

const char* typeName(const Value& value)
{
    switch (value.kind()) {
    case Kind::none:
        return "NoneType";
    case Kind::boolean:
        return "bool";
    case Kind::integer:
    case Kind::big:
        return "int";
    case Kind::real:
        return "float";
    case Kind::space:
        return "Namespace";
    case Kind::builtin:
        return "function";
    case Kind::undefined:
        return "Undefined";
    case Kind::string:
        return value.isSafe() ? "Markup" : "str";
    case Kind::list:
        return "list";
    case Kind::tuple:
        return "tuple";
    case Kind::dict:
        return "dict";
    case Kind::view:
        return value.asView().what == ViewObject::What::keys  ? "dict_keys"
            : value.asView().what == ViewObject::What::values ? "dict_values"
                                                              : "dict_items";
    case Kind::range:
        return "range";
    case Kind::iterator:
        return value.asIterator().type_name;
    case Kind::loop:
        return "LoopContext";
    case Kind::macro:
        return "Macro";
    case Kind::method:
        return "method";
    case Kind::cycler:
        return "Cycler";
    case Kind::joiner:
        return "Joiner";
    }
    return "object";
}

bool truth(const Value& value)
{
    switch (value.kind()) {
    case Kind::none:
    case Kind::undefined:
        return false;
    case Kind::boolean:
        return value.asBool();
    case Kind::integer:
        return value.asInteger() != 0;
    case Kind::real:
        return value.asReal() != 0.0;
    case Kind::string:
        return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
        return !value.items().empty();
    case Kind::dict:
        return !value.asDict().entries.empty();
    case Kind::view:
        return value.asView().size() != 0;
    case Kind::range:
        return value.asRange().size != 0;
    default:
        return true;
    }
}

bool equals(const Value& a, const Value& b)
{
    work(1);
    if (a.isNumber() && b.isNumber())
        return compareNumbers(a, b) == 0;
    if (a.kind() != b.kind())
        return false;
    switch (a.kind()) {
    case Kind::none:
    case Kind::undefined:
        return true;
    case Kind::string:
        workOnBytes(std::min(a.text().size(), b.text().size()));
        return a.text() == b.text();
    case Kind::big:
        return a.text() == b.text();
    case Kind::list:
    case Kind::tuple: {
        if (a.items().size() != b.items().size())
            return false;
        for (std::size_t i = 0; i < a.items().size(); i++)
            if (!equals(a.items()[i], b.items()[i]))
                return false;
        return true;
    }
    case Kind::dict: {
        if (a.object() == b.object())
            return true;
        if (a.asDict().entries.size() != b.asDict().entries.size())
            return false;
        for (const auto& [key, value] : a.asDict().entries) {
            const Value* other = b.asDict().find(key);
            if (!other || !equals(value, *other))
                return false;
        }
        return true;
    }
    case Kind::range: {
        const RangeObject &x = a.asRange(), &y = b.asRange();
        return x.size == y.size && (x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step)));
    }
    case Kind::space:
        return a.asSpace() == b.asSpace();
    case Kind::builtin:
        return a.asBuiltin() == b.asBuiltin();
    default:
        return a.object() == b.object();
    }
}

bool lessThan(const Value& a, const Value& b, const char* op)
{
    work(1);
    if (a.isNumber() && b.isNumber())
        return compareNumbers(a, b) == -1;
    if (a.isString() && b.isString()) {
        workOnBytes(std::min(a.text().size(), b.text().size()));
        return a.text() < b.text(); // UTF-8 sorts as code points do
    }
    if (a.isSequence() && a.kind() == b.kind()) {
        const auto &x = a.items(), &y = b.items();
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); i++)
            if (!equals(x[i], y[i]))
                return lessThan(x[i], y[i], op);
        return x.size() < y.size();
    }
    if (a.isUndefined())
        fail(a.undefinedMessage());
    if (b.isUndefined())
        fail(b.undefinedMessage());
    if (a.is(Kind::big) || b.is(Kind::big))
        fail("an integer beyond 64 bits");
    fail(
        std::string("'") + op + "' not supported between instances of '" + typeName(a) + "' and '" + typeName(b) + "'");
}

bool contains(const Value& container, const Value& item)
{
    switch (container.kind()) {
    case Kind::string:
        if (item.isUndefined())
            fail(item.undefinedMessage());
        if (!item.isString())
            fail(std::string("'in <string>' requires string as left operand, not ") + typeName(item));
        workOnBytes(container.text().size() * 4);
        return findText(container.text(), item.text()) != std::string::npos;
    case Kind::dict:
        return container.asDict().find(item) != nullptr;
    case Kind::space:
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::big:
    case Kind::real:
        fail(std::string("argument of type '") + typeName(container) + "' is not iterable");
    case Kind::list:
    case Kind::tuple:
        return std::any_of(container.items().begin(), container.items().end(),
            [&](const Value& value) { return equals(value, item); });
    default: {
        const Value iterator = iterate(container);
        for (Value value; iterator.asIterator().next(value);)
            if (equals(value, item))
                return true;
        return false;
    }
    }
}

std::size_t hashOf(const Value& value)
{
    std::int64_t integer = 0;
    if (isHashableNumber(value, integer))
        return std::hash<std::int64_t> {}(integer);
    switch (value.kind()) {
    case Kind::none:
        return 1;
    case Kind::real:
        return std::hash<double> {}(value.asReal());
    case Kind::string:
        workOnBytes(value.text().size());
        return std::hash<std::string_view> {}(value.text());
    case Kind::big:
        return std::hash<std::string_view> {}(value.text());
    case Kind::tuple: {
        std::size_t hash = 7;
        for (const Value& item : value.items()) {
            work(1);
            hash = hash * 1000003 ^ hashOf(item);
        }
        return hash;
    }
    case Kind::undefined:
        return 3;
    case Kind::space:
        return std::hash<const void*> {}(value.asSpace());
    case Kind::range:
        return static_cast<std::size_t>(value.asRange().size);
    case Kind::builtin:
        return static_cast<std::size_t>(value.asBuiltin());
    case Kind::list:
    case Kind::dict:
    case Kind::view:
        fail(std::string("unhashable type: '") + typeName(value) + "'");
    default:
        return std::hash<const void*> {}(value.object());
    }
}

std::int64_t lengthOf(const Value& value)
{
    switch (value.kind()) {
    case Kind::undefined:
        return 0;
    case Kind::string:
        return value.asString().length;
    case Kind::list:
    case Kind::tuple:
        return static_cast<std::int64_t>(value.items().size());
    case Kind::dict:
        return static_cast<std::int64_t>(value.asDict().entries.size());
    case Kind::view:
        return static_cast<std::int64_t>(value.asView().size());
    case Kind::range:
        return value.asRange().size;
    default:
        fail(std::string("object of type '") + typeName(value) + "' has no len()");
    }
}

// --- printing --------------------------------------------------------------------------------------------------

std::string formatReal(double value)
{
    if (std::isnan(value))
        return "nan";
    if (std::isinf(value))
        return value < 0 ? "-inf" : "inf";
    char buffer[40];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
    const std::string_view shortest(buffer, static_cast<std::size_t>(end - buffer));
    const std::size_t e = shortest.find('e');
    int exponent = 0;
    std::from_chars(shortest.data() + e + 1 + (shortest[e + 1] == '+'), end, exponent);
    std::string out = value < 0 || std::signbit(value) ? "-" : "";
    std::string digits;
    for (char c : shortest.substr(0, e))
        if (c >= '0' && c <= '9')
            digits += c;
    const int count = static_cast<int>(digits.size());
    if (exponent < -4 || exponent >= 16) {
        out += digits[0];
        if (count > 1)
            out += "." + digits.substr(1);
        out += exponent < 0 ? "e-" : "e+";
        const int magnitude = std::abs(exponent);
        return out + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
    }
    if (exponent < 0)
        return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    const auto whole = static_cast<std::size_t>(exponent + 1);
    if (digits.size() <= whole)
        return out + digits + std::string(whole - digits.size(), '0') + ".0";
    return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void appendText(std::string& out, const Value& value)
{
    if (value.isString()) {
        workOnBytes(value.text().size());
        checkString(out.size() + value.text().size());
        out += value.text();
    } else if (!value.isUndefined()) {
        appendRepr(out, value);
    }
}

std::string toText(const Value& value)
{
    if (value.isString())
        return value.text();
    std::string out;
    appendText(out, value);
    checkString(out.size());
    return out;
}

std::string toRepr(const Value& value)
{
    std::string out;
    appendRepr(out, value);
    checkString(out.size());
    return out;
}

} // namespace puna::jinja
