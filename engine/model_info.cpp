#include "engine/model_info.h"

#include "engine/base/mapped_file.h"
#include "engine/model/gguf.h"
#include "engine/text/stop_tokens.h"

#include <system_error>
#include <utility>

namespace puna {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 16u << 20;

std::vector<std::int64_t> eosOfFolder(const fs::path& folder, std::vector<std::string>& problems)
{
    std::vector<std::int64_t> ids;
    for (const char* name : {"config.json", "generation_config.json"}) {
        std::error_code failed;
        if (!fs::exists(folder / name, failed))
            continue;
        const auto file = MappedFile::open(folder / name);
        if (!file || (*file)->bytes().size() > kMaxConfigBytes) {
            problems.push_back(file ? std::string(name) + ": it is too large and is ignored." : file.error().message);
            continue;
        }
        const auto bytes = (*file)->bytes();
        const auto found = eosTokenIds(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        if (found)
            ids.insert(ids.end(), found->begin(), found->end());
        else
            problems.push_back(found.error().message);
    }
    return ids;
}

void openTemplate(OpenedModel& model)
{
    Result<std::optional<std::string>> source = std::optional<std::string>();
    if (model.files->gguf)
        source = findChatTemplate(*model.files->gguf);
    else
        source = findChatTemplate(model.files->path);
    if (source && !*source) {
        model.no_template = "The model has no chat template, so it can only continue plain text.";
        return;
    }
    auto compiled =
        source ? ChatTemplate::compile(**std::move(source)) : Result<ChatTemplate>(std::move(source).error());
    if (!compiled) {
        model.no_template = compiled.error().message;
        model.info.problems.push_back(compiled.error().message);
        return;
    }
    model.chat_template = *std::move(compiled);
    model.info.has_template = true;
}

} // namespace

OpenedModel openModel(const fs::path& path)
{
    OpenedModel model;
    auto files = openModelFiles(path);
    if (!files) {
        model.error = files.error();
        model.info.path = path;
        model.info.problems.push_back(files.error().message);
        return model;
    }
    model.files = *std::move(files);
    model.info = model.files->info;
    model.info.path = path;

    auto tokenizer = model.files->gguf ? Tokenizer::fromGguf(*model.files->gguf) : Tokenizer::fromFolder(path);
    if (tokenizer) {
        model.tokenizer = *std::move(tokenizer);
        model.info.tokenizer = model.tokenizer->describe();
    } else {
        model.tokenizer_error = tokenizer.error();
        model.info.problems.push_back(tokenizer.error().message);
    }
    openTemplate(model);

    const auto ids = model.files->gguf ? eosTokenIds(*model.files->gguf) : eosOfFolder(path, model.info.problems);
    StopTokens stop = stopTokens(ids, model.tokenizer ? &*model.tokenizer : nullptr,
        model.chat_template ? std::string_view(model.chat_template->source()) : std::string_view(),
        model.files->config.vocab_size);
    model.stop_tokens = std::move(stop.ids);
    model.info.eos_token_ids = model.stop_tokens;
    model.info.problems.insert(model.info.problems.end(), stop.problems.begin(), stop.problems.end());
    model.info.ok = model.tokenizer.has_value();
    return model;
}

ModelInfo inspectModel(const fs::path& path)
{
    return openModel(path).info;
}

} // namespace puna
