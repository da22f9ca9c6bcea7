#include "engine/text/template_lexer.h"

#include "engine/text/template_unicode.h"
#include "engine/text/template_value.h"

#include <algorithm>
#include <array>

namespace puna::jinja {

namespace {

bool isDecimal(char c)
{
    return c >= '0' && c <= '9';
}

int hexDigit(char c)
{
    return isDecimal(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Digits with single underscores between them; returns the end, or from if there are none.
template <class IsDigit> std::size_t digits(std::string_view text, std::size_t from, IsDigit is_digit)
{
    std::size_t end = from;
    for (std::size_t i = from; i < text.size(); i++) {
        if (is_digit(text[i]))
            end = i + 1;
        else if (text[i] != '_' || i != end || end == from)
            break;
    }
    return end;
}

} // namespace

std::string describe(const Token& token)
{
    switch (token.type) {
    case TokenType::end:
        return "end of template";
    case TokenType::data:
        return "template data";
    case TokenType::variable_begin:
        return "begin of print statement";
    case TokenType::variable_end:
        return "end of print statement";
    case TokenType::block_begin:
        return "begin of statement block";
    case TokenType::block_end:
        return "end of statement block";
    default:
        return "'" + std::string(token.text.substr(0, 60)) + "'";
    }
}

std::string normaliseNewlines(std::string_view source)
{
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); i++) {
        if (source[i] != '\r')
            out += source[i];
        else if (i + 1 == source.size() || source[i + 1] != '\n')
            out += '\n';
    }
    if (!out.empty() && out.back() == '\n')
        out.pop_back();
    return out;
}

void Lexer::error(std::string message) const
{
    throw Failure {std::move(message), m_line, false};
}

void Lexer::skip(std::size_t end)
{
    m_line += static_cast<int>(std::count(m_source.begin() + static_cast<std::ptrdiff_t>(m_at),
        m_source.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > m_at)
        m_line_start = m_source[end - 1] == '\n';
    m_at = end;
}

Token Lexer::take(TokenType type, std::size_t end)
{
    Token token;
    token.type = type;
    token.line = m_line;
    token.begin = static_cast<std::uint32_t>(m_at);
    token.limit = static_cast<std::uint32_t>(end);
    token.text = m_source.substr(m_at, end - m_at);
    skip(end);
    return token;
}

std::size_t Lexer::afterSpace(std::size_t from) const
{
    return m_source.size() - stripLeft(m_source.substr(from)).size();
}

// The text from here to a tag at `end`, less what the tag's sign or lstrip_blocks takes from it.
std::string_view Lexer::trimmed(std::size_t end, char sign, bool variable) const
{
    std::string_view text = m_source.substr(m_at, end - m_at);
    if (sign == '-')
        return stripRight(text);
    if (sign == '+' || variable)
        return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !m_line_start)
        return text;
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    return strip(text.substr(line)).empty() ? text.substr(0, line) : text;
}

// A raw block whose tag begins at `tag`: true, and its inner text is in token.
bool Lexer::rawBlock(std::size_t tag, Token& token)
{
    const auto sign = [&](std::size_t at) {
        return at < m_source.size() && (m_source[at] == '-' || m_source[at] == '+');
    };
    const auto keyword = [&](std::size_t at, std::string_view word) { // the end of the word, or npos
        at = afterSpace(at + sign(at));
        return m_source.substr(at, word.size()) == word ? afterSpace(at + word.size()) : std::string_view::npos;
    };
    std::size_t begin = keyword(tag + 2, "raw");
    if (begin == std::string_view::npos)
        return false;
    if (m_source.substr(begin, 3) == "-%}")
        begin = afterSpace(begin + 3);
    else if (m_source.substr(begin, 2) == "%}")
        begin += 2;
    else
        return false;
    skip(begin);
    for (std::size_t from = begin;;) {
        const std::size_t close = m_source.find("{%", from);
        if (close == std::string_view::npos)
            error("Missing end of raw directive");
        from = close + 2;
        std::size_t end = keyword(close + 2, "endraw");
        if (end == std::string_view::npos)
            continue;
        if (m_source.substr(end, 3) == "-%}")
            end = afterSpace(end + 3);
        else if (m_source.substr(end, 3) == "+%}")
            end += 3;
        else if (m_source.substr(end, 2) == "%}")
            end += m_source.substr(end + 2, 1) == "\n" ? 3 : 2;
        else
            continue;
        const std::string_view text = trimmed(close, sign(close + 2) ? m_source[close + 2] : ' ', false);
        token = take(TokenType::data, close);
        token.text = text;
        skip(end);
        return true;
    }
}

bool Lexer::textToken(Token& token)
{
    if (m_at >= m_source.size()) {
        token = take(TokenType::end, m_at);
        return true;
    }
    std::size_t tag = m_at;
    for (;; tag++) {
        tag = m_source.find('{', tag);
        if (tag == std::string_view::npos || tag + 1 >= m_source.size()) {
            token = take(TokenType::data, m_source.size());
            return true;
        }
        const char kind = m_source[tag + 1];
        if (kind == '{' || kind == '%' || kind == '#')
            break;
    }
    const char kind = m_source[tag + 1];
    char sign = ' ';
    if (tag + 2 < m_source.size() && (m_source[tag + 2] == '-' || m_source[tag + 2] == '+'))
        sign = m_source[tag + 2];
    const std::string_view text = trimmed(tag, sign, kind == '{');
    if (!text.empty()) {
        // The tag is seen again by the next call, with no text before it.
        const std::size_t begin = m_at;
        token = take(TokenType::data, tag);
        token.text = text;
        token.begin = static_cast<std::uint32_t>(begin);
        m_line_start = false;
        return true;
    }
    skip(tag);
    const std::size_t inner = tag + 2 + (sign != ' ');
    if (kind == '#') {
        const std::size_t close = m_source.find("#}", inner);
        if (close == std::string_view::npos)
            error("Missing end of comment tag");
        std::size_t end = close + 2;
        if (close > inner && m_source[close - 1] == '-')
            end = afterSpace(end);
        else if (!(close > inner && m_source[close - 1] == '+') && end < m_source.size() && m_source[end] == '\n')
            end++;
        skip(end);
        return false;
    }
    if (kind == '%' && rawBlock(tag, token))
        return !token.text.empty();
    m_mode = kind == '{' ? Mode::variable : Mode::block;
    token = take(kind == '{' ? TokenType::variable_begin : TokenType::block_begin, inner);
    return true;
}

Token Lexer::next()
{
    if (m_mode != Mode::text)
        return tagToken();
    Token token;
    while (!textToken(token)) { }
    return token;
}

Token Lexer::tagToken()
{
    skip(afterSpace(m_at));
    if (m_at >= m_source.size())
        return take(TokenType::end, m_at);
    const std::string_view rest = m_source.substr(m_at);

    if (m_brackets.empty()) {
        const bool variable = m_mode == Mode::variable;
        const std::string_view close = variable ? "}}" : "%}";
        const TokenType type = variable ? TokenType::variable_end : TokenType::block_end;
        std::size_t end = 0;
        if (rest.substr(0, 2) == close)
            end = m_at + 2 + (!variable && rest.substr(2, 1) == "\n");
        else if (rest[0] == '-' && rest.substr(1, 2) == close)
            end = afterSpace(m_at + 3);
        else if (rest[0] == '+' && !variable && rest.substr(1, 2) == close)
            end = m_at + 3;
        if (end != 0) {
            m_mode = Mode::text;
            return take(type, end);
        }
    }

    if (isDecimal(rest[0])) {
        const std::size_t whole = digits(rest, 0, isDecimal);
        std::size_t end = whole;
        if (end + 1 < rest.size() && rest[end] == '.' && isDecimal(rest[end + 1]))
            end = digits(rest, end + 1, isDecimal);
        if (end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) {
            std::size_t from = end + 1;
            if (from < rest.size() && (rest[from] == '+' || rest[from] == '-'))
                from++;
            const std::size_t after = digits(rest, from, isDecimal);
            if (after != from)
                end = after;
        }
        if (end != whole && (m_at == 0 || m_source[m_at - 1] != '.'))
            return take(TokenType::real, m_at + end);
        if (rest[0] == '0') {
            const char base = rest.size() > 1 ? static_cast<char>(rest[1] | 0x20) : ' ';
            const int radix = base == 'x' ? 16 : base == 'o' ? 8 : base == 'b' ? 2 : 0;
            if (radix != 0) {
                const auto in_radix = [&](char c) { return hexDigit(c) >= 0 && hexDigit(c) < radix; };
                const std::size_t from = 2 + (rest.size() > 2 && rest[2] == '_');
                const std::size_t limit = digits(rest, from, in_radix);
                if (limit != from)
                    return take(TokenType::integer, m_at + limit);
            }
            return take(TokenType::integer, m_at + digits(rest, 0, [](char c) { return c == '0'; }));
        }
        return take(TokenType::integer, m_at + whole);
    }

    std::size_t end = 0;
    while (end < rest.size()) {
        std::size_t after = end;
        if (!isWordChar(decodeAt(rest, after)))
            break;
        end = after;
    }
    if (end != 0)
        return take(TokenType::name, m_at + end);

    if (rest[0] == '\'' || rest[0] == '"') {
        std::size_t close = 1;
        while (close < rest.size() && rest[close] != rest[0])
            close += rest[close] == '\\' ? 2 : 1;
        if (close >= rest.size())
            error(std::string("unexpected char ") + (rest[0] == '"' ? "'\"'" : "\"'\"") + ", a text that never ends");
        std::string meaning = unescape(rest.substr(1, close - 1));
        Token token = take(TokenType::string, m_at + close + 1);
        token.string = std::move(meaning);
        return token;
    }

    static constexpr std::array<std::string_view, 6> kTwo {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    if (std::find(kTwo.begin(), kTwo.end(), rest.substr(0, 2)) != kTwo.end())
        return take(TokenType::op, m_at + 2);
    if (kOne.find(rest[0]) == std::string_view::npos) {
        std::size_t after = 0;
        decodeAt(rest, after);
        error("unexpected char '" + std::string(rest.substr(0, after)) + "'");
    }
    switch (rest[0]) {
    case '{':
        m_brackets.push_back('}');
        break;
    case '(':
        m_brackets.push_back(')');
        break;
    case '[':
        m_brackets.push_back(']');
        break;
    case '}':
    case ')':
    case ']':
        if (m_brackets.empty())
            error(std::string("unexpected '") + rest[0] + "'");
        if (m_brackets.back() != rest[0])
            error(std::string("unexpected '") + rest[0] + "', expected '" + m_brackets.back() + "'");
        m_brackets.pop_back();
        break;
    default:
        break;
    }
    return take(TokenType::op, m_at + 1);
}

// Python's unicode-escape of the text's "backslashreplace" form, which is how Jinja2 reads string literals.
std::string Lexer::unescape(std::string_view body) const
{
    std::string out;
    out.reserve(body.size());
    for (std::size_t i = 0; i < body.size();) {
        if (body[i] != '\\' || i + 1 >= body.size()) {
            out += body[i++];
            continue;
        }
        const char c = body[i + 1];
        i += 2;
        static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
        if (const std::size_t known = kFrom.find(c); known != std::string_view::npos) {
            out += kTo[known];
        } else if (c == '\n') {
            // a continued line
        } else if (c >= '0' && c <= '7') {
            char32_t code = 0;
            i--;
            for (int k = 0; k < 3 && i < body.size() && body[i] >= '0' && body[i] <= '7'; k++)
                code = code * 8 + static_cast<char32_t>(body[i++] - '0');
            append(out, code);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const int count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            char32_t code = 0;
            for (int k = 0; k < count; k++, i++) {
                if (i >= body.size() || hexDigit(body[i]) < 0)
                    error(std::string("truncated \\") + c + " escape");
                code = code * 16 + static_cast<char32_t>(hexDigit(body[i]));
            }
            if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
                error("illegal Unicode character");
            append(out, code);
        } else if (c == 'N') {
            error("\\N escapes are not supported");
        } else if (static_cast<unsigned char>(c) < 0x80) {
            out += '\\';
            out += c;
        } else {
            // Python escapes the character first, so the backslash before it escapes that backslash.
            static constexpr char kHex[] = "0123456789abcdef";
            std::size_t after = i - 1;
            const char32_t code = decodeAt(body, after);
            i = after;
            const int count = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
            out += '\\';
            out += count == 2 ? 'x' : count == 4 ? 'u' : 'U';
            for (int k = count - 1; k >= 0; k--)
                out += kHex[(code >> (4 * k)) & 15];
        }
    }
    return out;
}

} // namespace puna::jinja
