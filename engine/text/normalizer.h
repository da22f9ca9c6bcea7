// Normalizer: what tokenizer.json's "normalizer" does to a stretch of text, step by step.
//
// NFC and its kin are ICU's, filtered to the characters of Unicode 9, which is what the tokenizers core has.
#pragma once

#include "engine/text/regex.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class Normalizer {
public:
    struct Step {
        enum Kind : unsigned char { nfc, nfd, nfkc, nfkd, lowercase, prepend, replace_text, replace_regex, strip } kind;
        std::string text {}; // prepended; looked for
        std::string content {}; // the replacement
        std::optional<Regex> regex {};
        bool left = false, right = false; // strip
    };

    // Whether `text` changes; if so `out` is the result, else it is undefined. `text` is well-formed UTF-8.
    bool apply(std::string_view text, bool late, std::string& out) const;

    std::vector<Step> steps;
};

// Replaces every occurrence of `from` (not empty), from left to right.
void replaceAll(std::string_view text, std::string_view from, std::string_view to, std::string& out);
void replaceAll(std::string_view text, const Regex& from, std::string_view to, bool late, std::string& out);

} // namespace puna
