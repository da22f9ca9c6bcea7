// RAII owners of what CUDA hands out: streams, events, graphs, device and pinned host memory. Move-only; released with
// the object; an empty one owns nothing.
#pragma once

#include "cuda/check.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace puna::cuda {

template <class Handle, auto Destroy> class Owner {
public:
    Owner() = default;
    explicit Owner(Handle handle)
        : m_handle(handle)
    {
    }
    Owner(Owner&& other) noexcept
        : m_handle(std::exchange(other.m_handle, nullptr))
    {
    }
    Owner& operator=(Owner&& other) noexcept
    {
        std::swap(m_handle, other.m_handle);
        return *this;
    }
    ~Owner()
    {
        if (m_handle)
            Destroy(m_handle);
    }
    Handle get() const { return m_handle; }
    explicit operator bool() const { return m_handle != nullptr; }

private:
    Handle m_handle = nullptr;
};

using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using GraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;

Result<Stream> makeStream();
Result<Event> makeEvent(); // without timing

// Memory of the current device (Pinned: of the host, locked), uninitialised.
template <auto Free> class Memory {
public:
    Memory() = default;
    Memory(void* data, std::int64_t bytes)
        : m_data(data)
        , m_bytes(bytes)
    {
    }
    std::byte* data() const { return static_cast<std::byte*>(m_data.get()); }
    template <class T> T* as() const { return static_cast<T*>(m_data.get()); }
    std::int64_t bytes() const { return m_bytes; }

private:
    Owner<void*, Free> m_data;
    std::int64_t m_bytes = 0;
};
using DeviceBuffer = Memory<cudaFree>;
using PinnedBuffer = Memory<cudaFreeHost>;

// what: "the weights", for the message if there is not enough.
Result<DeviceBuffer> allocate(std::int64_t bytes, std::string_view what);
Result<PinnedBuffer> allocatePinned(std::int64_t bytes);

// Whether code built for `architectures` (CMake's list: 90a-real;80;120-virtual ...) runs on compute capability `cc`
// (90 for 9.0).
bool runsOn(std::string_view architectures, int cc);

} // namespace puna::cuda
