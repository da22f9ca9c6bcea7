#include "engine/model/architectures.h"

namespace puna {

namespace {

constexpr TensorNames kLlamaNames = {
    .embedding = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .layer_prefix = "model.layers.",
    .input_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .o = "self_attn.o_proj",
    .post_attention_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
};

constexpr TensorNames kGgufNames = {
    .embedding = "token_embd",
    .final_norm = "output_norm",
    .head = "output",
    .layer_prefix = "blk.",
    .input_norm = "attn_norm",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .o = "attn_output",
    .post_attention_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
};

constexpr Architecture kArchitectures[] = {
    {
        .name = "LlamaForCausalLM",
        .gguf_name = "llama",
        .names = kLlamaNames,
        .gguf_names = kGgufNames,
        .rope = RopeStyle::half,
        .gguf_rope = RopeStyle::interleaved,
    },
};

} // namespace

const Architecture* findArchitecture(std::string_view name)
{
    for (const Architecture& row : kArchitectures)
        if (row.name == name)
            return &row;
    return nullptr;
}

const Architecture* findGgufArchitecture(std::string_view gguf_name)
{
    for (const Architecture& row : kArchitectures)
        if (row.gguf_name == gguf_name)
            return &row;
    return nullptr;
}

std::string supportedArchitectures()
{
    std::string list;
    for (const Architecture& row : kArchitectures)
        list += (list.empty() ? "" : ", ") + std::string(row.name);
    return list;
}

} // namespace puna
