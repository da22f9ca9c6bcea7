// Everything that is read from a model's files before a device is chosen: weights, tokenizer, chat template, the
// tokens that end an answer; and the verdict that inspectModel() gives.
#pragma once

#include "engine/engine.h"
#include "engine/model/model_files.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace puna {

struct OpenedModel {
    std::optional<ModelFiles> files; // empty: see error
    std::optional<Error> error; // why the weights cannot be used
    std::optional<Tokenizer> tokenizer;
    std::optional<Error> tokenizer_error;
    std::optional<ChatTemplate> chat_template;
    std::string no_template; // one sentence where there is no usable template
    std::vector<TokenId> stop_tokens;
    ModelInfo info;
};

OpenedModel openModel(const std::filesystem::path& path);

} // namespace puna
