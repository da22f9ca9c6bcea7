// A two-layer Llama with seeded random weights, written to a folder or file: loads and answers in milliseconds.
//
// 64 wide, 96 in the feed-forward layer, 4 heads of 16 over 2 key/value heads, RoPE, tied to nothing. A byte-level BPE
// tokenizer of some 400 tokens with ChatML's control tokens and template. The first dimension of the residual is a
// constant by construction and the head uses it as a bias, so that the model says words (salad) and ends its answers
// now and then. Every format encodes the same weights; fp16 and gguf hold identical values. Needs nothing but the
// standard library, so that `puna --demo` can use it too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace puna::test {

enum class TinyFormat : std::uint8_t {
    fp16, // folder of FP16 safetensors
    exl2, // folder; layers of mixed widths, all of 2, 3, 4, 5, 6 and 8 bits occur
    gptq, // folder; 4 bits, groups of 32, act-order, version 1 zero points
    gguf, // one file, F16
    gguf_q8_0, // one file; linear layers and embedding in Q8_0
    gguf_q4_1, // one file; linear layers in Q4_1, embedding in Q8_0
};

struct TinyModelOptions {
    TinyFormat format = TinyFormat::fp16;
    std::uint64_t seed = 1;
    int max_context = 2048;
    bool ends = true; // false: only the context's length ends an answer
};

// A fresh folder `folder`/tiny or file `folder`/tiny.gguf; returns its path, for Engine::load.
std::filesystem::path writeTinyModel(const std::filesystem::path& folder, const TinyModelOptions& options = {});

struct TinyVocabulary {
    std::vector<std::string> tokens; // byte-level spelling, by id
    std::vector<std::string> merges; // "left right"
    std::vector<int> words; // ids that the model likes to say
    static constexpr int kEndOfText = 0, kStart = 1, kEnd = 2; // <|endoftext|>, <|im_start|>, <|im_end|>
};
TinyVocabulary tinyVocabulary();

} // namespace puna::test
