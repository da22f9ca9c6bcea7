#include "tests/support/model_writer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace puna::test {

namespace fs = std::filesystem;

namespace {

// resize and memcpy rather than insert, over which gcc 12 warns wrongly.
void append(ByteString& to, const void* from, std::size_t size)
{
    const std::size_t old = to.size();
    to.resize(old + size);
    if (size != 0)
        std::memcpy(to.data() + old, from, size);
}

template <class T> void put(ByteString& to, T value)
{
    append(to, &value, sizeof value);
}

void putText(ByteString& to, std::string_view text)
{
    put<std::uint64_t>(to, text.size());
    append(to, text.data(), text.size());
}

constexpr std::size_t kAlignment = 32;

} // namespace

void writeFile(const fs::path& path, std::span<const std::byte> bytes)
{
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) {
        std::fprintf(stderr, "%s cannot be written\n", path.c_str());
        std::abort();
    }
}

void writeFile(const fs::path& path, std::string_view text)
{
    writeFile(path, std::as_bytes(std::span(text.data(), text.size())));
}

std::string readFile(const fs::path& path)
{
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::string jsonString(std::string_view text)
{
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            out += escape;
        } else
            out += c;
    }
    return out + '"';
}

void writeSafetensors(const fs::path& path, std::span<const FileTensor> tensors)
{
    std::string header = "{";
    ByteString data;
    for (const FileTensor& t : tensors) {
        const std::size_t end = data.size() + t.data.size();
        if (header.size() > 1)
            header += ",";
        header += jsonString(t.name) + ":{\"dtype\":" + jsonString(t.dtype) + ",\"shape\":[";
        for (std::size_t i = 0; i < t.shape.size(); ++i) {
            if (i != 0)
                header += ",";
            header += std::to_string(t.shape[i]);
        }
        header += "],\"data_offsets\":[" + std::to_string(data.size()) + "," + std::to_string(end) + "]}";
        append(data, t.data.data(), t.data.size());
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    writeSafetensorsRaw(path, header, data);
}

void writeSafetensorsRaw(const fs::path& path, std::string_view header, std::span<const std::byte> data)
{
    ByteString file;
    putText(file, header);
    append(file, data.data(), data.size());
    writeFile(path, file);
}

void GgufWriter::number(std::string_view key, std::uint32_t value)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 4);
    put(m_keys, value);
    ++m_key_count;
}

void GgufWriter::real(std::string_view key, float value)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 6);
    put(m_keys, value);
    ++m_key_count;
}

void GgufWriter::flag(std::string_view key, bool value)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 7);
    put<std::uint8_t>(m_keys, value);
    ++m_key_count;
}

void GgufWriter::text(std::string_view key, std::string_view value)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 8);
    putText(m_keys, value);
    ++m_key_count;
}

void GgufWriter::texts(std::string_view key, std::span<const std::string> values)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 9);
    put<std::uint32_t>(m_keys, 8);
    put<std::uint64_t>(m_keys, values.size());
    for (const std::string& value : values)
        putText(m_keys, value);
    ++m_key_count;
}

void GgufWriter::numbers(std::string_view key, std::span<const std::int32_t> values)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 9);
    put<std::uint32_t>(m_keys, 5);
    put<std::uint64_t>(m_keys, values.size());
    for (const std::int32_t value : values)
        put(m_keys, value);
    ++m_key_count;
}

void GgufWriter::reals(std::string_view key, std::span<const float> values)
{
    putText(m_keys, key);
    put<std::uint32_t>(m_keys, 9);
    put<std::uint32_t>(m_keys, 6);
    put<std::uint64_t>(m_keys, values.size());
    for (const float value : values)
        put(m_keys, value);
    ++m_key_count;
}

void GgufWriter::tensor(std::string_view name, std::uint32_t type, std::vector<std::int64_t> shape, ByteString data)
{
    putText(m_directory, name);
    put(m_directory, static_cast<std::uint32_t>(shape.size()));
    for (auto it = shape.rbegin(); it != shape.rend(); ++it)
        put(m_directory, *it);
    put(m_directory, type);
    put<std::uint64_t>(m_directory, m_data.size());
    append(m_data, data.data(), data.size());
    m_data.resize((m_data.size() + kAlignment - 1) / kAlignment * kAlignment);
    ++m_tensor_count;
}

ByteString GgufWriter::finish() const
{
    ByteString file;
    append(file, "GGUF", 4);
    put<std::uint32_t>(file, 3);
    put(file, m_tensor_count);
    put(file, m_key_count);
    append(file, m_keys.data(), m_keys.size());
    append(file, m_directory.data(), m_directory.size());
    file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment);
    append(file, m_data.data(), m_data.size());
    return file;
}

} // namespace puna::test
