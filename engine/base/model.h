// What an executor needs to know of a model: its numbers (ModelConfig) and its weights (ModelWeights).
//
// Both are plain data, filled and completely validated by engine/model and engine/quant: shapes agree with the
// config, index tensors (permutations, group tables) are in range. Executors may rely on that. The weights are
// views into mapped files which live as long as the Model that owns them.
#pragma once

#include "engine/base/view.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace puna {

enum class RopeStyle : std::uint8_t {
    half, // dimension i pairs with i + rotary_dim / 2 (Hugging Face, "NEOX")
    interleaved, // dimension 2i pairs with 2i + 1 (GGUF's llama, Meta's original, "GPTJ")
};

enum class RopeScaling : std::uint8_t { none, linear, llama3, factors };

// The frequencies that follow from it: ropeFrequencies() in engine/base/rope.h.
struct RopeConfig {
    RopeStyle style = RopeStyle::half;
    RopeScaling scaling = RopeScaling::none;
    double theta = 10000.0;
    int rotary_dim = 0; // leading dimensions of a head that turn; even
    double factor = 1.0; // linear, llama3
    double low_freq_factor = 1.0; // llama3
    double high_freq_factor = 4.0; // llama3
    int original_max_position = 8192; // llama3
    std::vector<float> frequency_factors; // factors: [rotary_dim / 2] divisors, positive
};

// Names as in config.json. All counts are positive once a config has been read.
struct ModelConfig {
    std::string architecture; // row of the table in engine/model/architectures.cpp
    int n_layers = 0;
    int hidden_size = 0;
    int intermediate_size = 0;
    int n_heads = 0;
    int n_kv_heads = 0; // divides n_heads
    int head_dim = 0; // a multiple of 2
    int vocab_size = 0; // rows of the embedding; logits beyond it never leave an executor
    std::int64_t max_context = 0;
    float norm_eps = 1e-5f;
    float attention_scale = 0.0f; // multiplies q.k; head_dim^-1/2 unless the model says otherwise
    RopeConfig rope;
};

// --- linear layers: y[n] = sum_k x[k] W[k,n] + bias[n], K in features, N out features ---------------------------

// FP32, FP16, BF16 or a GGUF block type. [N, K] row major, one row per output feature.
struct DenseLinear {
    TensorView weight;
};

// EXL2; `exl2-format.md` section 2. Codes pack down columns, rows are in stored order: stored row q_invperm[k]
// belongs to input feature k.
struct Exl2Linear {
    struct Group {
        int bits; // 2, 3, 4, 5, 6 or 8; never rises from group to group
        std::int32_t row_begin; // first stored weight row, a multiple of 32
        std::int32_t rows; // weight rows, a multiple of 32
        std::int32_t word_row_begin; // first row of q_weight
    };
    TensorView q_weight; // u32 [R, N_padded]
    TensorView q_scale; // u32 [G, N_padded / 8], 4-bit codes, stored minus one
    TensorView q_scale_max; // f16 [G]
    TensorView q_invperm; // i32 [K], a permutation
    std::vector<Group> groups;
    std::int64_t padded_out = 0; // N_padded >= N, a multiple of 32; columns beyond N are to be dropped
};

// GPTQ; `exl2-format.md` section 4.
struct GptqLinear {
    TensorView qweight; // u32 [K * bits / 32, N]
    TensorView qzeros; // u32 [G, N * bits / 32]
    TensorView scales; // f16 or f32 [G, N]
    TensorView g_idx; // i32 [K], group of each input row, in range; empty: row k is in group k / group_size
    int bits = 4; // 2, 3, 4 or 8
    int group_size = 0;
    int zero_offset = 1; // 1: v1 files store zero - 1 (modulo 2^bits); 0: v2
};

struct Linear {
    std::string name; // as in the file, for messages
    std::int64_t in_features = 0; // K
    std::int64_t out_features = 0; // N
    std::variant<DenseLinear, Exl2Linear, GptqLinear> weight;
    TensorView bias; // f16, bf16 or f32 [N]; may be empty
};

// --- the whole model -------------------------------------------------------------------------------------------

struct LayerWeights {
    TensorView input_norm; // f16, bf16 or f32 [hidden_size]
    Linear q, k, v, o;
    TensorView post_attention_norm;
    Linear gate, up, down;
};

struct ModelWeights {
    TensorView embedding; // [vocab_size, hidden_size], f32, f16, bf16 or a GGUF block type
    std::vector<LayerWeights> layers;
    TensorView final_norm;
    Linear head; // out_features == vocab_size; a tied model's points at the embedding
    std::int64_t bytes = 0; // of all tensors used, a tied one once
};

} // namespace puna
