#include "engine/text/chat_template.h"

#include "engine/model/gguf.h"
#include "engine/text/template_builtins.h"
#include "engine/text/template_eval.h"
#include "engine/text/template_json.h"
#include "engine/text/template_parser.h"
#include "engine/text/template_unicode.h"

#include <algorithm>
#include <ctime>
#include <fstream>

namespace puna {

namespace fs = std::filesystem;

struct ChatTemplate::Impl {
    std::string source;
    jinja::Program program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl)
    : m_impl(std::move(impl))
{
}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const
{
    return m_impl->source;
}

Result<ChatTemplate> ChatTemplate::compile(std::string source)
{
    if (source.size() > jinja::kMaxSource)
        return Error {ErrorCode::format,
            "The chat template has " + std::to_string(source.size()) + " bytes; at most "
                + std::to_string(jinja::kMaxSource) + " are accepted."};
    if (!jinja::isValidUtf8(source))
        return Error {ErrorCode::format, "The chat template is not UTF-8 text."};
    try {
        jinja::Program program = jinja::parse(source);
        return ChatTemplate(std::make_unique<Impl>(Impl {std::move(source), std::move(program)}));
    } catch (const jinja::Failure& failure) {
        return Error {ErrorCode::format,
            "The chat template cannot be read: " + failure.message + " (line " + std::to_string(failure.line) + ")."};
    }
}

Rendering ChatTemplate::render(std::string_view context_json, std::optional<std::int64_t> now) const
{
    try {
        jinja::Value context;
        try {
            context = jinja::parseJson(context_json);
        } catch (jinja::Failure& failure) {
            failure.message = "the template's variables are " + failure.message;
            throw;
        }
        if (!context.is(jinja::Kind::dict))
            jinja::fail("the template's variables are not a JSON object");
        return {jinja::render(m_impl->program, context, now ? *now : std::time(nullptr)), {}};
    } catch (const jinja::Failure& failure) {
        return {{}, TemplateFailure {failure.message, failure.line, failure.raised}};
    }
}

std::vector<std::string> ChatTemplate::switches() const
{
    static constexpr std::string_view kUsual[] {"messages", "add_generation_prompt", "tools", "documents", "loop",
        "bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token",
        "additional_special_tokens"};
    std::vector<std::string> names;
    for (const std::int32_t id : m_impl->program.inputs) {
        const std::string& name = m_impl->program.names[static_cast<std::size_t>(id)];
        if (std::find(std::begin(kUsual), std::end(kUsual), name) == std::end(kUsual) && jinja::findFunction(name) < 0)
            names.push_back(name);
    }
    return names;
}

// --- where templates are ---------------------------------------------------------------------------------------

namespace {

constexpr std::uintmax_t kMaxConfig = 32 << 20; // bytes of a tokenizer_config.json

// nullopt: there is no such file.
Result<std::optional<std::string>> readFile(const fs::path& path, std::uintmax_t limit)
{
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status))
        return std::optional<std::string>();
    const std::string name = path.filename().string();
    if (!fs::is_regular_file(status))
        return Error {ErrorCode::io, name + " is not a file."};
    const std::uintmax_t size = fs::file_size(path, error);
    if (error || size > limit)
        return Error {ErrorCode::format,
            name + " has " + std::to_string(size) + " bytes; at most " + std::to_string(limit) + " are accepted."};
    std::ifstream file(path, std::ios::binary);
    std::string text(static_cast<std::size_t>(size), '\0');
    if (!file.read(text.data(), static_cast<std::streamsize>(size)))
        return Error {ErrorCode::io, name + " cannot be read; check that the file is complete and readable."};
    return std::optional(std::move(text));
}

// The default of a chat_template entry: a text, or a list of named ones.
Result<std::optional<std::string>> defaultTemplate(const fs::path& path)
{
    const std::optional<std::string> text = TRY(readFile(path, kMaxConfig));
    if (!text)
        return std::optional<std::string>();
    const std::string name = path.filename().string();
    const auto wrong = [&](const std::string& what) { return Error {ErrorCode::format, name + ": " + what}; };
    try {
        const jinja::Value config = jinja::parseJson(*text);
        if (!config.is(jinja::Kind::dict))
            return wrong("expected a JSON object.");
        const jinja::Value* entry = config.asDict().find("chat_template");
        if (!entry || entry->is(jinja::Kind::none))
            return std::optional<std::string>();
        if (entry->isString())
            return std::optional(entry->text());
        if (!entry->is(jinja::Kind::list))
            return wrong("'chat_template' is neither a text nor a list of named templates.");
        std::optional<std::string> only;
        for (const jinja::Value& item : entry->items()) {
            const jinja::Value* key = item.is(jinja::Kind::dict) ? item.asDict().find("name") : nullptr;
            const jinja::Value* source = item.is(jinja::Kind::dict) ? item.asDict().find("template") : nullptr;
            if (!key || !source || !key->isString() || !source->isString())
                return wrong("an element of 'chat_template' lacks its name or template.");
            if (key->text() == "default")
                return std::optional(source->text());
            only = source->text();
        }
        if (entry->items().size() == 1)
            return only;
        if (entry->items().empty())
            return std::optional<std::string>();
        return wrong("none of its chat templates is named 'default'.");
    } catch (const jinja::Failure& failure) {
        return wrong(failure.message + ".");
    }
}

} // namespace

Result<std::optional<std::string>> findChatTemplate(const fs::path& folder)
{
    if (std::optional<std::string> text = TRY(readFile(folder / "chat_template.jinja", jinja::kMaxSource)))
        return std::optional(std::move(*text));
    std::error_code ignored;
    if (fs::is_directory(folder / "additional_chat_templates", ignored))
        return readFile(folder / "additional_chat_templates" / "default.jinja", jinja::kMaxSource);
    if (std::optional<std::string> text = TRY(defaultTemplate(folder / "tokenizer_config.json")))
        return std::optional(std::move(*text));
    return defaultTemplate(folder / "chat_template.json");
}

std::optional<std::string> findChatTemplate(const Gguf& gguf)
{
    if (const auto text = gguf.string("tokenizer.chat_template"))
        return std::string(*text);
    return {};
}

} // namespace puna
