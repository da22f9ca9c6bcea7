// The architectures that Puna runs: one row each, with the names of its tensors in both kinds of container.
//
// A new architecture is a new row; what differs in the forward pass is a field of ModelConfig, not a branch on the
// name. Sources: `exl2-format.md` 5.2 and 5.3 for Hugging Face and EXL2 names, the GGUF specification for the others.
#pragma once

#include "engine/base/model.h"

#include <string>
#include <string_view>

namespace puna {

// Names without ".weight"; those of a layer follow layer_prefix, the layer's number and a dot.
struct TensorNames {
    std::string_view embedding;
    std::string_view final_norm;
    std::string_view head;
    std::string_view layer_prefix;
    std::string_view input_norm;
    std::string_view q, k, v, o;
    std::string_view post_attention_norm;
    std::string_view gate, up, down;
};

struct Architecture {
    std::string_view name; // architectures[0] in config.json
    std::string_view gguf_name; // general.architecture
    TensorNames names;
    TensorNames gguf_names;
    RopeStyle rope;
    RopeStyle gguf_rope; // GGUF stores the q and k of some families with their rotary pairs interleaved
};

const Architecture* findArchitecture(std::string_view name); // nullptr: not one of ours
const Architecture* findGgufArchitecture(std::string_view gguf_name);
std::string supportedArchitectures(); // "LlamaForCausalLM, ..." for messages

} // namespace puna
