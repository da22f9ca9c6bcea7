#include "engine/model/model_files.h"

#include "engine/base/foreign_text.h"
#include "engine/base/mapped_file.h"
#include "engine/model/architectures.h"
#include "engine/model/gguf.h"
#include "engine/model/model_config.h"
#include "engine/model/safetensors.h"
#include "engine/quant/exl2.h"
#include "engine/quant/gptq.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <utility>

namespace puna {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 16u << 20;
constexpr std::size_t kMaxFolderEntries = 100'000;

// --- where tensors come from -----------------------------------------------------------------------------------

// All tensors of a model, whatever they were read from.
struct TensorIndex {
    std::string where; // for messages: the folder's or file's name
    std::map<std::string_view, TensorView> tensors; // names live in the files that own them
    std::map<std::string_view, std::string_view> unsupported; // name, what it is
    std::string incomplete; // a sentence about files that seem to be missing; usually empty

    TensorView find(const std::string& name) const
    {
        const auto it = tensors.find(name);
        return it == tensors.end() ? TensorView {} : it->second;
    }
};

// Binds layers by name, counting what they take.
class Binder {
public:
    Binder(const TensorIndex& index, const FolderConfig& config, bool gguf)
        : m_index(index)
        , m_config(config)
        , m_gguf(gguf)
    {
    }

    std::int64_t bytes = 0; // of all tensors bound
    double decoder_bits = 0.0; // of linear layers bound while in a layer
    double decoder_weights = 0.0;
    std::map<std::string, std::int64_t> formats; // name of the format, bytes of linear layers in it

    bool hasLinear(const std::string& name) const
    {
        for (const char* suffix : {".weight", ".q_weight", ".qweight"})
            if (m_index.find(name + suffix) || m_index.unsupported.contains(name + suffix))
                return true;
        return false;
    }

    Result<TensorView> norm(const std::string& name, std::int64_t size)
    {
        const TensorView view = TRY(weights(name + ".weight"));
        if (!isPlainFloat(view.dtype))
            return wrongType(name + ".weight", std::string(info(view.dtype).name));
        // A vector, or a matrix of one row as some converters write it.
        if (view.elements() != size || view.rank < 1 || view.shape[static_cast<std::size_t>(view.rank - 1)] != size)
            return wrongShape(name + ".weight", view, {size});
        TensorView vector = view;
        vector.rank = 1;
        vector.shape = {size};
        bytes += vector.bytes();
        return vector;
    }

    Result<TensorView> matrix(const std::string& name, std::int64_t rows, std::int64_t columns)
    {
        const TensorView view = TRY(weights(name));
        if (!isPlainFloat(view.dtype) && info(view.dtype).block_elements == 1)
            return wrongType(name, std::string(info(view.dtype).name));
        if (view.rank != 2 || (rows >= 0 && view.shape[0] != rows) || view.shape[1] != columns)
            return wrongShape(name, view, {rows, columns});
        bytes += view.bytes();
        return view;
    }

    enum class Bias { none, expected, optional };

    Result<Linear> linear(
        const std::string& name, std::int64_t in_features, std::int64_t out_features, Bias bias, bool in_decoder)
    {
        Linear layer;
        layer.name = name;
        layer.in_features = in_features;
        layer.out_features = out_features;
        const std::int64_t before = bytes;
        std::string format;
        if (const TensorView q_weight = m_index.find(name + ".q_weight")) {
            format = "EXL2";
            const Exl2Tensors t {q_weight, part(name, ".q_scale"), part(name, ".q_scale_max"), part(name, ".q_groups"),
                part(name, ".q_invperm")};
            layer.weight = TRY(bindExl2(printable(name), t, in_features, out_features));
            for (const TensorView& view : {t.q_weight, t.q_scale, t.q_scale_max, t.q_groups, t.q_invperm})
                bytes += view.bytes();
        } else if (const TensorView qweight = m_index.find(name + ".qweight")) {
            format = "GPTQ";
            const GptqTensors t {qweight, part(name, ".qzeros"), part(name, ".scales"), part(name, ".g_idx")};
            const GptqOptions options {m_config.gptq_v2, m_config.gptq_symmetric, m_config.gptq_group_size};
            layer.weight = TRY(bindGptq(printable(name), t, in_features, out_features, options));
            for (const TensorView& view : {t.qweight, t.qzeros, t.scales})
                bytes += view.bytes();
            bytes += t.g_idx ? t.g_idx.bytes() : 0;
        } else {
            const TensorView view = TRY(matrix(name + ".weight", out_features, in_features));
            layer.weight = DenseLinear {view};
            format = formatName(view.dtype);
        }
        TRY(bindBias(layer, bias));
        formats[format] += bytes - before;
        if (in_decoder) {
            decoder_bits += 8.0 * static_cast<double>(bytes - before);
            decoder_weights += static_cast<double>(in_features) * static_cast<double>(out_features);
        }
        return layer;
    }

    std::string formatName(DType dtype) const
    {
        if (m_gguf)
            return "GGUF " + std::string(info(dtype).name);
        return dtype == DType::f32 ? "FP32" : dtype == DType::bf16 ? "BF16" : "FP16";
    }

private:
    static bool isPlainFloat(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

    TensorView part(const std::string& name, const char* suffix) const { return m_index.find(name + suffix); }

    Result<TensorView> weights(const std::string& name) const
    {
        if (const TensorView view = m_index.find(name))
            return view;
        if (const auto it = m_index.unsupported.find(name); it != m_index.unsupported.end())
            return wrongType(name, std::string(it->second));
        return Error {ErrorCode::format,
            m_index.where + ": the tensor '" + printable(name) + "' is missing"
                + (m_index.incomplete.empty() ? "; the model is incomplete or of another kind. Copy all of its files."
                                              : "; " + m_index.incomplete)};
    }

    Error wrongType(const std::string& name, const std::string& type) const
    {
        return {ErrorCode::unsupported,
            m_index.where + ": '" + printable(name) + "' is " + printable(type)
                + ", which Puna cannot compute with; expected "
                + (m_gguf ? "F32, F16, BF16, Q8_0, Q4_0 or Q4_1." : "F32, F16 or BF16, or EXL2 or GPTQ tensors.")};
    }

    Error wrongShape(const std::string& name, const TensorView& view, const std::vector<std::int64_t>& expected) const
    {
        const auto list = [](const auto& extents, std::size_t rank) {
            std::string text = "[";
            for (std::size_t i = 0; i < rank; ++i)
                text += (i ? ", " : "") + (extents[i] < 0 ? std::string("any") : std::to_string(extents[i]));
            return text + "]";
        };
        return {ErrorCode::format,
            m_index.where + ": '" + printable(name) + "' is " + list(view.shape, static_cast<std::size_t>(view.rank))
                + ", expected " + list(expected, expected.size())
                + ". The file may belong to another model; import it again."};
    }

    Result<void> bindBias(Linear& layer, Bias expectation)
    {
        const std::string name = layer.name + ".bias";
        TensorView view = m_index.find(name);
        if (!view) {
            if (expectation != Bias::expected)
                return {};
            (void)TRY(weights(name)); // says that it is missing
        }
        if (!isPlainFloat(view.dtype))
            return wrongType(name, std::string(info(view.dtype).name));
        const auto* exl2 = std::get_if<Exl2Linear>(&layer.weight);
        const std::int64_t padded = exl2 ? exl2->padded_out : layer.out_features;
        if (view.rank != 1 || (view.shape[0] != layer.out_features && view.shape[0] != padded))
            return wrongShape(name, view, {layer.out_features});
        // AutoGPTQ writes zero biases everywhere.
        if (std::holds_alternative<GptqLinear>(layer.weight)
            && std::all_of(view.data, view.data + view.bytes(), [](std::byte b) { return b == std::byte {0}; }))
            return {};
        if (expectation == Bias::none)
            return Error {ErrorCode::unsupported,
                m_index.where + ": '" + printable(name)
                    + "' is there, but config.json says that such layers have no bias; one of them is wrong."};
        view.shape[0] = layer.out_features;
        layer.bias = view;
        bytes += view.bytes();
        return {};
    }

    const TensorIndex& m_index;
    const FolderConfig& m_config;
    bool m_gguf;
};

int dominantBits(const Linear& head)
{
    if (const auto* exl2 = std::get_if<Exl2Linear>(&head.weight)) {
        std::array<std::int64_t, 9> rows {};
        for (const Exl2Linear::Group& group : exl2->groups)
            rows[static_cast<std::size_t>(group.bits)] += group.rows;
        return static_cast<int>(std::max_element(rows.begin(), rows.end()) - rows.begin());
    }
    if (const auto* gptq = std::get_if<GptqLinear>(&head.weight))
        return gptq->bits;
    const DType dtype = std::get<DenseLinear>(head.weight).weight.dtype;
    const DTypeInfo layout = info(dtype);
    return dtype == DType::q4_0 || dtype == DType::q4_1 ? 4 : layout.block_elements > 1 ? 8 : 8 * layout.block_bytes;
}

// Fills weights and the info that follows from them. files.config is complete but for vocab_size.
Result<void> bindWeights(
    ModelFiles& files, const TensorIndex& index, const FolderConfig& config, const TensorNames& names, bool gguf)
{
    using Bias = Binder::Bias;
    ModelConfig& c = files.config;
    ModelWeights& w = files.weights;
    Binder binder(index, config, gguf);
    const std::int64_t hidden = c.hidden_size;
    const std::int64_t query = static_cast<std::int64_t>(c.n_heads) * c.head_dim;
    const std::int64_t key = static_cast<std::int64_t>(c.n_kv_heads) * c.head_dim;
    const Bias attention = gguf ? Bias::optional : config.attention_bias ? Bias::expected : Bias::none;
    const Bias mlp = gguf ? Bias::optional : config.mlp_bias ? Bias::expected : Bias::none;

    const std::string embedding = std::string(names.embedding) + ".weight";
    w.embedding = TRY(binder.matrix(embedding, -1, hidden));
    constexpr std::int64_t kMaxVocabulary = 1 << 24;
    if (w.embedding.shape[0] < 1 || w.embedding.shape[0] > kMaxVocabulary)
        return Error {ErrorCode::format,
            index.where + ": '" + embedding + "' has " + std::to_string(w.embedding.shape[0]) + " rows, expected 1 to "
                + std::to_string(kMaxVocabulary) + "."};
    c.vocab_size = static_cast<int>(w.embedding.shape[0]);
    w.final_norm = TRY(binder.norm(std::string(names.final_norm), hidden));

    w.layers.reserve(static_cast<std::size_t>(c.n_layers));
    for (int i = 0; i < c.n_layers; ++i) {
        const std::string prefix = std::string(names.layer_prefix) + std::to_string(i) + ".";
        const auto at = [&](std::string_view role) { return prefix + std::string(role); };
        LayerWeights layer;
        layer.input_norm = TRY(binder.norm(at(names.input_norm), hidden));
        layer.q = TRY(binder.linear(at(names.q), hidden, query, attention, true));
        layer.k = TRY(binder.linear(at(names.k), hidden, key, attention, true));
        layer.v = TRY(binder.linear(at(names.v), hidden, key, attention, true));
        layer.o = TRY(binder.linear(at(names.o), query, hidden, attention, true));
        layer.post_attention_norm = TRY(binder.norm(at(names.post_attention_norm), hidden));
        layer.gate = TRY(binder.linear(at(names.gate), hidden, c.intermediate_size, mlp, true));
        layer.up = TRY(binder.linear(at(names.up), hidden, c.intermediate_size, mlp, true));
        layer.down = TRY(binder.linear(at(names.down), c.intermediate_size, hidden, mlp, true));
        w.layers.push_back(std::move(layer));
    }

    const std::string head(names.head);
    if (binder.hasLinear(head) || !(gguf || config.tied_head)) {
        w.head = TRY(binder.linear(head, hidden, c.vocab_size, Bias::none, false));
    } else {
        w.head.name = std::string(names.embedding);
        w.head.in_features = hidden;
        w.head.out_features = c.vocab_size;
        w.head.weight = DenseLinear {w.embedding};
    }
    w.bytes = binder.bytes;

    // A model that holds any EXL2 layer is called that, likewise GPTQ; else by what most of its bytes are.
    ModelInfo& i = files.info;
    std::int64_t most = -1;
    for (const auto& [format, bytes] : binder.formats)
        if (bytes > most)
            most = bytes, i.format = format;
    for (const char* quantised : {"GPTQ", "EXL2"})
        if (binder.formats.contains(quantised))
            i.format = quantised;
    i.ok = true;
    i.path = files.path;
    i.architecture = c.architecture;
    i.bpw = binder.decoder_bits / binder.decoder_weights;
    i.head_bits = dominantBits(w.head);
    i.layers = c.n_layers;
    i.hidden_size = c.hidden_size;
    i.vocab_size = c.vocab_size;
    i.max_context = c.max_context;
    i.weight_bytes = Bytes {w.bytes};
    return {};
}

// --- a GGUF file ------------------------------------------------------------------------------------------------

// What people call the model: the file's name without its type of quantisation, which is told beside it. (The
// metadata's general.name is often the name of a training run.)
std::string nameOfFile(const fs::path& path)
{
    static const std::regex quantisation(R"([-._](I?Q[0-9][0-9A-Z_]*|B?F16|F32|FP16|MXFP4)$)", std::regex::icase);
    const std::string stem = printable(path.stem().string());
    const std::string name = std::regex_replace(stem, quantisation, "");
    return name.empty() ? stem : name;
}

Result<ModelFiles> openGguf(const fs::path& path)
{
    ModelFiles files;
    files.path = path;
    files.gguf = TRY(Gguf::open(path));
    files.owners.push_back(files.gguf);
    files.config = TRY(ggufConfig(*files.gguf));
    const Architecture* architecture = findArchitecture(files.config.architecture);

    TensorIndex index;
    index.where = printable(path.filename().string());
    for (const auto& [name, view] : files.gguf->tensors())
        index.tensors.emplace(name, view);
    for (const auto& [name, type] : files.gguf->unsupportedTensors())
        index.unsupported.emplace(name, type);
    if (const auto parts = files.gguf->integer("split.count"); parts && *parts > 1)
        index.incomplete = "the model is split into " + std::to_string(*parts)
            + " files, which is not supported: merge them with llama.cpp's gguf-split first.";
    TRY(bindWeights(files, index, FolderConfig {}, architecture->gguf_names, true));
    files.info.name = nameOfFile(path);
    return files;
}

// --- a folder ----------------------------------------------------------------------------------------------------

// Whether a file of the folder may be read: it lies in it, or is a link into the Hugging Face cache that the folder
// belongs to (snapshots/<revision>/file -> blobs/<hash>).
bool staysInside(const fs::path& folder, const fs::path& file)
{
    std::error_code failed;
    const fs::path real_folder = fs::canonical(folder, failed);
    const fs::path real_file = failed ? fs::path() : fs::canonical(file, failed);
    if (failed)
        return false;
    const fs::path parent = real_file.parent_path();
    return parent == real_folder || parent == real_folder.parent_path().parent_path() / "blobs";
}

struct FolderFiles {
    std::vector<fs::path> safetensors; // sorted
    bool has_config = false;
    bool has_quantize_config = false;
    std::string pickle; // the name of one, if any
    std::string gguf;
    std::size_t entries = 0;
};

Result<FolderFiles> listFolder(const fs::path& folder)
{
    const std::string where = printable(folder.string(), 300);
    std::error_code failed;
    fs::directory_iterator it(folder, failed);
    if (failed)
        return Error {
            ErrorCode::io, printable(folder.string(), 300) + ": the folder cannot be read (" + failed.message() + ")."};
    FolderFiles found;
    for (; it != fs::directory_iterator(); it.increment(failed)) {
        if (failed)
            return Error {ErrorCode::io, where + ": the folder cannot be read (" + failed.message() + ")."};
        if (++found.entries > kMaxFolderEntries)
            return Error {ErrorCode::unsupported,
                where + ": the folder holds more than " + std::to_string(kMaxFolderEntries)
                    + " files; expected the folder of one model."};
        const fs::path name = it->path().filename();
        const std::string extension = name.extension().string();
        if (name == "config.json")
            found.has_config = true;
        else if (name == "quantize_config.json")
            found.has_quantize_config = true;
        else if (extension == ".safetensors")
            found.safetensors.push_back(it->path());
        else if (extension == ".gguf")
            found.gguf = name.string();
        else if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt")
            found.pickle = name.string();
    }
    std::sort(found.safetensors.begin(), found.safetensors.end());
    return found;
}

Result<std::shared_ptr<const MappedFile>> openInside(const fs::path& folder, const fs::path& file)
{
    const auto mapped = TRY(MappedFile::open(file));
    if (!staysInside(folder, file))
        return Error {ErrorCode::unsupported,
            printable(file.filename().string())
                + ": it is a link to a file outside of the model's folder; copy the file itself there."};
    return mapped;
}

Result<std::shared_ptr<const MappedFile>> openConfig(const fs::path& folder, const char* name)
{
    auto mapped = TRY(openInside(folder, folder / name));
    if (mapped->bytes().size() > kMaxConfigBytes)
        return Error {ErrorCode::format,
            std::string(name) + ": it has " + std::to_string(mapped->bytes().size()) + " bytes, expected at most "
                + std::to_string(kMaxConfigBytes) + "."};
    return mapped;
}

std::string_view textOf(const MappedFile& file)
{
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// "3 of 5 files are there" for names like model-00001-of-00005.safetensors; empty where nothing is missing.
std::string missingShards(const std::vector<fs::path>& files)
{
    std::map<std::string, std::set<std::string>> seen; // "-of-00005" and what precedes the number -> numbers
    for (const fs::path& file : files) {
        const std::string stem = file.stem().string();
        const auto of = stem.rfind("-of-");
        const auto dash = of == std::string::npos || of == 0 ? std::string::npos : stem.rfind('-', of - 1);
        if (dash != std::string::npos)
            seen[stem.substr(0, dash) + stem.substr(of)].insert(stem.substr(dash + 1, of - dash - 1));
    }
    for (const auto& [name, numbers] : seen) {
        const std::string total = name.substr(name.rfind("-of-") + 4);
        if (total.empty() || total.size() > 6 || total.find_first_not_of("0123456789") != std::string::npos)
            continue;
        if (numbers.size() < std::stoul(total))
            return "only " + std::to_string(numbers.size()) + " of " + std::to_string(std::stoul(total))
                + " weight files are there. Copy the others into the folder.";
    }
    return {};
}

Result<ModelFiles> openFolder(const fs::path& path)
{
    const FolderFiles found = TRY(listFolder(path));
    std::error_code failed;
    const fs::path real = fs::canonical(path, failed); // "." and "model/" have no name of their own
    const std::string where = printable((failed ? path : real).filename().string());
    if (found.safetensors.empty()) {
        std::string what = "the folder holds no *.safetensors files";
        if (found.entries == 0)
            what = "the folder is empty";
        else if (!found.gguf.empty())
            return Error {ErrorCode::unsupported,
                where + ": the folder holds GGUF files; open '" + printable(found.gguf)
                    + "' itself instead of the folder."};
        else if (!found.pickle.empty())
            return Error {ErrorCode::unsupported,
                where + ": its weights are in '" + printable(found.pickle)
                    + "', a Python pickle, which can run code when it is opened. Get the model as safetensors or "
                      "GGUF, or convert it where you trust it."};
        return Error {ErrorCode::format,
            where + ": " + what + "; expected a model: config.json and its *.safetensors files, or a .gguf file."};
    }
    if (!found.has_config)
        return Error {ErrorCode::format,
            where
                + ": config.json is missing beside the *.safetensors files; copy all files "
                  "of the model."};

    const auto config_file = TRY(openConfig(path, "config.json"));
    std::shared_ptr<const MappedFile> quantize_config;
    if (found.has_quantize_config)
        quantize_config = TRY(openConfig(path, "quantize_config.json"));
    const FolderConfig config =
        TRY(parseConfig(textOf(*config_file), quantize_config ? textOf(*quantize_config) : std::string_view()));

    ModelFiles files;
    files.path = path;
    files.config = config.model;
    TensorIndex index;
    index.where = where;
    index.incomplete = missingShards(found.safetensors);
    std::size_t count = 0;
    for (const fs::path& file : found.safetensors) {
        if (!staysInside(path, file))
            return Error {ErrorCode::unsupported,
                printable(file.filename().string())
                    + ": it is a link to a file outside of the model's folder or to nothing; copy the file "
                      "itself there."};
        const auto opened = TRY(Safetensors::open(file));
        files.owners.push_back(opened);
        count += opened->tensors().size() + opened->unsupportedTensors().size();
        for (const auto& [name, view] : opened->tensors())
            index.tensors.emplace(name, view);
        for (const auto& [name, type] : opened->unsupportedTensors())
            index.unsupported.emplace(name, type);
        if (index.tensors.size() + index.unsupported.size() != count)
            return Error {ErrorCode::format,
                printable(file.filename().string())
                    + ": it holds a tensor that another file of the folder holds too; keep the files of one "
                      "model only."};
        if (count > Safetensors::kMaxTensors * 4)
            return Error {ErrorCode::format,
                where + ": its files list more than " + std::to_string(Safetensors::kMaxTensors * 4) + " tensors."};
    }
    const Architecture* architecture = findArchitecture(config.model.architecture);
    TRY(bindWeights(files, index, config, architecture->names, false));
    files.info.name = where;
    return files;
}

} // namespace

Result<ModelFiles> openModelFiles(const fs::path& path)
{
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (status.type() == fs::file_type::not_found)
        return Error {ErrorCode::io, printable(path.string(), 300) + ": there is no such file or folder."};
    if (failed)
        return Error {ErrorCode::io, printable(path.string(), 300) + ": it cannot be read (" + failed.message() + ")."};
    if (fs::is_directory(status))
        return openFolder(path);
    const std::string extension = path.extension().string();
    const std::string name = printable(path.filename().string());
    if (extension == ".safetensors" || path.filename() == "config.json")
        return Error {ErrorCode::unsupported,
            name
                + ": it is one file of a model; open the folder that holds it and "
                  "config.json."};
    if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt")
        return Error {ErrorCode::unsupported,
            name
                + ": it is a Python pickle, which can run code when it is opened. Get "
                  "the model as safetensors or GGUF."};
    return openGguf(path);
}

} // namespace puna
