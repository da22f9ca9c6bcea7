#include "engine/base/foreign_text.h"
#include "engine/model/gguf.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/tools/json_writer.h"
#include "engine/tools/tool.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <ctime>
#include <system_error>

namespace puna::tool {

namespace {

using Json = nlohmann::ordered_json;

struct Source {
    std::string text;
    std::string bos_token, eos_token; // empty: not known
};

Result<Source> modelSource(const std::filesystem::path& model)
{
    std::error_code failed;
    std::optional<std::string> text;
    std::shared_ptr<const Gguf> gguf;
    if (std::filesystem::is_directory(model, failed)) {
        text = TRY(findChatTemplate(model));
    } else {
        gguf = TRY(Gguf::open(model));
        text = findChatTemplate(*gguf);
    }
    if (!text)
        return Error {ErrorCode::unsupported, "The model has no chat template."};
    Source source {*std::move(text), {}, {}};
    // A template can be rendered without a tokenizer as long as it asks for no special token.
    if (const auto tokenizer = gguf ? Tokenizer::fromGguf(*gguf) : Tokenizer::fromFolder(model)) {
        if (const auto id = tokenizer->bosToken())
            source.bos_token = tokenizer->tokenText(*id);
        if (const auto id = tokenizer->eosToken())
            source.eos_token = tokenizer->tokenText(*id);
    }
    return source;
}

// YYYY-MM-DD with THH:MM[:SS] and Z, +HH:MM or nothing (local time) after it.
std::optional<std::int64_t> parseTime(const std::string& text)
{
    std::tm t {};
    int used = 0;
    if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &used) != 3)
        return {};
    std::string_view rest = std::string_view(text).substr(static_cast<std::size_t>(used));
    if (!rest.empty() && (rest.front() == 'T' || rest.front() == ' ')) {
        rest.remove_prefix(1);
        if (std::sscanf(std::string(rest).c_str(), "%2d:%2d%n", &t.tm_hour, &t.tm_min, &used) != 2)
            return {};
        rest.remove_prefix(static_cast<std::size_t>(used));
        if (std::sscanf(std::string(rest).c_str(), ":%2d%n", &t.tm_sec, &used) == 1)
            rest.remove_prefix(static_cast<std::size_t>(used));
        if (!rest.empty() && rest.front() == '.') {
            rest.remove_prefix(1);
            rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of("0123456789")));
        }
    }
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    t.tm_isdst = -1;
    if (rest.empty())
        return static_cast<std::int64_t>(std::mktime(&t));
    if (rest == "Z")
        return static_cast<std::int64_t>(timegm(&t));
    int hours = 0;
    int minutes = 0;
    if (std::sscanf(std::string(rest).c_str(), "%3d:%2d", &hours, &minutes) != 2)
        return {};
    const int offset = hours * 3600 + (rest.front() == '-' ? -minutes : minutes) * 60;
    return static_cast<std::int64_t>(timegm(&t)) - offset;
}

} // namespace

int render(const RenderOptions& options)
{
    Source source;
    if (options.chat_template.empty()) {
        auto found = modelSource(options.common.model);
        if (!found)
            return fail(found.error().message);
        source = *std::move(found);
    } else {
        auto read = readFile(options.chat_template);
        if (!read)
            return fail(read.error().message);
        source.text = *std::move(read);
    }
    const auto context_text = readFile(options.context);
    if (!context_text)
        return fail(context_text.error().message);
    const std::string where = printable(options.context.filename().string());
    Json context = Json::parse(*context_text, nullptr, false);
    if (!context.is_object())
        return fail(where + ": expected a JSON object of template variables.");
    std::optional<std::int64_t> now;
    if (const auto it = context.find("now"); it != context.end()) {
        if (it->is_string())
            now = parseTime(it->get<std::string>());
        if (!now)
            return fail(where + ": 'now' is not a time such as 2026-01-31T12:00:00.");
        context.erase(it);
    }
    if (!source.bos_token.empty() && !context.contains("bos_token"))
        context["bos_token"] = source.bos_token;
    if (!source.eos_token.empty() && !context.contains("eos_token"))
        context["eos_token"] = source.eos_token;

    const auto compiled = ChatTemplate::compile(std::move(source.text));
    TemplateFailure failure;
    std::string text;
    if (compiled) {
        Rendering rendering = compiled->render(context.dump(-1, ' ', false, Json::error_handler_t::replace), now);
        text = std::move(rendering.text);
        if (!rendering.failure) {
            if (options.common.json)
                JsonObject().add("text", text).print();
            else
                std::fwrite(text.data(), 1, text.size(), stdout);
            return kOk;
        }
        failure = *std::move(rendering.failure);
    } else {
        failure.message = compiled.error().message;
    }
    if (options.common.json)
        JsonObject().add("error", failure.message).add("line", failure.line).print();
    return fail(
        failure.message + (failure.line > 0 ? " (line " + std::to_string(failure.line) + " of the template)" : ""));
}

} // namespace puna::tool
