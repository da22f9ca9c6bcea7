// SafetensorsWriter: tensors whose shapes are known before their data, written piece by piece.
//
// The file gets its name only once it is complete, so that a run which was stopped leaves none behind.
#pragma once

#include "engine/base/result.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace puna::tool {

class SafetensorsWriter {
public:
    struct Tensor {
        std::string name; // plain ASCII
        const char* dtype; // "F32", "I32"
        std::vector<std::int64_t> shape; // of elements of four bytes
    };

    static Result<SafetensorsWriter> create(const std::filesystem::path& path, std::span<const Tensor> tensors);
    SafetensorsWriter(SafetensorsWriter&&) = default;
    ~SafetensorsWriter();

    // The tensors' data one after another.
    Result<void> write(std::span<const std::byte> data);
    Result<void> finish();

private:
    SafetensorsWriter() = default;
    Error failed() const;

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::filesystem::path m_path, m_part;
    std::unique_ptr<std::FILE, Close> m_file;
};

} // namespace puna::tool
