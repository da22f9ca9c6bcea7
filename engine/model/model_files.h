// Opens a model: finds its files, reads and validates headers, config and index tensors, and binds the weights.
//
// A folder with config.json and *.safetensors (Hugging Face, EXL2, GPTQ), or a .gguf file. Files are mapped, not
// read: opening costs the headers and the validation of index tensors. Everything read is untrusted.
#pragma once

#include "engine/base/model.h"
#include "engine/base/result.h"
#include "engine/engine.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace puna {

class Gguf;

// A bound model and what keeps its views alive. Movable.
struct ModelFiles {
    std::filesystem::path path;
    ModelConfig config;
    ModelWeights weights;
    ModelInfo info; // format, bpw, sizes; tokenizer and template fields are filled by Engine
    std::shared_ptr<const Gguf> gguf; // of a GGUF model: its metadata
    std::vector<std::shared_ptr<const void>> owners; // mappings
};

Result<ModelFiles> openModelFiles(const std::filesystem::path& path);

} // namespace puna
