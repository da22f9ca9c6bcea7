#include "engine/base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace puna {

namespace {

Error ioError(const std::filesystem::path& path, const std::string& what)
{
    return {ErrorCode::io, path.string() + ": " + what};
}

} // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path)
{
    // O_NONBLOCK so that a pipe without a writer does not hang us before fstat names it.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ioError(path, std::string("cannot be opened (") + std::strerror(errno) + ").");
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(fd);
        return ioError(path, "is not a regular file; expected a model file.");
    }
    std::span<const std::byte> bytes;
    if (status.st_size > 0) {
        const auto size = static_cast<std::size_t>(status.st_size);
        void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
        if (address == MAP_FAILED) {
            const int reason = errno;
            ::close(fd);
            return ioError(path, std::string("cannot be mapped into memory (") + std::strerror(reason) + ").");
        }
        bytes = {static_cast<const std::byte*>(address), size};
    }
    ::close(fd);
    return std::shared_ptr<const MappedFile>(new MappedFile(path, bytes));
}

MappedFile::MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
    : m_path(std::move(path))
    , m_bytes(bytes)
{
}

MappedFile::~MappedFile()
{
    if (!m_bytes.empty())
        ::munmap(const_cast<std::byte*>(m_bytes.data()), m_bytes.size());
}

} // namespace puna
