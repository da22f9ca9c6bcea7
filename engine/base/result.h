// Result<T>: a value or an Error, for everything that can fail because of the outside world.
//
// The members are a subset of std::expected's, so that one alias can replace this file once every
// compiler we support has it. An Error is a code to switch on and one sentence for a person: which thing,
// what was found, what was expected, what to do. Exceptions are for bugs and std::bad_alloc.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace puna {

enum class ErrorCode {
    io,          // a file or device could not be read or written
    format,      // the bytes do not follow their format
    unsupported, // well formed, but not something this program can run
    memory,      // host or device memory is exhausted
    device,      // the GPU or its driver failed
    cancelled,   // the caller asked to stop
    argument,    // the caller's request makes no sense
};

struct Error {
    ErrorCode code;
    std::string message; // one sentence, plain text, for a person
};

template <class T> class [[nodiscard]] Result {
public:
    using value_type = T;

    Result(T value) : m_state(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : m_state(std::in_place_index<1>, std::move(error)) {}

    bool has_value() const noexcept { return m_state.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    T& value() & { assert(has_value()); return *std::get_if<0>(&m_state); }
    const T& value() const& { assert(has_value()); return *std::get_if<0>(&m_state); }
    T&& value() && { assert(has_value()); return std::move(*std::get_if<0>(&m_state)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const Error& error() const& { assert(!has_value()); return *std::get_if<1>(&m_state); }
    Error&& error() && { assert(!has_value()); return std::move(*std::get_if<1>(&m_state)); }

private:
    std::variant<T, Error> m_state;
};

template <> class [[nodiscard]] Result<void> {
public:
    using value_type = void;

    Result() = default;
    Result(Error error) : m_error(std::move(error)), m_failed(true) {}

    bool has_value() const noexcept { return !m_failed; }
    explicit operator bool() const noexcept { return has_value(); }
    void value() const { assert(has_value()); }
    void operator*() const { value(); }

    const Error& error() const& { assert(m_failed); return m_error; }
    Error&& error() && { assert(m_failed); return std::move(m_error); }

private:
    Error m_error{};
    bool m_failed = false;
};

} // namespace puna

// TRY(expression) yields the value of a Result, or returns its error from the calling function.
#define TRY(...)                                                                                              \
    __extension__({                                                                                           \
        auto&& try_result = (__VA_ARGS__);                                                                    \
        if (!try_result)                                                                                      \
            return std::move(try_result).error();                                                             \
        std::move(try_result).value();                                                                        \
    })
