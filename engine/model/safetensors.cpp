#include "engine/model/safetensors.h"

#include "engine/base/foreign_text.h"
#include "engine/base/mapped_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace puna {

namespace {

struct ElementType {
    std::string_view name;
    int bits;
    std::optional<DType> dtype; // what TensorView calls it
};

constexpr ElementType kElementTypes[] = {
    {"F32", 32, DType::f32},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I64", 64, DType::i64},
    {"I32", 32, DType::i32},
    {"I16", 16, DType::i16},
    {"I8", 8, DType::i8},
    {"U8", 8, DType::u8},
    {"BOOL", 8, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"F64", 64, {}},
    {"C64", 64, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> offsets;
};

// Receives the header's JSON as events. Any event out of place ends the parse with a reason.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
public:
    std::vector<Entry> entries;
    std::string problem;

    bool null() override { return refuse("a null"); }
    bool boolean(bool) override { return refuse("a boolean"); }
    bool number_integer(number_integer_t) override { return refuse("a negative number"); }
    bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
    bool binary(binary_t&) override { return refuse("binary data"); }

    bool number_unsigned(number_unsigned_t value) override
    {
        if (m_place != Place::shape && m_place != Place::offsets)
            return refuse("a number");
        auto& list = m_place == Place::shape ? entries.back().shape : entries.back().offsets;
        if (list.size() == kMaxRank)
            return fail(about("has more than " + std::to_string(kMaxRank) + " dimensions"));
        list.push_back(value);
        return true;
    }

    bool string(string_t& value) override
    {
        if (m_place == Place::metadata)
            return true;
        if (m_place != Place::entry || m_key != "dtype")
            return refuse("a string");
        entries.back().dtype = std::move(value);
        return true;
    }

    bool start_object(std::size_t) override
    {
        if (m_place == Place::outside) {
            m_place = Place::top;
            return true;
        }
        if (m_place != Place::top)
            return refuse("an object");
        if (m_key == "__metadata__") {
            if (std::exchange(m_has_metadata, true))
                return fail("its header has '__metadata__' twice");
            m_place = Place::metadata;
            return true;
        }
        if (m_key.size() > Safetensors::kMaxName)
            return fail("it names a tensor with " + std::to_string(m_key.size()) + " bytes, expected at most "
                + std::to_string(Safetensors::kMaxName));
        if (entries.size() == Safetensors::kMaxTensors)
            return fail("its header lists more than " + std::to_string(Safetensors::kMaxTensors) + " tensors");
        entries.push_back({std::move(m_key), {}, {}, {}});
        m_seen = 0;
        m_place = Place::entry;
        return true;
    }

    bool key(string_t& value) override
    {
        m_key = std::move(value);
        if (m_place != Place::entry)
            return true;
        const int bit = m_key == "dtype" ? 1 : m_key == "shape" ? 2 : m_key == "data_offsets" ? 4 : 0;
        if (bit == 0)
            return fail(about("has the unknown field '" + printable(m_key) + "'"));
        if (m_seen & bit)
            return fail(about("has '" + m_key + "' twice"));
        m_seen |= bit;
        return true;
    }

    bool end_object() override
    {
        if (m_place == Place::entry && m_seen != 7)
            return fail(about("lacks one of dtype, shape and data_offsets"));
        m_place = m_place == Place::top ? Place::outside : Place::top;
        return true;
    }

    bool start_array(std::size_t) override
    {
        if (m_place != Place::entry || m_key == "dtype")
            return refuse("a list");
        m_place = m_key == "shape" ? Place::shape : Place::offsets;
        return true;
    }

    bool end_array() override
    {
        m_place = Place::entry;
        return true;
    }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override
    {
        return fail("its header is not valid JSON at byte " + std::to_string(position));
    }

private:
    enum class Place { outside, top, metadata, entry, shape, offsets };
    static constexpr std::size_t kMaxRank = 16;

    bool fail(std::string what)
    {
        problem = std::move(what);
        return false;
    }
    std::string about(const std::string& what) const
    {
        return "tensor '" + printable(entries.back().name) + "' " + what;
    }
    bool refuse(const char* what)
    {
        const bool inside = m_place == Place::entry || m_place == Place::shape || m_place == Place::offsets;
        return fail(inside ? about(std::string("has ") + what + " as its " + printable(m_key))
                           : std::string("its header holds ") + what + " where a tensor's description is expected");
    }

    Place m_place = Place::outside;
    std::string m_key;
    int m_seen = 0;
    bool m_has_metadata = false;
};

std::string shapeText(const std::vector<std::uint64_t>& shape)
{
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += (i ? ", " : "") + std::to_string(shape[i]);
    return text + "]";
}

// Bits of a tensor of this shape; nullopt where the product overflows.
std::optional<std::uint64_t> sizeInBits(const std::vector<std::uint64_t>& shape, int bits)
{
    auto size = static_cast<std::uint64_t>(bits);
    bool overflow = false;
    for (const std::uint64_t n : shape) // a zero elsewhere does not excuse an overflow
        overflow |= n > (1ull << 48) || __builtin_mul_overflow(size, n, &size);
    return overflow ? std::nullopt : std::optional(size);
}

bool isSpace(std::byte b)
{
    const char c = static_cast<char>(b);
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

} // namespace

Result<std::shared_ptr<const Safetensors>> Safetensors::open(const std::filesystem::path& path)
{
    const auto file = TRY(MappedFile::open(path));
    const std::span<const std::byte> bytes = file->bytes();
    const auto refused = [&](const std::string& what) {
        return Error {ErrorCode::format,
            printable(path.filename().string()) + ": " + what
                + "; the file is damaged or not a safetensors file. Copy or download it again."};
    };
    if (bytes.size() < 10)
        return refused("it has " + std::to_string(bytes.size()) + " bytes, too few for a header");
    if (bytes[0] == std::byte {'P'} && bytes[1] == std::byte {'K'})
        return refused("it is a zip archive (perhaps a PyTorch checkpoint)");
    if (bytes[0] == std::byte {0x80} && bytes[1] <= std::byte {5} && bytes[7] != std::byte {0})
        return refused("it is a Python pickle");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > kMaxHeader)
        return refused(
            "its header claims " + std::to_string(length) + " bytes, expected at most " + std::to_string(kMaxHeader));
    if (length > bytes.size() - 8)
        return refused("its header claims " + std::to_string(length) + " bytes, but the file has only "
            + std::to_string(bytes.size()));

    std::span<const std::byte> header = bytes.subspan(8, length);
    while (!header.empty() && isSpace(header.front()))
        header = header.subspan(1);
    if (header.empty() || header.front() != std::byte {'{'})
        return refused("its header does not begin with '{'");
    const char* text = reinterpret_cast<const char*>(header.data());
    if (std::memchr(text, 0, header.size())) // the parser would take it for the end
        return refused("its header is not valid JSON: it holds a zero byte");
    HeaderReader reader;
    if (!nlohmann::json::sax_parse(text, text + header.size(), &reader))
        return refused(reader.problem);

    auto result = std::make_shared<Safetensors>();
    result->m_path = path;
    result->m_mapping = file;
    const std::span<const std::byte> data = bytes.subspan(8 + length);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> extents; // begin, end
    extents.reserve(reader.entries.size());
    for (Entry& entry : reader.entries) {
        const std::string who = "tensor '" + printable(entry.name) + "' ";
        const auto* const type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
            [&](const ElementType& t) { return t.name == entry.dtype; });
        if (type == std::end(kElementTypes))
            return refused(who + "has the unknown element type '" + printable(entry.dtype) + "'");
        if (entry.offsets.size() != 2)
            return refused(who + "has " + std::to_string(entry.offsets.size()) + " data offsets, expected 2");
        const std::uint64_t begin = entry.offsets[0];
        const std::uint64_t end = entry.offsets[1];
        if (begin > end || end > data.size())
            return refused(who + "lies at " + std::to_string(begin) + " to " + std::to_string(end) + " of "
                + std::to_string(data.size()) + " bytes of data");
        const auto bits = sizeInBits(entry.shape, type->bits);
        if (!bits || *bits % 8 != 0 || *bits / 8 != end - begin)
            return refused(who + "is " + entry.dtype + " " + shapeText(entry.shape) + ", which does not take the "
                + std::to_string(end - begin) + " bytes it has");
        extents.emplace_back(begin, end);

        const bool twice = result->m_tensors.contains(entry.name) || result->m_unsupported.contains(entry.name);
        if (twice)
            return refused(who + "occurs twice");
        if (!type->dtype || entry.shape.size() > 4) {
            result->m_unsupported.emplace(std::move(entry.name), entry.dtype + " " + shapeText(entry.shape));
            continue;
        }
        TensorView view;
        view.data = data.data() + begin;
        view.dtype = *type->dtype;
        view.rank = static_cast<int>(entry.shape.size());
        for (std::size_t i = 0; i < entry.shape.size(); ++i)
            view.shape[i] = static_cast<std::int64_t>(entry.shape[i]);
        result->m_tensors.emplace(std::move(entry.name), view);
    }

    std::sort(extents.begin(), extents.end());
    std::uint64_t covered = 0;
    for (const auto& [begin, end] : extents) {
        if (begin != covered)
            return refused(begin < covered ? "tensors overlap at byte " + std::to_string(begin) + " of the data"
                                           : "bytes " + std::to_string(covered) + " to " + std::to_string(begin)
                        + " of the data belong to no tensor");
        covered = end;
    }
    if (covered != data.size())
        return refused("its tensors end at byte " + std::to_string(covered) + " of " + std::to_string(data.size())
            + " bytes of data");
    return std::shared_ptr<const Safetensors>(std::move(result));
}

TensorView Safetensors::tensor(std::string_view name) const
{
    const auto found = m_tensors.find(name);
    return found == m_tensors.end() ? TensorView {} : found->second;
}

} // namespace puna
