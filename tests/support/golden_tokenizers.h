// Tokenizers composed of a vocabulary and a pipeline, with what the tokenizers core of Hugging Face makes of a list of
// texts: the small ones of tests/golden/tokenizer, and the larger ones of the developers' reference data.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace puna::test {

using Json = nlohmann::ordered_json;

struct GoldenTokenizer {
    std::string name;
    std::string json; // tokenizer.json
    Json expected; // per text: ids, ids_with_special, decoded, decoded_skip_special; the latter two if different
};

struct GoldenTokenizers {
    std::vector<std::string> texts;
    std::vector<GoldenTokenizer> tokenizers; // empty: not on this machine
    Json overlays;
};

GoldenTokenizers ownGoldenTokenizers();
GoldenTokenizers sharedGoldenTokenizers(); // 39; the two whole ones included

// The tokenizer.json of an overlay; `change` may edit its copy first.
std::string composeTokenizer(Json overlay, const Json& base);
Json readJson(const std::string& path);

} // namespace puna::test
