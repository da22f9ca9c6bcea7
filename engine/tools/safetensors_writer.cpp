#include "engine/tools/safetensors_writer.h"

#include "engine/base/foreign_text.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace puna::tool {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path, std::span<const Tensor> tensors)
{
    std::string header;
    std::int64_t offset = 0;
    for (const Tensor& tensor : tensors) {
        std::int64_t size = 4;
        std::string shape;
        for (const std::int64_t extent : tensor.shape) {
            size *= extent;
            shape += (shape.empty() ? "" : ",") + std::to_string(extent);
        }
        header += (header.empty() ? "{\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":["
            + shape + "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + size) + "]}";
        offset += size;
    }
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' '); // the data begins aligned

    SafetensorsWriter writer;
    writer.m_path = path;
    writer.m_part = path;
    writer.m_part += ".part";
    writer.m_file.reset(std::fopen(writer.m_part.c_str(), "wb"));
    if (!writer.m_file)
        return writer.failed();
    const std::uint64_t length = header.size();
    TRY(writer.write(std::as_bytes(std::span(&length, 1))));
    TRY(writer.write(std::as_bytes(std::span(header))));
    return writer;
}

SafetensorsWriter::~SafetensorsWriter()
{
    if (!m_file)
        return;
    m_file.reset();
    std::error_code ignored;
    std::filesystem::remove(m_part, ignored);
}

Error SafetensorsWriter::failed() const
{
    return {ErrorCode::io, printable(m_path.string(), 300) + ": it cannot be written (" + std::strerror(errno) + ")."};
}

Result<void> SafetensorsWriter::write(std::span<const std::byte> data)
{
    if (std::fwrite(data.data(), 1, data.size(), m_file.get()) != data.size())
        return failed();
    return {};
}

Result<void> SafetensorsWriter::finish()
{
    if (std::fclose(m_file.release()) != 0 || std::rename(m_part.c_str(), m_path.c_str()) != 0)
        return failed();
    return {};
}

} // namespace puna::tool
