#include "engine/text/stop_tokens.h"

#include "engine/base/foreign_text.h"
#include "engine/model/gguf.h"
#include "engine/text/tokenizer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace puna {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxIds = 1024;

// Ends of turns, as the control tokens of many families spell them. Never plain words.
constexpr std::array<std::string_view, 13> kEndOfTurn {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
    "<end_of_turn>", "<|end_of_turn|>", "<|endoftext|>", "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "</s>", "<|eot|>",
    "<|return|>", "<|call|>"};
// In GLM's templates the next speaker's token ends a turn; other families use these names in other ways.
constexpr std::array<std::string_view, 2> kEndOfTurnGlm {"<|user|>", "<|observation|>"};
constexpr std::string_view kGlmMark = "[gMASK]";

Result<void> collect(std::string_view file_name, const Json& object, std::vector<std::int64_t>& ids)
{
    const auto found = object.find("eos_token_id");
    if (found == object.end() || found->is_null())
        return {};
    const auto refused = [&](const Json& value) {
        return Error {ErrorCode::format,
            std::string(file_name) + ": 'eos_token_id' holds "
                + printable(value.dump(-1, ' ', true, Json::error_handler_t::replace), 60)
                + ", expected a token number or a list of them."};
    };
    const Json list = found->is_array() ? *found : Json::array({*found});
    if (list.size() > kMaxIds)
        return refused(*found);
    for (const Json& value : list) {
        const double number = value.is_number() ? value.get<double>() : std::nan("");
        if (!(std::abs(number) < 1e15) || number != std::floor(number))
            return refused(value);
        ids.push_back(static_cast<std::int64_t>(number));
    }
    return {};
}

} // namespace

Result<std::vector<std::int64_t>> eosTokenIds(std::string_view file_name, std::string_view json)
{
    constexpr int kMaxDepth = 64;
    bool too_deep = false;
    const Json config = Json::parse(
        json.begin(), json.end(),
        [&](int depth, Json::parse_event_t, Json&) {
            too_deep = too_deep || depth > kMaxDepth;
            return !too_deep;
        },
        false);
    if (too_deep || !config.is_object())
        return Error {
            ErrorCode::format, std::string(file_name) + ": it is not valid JSON, expected an object of fields."};
    std::vector<std::int64_t> ids;
    TRY(collect(file_name, config, ids));
    if (const auto text = config.find("text_config"); text != config.end() && text->is_object())
        TRY(collect(file_name, *text, ids));
    return ids;
}

std::vector<std::int64_t> eosTokenIds(const Gguf& gguf)
{
    std::vector<std::int64_t> ids;
    for (const char* key :
        {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
        if (const auto id = gguf.integer(key))
            ids.push_back(*id);
    return ids;
}

StopTokens stopTokens(
    std::vector<std::int64_t> ids, const Tokenizer* tokenizer, std::string_view template_source, int vocab_size)
{
    if (tokenizer) {
        if (const auto eos = tokenizer->eosToken())
            ids.push_back(*eos);
        const auto addMentioned = [&](std::string_view name) {
            if (template_source.find(name) != std::string_view::npos)
                if (const auto id = tokenizer->find(name))
                    ids.push_back(*id);
        };
        for (const std::string_view name : kEndOfTurn)
            addMentioned(name);
        if (template_source.find(kGlmMark) != std::string_view::npos)
            for (const std::string_view name : kEndOfTurnGlm)
                addMentioned(name);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    StopTokens stop;
    for (const std::int64_t id : ids) {
        if (id >= 0 && id < vocab_size)
            stop.ids.push_back(static_cast<TokenId>(id));
        else
            stop.problems.push_back("The end-of-text token " + std::to_string(id) + " is not in the vocabulary of "
                + std::to_string(vocab_size) + " tokens and is ignored.");
    }
    return stop;
}

} // namespace puna
