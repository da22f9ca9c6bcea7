// TensorView: a pointer into somebody else's memory (usually a mapped model file), its element type and shape.
//
// Row major, contiguous. Trivially copyable; owns nothing; the mapping must outlive it. Files are little-endian
// and their data need not be aligned to the element size: read elements with std::memcpy or via load<T>().
#pragma once

#include "engine/base/dtype.h"

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace puna {

struct TensorView {
    const std::byte* data = nullptr;
    DType dtype = DType::f32;
    int rank = 0;
    std::array<std::int64_t, 4> shape{};

    explicit operator bool() const { return data != nullptr; }

    std::int64_t elements() const
    {
        std::int64_t n = 1;
        for (int i = 0; i < rank; ++i)
            n *= shape[static_cast<std::size_t>(i)];
        return n;
    }

    std::int64_t bytes() const
    {
        const DTypeInfo d = info(dtype);
        return elements() / d.block_elements * d.block_bytes;
    }

    // Element i of a plain (not block) type, as stored.
    template <class T> T load(std::int64_t i) const
    {
        assert(static_cast<int>(sizeof(T)) == info(dtype).block_bytes);
        T value;
        std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
        return value;
    }
};

} // namespace puna
