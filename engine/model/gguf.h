// GGUF, versions 2 and 3: metadata and tensor directory of a mapped file, fully validated when opened.
// Source: the format's specification (ggml, docs/gguf.md). Tensor types other than those of DType are kept by
// number so that a refusal can name them.
#pragma once

#include "engine/base/result.h"
#include "engine/base/view.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace puna {

class Gguf {
public:
    using Value = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, std::vector<std::uint64_t>,
        std::vector<std::int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>>;

    static Result<std::shared_ptr<const Gguf>> open(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return m_path; }
    const Value* find(std::string_view key) const;
    std::optional<std::string_view> string(std::string_view key) const;
    std::optional<std::int64_t> integer(std::string_view key) const; // any integer type that fits
    std::optional<double> number(std::string_view key) const; // integers too
    const std::vector<std::string>* strings(std::string_view key) const;

    // Shape in row-major order (GGUF stores it reversed). Empty view: no such tensor.
    TensorView tensor(std::string_view name) const;
    const std::map<std::string, TensorView, std::less<>>& tensors() const { return m_tensors; }
    const std::map<std::string, std::string, std::less<>>& unsupportedTensors() const
    {
        return m_unsupported;
    } // name, type

private:
    std::filesystem::path m_path;
    std::shared_ptr<const void> m_mapping;
    std::map<std::string, Value, std::less<>> m_values;
    std::map<std::string, TensorView, std::less<>> m_tensors;
    std::map<std::string, std::string, std::less<>> m_unsupported;
};

} // namespace puna
