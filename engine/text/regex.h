// Regex: a pattern of a tokenizer.json, which is in Oniguruma's Ruby syntax, run by PCRE2's JIT compiler.
//
// Where the two differ the pattern is rewritten (`tokenizer-and-templates.md` 1.6); what cannot be translated is
// refused. Classes come from the library's tables for speed; texts with "late" characters (unicode::Survey) run a
// second program whose classes have those added, as Unicode 16 has them. Matching is bounded: where PCRE2 gives up, the
// rest of the text counts as not matched.
#pragma once

#include "engine/base/result.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace puna {

class Regex {
public:
    // Fails (format, unsupported) with a sentence that starts with `where`.
    static Result<Regex> compile(std::string_view pattern, std::string_view where);

    Regex(Regex&&) noexcept;
    Regex& operator=(Regex&&) noexcept;
    ~Regex();

    struct Match {
        std::size_t begin, end;
    };

    // Non-overlapping matches from left to right, as Oniguruma's find_iter: an empty match directly after the previous
    // match does not count.
    class Matches {
    public:
        Matches(const Regex& regex, std::string_view text, bool late);
        bool next(Match& match);

    private:
        const void* m_code;
        std::string_view m_text;
        std::size_t m_at = 0;
        std::size_t m_last_end = static_cast<std::size_t>(-1);
    };

private:
    struct Programs;
    explicit Regex(std::unique_ptr<Programs> programs);
    std::unique_ptr<Programs> m_programs;
};

// For tests: the rewritten pattern; late: with late characters.
Result<std::string> rewritePattern(std::string_view pattern, bool late, std::string_view where);

} // namespace puna
