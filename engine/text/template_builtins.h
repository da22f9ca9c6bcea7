// The filters, tests, methods, functions and operators of the template language, by number: names are resolved when
// a template is compiled. Behaviour is Jinja2 3.1's and Python's, with the sandbox's refusals; sizes are checked
// before anything is built.
#pragma once

#include "engine/text/template_value.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace puna::jinja {

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> keywords; // names outlive the call
};

// What the builtins need of the rendering they run in.
class Host {
public:
    virtual Namespace* newNamespace() = 0; // lives as long as the rendering
    virtual std::int64_t now() const = 0; // seconds since the epoch

protected:
    ~Host() = default;
};

// The `loop` of a for statement.
struct LoopObject : Object {
    using Object::Object;
    virtual Value attribute(std::string_view name) = 0;
};

struct MethodObject : Object {
    MethodObject(Value of, int which);
    const Value self;
    const int method;
};

int findFilter(std::string_view name); // -1: there is none
int findTest(std::string_view name);
int findMethod(std::string_view name);
int findFunction(std::string_view name);

Value applyFilter(int filter, const Value& subject, Arguments arguments, Host& host);
bool applyTest(int test, const Value& subject, const Arguments& arguments);
bool hasMethod(const Value& self, int method); // and the sandbox allows it
Value callMethod(int method, const Value& self, Arguments arguments);
Value callFunction(int function, Arguments arguments, Host& host);

// x.name and x[key]; what is missing is undefined. `method` as found for the name.
Value getAttribute(const Value& of, std::string_view name, int method);
Value getItem(const Value& of, const Value& key);
Value getSlice(const Value& of, const Value& start, const Value& stop, const Value& step);

enum class Arithmetic : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
Value calculate(Arithmetic op, const Value& a, const Value& b);
Value negative(const Value& a);

std::string escapeHtml(std::string_view text);

// Values of named parameters out of a call's arguments; fails for too many, unknown or missing ones.
class Parameters {
public:
    Parameters(const char* function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t required = 0);
    bool has(std::size_t i) const { return m_values[i] != nullptr; }
    const Value& operator[](std::size_t i) const { return *m_values[i]; }
    Value valueOr(std::size_t i, Value fallback) const { return has(i) ? *m_values[i] : std::move(fallback); }
    std::int64_t integer(std::size_t i, std::int64_t fallback) const; // fails for what is none
    std::string text(std::size_t i, std::string_view fallback) const; // fails for what is none
    bool flag(std::size_t i, bool fallback = false) const { return has(i) ? truth(*m_values[i]) : fallback; }

private:
    const char* m_function;
    const Value* m_values[8] = {};
};

} // namespace puna::jinja
