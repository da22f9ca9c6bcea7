// Buffer: zeroed memory straight from the system, aligned to pages, huge ones where it pays.
//
// What an executor allocates when it loads: weights, KV pages, workspace. A refusal is an empty buffer, not an
// exception, because here it is a fact about the outside world. Pages are touched first by whoever writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/mman.h>

namespace puna {

class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::int64_t bytes)
    {
        if (bytes <= 0)
            return;
        const std::size_t size = (static_cast<std::size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
        void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return;
#ifdef MADV_HUGEPAGE
        if (size > 4 * kHugePage)
            ::madvise(memory, size, MADV_HUGEPAGE);
#endif
        m_data = static_cast<std::byte*>(memory);
        m_size = size;
    }
    Buffer(Buffer&& other) noexcept
        : m_data(std::exchange(other.m_data, nullptr))
        , m_size(std::exchange(other.m_size, 0))
    {
    }
    Buffer& operator=(Buffer&& other) noexcept
    {
        std::swap(m_data, other.m_data);
        std::swap(m_size, other.m_size);
        return *this;
    }
    ~Buffer()
    {
        if (m_data)
            ::munmap(m_data, m_size);
    }

    explicit operator bool() const
    {
        return m_data != nullptr;
    }
    std::byte* data() const
    {
        return m_data;
    }
    template <class T> T* as() const
    {
        return reinterpret_cast<T*>(m_data);
    }
    std::int64_t bytes() const
    {
        return static_cast<std::int64_t>(m_size);
    }

private:
    static constexpr std::size_t kHugePage = std::size_t {1} << 21;
    std::byte* m_data = nullptr;
    std::size_t m_size = 0;
};

} // namespace puna
