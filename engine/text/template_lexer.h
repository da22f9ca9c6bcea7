// The tokens of a Jinja2 template, one at a time, as Jinja2 3.1 with trim_blocks and lstrip_blocks cuts them.
// All white-space control happens here. Errors are thrown as Failure with their line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace puna::jinja {

enum class TokenType : std::uint8_t {
    end,
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    op,
};

struct Token {
    TokenType type = TokenType::end;
    int line = 1;
    std::uint32_t begin = 0, limit = 0; // in the normalised source
    std::string_view text; // as written
    std::string string; // of a string: its meaning

    bool isOp(std::string_view what) const { return type == TokenType::op && text == what; }
    bool isName(std::string_view what) const { return type == TokenType::name && text == what; }
};

std::string describe(const Token& token); // for messages: "end of print statement", "'x'"

std::string normaliseNewlines(std::string_view source); // and drops one at the end

class Lexer {
public:
    explicit Lexer(std::string_view normalised_source)
        : m_source(normalised_source)
    {
    }

    Token next();

private:
    enum class Mode : std::uint8_t { text, variable, block };

    bool textToken(Token& token);
    Token tagToken();
    Token take(TokenType type, std::size_t end);
    void skip(std::size_t end);
    std::size_t afterSpace(std::size_t from) const;
    std::string_view trimmed(std::size_t end, char sign, bool variable) const;
    bool rawBlock(std::size_t tag, Token& token);
    std::string unescape(std::string_view body) const;
    [[noreturn]] void error(std::string message) const;

    std::string_view m_source;
    std::size_t m_at = 0;
    int m_line = 1;
    bool m_line_start = true;
    Mode m_mode = Mode::text;
    std::vector<char> m_brackets;
};

} // namespace puna::jinja
