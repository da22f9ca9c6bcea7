// safetensors: the tensor directory of a mapped file, completely validated when opened.
//
// Source: the format's README (huggingface/safetensors) and the rules of its reference reader: header of at most
// 100 MB, JSON object of name -> {dtype, shape, data_offsets}, data contiguous from 0 to the end of the file without
// holes or overlaps, sizes equal to shape times element size. Stricter: a name may occur once only. Cost: the header
// is read as a stream of events, no document is built; at most kMaxTensors entries.
#pragma once

#include "engine/base/result.h"
#include "engine/base/view.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace puna {

class Safetensors {
public:
    static constexpr std::size_t kMaxHeader = 100'000'000; // bytes
    static constexpr std::size_t kMaxTensors = 1 << 18;
    static constexpr std::size_t kMaxName = 1024; // bytes

    static Result<std::shared_ptr<const Safetensors>> open(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return m_path; }
    TensorView tensor(std::string_view name) const; // empty view: no such tensor
    const std::map<std::string, TensorView, std::less<>>& tensors() const { return m_tensors; }
    // Tensors of an element type or rank that TensorView cannot hold: name, what it is.
    const std::map<std::string, std::string, std::less<>>& unsupportedTensors() const { return m_unsupported; }

private:
    std::filesystem::path m_path;
    std::shared_ptr<const void> m_mapping;
    std::map<std::string, TensorView, std::less<>> m_tensors;
    std::map<std::string, std::string, std::less<>> m_unsupported;
};

} // namespace puna
