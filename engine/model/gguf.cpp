#include "engine/model/gguf.h"

#include "engine/base/foreign_text.h"
#include "engine/base/mapped_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace puna {

namespace {

// Bounds on what a header may make us keep. The largest vocabularies have about 260,000 tokens and 500,000 merges.
constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxTensors = 1 << 18;
constexpr std::uint64_t kMaxArrayElements = 1 << 23; // over all arrays
constexpr std::uint64_t kMaxName = 1024;
constexpr std::uint64_t kMaxAlignment = 1 << 20;

struct TensorType {
    std::uint32_t number;
    std::string_view name;
    std::optional<DType> dtype;
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::f32},
    {1, "F16", DType::f16},
    {2, "Q4_0", DType::q4_0},
    {3, "Q4_1", DType::q4_1},
    {6, "Q5_0", {}},
    {7, "Q5_1", {}},
    {8, "Q8_0", DType::q8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", {}},
    {13, "Q5_K", {}},
    {14, "Q6_K", {}},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", DType::i8},
    {25, "I16", DType::i16},
    {26, "I32", DType::i32},
    {27, "I64", DType::i64},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::bf16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
};

enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// Bytes that one value takes at least; 0 for what is not a value type of an array.
std::uint64_t smallestSize(std::uint32_t type)
{
    switch (type) {
    case kU8:
    case kI8:
    case kBool:
        return 1;
    case kU16:
    case kI16:
        return 2;
    case kU32:
    case kI32:
    case kF32:
        return 4;
    case kString:
    case kU64:
    case kI64:
    case kF64:
        return 8;
    default:
        return 0;
    }
}

// Reads forward through the file. Past the end everything is zero and ok() is false from then on.
class Cursor {
public:
    explicit Cursor(std::span<const std::byte> bytes)
        : m_bytes(bytes)
    {
    }

    bool ok() const { return m_ok; }
    std::uint64_t position() const { return m_position; }
    std::uint64_t left() const { return m_bytes.size() - m_position; }

    template <class T> T read()
    {
        T value {};
        if (left() < sizeof(T)) {
            m_ok = false;
            return value;
        }
        std::memcpy(&value, m_bytes.data() + m_position, sizeof(T));
        m_position += sizeof(T);
        return value;
    }

    std::string string()
    {
        const auto length = read<std::uint64_t>();
        if (!m_ok || length > left()) {
            m_ok = false;
            return {};
        }
        std::string text(reinterpret_cast<const char*>(m_bytes.data() + m_position), length);
        m_position += length;
        return text;
    }

private:
    std::span<const std::byte> m_bytes;
    std::uint64_t m_position = 0;
    bool m_ok = true;
};

template <class Stored, class Kept> std::vector<Kept> readArray(Cursor& in, std::uint64_t count)
{
    std::vector<Kept> values(count);
    for (std::uint64_t i = 0; i < count; ++i)
        values[i] = static_cast<Kept>(in.read<Stored>());
    return values;
}

// count has been checked against what is left of the file.
std::optional<Gguf::Value> readArray(Cursor& in, std::uint32_t type, std::uint64_t count)
{
    switch (type) {
    case kU8:
        return readArray<std::uint8_t, std::uint64_t>(in, count);
    case kU16:
        return readArray<std::uint16_t, std::uint64_t>(in, count);
    case kU32:
        return readArray<std::uint32_t, std::uint64_t>(in, count);
    case kU64:
        return readArray<std::uint64_t, std::uint64_t>(in, count);
    case kI8:
        return readArray<std::int8_t, std::int64_t>(in, count);
    case kI16:
        return readArray<std::int16_t, std::int64_t>(in, count);
    case kI32:
        return readArray<std::int32_t, std::int64_t>(in, count);
    case kI64:
        return readArray<std::int64_t, std::int64_t>(in, count);
    case kF32:
        return readArray<float, double>(in, count);
    case kF64:
        return readArray<double, double>(in, count);
    case kBool: {
        std::vector<bool> values(count);
        for (std::uint64_t i = 0; i < count; ++i)
            values[i] = in.read<std::uint8_t>() != 0;
        return values;
    }
    case kString: {
        std::vector<std::string> values;
        values.reserve(count);
        for (std::uint64_t i = 0; i < count && in.ok(); ++i)
            values.push_back(in.string());
        return values;
    }
    default:
        return {};
    }
}

std::optional<Gguf::Value> readScalar(Cursor& in, std::uint32_t type)
{
    switch (type) {
    case kU8:
        return std::uint64_t {in.read<std::uint8_t>()};
    case kU16:
        return std::uint64_t {in.read<std::uint16_t>()};
    case kU32:
        return std::uint64_t {in.read<std::uint32_t>()};
    case kU64:
        return in.read<std::uint64_t>();
    case kI8:
        return std::int64_t {in.read<std::int8_t>()};
    case kI16:
        return std::int64_t {in.read<std::int16_t>()};
    case kI32:
        return std::int64_t {in.read<std::int32_t>()};
    case kI64:
        return in.read<std::int64_t>();
    case kF32:
        return static_cast<double>(in.read<float>());
    case kF64:
        return in.read<double>();
    case kBool:
        return in.read<std::uint8_t>() != 0;
    case kString:
        return in.string();
    default:
        return {};
    }
}

std::string shapeText(const std::array<std::uint64_t, 4>& extents, std::uint32_t rank)
{
    std::string text = "[";
    for (std::uint32_t i = 0; i < rank; ++i)
        text += (i ? ", " : "") + std::to_string(extents[i]);
    return text + "]";
}

} // namespace

Result<std::shared_ptr<const Gguf>> Gguf::open(const std::filesystem::path& path)
{
    const auto file = TRY(MappedFile::open(path));
    const std::span<const std::byte> bytes = file->bytes();
    const std::string name = printable(path.filename().string());
    const auto refused = [&](const std::string& what) {
        return Error {
            ErrorCode::format, name + ": " + what + "; the file is damaged or incomplete. Copy or download it again."};
    };
    const auto ends = [&] {
        return refused("it ends within its header, after " + std::to_string(bytes.size()) + " bytes");
    };

    if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0)
        return Error {ErrorCode::format, name + ": it does not begin with 'GGUF'; expected a GGUF model file."};
    Cursor in(bytes);
    in.read<std::uint32_t>();
    const auto version = in.read<std::uint32_t>();
    if (in.ok() && version != 2 && version != 3) {
        const bool swapped = version == 0x02000000 || version == 0x03000000;
        return Error {ErrorCode::unsupported,
            name + (swapped ? ": it is a big-endian GGUF file" : ": it is GGUF version " + std::to_string(version))
                + ", expected version 2 or 3 in little-endian order. Convert the model again."};
    }
    const auto tensor_count = in.read<std::uint64_t>();
    const auto key_count = in.read<std::uint64_t>();
    if (!in.ok())
        return ends();
    // A key takes at least 13 bytes, a tensor 24.
    if (key_count > kMaxKeys || key_count > in.left() / 13)
        return refused("its header claims " + std::to_string(key_count) + " keys");
    if (tensor_count > kMaxTensors || tensor_count > in.left() / 24)
        return refused("its header claims " + std::to_string(tensor_count) + " tensors");

    auto result = std::make_shared<Gguf>();
    result->m_path = path;
    result->m_mapping = file;

    std::uint64_t array_elements = 0;
    for (std::uint64_t i = 0; i < key_count; ++i) {
        std::string key = in.string();
        auto type = in.read<std::uint32_t>();
        if (!in.ok())
            return ends();
        if (key.size() > kMaxName)
            return refused(
                "a key has " + std::to_string(key.size()) + " bytes, expected at most " + std::to_string(kMaxName));
        std::optional<Value> value;
        if (type == kArray) {
            type = in.read<std::uint32_t>();
            const auto count = in.read<std::uint64_t>();
            const std::uint64_t size = smallestSize(type);
            if (size != 0) {
                if (count > kMaxArrayElements - array_elements || count > in.left() / size)
                    return refused("'" + printable(key) + "' claims " + std::to_string(count) + " elements");
                array_elements += count;
            }
            value = readArray(in, type, count);
        } else {
            value = readScalar(in, type);
        }
        if (!in.ok())
            return ends();
        if (!value)
            return refused("'" + printable(key) + "' has the unknown value type " + std::to_string(type));
        if (!result->m_values.emplace(key, std::move(*value)).second)
            return refused("the key '" + printable(key) + "' occurs twice");
    }

    std::uint64_t alignment = 32;
    if (result->find("general.alignment")) {
        const auto stated = result->integer("general.alignment");
        if (!stated || *stated < 1 || static_cast<std::uint64_t>(*stated) > kMaxAlignment
            || (*stated & (*stated - 1)) != 0)
            return refused("'general.alignment' is not a power of two up to " + std::to_string(kMaxAlignment));
        alignment = static_cast<std::uint64_t>(*stated);
    }

    struct Placed {
        TensorView view;
        std::uint64_t offset;
        std::string name;
    };
    std::vector<Placed> placed;
    placed.reserve(tensor_count);
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
        std::string tensor = in.string();
        const auto rank = in.read<std::uint32_t>();
        if (!in.ok())
            return ends();
        const std::string who = "tensor '" + printable(tensor) + "' ";
        if (tensor.size() > kMaxName)
            return refused("a tensor's name has " + std::to_string(tensor.size()) + " bytes");
        if (rank > 4)
            return refused(who + "has " + std::to_string(rank) + " dimensions, expected at most 4");
        std::array<std::uint64_t, 4> extents {1, 1, 1, 1}; // fastest first
        for (std::uint32_t d = 0; d < rank; ++d)
            extents[d] = in.read<std::uint64_t>();
        const auto number = in.read<std::uint32_t>();
        const auto offset = in.read<std::uint64_t>();
        if (!in.ok())
            return ends();
        const auto* const type = std::find_if(
            std::begin(kTensorTypes), std::end(kTensorTypes), [&](const TensorType& t) { return t.number == number; });
        if (type == std::end(kTensorTypes) || !type->dtype) {
            std::string type_name =
                type == std::end(kTensorTypes) ? "type " + std::to_string(number) : std::string(type->name);
            if (!result->m_unsupported.emplace(std::move(tensor), std::move(type_name)).second)
                return refused(who + "occurs twice");
            continue;
        }
        const DTypeInfo layout = info(*type->dtype);
        bool valid = extents[0] % static_cast<std::uint64_t>(layout.block_elements) == 0;
        std::uint64_t elements = 1;
        for (const std::uint64_t n : extents)
            valid = valid && n <= (1ull << 48) && !__builtin_mul_overflow(elements, n, &elements);
        valid = valid && elements <= (1ull << 56);
        if (!valid)
            return refused(who + "is " + std::string(type->name) + " " + shapeText(extents, rank)
                + ", which is no possible shape");
        TensorView view;
        view.dtype = *type->dtype;
        view.rank = static_cast<int>(rank);
        for (std::uint32_t d = 0; d < rank; ++d)
            view.shape[d] = static_cast<std::int64_t>(extents[rank - 1 - d]);
        if (offset % alignment != 0)
            return refused(
                who + "begins at " + std::to_string(offset) + ", expected a multiple of " + std::to_string(alignment));
        placed.push_back({view, offset, std::move(tensor)});
    }

    const std::uint64_t header_end = in.position();
    const std::uint64_t data_begin = (header_end + alignment - 1) / alignment * alignment;
    const std::uint64_t data_size = data_begin > bytes.size() ? 0 : bytes.size() - data_begin;
    std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    std::uint64_t covered = 0;
    for (Placed& p : placed) {
        const std::string who = "tensor '" + printable(p.name) + "' ";
        const auto size = static_cast<std::uint64_t>(p.view.bytes());
        if (p.offset > data_size || size > data_size - p.offset)
            return refused(who + "needs bytes up to " + std::to_string(p.offset) + " + " + std::to_string(size) + " of "
                + std::to_string(data_size) + " bytes of data");
        if (p.offset < covered)
            return refused(who + "overlaps another");
        covered = p.offset + size;
        p.view.data = bytes.data() + data_begin + p.offset;
        if (result->m_unsupported.contains(p.name) || !result->m_tensors.emplace(std::move(p.name), p.view).second)
            return refused(who + "occurs twice");
    }
    return std::shared_ptr<const Gguf>(std::move(result));
}

const Gguf::Value* Gguf::find(std::string_view key) const
{
    const auto found = m_values.find(key);
    return found == m_values.end() ? nullptr : &found->second;
}

std::optional<std::string_view> Gguf::string(std::string_view key) const
{
    const Value* value = find(key);
    const auto* text = value ? std::get_if<std::string>(value) : nullptr;
    return text ? std::optional<std::string_view>(*text) : std::nullopt;
}

std::optional<std::int64_t> Gguf::integer(std::string_view key) const
{
    const Value* value = find(key);
    if (!value)
        return {};
    if (const auto* number = std::get_if<std::int64_t>(value))
        return *number;
    const auto* number = std::get_if<std::uint64_t>(value);
    if (number && *number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return static_cast<std::int64_t>(*number);
    return {};
}

std::optional<double> Gguf::number(std::string_view key) const
{
    const Value* value = find(key);
    if (!value)
        return {};
    if (const auto* number = std::get_if<double>(value))
        return *number;
    if (const auto* number = std::get_if<std::uint64_t>(value))
        return static_cast<double>(*number);
    if (const auto* number = std::get_if<std::int64_t>(value))
        return static_cast<double>(*number);
    return {};
}

const std::vector<std::string>* Gguf::strings(std::string_view key) const
{
    const Value* value = find(key);
    return value ? std::get_if<std::vector<std::string>>(value) : nullptr;
}

TensorView Gguf::tensor(std::string_view name) const
{
    const auto found = m_tensors.find(name);
    return found == m_tensors.end() ? TensorView {} : found->second;
}

} // namespace puna
