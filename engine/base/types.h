// Names for numbers whose confusion would cost a day.
#pragma once

#include <compare>
#include <cstdint>

namespace puna {

using TokenId = std::int32_t; // index into the vocabulary
using PageId = std::int32_t;  // index of a KV-cache page

inline constexpr int kPageSize = 256; // tokens in one page of the KV cache

struct Bytes {
    std::int64_t count = 0;

    constexpr auto operator<=>(const Bytes&) const = default;
    constexpr Bytes operator+(Bytes other) const { return {count + other.count}; }
    constexpr Bytes operator-(Bytes other) const { return {count - other.count}; }
    constexpr Bytes& operator+=(Bytes other) { count += other.count; return *this; }
    constexpr double gib() const { return static_cast<double>(count) / (1024.0 * 1024.0 * 1024.0); }
    constexpr double mib() const { return static_cast<double>(count) / (1024.0 * 1024.0); }
};

namespace literals {
constexpr Bytes operator""_MiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 30}; }
} // namespace literals

} // namespace puna
