// A file mapped read-only into memory, for as long as the object lives.
//
// Only regular files are accepted: devices, pipes and sockets are refused by name. If the file shrinks while it is
// mapped, reading beyond its new end raises SIGBUS; model files are not expected to change under us.
#pragma once

#include "engine/base/result.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace puna {

class MappedFile {
public:
    static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return m_bytes; }
    const std::filesystem::path& path() const { return m_path; }

private:
    MappedFile(std::filesystem::path path, std::span<const std::byte> bytes);
    std::filesystem::path m_path;
    std::span<const std::byte> m_bytes;
};

} // namespace puna
