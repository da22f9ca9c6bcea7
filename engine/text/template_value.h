// The values of a chat template: Python's none, bool, int, float, str, list, tuple, dict and what Jinja adds.
//
// Value is 16 bytes and cheap to copy; containers are shared and immutable, so there are neither cycles nor copies.
// Only namespaces change; they belong to the rendering and are referred to without ownership. Every container knows
// how deep it nests and is refused beyond kMaxNesting, which bounds every recursion over values, also the destructors'.
//
// A rendering installs a Meter: each object made is charged to it in bytes, each piece of work in steps. What goes
// wrong is thrown as a Failure and caught by ChatTemplate: it is the one exception of the engine, since a template can
// fail at any depth of an expression, and it never leaves this module.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace puna::jinja {

inline constexpr std::size_t kMaxSource = 1 << 20; // bytes of a template
inline constexpr int kMaxNesting = 200; // of expressions, blocks and values
inline constexpr int kMaxCalls = 100; // macros within macros
inline constexpr int kMaxFrames = 3000; // evaluations within evaluations, about 1 MiB of stack
inline constexpr int kMaxNodes = 200'000; // of a compiled template
inline constexpr std::int64_t kMaxSteps = 10'000'000; // about 20 ns each
inline constexpr std::size_t kMaxString = 16 << 20; // bytes of any string, the output included
inline constexpr std::size_t kMaxList = 1'000'000; // elements
inline constexpr std::int64_t kMaxRange = 100'000; // elements, as in Jinja's sandbox
inline constexpr std::int64_t kMaxLive = 24 << 20; // bytes of all values and buffers alive

struct Failure {
    std::string message;
    int line = 0;
    bool raised = false; // by raise_exception
};

[[noreturn]] void fail(std::string message);

class Meter {
public:
    void work(std::int64_t steps)
    {
        m_steps += steps;
        if (m_steps > kMaxSteps)
            tooMuchWork();
    }
    void take(std::int64_t bytes)
    {
        m_live += bytes;
        if (m_live > kMaxLive)
            tooMuchMemory(bytes);
    }
    void give(std::int64_t bytes) { m_live -= bytes; }
    std::int64_t steps() const { return m_steps; }

    static Meter* current(); // of this thread's rendering; null: none
    class Use;

private:
    [[noreturn]] static void tooMuchWork();
    [[noreturn]] void tooMuchMemory(std::int64_t bytes);

    std::int64_t m_steps = 0;
    std::int64_t m_live = 0;
};

class Meter::Use {
public:
    explicit Use(Meter& meter);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

private:
    Meter* m_before;
};

void work(std::int64_t steps); // on the current meter
void workOnBytes(std::size_t bytes); // reading or writing so many
void checkString(std::size_t bytes); // refuses what would be too long
void checkList(std::size_t elements);

enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    space, // a namespace
    builtin, // a global function
    // From here on the value owns a share of an object.
    undefined,
    big, // an integer beyond 64 bits: can be printed, nothing more
    string,
    list,
    tuple,
    dict,
    view, // of a dict: keys, values or items
    range, // never materialised
    iterator, // one-shot
    loop,
    macro,
    method, // a bound method
    cycler,
    joiner,
};

struct Object {
    mutable std::atomic<std::uint32_t> refs {0};
    std::int32_t depth;

    Object(std::size_t bytes, int nesting);
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    virtual ~Object();
    virtual std::string print() const { return {}; } // empty: by its kind

private:
    Meter* m_meter;
    std::int64_t m_bytes;
};

struct StringObject;
struct ListObject;
struct Dict;
struct ViewObject;
struct RangeObject;
struct Iterator;
struct UndefinedObject;
struct Namespace;

class Value {
public:
    Value() = default;
    Value(const Value& other) noexcept
        : m_kind(other.m_kind)
        , m_safe(other.m_safe)
        , m_data(other.m_data)
    {
        if (owns())
            m_data.object->refs.fetch_add(1, std::memory_order_relaxed);
    }
    Value(Value&& other) noexcept
        : m_kind(other.m_kind)
        , m_safe(other.m_safe)
        , m_data(other.m_data)
    {
        other.m_kind = Kind::none;
    }
    Value& operator=(Value other) noexcept
    {
        std::swap(m_kind, other.m_kind);
        std::swap(m_safe, other.m_safe);
        std::swap(m_data, other.m_data);
        return *this;
    }
    ~Value()
    {
        if (owns() && m_data.object->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete m_data.object;
    }

    static Value boolean(bool value);
    static Value integer(std::int64_t value);
    static Value real(double value);
    static Value space(Namespace* value);
    static Value builtin(int id);
    static Value undefined(std::string message); // what to say when it is used
    static Value big(std::string digits);
    static Value string(std::string text, bool safe = false);
    static Value list(std::vector<Value> items);
    static Value tuple(std::vector<Value> items);
    static Value own(Kind kind, Object* object); // takes a share

    Kind kind() const { return m_kind; }
    bool is(Kind kind) const { return m_kind == kind; }
    bool isUndefined() const { return m_kind == Kind::undefined; }
    bool isString() const { return m_kind == Kind::string; }
    bool isInteger() const { return m_kind == Kind::integer || m_kind == Kind::boolean; } // a bool is an int in Python
    bool isNumber() const { return isInteger() || m_kind == Kind::real; }
    bool isSequence() const { return m_kind == Kind::list || m_kind == Kind::tuple; }
    bool isSafe() const { return m_safe; } // a string marked by the filter safe

    bool asBool() const { return m_data.boolean; }
    std::int64_t asInteger() const { return m_kind == Kind::boolean ? m_data.boolean : m_data.integer; }
    double asReal() const { return m_kind == Kind::real ? m_data.real : static_cast<double>(asInteger()); }
    Namespace* asSpace() const { return m_data.space; }
    int asBuiltin() const { return static_cast<int>(m_data.integer); }
    Object* object() const { return m_data.object; }
    const std::string& text() const; // of a string or big
    const StringObject& asString() const;
    const std::vector<Value>& items() const; // of a list or tuple
    const Dict& asDict() const;
    const ViewObject& asView() const;
    const RangeObject& asRange() const;
    Iterator& asIterator() const;
    const std::string& undefinedMessage() const;

    Value marked(bool safe) const; // the same string, marked or not
    int depth() const { return owns() ? m_data.object->depth : 0; }

private:
    bool owns() const { return m_kind >= Kind::undefined; }

    Kind m_kind = Kind::none;
    bool m_safe = false;
    union Data {
        bool boolean;
        std::int64_t integer;
        double real;
        Namespace* space;
        Object* object;
    } m_data {.integer = 0};
};

struct UndefinedObject : Object {
    explicit UndefinedObject(std::string words);
    std::string message;
};

struct StringObject : Object {
    explicit StringObject(std::string content);
    const std::string text; // valid UTF-8
    const std::int64_t length; // code points
    bool ascii() const { return static_cast<std::size_t>(length) == text.size(); }
};

struct ListObject : Object {
    explicit ListObject(std::vector<Value> content);
    const std::vector<Value> items;
};

// Keys in order of insertion; a second insertion of a key replaces the value and keeps the place, as in Python.
struct Dict : Object {
    explicit Dict(std::vector<std::pair<Value, Value>> content);
    const Value* find(const Value& key) const; // fails for a key that Python cannot hash
    const Value* find(std::string_view key) const;
    std::vector<std::pair<Value, Value>> entries;

private:
    std::unordered_multimap<std::size_t, std::uint32_t> m_index; // by hash; empty for small dicts
};

struct ViewObject : Object {
    enum class What : std::uint8_t { keys, values, items };
    ViewObject(Value of, What which);
    const Value dict;
    const What what;
    Value at(std::size_t index) const;
    std::size_t size() const;
};

struct RangeObject : Object {
    RangeObject(std::int64_t first, std::int64_t limit, std::int64_t stride, std::int64_t count);
    const std::int64_t start, stop, step, size;
    std::int64_t at(std::int64_t index) const { return start + index * step; }
};

// A source of values that can be gone through once.
struct Iterator : Object {
    Iterator(const char* name, int nesting);
    virtual bool next(Value& out) = 0;
    const char* type_name; // as Python calls it
};

struct Namespace {
    std::vector<std::pair<std::string, Value>> entries;
    const Value* find(std::string_view name) const;
    void set(std::string_view name, Value value);
};

Value makeDict(std::vector<std::pair<Value, Value>> entries); // later duplicates replace the values of earlier ones
Value makeView(Value dict, ViewObject::What what);
Value makeRange(std::int64_t start, std::int64_t stop, std::int64_t step);
Value makeIterator(Value of, const char* type_name); // over a sequence, dict, view, range or string
Value iterate(const Value& value); // an iterator over anything iterable, else fails
bool isIterable(const Value& value);
std::vector<Value> collect(const Value& value); // all elements of anything iterable, else fails

const char* typeName(const Value& value); // Python's
bool truth(const Value& value);
bool equals(const Value& a, const Value& b);
bool lessThan(const Value& a, const Value& b, const char* op = "<"); // fails for types without an order
bool contains(const Value& container, const Value& item);
std::size_t hashOf(const Value& value); // fails for what Python cannot hash
std::int64_t lengthOf(const Value& value); // fails for what has none

std::string toText(const Value& value); // Python's str()
std::string toRepr(const Value& value); // Python's repr()
std::string formatReal(double value); // Python's repr of a float
void appendText(std::string& out, const Value& value);

} // namespace puna::jinja
