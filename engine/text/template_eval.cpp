#include "engine/text/template_eval.h"

#include "engine/text/template_builtins.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

namespace puna::jinja {

namespace {

enum class Flow : std::uint8_t { normal, stop, again };

// Names given a value by a loop, macro or block. One per execution of the statement, as in Jinja2: a macro made inside
// sees later changes.
struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<std::int32_t, Value>> values;
    bool captured = false; // a macro refers to it: kept until the rendering ends
};

struct MacroObject final : Object {
    MacroObject(const Node& macro, const std::string& called, Scope* defined_in)
        : Object(sizeof(MacroObject), 1)
        , node(macro)
        , name(called)
        , scope(defined_in)
    {
    }
    std::string print() const override { return "<Macro '" + name + "'>"; }

    const Node& node;
    const std::string& name; // lives as long as the program
    Scope* scope;
};

class Evaluator;

class Loop final : public LoopObject {
public:
    Loop(Evaluator& evaluator, const Node& node, Scope* outer, const Value& iterable, int recursion);
    bool advance(); // to the next item, which is then current()
    const Value& current() const { return m_current; }
    Value attribute(std::string_view name) override;
    bool changed(const std::vector<Value>& values);
    void finish() // what it remembers may hold the loop itself
    {
        m_changed.reset();
        m_finished = true;
    }
    Value cycle(const std::vector<Value>& values) const;
    const Node& node() const { return m_node; }
    Scope* outer() const { return m_outer; }
    int depth0() const { return m_depth0; }

private:
    bool pull(Value& out);
    bool peek();
    std::int64_t length();

    Evaluator& m_evaluator;
    const Node& m_node;
    Scope* m_outer;
    Value m_source; // an iterator
    std::vector<Value> m_ahead; // taken from the source already, in reverse
    Value m_previous, m_current;
    std::int64_t m_index = -1;
    int m_depth0;
    std::optional<Value> m_changed;
    bool m_finished = false;
};

class Evaluator final : public Host {
public:
    Evaluator(const Program& program, const Value& context, std::int64_t now)
        : m_program(program)
        , m_now(now)
        , m_values(program.names.size())
        , m_defined(program.names.size())
    {
        for (std::size_t id = 0; id < program.names.size(); id++) {
            const std::string& name = program.names[id];
            if (const Value* value = context.asDict().find(name)) {
                m_values[id] = *value;
                m_defined[id] = true;
            } else if (const int function = findFunction(name); function >= 0) {
                m_values[id] = Value::builtin(function);
                m_defined[id] = true;
            }
            if (name == "loop")
                m_loop_name = static_cast<std::int32_t>(id);
            else if (name == "varargs")
                m_varargs_name = static_cast<std::int32_t>(id);
            else if (name == "kwargs")
                m_kwargs_name = static_cast<std::int32_t>(id);
            else if (name == "caller")
                m_caller_name = static_cast<std::int32_t>(id);
        }
    }

    std::string run()
    {
        try {
            Capture output(*this);
            execute(*m_program.root);
            return std::move(output.text);
        } catch (Failure& failure) {
            if (m_at && failure.line == 0) {
                failure.line = m_at->line;
                if (!failure.raised && m_at->end > m_at->begin)
                    failure.message += ", in: " + excerpt(*m_at);
            }
            throw;
        }
    }

    Namespace* newNamespace() override
    {
        m_meter.take(128);
        return m_namespaces.emplace_back(std::make_unique<Namespace>()).get();
    }
    std::int64_t now() const override { return m_now; }

    bool passes(const Node& loop, Scope* outer, const Value& item)
    {
        const Within within(*this, outer);
        assign(loop[0], item);
        return truth(evaluate(loop[2]));
    }

private:
    // Output written while it lives goes to its text.
    class Capture {
    public:
        explicit Capture(Evaluator& evaluator)
            : m_evaluator(evaluator)
            , m_before(evaluator.m_output)
        {
            evaluator.m_output = &text;
        }
        ~Capture()
        {
            m_evaluator.m_output = m_before;
            m_evaluator.m_meter.give(m_evaluator.m_captured - m_captured_before);
            m_evaluator.m_captured = m_captured_before;
        }
        Capture(const Capture&) = delete;
        Capture& operator=(const Capture&) = delete;
        Value value() { return Value::string(std::move(text), m_evaluator.m_autoescape); }

        std::string text;

    private:
        Evaluator& m_evaluator;
        std::string* m_before;
        std::int64_t m_captured_before = m_evaluator.m_captured;
    };

    // A new scope while it lives.
    class Within {
    public:
        Within(Evaluator& evaluator, Scope* parent)
            : m_evaluator(evaluator)
            , m_before(evaluator.m_scope)
        {
            auto& spare = evaluator.m_spare;
            if (spare.empty()) {
                evaluator.m_meter.take(256);
                evaluator.m_scopes.push_back(std::make_unique<Scope>());
                m_scope = evaluator.m_scopes.back().get();
            } else {
                m_scope = spare.back();
                spare.pop_back();
            }
            m_scope->parent = parent;
            evaluator.m_scope = m_scope;
        }
        ~Within()
        {
            m_evaluator.m_scope = m_before;
            if (!m_scope->captured) {
                m_scope->values.clear();
                m_evaluator.m_spare.push_back(m_scope);
            }
        }
        Within(const Within&) = delete;
        Within& operator=(const Within&) = delete;
        Scope& scope() { return *m_scope; }

    private:
        Evaluator& m_evaluator;
        Scope* m_before;
        Scope* m_scope;
    };

    class Frame {
    public:
        explicit Frame(Evaluator& evaluator)
            : m_evaluator(evaluator)
        {
            evaluator.m_meter.work(1);
            if (++evaluator.m_frames > kMaxFrames) {
                evaluator.m_frames--;
                fail("evaluation nested too deep");
            }
        }
        ~Frame() { m_evaluator.m_frames--; }
        Frame(const Frame&) = delete;
        Frame& operator=(const Frame&) = delete;

    private:
        Evaluator& m_evaluator;
    };

    std::string excerpt(const Node& node) const
    {
        std::string text = m_program.source.substr(node.begin, std::min<std::size_t>(node.end - node.begin, 200));
        std::replace(text.begin(), text.end(), '\n', ' ');
        if (text.size() > 80) {
            std::size_t cut = 77;
            while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80)
                cut--;
            text = text.substr(0, cut) + "...";
        }
        return text;
    }

    const std::string& name(std::int32_t id) const { return m_program.names[static_cast<std::size_t>(id)]; }

    void at(const Node& node) { m_at = &node; }

    // --- variables ---------------------------------------------------------------------------------------------

    // Scopes hold a handful of names, so they are searched one by one; hostile ones pay for their size.
    const Value* find(std::int32_t id) const
    {
        std::size_t passed = 0;
        for (const Scope* scope = m_scope; scope; scope = scope->parent) {
            for (const auto& [key, value] : scope->values)
                if (key == id)
                    return &value;
            passed += 1 + scope->values.size();
        }
        m_meter.work(static_cast<std::int64_t>(passed / 8));
        return m_defined[static_cast<std::size_t>(id)] ? &m_values[static_cast<std::size_t>(id)] : nullptr;
    }

    Value lookup(std::int32_t id) const
    {
        if (const Value* value = find(id))
            return *value;
        return Value::undefined("'" + name(id) + "' is undefined");
    }

    void define(std::int32_t id, Value value)
    {
        if (!m_scope) {
            m_values[static_cast<std::size_t>(id)] = std::move(value);
            m_defined[static_cast<std::size_t>(id)] = true;
            return;
        }
        for (auto& [key, old] : m_scope->values) {
            if (key == id) {
                old = std::move(value);
                return;
            }
        }
        m_meter.work(static_cast<std::int64_t>(m_scope->values.size() / 8));
        m_scope->values.emplace_back(id, std::move(value));
    }

    void assign(const Node& target, const Value& value)
    {
        if (target.type == NodeType::name) {
            define(target.name, value);
            return;
        }
        const std::vector<Value> parts = collect(value);
        const std::string expected = "(expected " + std::to_string(target.children.size());
        if (parts.size() > target.children.size())
            fail("too many values to unpack " + expected + ")");
        if (parts.size() < target.children.size())
            fail("not enough values to unpack " + expected + ", got " + std::to_string(parts.size()) + ")");
        for (std::size_t i = 0; i < parts.size(); i++)
            assign(target[i], parts[i]);
    }

    void assignAttribute(const Node& target, Value value)
    {
        const Value space = lookup(target.name);
        if (!space.is(Kind::space))
            fail(space.isUndefined() ? space.undefinedMessage() : "cannot assign attribute on non-namespace object");
        space.asSpace()->set(name(target.second), std::move(value));
    }

    Value makeMacro(const Node& node)
    {
        for (Scope* scope = m_scope; scope && !scope->captured; scope = scope->parent)
            scope->captured = true;
        return Value::own(Kind::macro, new MacroObject(node, name(node.name), m_scope));
    }

    // --- expressions -------------------------------------------------------------------------------------------

    Value evaluate(const Node& node)
    {
        const Frame frame(*this);
        at(node);
        switch (node.type) {
        case NodeType::constant:
            return node.value;
        case NodeType::name:
            return lookup(node.name);
        case NodeType::block_text:
            return m_block_text;
        case NodeType::list:
        case NodeType::tuple: {
            std::vector<Value> items;
            items.reserve(node.children.size());
            for (const NodePtr& child : node.children)
                items.push_back(evaluate(*child));
            at(node);
            return node.type == NodeType::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
        }
        case NodeType::dict: {
            std::vector<std::pair<Value, Value>> entries;
            for (std::size_t i = 0; i < node.children.size(); i += 2) {
                Value key = evaluate(node[i]);
                entries.emplace_back(std::move(key), evaluate(node[i + 1]));
            }
            at(node);
            return makeDict(std::move(entries));
        }
        case NodeType::attribute: {
            const Value of = evaluate(node[0]);
            at(node);
            return getAttribute(of, name(node.name), node.builtin);
        }
        case NodeType::item:
            return evaluateItem(node);
        case NodeType::call:
            return evaluateCall(node);
        case NodeType::filter: {
            const Value subject = evaluate(node[0]);
            Arguments arguments = evaluateArguments(node);
            at(node);
            if (node.builtin < 0)
                fail("No filter named '" + name(node.name) + "'.");
            return applyFilter(node.builtin, subject, std::move(arguments), *this);
        }
        case NodeType::test: {
            const Value subject = evaluate(node[0]);
            const Arguments arguments = evaluateArguments(node);
            at(node);
            if (node.builtin < 0)
                fail("No test named '" + name(node.name) + "'.");
            return Value::boolean(applyTest(node.builtin, subject, arguments));
        }
        case NodeType::negative: {
            const Value operand = evaluate(node[0]);
            at(node);
            return negative(operand);
        }
        case NodeType::positive: {
            const Value operand = evaluate(node[0]);
            at(node);
            if (operand.isUndefined())
                fail(operand.undefinedMessage());
            if (!operand.isNumber())
                fail(std::string("bad operand type for unary +: '") + typeName(operand) + "'");
            return operand.is(Kind::boolean) ? Value::integer(operand.asInteger()) : operand;
        }
        case NodeType::negate:
            return Value::boolean(!truth(evaluate(node[0])));
        case NodeType::add:
            return binary(node, Arithmetic::add);
        case NodeType::subtract:
            return binary(node, Arithmetic::subtract);
        case NodeType::multiply:
            return binary(node, Arithmetic::multiply);
        case NodeType::divide:
            return binary(node, Arithmetic::divide);
        case NodeType::floor_divide:
            return binary(node, Arithmetic::floor_divide);
        case NodeType::modulo:
            return binary(node, Arithmetic::modulo);
        case NodeType::power:
            return binary(node, Arithmetic::power);
        case NodeType::conjunction: {
            Value left = evaluate(node[0]);
            return truth(left) ? evaluate(node[1]) : left;
        }
        case NodeType::disjunction: {
            Value left = evaluate(node[0]);
            return truth(left) ? left : evaluate(node[1]);
        }
        case NodeType::concat: {
            std::string text;
            for (const NodePtr& child : node.children)
                appendText(text, evaluate(*child));
            return Value::string(std::move(text));
        }
        case NodeType::compare:
            return evaluateComparison(node);
        case NodeType::ternary:
            if (truth(evaluate(node[0])))
                return evaluate(node[1]);
            if (node.children[2])
                return evaluate(node[2]);
            return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
        default:
            fail("not an expression");
        }
    }

    Value binary(const Node& node, Arithmetic op)
    {
        const Value left = evaluate(node[0]);
        const Value right = evaluate(node[1]);
        at(node);
        return calculate(op, left, right);
    }

    Value evaluateItem(const Node& node)
    {
        const Value of = evaluate(node[0]);
        if (node[1].type != NodeType::slice) {
            const Value key = evaluate(node[1]);
            at(node);
            return getItem(of, key);
        }
        Value bounds[3];
        for (std::size_t i = 0; i < 3; i++)
            if (node[1].children[i])
                bounds[i] = evaluate(node[1][i]);
        at(node);
        return getSlice(of, bounds[0], bounds[1], bounds[2]);
    }

    Value evaluateComparison(const Node& node)
    {
        Value left = evaluate(node[0]);
        for (std::size_t i = 1; i < node.children.size(); i++) {
            Value right = evaluate(node[i][0]);
            at(node);
            if (!holds(node[i].type, left, right))
                return Value::boolean(false);
            left = std::move(right);
        }
        return Value::boolean(true);
    }

    static bool holds(NodeType op, const Value& a, const Value& b)
    {
        switch (op) {
        case NodeType::equal:
            return equals(a, b);
        case NodeType::unequal:
            return !equals(a, b);
        case NodeType::less:
            return lessThan(a, b, "<");
        case NodeType::greater:
            return lessThan(b, a, ">");
        case NodeType::less_equal:
            return lessThan(a, b, "<=") || equals(a, b);
        case NodeType::greater_equal:
            return lessThan(b, a, ">=") || equals(a, b);
        case NodeType::in:
            return contains(b, a);
        default:
            return !contains(b, a);
        }
    }

    Arguments evaluateArguments(const Node& node) // all children but the first
    {
        Arguments arguments;
        if (node.children.size() > 1)
            arguments.positional.reserve(node.children.size() - 1);
        const auto keyword = [&](std::string_view key, Value value) {
            for (const auto& [known, old] : arguments.keywords)
                if (known == key)
                    fail("got multiple values for keyword argument '" + std::string(key) + "'");
            arguments.keywords.emplace_back(key, std::move(value));
        };
        for (std::size_t i = 1; i < node.children.size(); i++) {
            const Node& child = node[i];
            if (child.type == NodeType::keyword) {
                keyword(name(child.name), evaluate(child[0]));
            } else if (child.type == NodeType::star) {
                for (Value& value : collect(evaluate(child[0])))
                    arguments.positional.push_back(std::move(value));
            } else if (child.type == NodeType::double_star) {
                const Value map = evaluate(child[0]);
                if (!map.is(Kind::dict))
                    fail(std::string("argument after ** must be a mapping, not ") + typeName(map));
                m_keyword_maps.push_back(map); // keeps the names alive
                for (const auto& [key, value] : map.asDict().entries) {
                    if (!key.isString())
                        fail("keywords must be strings");
                    keyword(key.text(), value);
                }
            } else {
                arguments.positional.push_back(evaluate(child));
            }
        }
        return arguments;
    }

    Value evaluateCall(const Node& node, const Value* caller = nullptr)
    {
        const Node& callee = node[0];
        Value function;
        if (callee.type == NodeType::attribute && callee.builtin >= 0) {
            const Value self = evaluate(callee[0]);
            if (hasMethod(self, callee.builtin) && !caller) {
                Arguments arguments = evaluateArguments(node);
                at(node);
                return callMethod(callee.builtin, self, std::move(arguments));
            }
            at(callee);
            function = getAttribute(self, name(callee.name), callee.builtin);
        } else {
            function = evaluate(callee);
        }
        Arguments arguments = evaluateArguments(node);
        if (caller)
            arguments.keywords.emplace_back("caller", *caller);
        at(node);
        return call(function, std::move(arguments));
    }

    Value call(const Value& function, Arguments arguments)
    {
        switch (function.kind()) {
        case Kind::builtin:
            return callFunction(function.asBuiltin(), std::move(arguments), *this);
        case Kind::macro:
            return callMacro(static_cast<const MacroObject&>(*function.object()), std::move(arguments));
        case Kind::method: {
            const auto& method = static_cast<const MethodObject&>(*function.object());
            if (method.self.is(Kind::loop))
                return callLoopMethod(static_cast<Loop&>(*method.self.object()), method.method, arguments);
            return callMethod(method.method, method.self, std::move(arguments));
        }
        case Kind::joiner:
            return callMethod(-1, function, std::move(arguments));
        case Kind::loop:
            return callLoop(static_cast<Loop&>(*function.object()), arguments);
        case Kind::undefined:
            fail(function.undefinedMessage());
        default:
            fail(std::string("'") + typeName(function) + "' object is not callable");
        }
    }

    static Value callLoopMethod(Loop& loop, int method, const Arguments& arguments)
    {
        if (method == findMethod("changed"))
            return Value::boolean(loop.changed(arguments.positional));
        return loop.cycle(arguments.positional);
    }

    Value callLoop(Loop& loop, const Arguments& arguments)
    {
        if ((loop.node().flags & Node::kRecursive) == 0)
            fail("The loop must have the 'recursive' marker to be called recursively.");
        const Parameters parameters("loop", arguments, {"iterable"}, 1);
        const Calls calls(*this);
        Capture output(*this);
        runLoop(loop.node(), loop.outer(), parameters[0], loop.depth0() + 1);
        return output.value();
    }

    class Calls {
    public:
        explicit Calls(Evaluator& evaluator)
            : m_evaluator(evaluator)
        {
            if (++evaluator.m_calls > kMaxCalls) {
                evaluator.m_calls--;
                fail("calls nested more than " + std::to_string(kMaxCalls) + " deep");
            }
        }
        ~Calls() { m_evaluator.m_calls--; }
        Calls(const Calls&) = delete;
        Calls& operator=(const Calls&) = delete;

    private:
        Evaluator& m_evaluator;
    };

    Value callMacro(const MacroObject& macro, Arguments arguments)
    {
        const Calls calls(*this);
        const Node& node = macro.node;
        const std::size_t count = node.children.size() - 1;
        const Within within(*this, macro.scope);
        const auto take = [&](std::string_view key) -> std::optional<Value> {
            for (auto entry = arguments.keywords.begin(); entry != arguments.keywords.end(); ++entry) {
                if (entry->first == key) {
                    Value value = std::move(entry->second);
                    arguments.keywords.erase(entry);
                    return value;
                }
            }
            return {};
        };
        std::vector<bool> given(count, true);
        for (std::size_t i = 0; i < count; i++) {
            const std::int32_t id = node[i].name;
            if (i < arguments.positional.size())
                define(id, arguments.positional[i]);
            else if (std::optional<Value> value = take(name(id)))
                define(id, std::move(*value));
            else
                given[i] = false;
        }
        if (node.flags & Node::kCaller) {
            std::optional<Value> caller = take("caller");
            define(m_caller_name, caller ? std::move(*caller) : Value::undefined("No caller defined"));
        }
        if (node.flags & Node::kKwargs) {
            std::vector<std::pair<Value, Value>> entries;
            for (auto& [key, value] : arguments.keywords)
                entries.emplace_back(Value::string(std::string(key)), std::move(value));
            define(m_kwargs_name, makeDict(std::move(entries)));
        } else if (!arguments.keywords.empty()) {
            fail("macro '" + macro.name + "' takes no keyword argument '" + std::string(arguments.keywords[0].first)
                + "'");
        }
        if (node.flags & Node::kVarargs) {
            std::vector<Value> rest;
            for (std::size_t i = count; i < arguments.positional.size(); i++)
                rest.push_back(std::move(arguments.positional[i]));
            define(m_varargs_name, Value::tuple(std::move(rest)));
        } else if (arguments.positional.size() > count) {
            fail("macro '" + macro.name + "' takes not more than " + std::to_string(count) + " argument(s)");
        }
        for (std::size_t i = 0; i < count; i++) {
            if (given[i])
                continue;
            const Node& parameter = node[i];
            define(parameter.name,
                parameter.children[0] ? evaluate(parameter[0])
                                      : Value::undefined("parameter '" + name(parameter.name) + "' was not provided"));
        }
        Capture output(*this);
        execute(node[count]);
        return output.value();
    }

    // --- statements --------------------------------------------------------------------------------------------

    void write(const Value& value)
    {
        const std::size_t before = m_output->size();
        if (m_autoescape && !value.isSafe())
            *m_output += escapeHtml(toText(value));
        else
            appendText(*m_output, value);
        checkString(m_output->size());
        const auto grown = static_cast<std::int64_t>(m_output->size() - before);
        m_meter.take(grown);
        m_captured += grown;
    }

    Flow execute(const Node& node)
    {
        const Frame frame(*this);
        at(node);
        switch (node.type) {
        case NodeType::sequence:
            for (const NodePtr& child : node.children)
                if (const Flow flow = execute(*child); flow != Flow::normal)
                    return flow;
            return Flow::normal;
        case NodeType::output:
            for (const NodePtr& child : node.children)
                write(evaluate(*child));
            return Flow::normal;
        case NodeType::branch:
            for (std::size_t i = 0; i + 1 < node.children.size(); i += 2)
                if (truth(evaluate(node[i])))
                    return execute(node[i + 1]);
            return node.children.size() % 2 == 1 ? execute(*node.children.back()) : Flow::normal;
        case NodeType::loop:
            return runLoop(node, m_scope, evaluate(node[1]), 0);
        case NodeType::assign: {
            const Value value = evaluate(node[1]);
            at(node);
            assign(node[0], value);
            return Flow::normal;
        }
        case NodeType::assign_attribute: {
            Value value = evaluate(node[0]);
            at(node);
            assignAttribute(node, std::move(value));
            return Flow::normal;
        }
        case NodeType::assign_block:
        case NodeType::filter_block: {
            const bool assigns = node.type == NodeType::assign_block;
            Value text;
            if (const Flow flow = captureBody(*node.children.back(), text); flow != Flow::normal)
                return flow;
            std::swap(m_block_text, text);
            const Value result = evaluate(node[assigns ? 1 : 0]);
            std::swap(m_block_text, text);
            at(node);
            if (!assigns && !result.isString())
                fail(std::string("a filter block gives '") + typeName(result) + "' instead of a text");
            if (!assigns)
                write(result);
            else if (node[0].type == NodeType::assign_attribute)
                assignAttribute(node[0], result);
            else
                assign(node[0], result);
            return Flow::normal;
        }
        case NodeType::macro:
            define(node.name, makeMacro(node));
            return Flow::normal;
        case NodeType::call_block: {
            const Value caller = makeMacro(node[0]);
            write(evaluateCall(node[1], &caller));
            return Flow::normal;
        }
        case NodeType::with: {
            std::vector<Value> values;
            for (std::size_t i = 1; i < node.children.size(); i += 2)
                values.push_back(evaluate(node[i]));
            const Within within(*this, m_scope);
            for (std::size_t i = 0; i < values.size(); i++)
                assign(node[2 * i], values[i]);
            return execute(*node.children.back());
        }
        case NodeType::scope: {
            const Within within(*this, m_scope);
            return execute(node[0]);
        }
        case NodeType::autoescape: {
            const bool before = m_autoescape;
            m_autoescape = truth(evaluate(node[0]));
            const Within within(*this, m_scope);
            const Flow flow = execute(node[1]);
            m_autoescape = before;
            return flow;
        }
        case NodeType::loop_break:
            return Flow::stop;
        case NodeType::loop_continue:
            return Flow::again;
        case NodeType::refused:
            fail(node.value.text());
        default:
            fail("not a statement");
        }
    }

    Flow captureBody(const Node& body, Value& text)
    {
        const Within within(*this, m_scope);
        Capture output(*this);
        const Flow flow = execute(body);
        text = output.value();
        return flow;
    }

    Flow runLoop(const Node& node, Scope* outer, const Value& iterable, int depth)
    {
        const Value object = Value::own(Kind::loop, new Loop(*this, node, outer, iterable, depth));
        Loop& loop = static_cast<Loop&>(*object.object());
        const struct Finish {
            Loop& loop;
            ~Finish() { loop.finish(); }
        } finish {loop};
        bool any = false;
        {
            Within within(*this, outer);
            while (loop.advance()) {
                any = true;
                m_meter.work(4);
                within.scope().values.clear();
                define(m_loop_name, object);
                assign(node[0], loop.current());
                const Flow flow = execute(node[3]);
                if (flow == Flow::stop)
                    break;
            }
        }
        if (any || !node.children[4])
            return Flow::normal;
        const Within within(*this, outer);
        return execute(node[4]);
    }

    const Program& m_program;
    std::int64_t m_now;
    Meter& m_meter = *Meter::current();
    std::vector<std::unique_ptr<Namespace>> m_namespaces;
    std::vector<Value> m_values; // of names outside every scope: the context, functions and what the template sets
    std::vector<bool> m_defined;
    std::vector<std::unique_ptr<Scope>> m_scopes;
    std::vector<Scope*> m_spare;
    std::vector<Value> m_keyword_maps;
    Scope* m_scope = nullptr;
    std::string* m_output = nullptr;
    std::int64_t m_captured = 0; // bytes in all outputs alive
    Value m_block_text;
    const Node* m_at = nullptr;
    int m_frames = 0;
    int m_calls = 0;
    bool m_autoescape = false;
    std::int32_t m_loop_name = -1, m_varargs_name = -1, m_kwargs_name = -1, m_caller_name = -1;
};

Loop::Loop(Evaluator& evaluator, const Node& node, Scope* outer, const Value& iterable, int recursion)
    : LoopObject(sizeof(Loop), iterable.depth() + 2)
    , m_evaluator(evaluator)
    , m_node(node)
    , m_outer(outer)
    , m_source(iterate(iterable))
    , m_depth0(recursion)
{
}

bool Loop::pull(Value& out)
{
    while (m_source.asIterator().next(out))
        if (!m_node.children[2] || m_evaluator.passes(m_node, m_outer, out))
            return true;
    return false;
}

bool Loop::peek()
{
    if (m_ahead.empty()) {
        Value next;
        if (!pull(next))
            return false;
        m_ahead.push_back(std::move(next));
    }
    return true;
}

bool Loop::advance()
{
    if (!peek())
        return false;
    m_previous = std::move(m_current);
    m_current = std::move(m_ahead.back());
    m_ahead.pop_back();
    m_index++;
    return true;
}

std::int64_t Loop::length()
{
    std::vector<Value> rest(m_ahead.rbegin(), m_ahead.rend());
    for (Value next; pull(next);) {
        checkList(rest.size() + 1);
        rest.push_back(next);
    }
    work(static_cast<std::int64_t>(rest.size()));
    std::reverse(rest.begin(), rest.end());
    m_ahead = std::move(rest);
    return m_index + 1 + static_cast<std::int64_t>(m_ahead.size());
}

Value Loop::attribute(std::string_view name)
{
    const auto missing = [](const char* which) {
        return Value::undefined(std::string("there is no ") + which + " item");
    };
    if (name == "index0")
        return Value::integer(m_index);
    if (name == "index")
        return Value::integer(m_index + 1);
    if (name == "first")
        return Value::boolean(m_index == 0);
    if (name == "last")
        return Value::boolean(!peek());
    if (name == "previtem")
        return m_index > 0 ? m_previous : missing("previous");
    if (name == "nextitem")
        return peek() ? m_ahead.back() : missing("next");
    if (name == "length")
        return Value::integer(length());
    if (name == "revindex")
        return Value::integer(length() - m_index);
    if (name == "revindex0")
        return Value::integer(length() - m_index - 1);
    if (name == "depth")
        return Value::integer(m_depth0 + 1);
    if (name == "depth0")
        return Value::integer(m_depth0);
    return Value::undefined("'loop' has no attribute '" + std::string(name) + "'");
}

bool Loop::changed(const std::vector<Value>& values)
{
    Value now = Value::tuple(values);
    if (m_changed && equals(*m_changed, now))
        return false;
    if (!m_finished)
        m_changed = std::move(now);
    return true;
}

Value Loop::cycle(const std::vector<Value>& values) const
{
    if (values.empty())
        fail("no items for cycling given");
    return values[static_cast<std::size_t>(m_index) % values.size()];
}

} // namespace

std::string render(const Program& program, const Value& context, std::int64_t now)
{
    Meter meter;
    const Meter::Use use(meter);
    return Evaluator(program, context, now).run();
}

} // namespace puna::jinja
