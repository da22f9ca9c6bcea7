// The tree of a Jinja2 template. Immutable once parsed; shared by all renderings.
//
// A Node is plain data: what it is, a name or value where it has one, and children in the order given at its type.
// Nesting is bounded by kMaxNesting, so every walk may recurse.
#pragma once

#include "engine/text/template_value.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace puna::jinja {

enum class NodeType : std::uint8_t {
    // expressions
    constant, // value
    name, // name
    list, // elements
    tuple, // elements
    dict, // key, value, key, value ...
    attribute, // of [0], name
    item, // [0] [ [1] ]
    slice, // start?, stop?, step?
    call, // callee, arguments
    keyword, // an argument: name, [0]
    star, // an argument: * [0]
    double_star, // an argument: ** [0]
    filter, // subject, arguments; name, builtin
    test, // subject, arguments; name, builtin
    block_text, // the subject of a block's first filter
    negative,
    positive,
    negate, // not [0]
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,
    conjunction, // [0] and [1]
    disjunction, // [0] or [1]
    concat, // elements, joined as text
    compare, // [0], then operands of type equal ... not_in
    equal,
    unequal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in, // right side
    ternary, // condition, then, else?
    // statements
    sequence, // statements
    output, // expressions
    branch, // condition, sequence, condition, sequence ..., else sequence
    loop, // target, iterable, condition?, sequence, else sequence?; flag: recursive
    assign, // target, value
    assign_attribute, // of a namespace: name, attribute in second, [0] value
    assign_block, // target (name or assign_attribute), filter or block_text, sequence
    macro, // parameters, sequence; name; flags
    parameter, // name, default?
    call_block, // macro (the caller), call
    filter_block, // filter, sequence
    with, // target, value, target, value ..., sequence
    scope, // sequence, in a scope of its own
    autoescape, // [0], sequence
    loop_break,
    loop_continue,
    refused, // a statement that can only fail: value says how
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Node {
    static constexpr std::uint8_t kRecursive = 1;
    static constexpr std::uint8_t kVarargs = 1, kKwargs = 2, kCaller = 4; // names that a macro's body reads

    NodeType type;
    std::uint8_t flags = 0;
    std::int16_t depth = 1;
    std::int16_t builtin = -1; // filter, test or method; -1: unknown
    std::int32_t line = 0;
    std::int32_t name = -1; // index into Program::names
    std::int32_t second = -1;
    std::uint32_t begin = 0, end = 0; // of an expression in the source
    Value value;
    std::vector<NodePtr> children;

    const Node& operator[](std::size_t i) const { return *children[i]; }
};

struct Program {
    std::string source; // normalised
    std::vector<std::string> names;
    std::vector<std::int32_t> inputs; // names read before the template gives them a value
    NodePtr root;
};

// Throws a Failure with its line.
Program parse(std::string_view source);

} // namespace puna::jinja
