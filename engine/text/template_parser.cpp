#include "engine/text/template_parser.h"

#include "engine/text/template_builtins.h"
#include "engine/text/template_lexer.h"
#include "engine/text/template_unicode.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace puna::jinja {

namespace {

class Parser {
public:
    explicit Parser(std::string_view source)
        : m_program {normaliseNewlines(source), {}, {}, nullptr}
        , m_lexer(m_program.source)
        , m_token(m_lexer.next())
        , m_ahead(m_lexer.next())
    {
    }

    Program parseTemplate()
    {
        m_program.root = parseBody({});
        checkBuiltins(*m_program.root, false);
        findInputs();
        return std::move(m_program);
    }

private:
    class Level {
    public:
        explicit Level(Parser& parser)
            : m_parser(parser)
        {
            if (++m_parser.m_level > kMaxNesting)
                m_parser.error("nested more than " + std::to_string(kMaxNesting) + " deep");
        }
        ~Level() { m_parser.m_level--; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

    private:
        Parser& m_parser;
    };

    [[noreturn]] void error(std::string message, int line = 0) const
    {
        throw Failure {std::move(message), line > 0 ? line : m_token.line, false};
    }

    // --- tokens ------------------------------------------------------------------------------------------------

    Token advance()
    {
        Token token = std::move(m_token);
        m_token = std::move(m_ahead);
        m_ahead = m_lexer.next();
        m_end = token.limit;
        return token;
    }
    bool at(std::string_view op) const { return m_token.isOp(op); }
    bool atName(std::string_view name) const { return m_token.isName(name); }
    bool atType(TokenType type) const { return m_token.type == type; }
    bool skipOp(std::string_view op)
    {
        const bool there = at(op);
        if (there)
            advance();
        return there;
    }
    bool skipName(std::string_view name)
    {
        const bool there = atName(name);
        if (there)
            advance();
        return there;
    }
    void expectOp(std::string_view op)
    {
        if (!skipOp(op))
            error("expected token '" + std::string(op) + "', got " + describe(m_token));
    }
    Token expectName()
    {
        if (!atType(TokenType::name))
            error("expected token 'name', got " + describe(m_token));
        std::size_t first = 0;
        if (isNumeric(decodeAt(m_token.text, first)))
            error("invalid character in identifier " + describe(m_token));
        return advance();
    }
    void expectBlockEnd()
    {
        if (!atType(TokenType::block_end))
            error("expected token 'end of statement block', got " + describe(m_token));
        advance();
    }

    // --- nodes -------------------------------------------------------------------------------------------------

    NodePtr make(NodeType type, int line)
    {
        if (++m_nodes > kMaxNodes)
            error("more than " + std::to_string(kMaxNodes) + " parts");
        auto node = std::make_unique<Node>();
        node->type = type;
        node->line = line;
        node->begin = node->end = m_token.begin;
        return node;
    }
    template <class... Children> NodePtr make(NodeType type, int line, Children... children)
    {
        NodePtr node = make(type, line);
        node->children.reserve(sizeof...(children));
        (add(*node, std::move(children)), ...);
        for (const NodePtr& child : node->children) {
            if (child) {
                node->begin = child->begin;
                break;
            }
        }
        node->end = m_end;
        return node;
    }
    void add(Node& node, NodePtr child)
    {
        if (child) {
            node.depth = std::max(node.depth, static_cast<std::int16_t>(child->depth + 1));
            if (node.depth > kMaxNesting)
                error("nested more than " + std::to_string(kMaxNesting) + " deep");
        }
        node.children.push_back(std::move(child));
    }
    std::int32_t intern(std::string_view name)
    {
        const auto [slot, is_new] =
            m_ids.try_emplace(std::string(name), static_cast<std::int32_t>(m_program.names.size()));
        if (is_new)
            m_program.names.emplace_back(name);
        return slot->second;
    }
    NodePtr constant(Value value, int line, std::uint32_t begin)
    {
        NodePtr node = make(NodeType::constant, line);
        node->value = std::move(value);
        node->begin = begin;
        node->end = m_end;
        return node;
    }
    NodePtr nameNode(const Token& token)
    {
        NodePtr node = make(NodeType::name, token.line);
        node->name = intern(token.text);
        node->begin = token.begin;
        node->end = token.limit;
        return node;
    }

    // Names are remembered in the order in which the template reads and writes them.
    void read(std::int32_t name)
    {
        if (m_written.count(name) == 0 && m_read.insert(name).second)
            m_program.inputs.push_back(name);
        const std::string& text = m_program.names[static_cast<std::size_t>(name)];
        if (text == "varargs")
            m_macro_flags |= Node::kVarargs;
        else if (text == "kwargs")
            m_macro_flags |= Node::kKwargs;
        else if (text == "caller")
            m_macro_flags |= Node::kCaller;
    }
    void write(std::int32_t name) { m_written.insert(name); }

    void findInputs()
    {
        std::erase_if(m_program.inputs, [&](std::int32_t name) { return m_macros.count(name) != 0; });
    }

    // Jinja2 refuses unknown filters and tests when it compiles, unless they stand in an if or a ternary.
    void checkBuiltins(const Node& node, bool soft) const
    {
        if ((node.type == NodeType::filter || node.type == NodeType::test) && node.builtin < 0 && !soft)
            error(std::string("No ") + (node.type == NodeType::filter ? "filter" : "test") + " named '"
                    + m_program.names[static_cast<std::size_t>(node.name)] + "'.",
                node.line);
        const bool is_choice = node.type == NodeType::branch || node.type == NodeType::ternary;
        const bool has_frame = node.type == NodeType::loop || node.type == NodeType::macro
            || node.type == NodeType::filter_block || node.type == NodeType::assign_block || node.type == NodeType::with
            || node.type == NodeType::scope;
        for (std::size_t i = 0; i < node.children.size(); i++) {
            const bool inherits = !has_frame || (node.type == NodeType::loop && i == 1);
            if (node.children[i])
                checkBuiltins(*node.children[i], is_choice || (soft && inherits));
        }
    }

    // --- expressions -------------------------------------------------------------------------------------------

    NodePtr parseExpression()
    {
        const Level level(*this);
        const int line = m_token.line;
        NodePtr node = parseOr();
        while (skipName("if")) {
            NodePtr condition = parseOr();
            NodePtr otherwise = skipName("else") ? parseExpression() : nullptr;
            const std::uint32_t begin = node->begin;
            node = make(NodeType::ternary, line, std::move(condition), std::move(node), std::move(otherwise));
            node->begin = begin;
        }
        return node;
    }

    NodePtr parseOr()
    {
        NodePtr left = parseAnd();
        while (atName("or")) {
            const int line = advance().line;
            NodePtr right = parseAnd();
            left = make(NodeType::disjunction, line, std::move(left), std::move(right));
        }
        return left;
    }

    NodePtr parseAnd()
    {
        NodePtr left = parseNot();
        while (atName("and")) {
            const int line = advance().line;
            NodePtr right = parseNot();
            left = make(NodeType::conjunction, line, std::move(left), std::move(right));
        }
        return left;
    }

    NodePtr parseNot()
    {
        if (!atName("not"))
            return parseCompare();
        const Level level(*this);
        const Token token = advance();
        NodePtr operand = parseNot();
        NodePtr node = make(NodeType::negate, token.line, std::move(operand));
        node->begin = token.begin;
        return node;
    }

    std::optional<NodeType> comparison() const
    {
        if (atType(TokenType::op)) {
            static constexpr std::pair<std::string_view, NodeType> kOps[] {
                {"==", NodeType::equal},
                {"!=", NodeType::unequal},
                {"<", NodeType::less},
                {"<=", NodeType::less_equal},
                {">", NodeType::greater},
                {">=", NodeType::greater_equal},
            };
            for (const auto& [text, type] : kOps)
                if (m_token.text == text)
                    return type;
        }
        if (atName("in"))
            return NodeType::in;
        if (atName("not") && m_ahead.isName("in"))
            return NodeType::not_in;
        return {};
    }

    NodePtr parseCompare()
    {
        const int line = m_token.line;
        NodePtr left = parseSum();
        if (!comparison())
            return left;
        NodePtr node = make(NodeType::compare, line, std::move(left));
        while (const std::optional<NodeType> type = comparison()) {
            const int at_line = advance().line;
            if (*type == NodeType::not_in)
                advance();
            NodePtr right = parseSum();
            add(*node, make(*type, at_line, std::move(right)));
        }
        node->end = m_end;
        return node;
    }

    using Rule = NodePtr (Parser::*)();

    NodePtr parseChain(Rule operand, std::initializer_list<std::pair<std::string_view, NodeType>> ops)
    {
        NodePtr left = (this->*operand)();
        for (;;) {
            const auto op = std::find_if(ops.begin(), ops.end(), [&](const auto& entry) { return at(entry.first); });
            if (op == ops.end())
                return left;
            const int line = advance().line;
            NodePtr right = (this->*operand)();
            left = make(op->second, line, std::move(left), std::move(right));
        }
    }

    NodePtr parseSum() { return parseChain(&Parser::parseConcat, {{"+", NodeType::add}, {"-", NodeType::subtract}}); }

    NodePtr parseConcat()
    {
        NodePtr first = parseProduct();
        if (!at("~"))
            return first;
        const int line = m_token.line;
        NodePtr node = make(NodeType::concat, line, std::move(first));
        while (skipOp("~"))
            add(*node, parseProduct());
        node->end = m_end;
        return node;
    }

    NodePtr parseProduct()
    {
        return parseChain(&Parser::parsePower,
            {{"*", NodeType::multiply}, {"/", NodeType::divide}, {"//", NodeType::floor_divide},
                {"%", NodeType::modulo}});
    }

    NodePtr parsePower() { return parseChain(&Parser::parseUnary, {{"**", NodeType::power}}); }

    NodePtr parseUnary() { return parseSigned(true); }

    NodePtr parseSigned(bool with_filters)
    {
        NodePtr node;
        if (at("-") || at("+")) {
            const Level level(*this);
            const Token token = advance();
            NodePtr operand = parseSigned(false);
            node = make(token.text == "-" ? NodeType::negative : NodeType::positive, token.line, std::move(operand));
            node->begin = token.begin;
        } else {
            node = parsePrimary();
        }
        node = parsePostfix(std::move(node));
        return with_filters ? parseFilters(std::move(node)) : std::move(node);
    }

    NodePtr parsePrimary()
    {
        const int line = m_token.line;
        const std::uint32_t begin = m_token.begin;
        switch (m_token.type) {
        case TokenType::name: {
            const std::string_view text = m_token.text;
            if (text == "true" || text == "True" || text == "false" || text == "False") {
                advance();
                return constant(Value::boolean(text[0] == 't' || text[0] == 'T'), line, begin);
            }
            if (text == "none" || text == "None") {
                advance();
                return constant(Value(), line, begin);
            }
            NodePtr node = nameNode(expectName());
            if (!m_storing)
                read(node->name);
            return node;
        }
        case TokenType::string: {
            std::string text;
            while (atType(TokenType::string))
                text += advance().string;
            return constant(Value::string(std::move(text)), line, begin);
        }
        case TokenType::integer:
        case TokenType::real: {
            Value value = number(m_token);
            advance();
            return constant(std::move(value), line, begin);
        }
        default:
            break;
        }
        if (at("(")) {
            advance();
            NodePtr node = parseTuple(Tuple {.parentheses = true});
            expectOp(")");
            node->begin = begin;
            node->end = m_end;
            return node;
        }
        if (at("["))
            return parseList();
        if (at("{"))
            return parseDict();
        error("unexpected " + describe(m_token));
    }

    Value number(const Token& token)
    {
        std::string digits(token.text);
        std::erase(digits, '_');
        if (token.type == TokenType::real) {
            double value = 0;
            const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            if (result.ec == std::errc::result_out_of_range)
                error("number " + describe(token) + " is out of range");
            return Value::real(value);
        }
        int base = 10;
        std::size_t from = 0;
        if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
            base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
            from = 2;
        }
        std::int64_t value = 0;
        const auto result = std::from_chars(digits.data() + from, digits.data() + digits.size(), value, base);
        if (result.ec == std::errc())
            return Value::integer(value);
        if (base != 10 || digits.size() > 4300) // Python's own limit for decimal digits
            error("number " + describe(token) + " is out of range");
        return Value::big(std::move(digits));
    }

    NodePtr parseList()
    {
        const Token open = advance();
        NodePtr node = make(NodeType::list, open.line);
        while (!at("]")) {
            if (!node->children.empty())
                expectOp(",");
            if (at("]"))
                break;
            add(*node, parseExpression());
        }
        expectOp("]");
        node->begin = open.begin;
        node->end = m_end;
        return node;
    }

    NodePtr parseDict()
    {
        const Token open = advance();
        NodePtr node = make(NodeType::dict, open.line);
        while (!at("}")) {
            if (!node->children.empty())
                expectOp(",");
            if (at("}"))
                break;
            add(*node, parseExpression());
            expectOp(":");
            add(*node, parseExpression());
        }
        expectOp("}");
        node->begin = open.begin;
        node->end = m_end;
        return node;
    }

    struct Tuple {
        bool simple = false; // elements are primaries: an assignment's target
        bool conditions = true; // elements may be ternaries
        bool parentheses = false; // may be empty
        std::string_view end_name = {}; // ends the tuple as well
    };

    NodePtr parseTuple(Tuple options)
    {
        const int line = m_token.line;
        const std::uint32_t begin = m_token.begin;
        std::vector<NodePtr> elements;
        bool is_tuple = false;
        for (;;) {
            if (!elements.empty())
                expectOp(",");
            if (atType(TokenType::variable_end) || atType(TokenType::block_end) || at(")")
                || (!options.end_name.empty() && atName(options.end_name)))
                break;
            elements.push_back(options.simple ? parsePrimary() : options.conditions ? parseExpression() : parseOr());
            if (!at(","))
                break;
            is_tuple = true;
        }
        if (!is_tuple) {
            if (!elements.empty())
                return std::move(elements[0]);
            if (!options.parentheses)
                error("Expected an expression, got " + describe(m_token));
        }
        NodePtr node = make(NodeType::tuple, line);
        for (NodePtr& element : elements)
            add(*node, std::move(element));
        node->begin = begin;
        node->end = m_end;
        return node;
    }

    NodePtr parsePostfix(NodePtr node)
    {
        for (;;) {
            if (at(".") || at("["))
                node = parseSubscript(std::move(node));
            else if (at("("))
                node = parseCall(std::move(node));
            else
                return node;
        }
    }

    NodePtr parseFilters(NodePtr node)
    {
        for (;;) {
            if (at("|"))
                node = parseFilter(std::move(node));
            else if (atName("is"))
                node = parseTest(std::move(node));
            else if (at("("))
                node = parseCall(std::move(node)); // calls are valid after filters and tests too
            else
                return node;
        }
    }

    NodePtr parseSubscript(NodePtr of)
    {
        const Token open = advance();
        if (open.text == ".") {
            if (atType(TokenType::integer)) {
                const Token index = m_token;
                advance();
                NodePtr key = constant(number(index), index.line, index.begin);
                return make(NodeType::item, open.line, std::move(of), std::move(key));
            }
            if (!atType(TokenType::name))
                error("expected name or number, got " + describe(m_token));
            const Token name = expectName();
            NodePtr node = make(NodeType::attribute, open.line, std::move(of));
            node->name = intern(name.text);
            node->builtin = static_cast<std::int16_t>(findMethod(name.text));
            return node;
        }
        std::vector<NodePtr> keys;
        while (!at("]")) {
            if (!keys.empty())
                expectOp(",");
            keys.push_back(parseKey());
        }
        expectOp("]");
        if (keys.size() == 1)
            return make(NodeType::item, open.line, std::move(of), std::move(keys[0]));
        NodePtr key = make(NodeType::tuple, open.line);
        for (NodePtr& part : keys)
            add(*key, std::move(part));
        return make(NodeType::item, open.line, std::move(of), std::move(key));
    }

    NodePtr parseKey()
    {
        const int line = m_token.line;
        NodePtr start, stop, step;
        if (!at(":")) {
            start = parseExpression();
            if (!at(":"))
                return start;
        }
        expectOp(":");
        if (!at(":") && !at("]") && !at(","))
            stop = parseExpression();
        if (skipOp(":") && !at("]") && !at(","))
            step = parseExpression();
        return make(NodeType::slice, line, std::move(start), std::move(stop), std::move(step));
    }

    void parseArguments(Node& node)
    {
        expectOp("(");
        bool first = true, keywords = false, star = false, double_star = false;
        std::vector<std::string_view> seen;
        while (!at(")")) {
            if (!first) {
                expectOp(",");
                if (at(")"))
                    break;
            }
            first = false;
            const int line = m_token.line;
            const auto refuse = [&] { error("invalid syntax for function call expression"); };
            if (at("*") || at("**")) {
                const bool doubled = advance().text == "**";
                if (double_star || (!doubled && star))
                    refuse();
                (doubled ? double_star : star) = true;
                NodePtr value = parseExpression();
                add(node, make(doubled ? NodeType::double_star : NodeType::star, line, std::move(value)));
            } else if (atType(TokenType::name) && m_ahead.isOp("=")) {
                if (double_star)
                    refuse();
                keywords = true;
                const Token name = expectName();
                if (std::find(seen.begin(), seen.end(), name.text) != seen.end())
                    error("keyword argument repeated: " + std::string(name.text));
                seen.push_back(name.text);
                advance();
                NodePtr value = parseExpression();
                NodePtr keyword = make(NodeType::keyword, line, std::move(value));
                keyword->name = intern(name.text);
                add(node, std::move(keyword));
            } else {
                if (keywords || star || double_star)
                    refuse();
                add(node, parseExpression());
            }
        }
        expectOp(")");
        node.end = m_end;
    }

    NodePtr parseCall(NodePtr callee)
    {
        const int line = m_token.line;
        NodePtr node = make(NodeType::call, line, std::move(callee));
        parseArguments(*node);
        return node;
    }

    std::string dottedName()
    {
        std::string name(expectName().text);
        while (skipOp("."))
            name += "." + std::string(expectName().text);
        return name;
    }

    NodePtr parseFilter(NodePtr subject) // at the | or, in a block, at the name
    {
        skipOp("|");
        const int line = m_token.line;
        const std::string name = dottedName();
        NodePtr node = make(NodeType::filter, line, std::move(subject));
        node->name = intern(name);
        node->builtin = static_cast<std::int16_t>(findFilter(name));
        if (at("("))
            parseArguments(*node);
        return node;
    }

    NodePtr parseTest(NodePtr subject)
    {
        const int line = advance().line;
        const bool negated = skipName("not");
        const std::string name = dottedName();
        NodePtr node = make(NodeType::test, line, std::move(subject));
        node->name = intern(name);
        node->builtin = static_cast<std::int16_t>(findTest(name));
        const bool operand = atType(TokenType::name) || atType(TokenType::string) || atType(TokenType::integer)
            || atType(TokenType::real) || at("[") || at("{");
        if (at("(")) {
            parseArguments(*node);
        } else if (operand && !atName("else") && !atName("or") && !atName("and")) {
            if (atName("is"))
                error("You cannot chain multiple tests with is");
            add(*node, parsePostfix(parsePrimary()));
            node->end = m_end;
        }
        return negated ? make(NodeType::negate, line, std::move(node)) : std::move(node);
    }

    // --- statements --------------------------------------------------------------------------------------------

    // Up to one of the tags in `ends`, which is left as the current token (after its {%). None: to the end.
    NodePtr parseBody(std::initializer_list<std::string_view> ends)
    {
        const Level level(*this);
        const int line = m_token.line;
        NodePtr body = make(NodeType::sequence, line);
        for (;;) {
            switch (m_token.type) {
            case TokenType::end:
                if (ends.size() != 0) {
                    std::string expected;
                    for (const std::string_view end : ends)
                        expected += (expected.empty() ? "'" : " or '") + std::string(end) + "'";
                    error("Unexpected end of template, expected " + expected + " for the block begun in line "
                        + std::to_string(line));
                }
                return body;
            case TokenType::data: {
                NodePtr output = make(NodeType::output, m_token.line);
                const Token token = advance();
                add(*output, constant(Value::string(std::string(token.text)), token.line, token.begin));
                add(*body, std::move(output));
                break;
            }
            case TokenType::variable_begin: {
                const int at_line = advance().line;
                NodePtr expression = parseTuple({});
                if (!atType(TokenType::variable_end))
                    error("expected token 'end of print statement', got " + describe(m_token));
                advance();
                add(*body, make(NodeType::output, at_line, std::move(expression)));
                break;
            }
            default: {
                advance(); // block_begin
                if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return atName(end); }))
                    return body;
                add(*body, parseStatement());
            }
            }
        }
    }

    NodePtr parseStatement() // leaves nothing of the tag
    {
        if (!atType(TokenType::name))
            error("tag name expected");
        const Token tag = m_token;
        static const std::unordered_map<std::string_view, Rule> kRules {
            {"for", &Parser::parseFor},
            {"if", &Parser::parseIf},
            {"set", &Parser::parseSet},
            {"macro", &Parser::parseMacro},
            {"call", &Parser::parseCallBlock},
            {"filter", &Parser::parseFilterBlock},
            {"with", &Parser::parseWith},
            {"generation", &Parser::parseGeneration},
            {"block", &Parser::parseNamedBlock},
            {"autoescape", &Parser::parseAutoescape},
            {"print", &Parser::parsePrint},
            {"break", &Parser::parseJump},
            {"continue", &Parser::parseJump},
            {"include", &Parser::parseForeign},
            {"import", &Parser::parseForeign},
            {"from", &Parser::parseForeign},
            {"extends", &Parser::parseForeign},
        };
        const auto rule = kRules.find(tag.text);
        if (rule == kRules.end())
            error("Encountered unknown tag '" + std::string(tag.text) + "'.");
        NodePtr node = (this->*rule->second)();
        expectBlockEnd();
        return node;
    }

    // A body that ends with one tag, which is skipped but for its %}.
    NodePtr blockBody(std::string_view end)
    {
        expectBlockEnd();
        NodePtr body = parseBody({end});
        advance();
        return body;
    }

    NodePtr parseTarget(bool with_tuple, std::string_view end_name = {})
    {
        m_storing = true;
        NodePtr target = with_tuple ? parseTuple(Tuple {.simple = true, .end_name = end_name}) : nameNode(expectName());
        m_storing = false;
        declare(*target);
        return target;
    }

    void declare(const Node& target)
    {
        if (target.type == NodeType::name) {
            const std::string& name = m_program.names[static_cast<std::size_t>(target.name)];
            if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False"
                || name == "None")
                error("can't assign to 'const'", target.line);
            write(target.name);
        } else if (target.type == NodeType::tuple || target.type == NodeType::list) {
            for (const NodePtr& part : target.children)
                declare(*part);
        } else {
            error("can't assign to this expression", target.line);
        }
    }

    NodePtr parseFor()
    {
        const int line = advance().line;
        NodePtr target = parseTarget(true, "in");
        if (!skipName("in"))
            error("expected token 'in', got " + describe(m_token));
        NodePtr iterable = parseTuple(Tuple {.conditions = false, .end_name = "recursive"});
        NodePtr condition = skipName("if") ? parseExpression() : nullptr;
        const bool recursive = skipName("recursive");
        expectBlockEnd();
        write(intern("loop"));
        m_loops++;
        NodePtr body = parseBody({"endfor", "else"});
        m_loops--;
        NodePtr otherwise;
        if (advance().text == "else")
            otherwise = blockBody("endfor");
        NodePtr node = make(NodeType::loop, line, std::move(target), std::move(iterable), std::move(condition),
            std::move(body), std::move(otherwise));
        node->flags = recursive ? Node::kRecursive : 0;
        return node;
    }

    NodePtr parseIf()
    {
        const int line = advance().line;
        NodePtr node = make(NodeType::branch, line);
        for (;;) {
            add(*node, parseTuple(Tuple {.conditions = false}));
            expectBlockEnd();
            add(*node, parseBody({"elif", "else", "endif"}));
            const Token tag = advance();
            if (tag.text == "elif")
                continue;
            if (tag.text == "else")
                add(*node, blockBody("endif"));
            return node;
        }
    }

    NodePtr parseSet()
    {
        const int line = advance().line;
        NodePtr target;
        if (atType(TokenType::name) && m_ahead.isOp(".")) {
            const Token name = expectName();
            advance();
            target = make(NodeType::assign_attribute, line);
            target->name = intern(name.text);
            target->second = intern(expectName().text);
            read(target->name);
        } else {
            m_storing = true;
            target = parseTuple(Tuple {.simple = true});
            m_storing = false;
        }
        if (skipOp("=")) {
            NodePtr value = parseTuple({});
            if (target->type == NodeType::assign_attribute) {
                add(*target, std::move(value));
                return target;
            }
            declare(*target);
            return make(NodeType::assign, line, std::move(target), std::move(value));
        }
        if (target->type != NodeType::assign_attribute)
            declare(*target);
        NodePtr filter = make(NodeType::block_text, line);
        while (at("|"))
            filter = parseFilter(std::move(filter));
        NodePtr body = blockBody("endset");
        return make(NodeType::assign_block, line, std::move(target), std::move(filter), std::move(body));
    }

    void parseParameters(Node& macro)
    {
        expectOp("(");
        bool defaults = false;
        while (!at(")")) {
            if (!macro.children.empty())
                expectOp(",");
            const Token name = expectName();
            NodePtr fallback;
            if (skipOp("=")) {
                fallback = parseExpression();
                defaults = true;
            } else if (defaults) {
                error("non-default argument follows default argument");
            }
            NodePtr parameter = make(NodeType::parameter, name.line, std::move(fallback));
            parameter->name = intern(name.text);
            write(parameter->name);
            add(macro, std::move(parameter));
        }
        expectOp(")");
    }

    NodePtr macroBody(NodePtr macro, std::string_view end)
    {
        const int loops = std::exchange(m_loops, 0);
        const std::uint8_t flags = std::exchange(m_macro_flags, std::uint8_t(0));
        add(*macro, blockBody(end));
        macro->flags = m_macro_flags;
        m_macro_flags |= flags;
        m_loops = loops;
        return macro;
    }

    NodePtr parseMacro()
    {
        const int line = advance().line;
        NodePtr macro = make(NodeType::macro, line);
        macro->name = intern(expectName().text);
        write(macro->name);
        m_macros.insert(macro->name);
        for (const char* name : {"varargs", "kwargs", "caller"})
            m_macros.insert(intern(name));
        parseParameters(*macro);
        return macroBody(std::move(macro), "endmacro");
    }

    NodePtr parseCallBlock()
    {
        const int line = advance().line;
        NodePtr caller = make(NodeType::macro, line);
        caller->name = intern("caller");
        if (at("("))
            parseParameters(*caller);
        NodePtr call = parseExpression();
        if (call->type != NodeType::call)
            error("expected call");
        caller = macroBody(std::move(caller), "endcall");
        return make(NodeType::call_block, line, std::move(caller), std::move(call));
    }

    NodePtr parseFilterBlock()
    {
        const int line = advance().line;
        NodePtr filter = parseFilter(make(NodeType::block_text, line));
        while (at("|"))
            filter = parseFilter(std::move(filter));
        NodePtr body = blockBody("endfilter");
        return make(NodeType::filter_block, line, std::move(filter), std::move(body));
    }

    NodePtr parseWith()
    {
        const int line = advance().line;
        NodePtr node = make(NodeType::with, line);
        while (!atType(TokenType::block_end)) {
            if (!node->children.empty())
                expectOp(",");
            m_storing = true;
            NodePtr target = parsePrimary();
            m_storing = false;
            expectOp("=");
            NodePtr value = parseExpression();
            declare(*target);
            add(*node, std::move(target));
            add(*node, std::move(value));
        }
        add(*node, blockBody("endwith"));
        return node;
    }

    NodePtr parseGeneration()
    {
        const int line = advance().line;
        const int loops = std::exchange(m_loops, 0);
        NodePtr body = blockBody("endgeneration");
        m_loops = loops;
        return make(NodeType::scope, line, std::move(body));
    }

    NodePtr parseNamedBlock()
    {
        const int line = advance().line;
        const Token name = expectName();
        while (skipName("scoped") || skipName("required")) { }
        const int loops = std::exchange(m_loops, 0);
        NodePtr body = blockBody("endblock");
        m_loops = loops;
        skipName(name.text);
        return make(NodeType::scope, line, std::move(body));
    }

    NodePtr parseAutoescape()
    {
        const int line = advance().line;
        NodePtr value = parseExpression();
        NodePtr body = blockBody("endautoescape");
        return make(NodeType::autoescape, line, std::move(value), std::move(body));
    }

    NodePtr parsePrint()
    {
        const int line = advance().line;
        NodePtr node = make(NodeType::output, line);
        while (!atType(TokenType::block_end)) {
            if (!node->children.empty())
                expectOp(",");
            add(*node, parseExpression());
        }
        return node;
    }

    NodePtr parseJump()
    {
        const Token tag = advance();
        if (m_loops == 0)
            error("'" + std::string(tag.text) + "' outside loop", tag.line);
        return make(tag.text == "break" ? NodeType::loop_break : NodeType::loop_continue, tag.line);
    }

    NodePtr parseForeign()
    {
        const Token tag = advance();
        while (!atType(TokenType::block_end) && !atType(TokenType::end))
            advance();
        NodePtr node = make(NodeType::refused, tag.line);
        node->value = Value::string(
            "a chat template cannot " + std::string(tag.text == "from" ? "import" : tag.text) + " other files");
        return node;
    }

    Program m_program;
    Lexer m_lexer;
    Token m_token, m_ahead;
    std::uint32_t m_end = 0; // where the last token taken ended
    std::unordered_map<std::string, std::int32_t> m_ids;
    std::unordered_set<std::int32_t> m_read, m_written, m_macros;
    int m_level = 0;
    int m_nodes = 0;
    int m_loops = 0;
    std::uint8_t m_macro_flags = 0;
    bool m_storing = false;
};

} // namespace

Program parse(std::string_view source)
{
    return Parser(source).parseTemplate();
}

} // namespace puna::jinja
