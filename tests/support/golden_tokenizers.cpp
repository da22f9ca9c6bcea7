#include "tests/support/golden_tokenizers.h"

#include "tests/support/paths.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace puna::test {
namespace {

Json withSpecialIds(Json processor, const std::map<std::string, int>& ids)
{
    if (processor.is_null())
        return processor;
    if (processor["type"] == "Sequence")
        for (Json& p : processor["processors"])
            p = withSpecialIds(p, ids);
    if (processor["type"] == "TemplateProcessing") {
        Json tokens = Json::object();
        for (const Json& name : processor["special_tokens"]) {
            const std::string text = name.get<std::string>();
            tokens[text] = {{"id", text}, {"ids", Json::array({ids.at(text)})}, {"tokens", Json::array({text})}};
        }
        processor["special_tokens"] = tokens;
    }
    return processor;
}

std::string gunzip(const std::filesystem::path& path)
{
    std::string out;
    FILE* pipe = popen(("gzip -dc '" + path.string() + "'").c_str(), "r");
    if (!pipe)
        std::abort();
    char buffer[65536];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        out.append(buffer, n);
    pclose(pipe);
    return out;
}

} // namespace

Json readJson(const std::string& path)
{
    std::ifstream in(path, std::ios::binary);
    return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::string composeTokenizer(Json overlay, const Json& base)
{
    // The vocabulary is put in as text: a JSON object of thousands of keys that keeps their order is slow.
    std::map<std::string, int> ids;
    std::string vocabulary;
    int next = 0;
    const auto add = [&](const Json& piece) {
        if (!ids.emplace(piece.get<std::string>(), next).second)
            return;
        vocabulary += (next ? "," : "") + piece.dump() + ":" + std::to_string(next);
        ++next;
    };
    for (const Json& piece : base["vocab"])
        add(piece);
    if (overlay.contains("extra_vocab"))
        for (const Json& piece : overlay["extra_vocab"])
            add(piece);
    Json added = Json::array();
    if (overlay.contains("added_tokens"))
        for (Json token : overlay["added_tokens"]) {
            const auto [it, fresh] = ids.emplace(token["content"].get<std::string>(), next);
            next += fresh;
            token["id"] = it->second;
            added.push_back(token);
        }
    Json merges = base["merges"];
    if (overlay.value("merges_as_pairs", false))
        for (Json& merge : merges) {
            const std::string text = merge.get<std::string>();
            const std::size_t space = text.find(' ');
            merge = Json::array({text.substr(0, space), text.substr(space + 1)});
        }
    Json model = {
        {"type", "BPE"}, {"dropout", nullptr}, {"continuing_subword_prefix", nullptr}, {"end_of_word_suffix", nullptr}};
    model.update(overlay["model"]);
    model["merges"] = merges;
    std::string model_text = model.dump();
    model_text.pop_back();
    model_text += ",\"vocab\":{" + vocabulary + "}}";
    const Json rest = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", added},
        {"normalizer", overlay["normalizer"]}, {"pre_tokenizer", overlay["pre_tokenizer"]},
        {"post_processor", withSpecialIds(overlay["post_processor"], ids)}, {"decoder", overlay["decoder"]}};
    std::string text = rest.dump();
    text.pop_back();
    return text + ",\"model\":" + model_text + "}";
}

GoldenTokenizers ownGoldenTokenizers()
{
    const Json golden = readJson(source("tests/golden/tokenizer/golden.json").string());
    GoldenTokenizers out {golden["texts"], {}, golden["overlays"]};
    for (const auto& [name, overlay] : golden["overlays"].items())
        out.tokenizers.push_back({name, composeTokenizer(overlay, golden["bases"][overlay["base"].get<std::string>()]),
            golden["expected"][name]});
    return out;
}

GoldenTokenizers sharedGoldenTokenizers()
{
    const std::filesystem::path folder = shared("testdata/tokenizers");
    if (folder.empty())
        return {};
    const auto read = [&](const std::string& name) { return readJson((folder / name).string()); };
    GoldenTokenizers out {read("texts.json"), {}, read("overlays.json")};
    const std::map<std::string, Json> bases {
        {"bytelevel", read("base-bytelevel.json")}, {"spm", read("base-spm.json")}};
    for (const auto& [name, overlay] : out.overlays.items())
        out.tokenizers.push_back({name, composeTokenizer(overlay, bases.at(overlay["base"].get<std::string>())),
            read("expected/" + name + ".json")});
    for (const std::string name : {"qwen3-full", "phi-3-mini-full"})
        out.tokenizers.push_back(
            {name, gunzip(folder / (name + ".tokenizer.json.gz")), read("expected/" + name + ".json")});
    return out;
}

} // namespace puna::test
