// Writes model files byte by byte: well-formed ones for tiny models, and whatever a hostile test needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace puna::test {

using ByteString = std::vector<std::byte>;

template <class T> ByteString bytesOf(std::span<const T> values)
{
    const auto bytes = std::as_bytes(values);
    return {bytes.begin(), bytes.end()};
}
template <class T> ByteString bytesOf(const std::vector<T>& values)
{
    return bytesOf(std::span<const T>(values));
}

void writeFile(const std::filesystem::path& path, std::span<const std::byte> bytes);
void writeFile(const std::filesystem::path& path, std::string_view text);
std::string readFile(const std::filesystem::path& path);

std::string jsonString(std::string_view text); // quoted and escaped

// --- safetensors ---

struct FileTensor {
    std::string name;
    std::string dtype; // "F16", "I32" ...
    std::vector<std::int64_t> shape;
    ByteString data;
};

// Tensors one after another, in this order.
void writeSafetensors(const std::filesystem::path& path, std::span<const FileTensor> tensors);
// A header as it is, its length before it, then the data.
void writeSafetensorsRaw(const std::filesystem::path& path, std::string_view header, std::span<const std::byte> data);

// --- GGUF, version 3 ---

class GgufWriter {
public:
    void number(std::string_view key, std::uint32_t value);
    void real(std::string_view key, float value);
    void flag(std::string_view key, bool value);
    void text(std::string_view key, std::string_view value);
    void texts(std::string_view key, std::span<const std::string> values);
    void numbers(std::string_view key, std::span<const std::int32_t> values);
    void reals(std::string_view key, std::span<const float> values);
    // type: GGUF's number (0 F32, 1 F16, 3 Q4_1, 8 Q8_0); shape row major.
    void tensor(std::string_view name, std::uint32_t type, std::vector<std::int64_t> shape, ByteString data);
    ByteString finish() const;

private:
    ByteString m_keys;
    std::uint64_t m_key_count = 0;
    ByteString m_directory;
    std::uint64_t m_tensor_count = 0;
    ByteString m_data;
};

} // namespace puna::test
