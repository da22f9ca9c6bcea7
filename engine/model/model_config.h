// A model's numbers: from config.json of a folder, or from a GGUF's metadata.
//
// Field names, their precedence and defaults: `exl2-format.md` 1.5. Every number is checked against a range; what is
// out of range, not a number, or missing without a default is refused with the name of the field.
#pragma once

#include "engine/base/model.h"
#include "engine/base/result.h"

#include <string>
#include <string_view>

namespace puna {

class Gguf;

struct FolderConfig {
    ModelConfig model;
    bool tied_head = false; // the head is the embedding where there is no separate one
    bool attention_bias = false; // q, k, v and o have biases
    bool mlp_bias = false; // gate, up and down have biases
    std::string quant_method; // "exl2", "gptq"; empty: none stated
    bool gptq_v2 = false; // zero points are stored as they are
    bool gptq_symmetric = false;
    int gptq_group_size = 0; // 0: not stated
};

// The contents of config.json, and of quantize_config.json where there is one (else empty).
Result<FolderConfig> parseConfig(std::string_view config_json, std::string_view quantize_config_json = {});

// vocab_size is left to the embedding.
Result<ModelConfig> ggufConfig(const Gguf& gguf);

} // namespace puna
