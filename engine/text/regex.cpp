#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/regex.h"

#include "engine/text/unicode.h"

#include <pcre2.h>

#include <mutex>
#include <utility>

namespace puna {
namespace {

constexpr std::uint32_t kMatchLimit = 10'000'000; // steps of one match
constexpr std::size_t kStackMax = 4u << 20; // bytes of the JIT code's own stack

struct CodeDeleter {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;

// What matching needs beside the code, once per thread.
struct MatchState {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kStackMax, nullptr);

    MatchState()
    {
        if (!data || !context)
            throw std::bad_alloc();
        pcre2_set_match_limit(context, kMatchLimit);
        pcre2_set_heap_limit(context, kStackMax / 1024);
        if (stack)
            pcre2_jit_stack_assign(context, nullptr, stack);
    }
    ~MatchState()
    {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        pcre2_jit_stack_free(stack);
    }
    MatchState(const MatchState&) = delete;
    MatchState& operator=(const MatchState&) = delete;
};

MatchState& matchState()
{
    thread_local MatchState state;
    return state;
}

Result<Code> compileCode(const std::string& pattern, std::string_view where)
{
    int error = 0;
    std::size_t offset = 0;
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    if (!context)
        throw std::bad_alloc();
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 200);
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE, &error, &offset,
        context));
    pcre2_compile_context_free(context);
    if (!code) {
        PCRE2_UCHAR text[200] = {};
        pcre2_get_error_message(error, text, sizeof text);
        return Error {ErrorCode::format,
            std::string(where) + ": the pattern cannot be compiled (" + reinterpret_cast<const char*>(text)
                + "); the tokenizer cannot be used with it."};
    }
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE); // where there is no JIT, pcre2_match interprets
    return code;
}

} // namespace

struct Regex::Programs {
    Code fast;
    std::string late_pattern;
    std::string where;
    std::once_flag late_once;
    Code late; // compiled by the first text that needs it; stays empty if that fails
};

Regex::Regex(std::unique_ptr<Programs> programs)
    : m_programs(std::move(programs))
{
}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern, std::string_view where)
{
    auto programs = std::make_unique<Programs>();
    const std::string rewritten = TRY(rewritePattern(pattern, false, where));
    programs->fast = TRY(compileCode(rewritten, where));
    programs->late_pattern = TRY(rewritePattern(pattern, true, where));
    programs->where = where;
    return Regex(std::move(programs));
}

Regex::Matches::Matches(const Regex& regex, std::string_view text, bool late)
    : m_text(text)
{
    Programs& programs = *regex.m_programs;
    if (late)
        std::call_once(programs.late_once, [&programs] {
            if (auto code = compileCode(programs.late_pattern, programs.where))
                programs.late = std::move(*code);
        });
    m_code = late && programs.late ? programs.late.get() : programs.fast.get();
}

bool Regex::Matches::next(Match& match)
{
    MatchState& state = matchState();
    const auto* code = static_cast<const pcre2_code*>(m_code);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(m_text.data());
    while (m_at <= m_text.size()) {
        const int found =
            pcre2_match(code, subject, m_text.size(), m_at, PCRE2_NO_UTF_CHECK, state.data, state.context);
        if (found < 0) { // no match, or given up
            m_at = m_text.size() + 1;
            return false;
        }
        const std::size_t* ends = pcre2_get_ovector_pointer(state.data);
        match = {ends[0], ends[1]};
        if (match.end < match.begin) { // \K inside a lookahead; not ours
            m_at = m_text.size() + 1;
            return false;
        }
        m_at = match.end;
        if (match.begin == match.end) { // go on after the next character
            m_at += match.end < m_text.size() ? unicode::decode(m_text.data() + match.end).length : 1;
            if (match.begin == m_last_end)
                continue;
        }
        m_last_end = match.end;
        return true;
    }
    return false;
}

} // namespace puna
