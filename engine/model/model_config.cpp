#include "engine/model/model_config.h"

#include "engine/base/foreign_text.h"
#include "engine/model/architectures.h"
#include "engine/model/gguf.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <initializer_list>
#include <optional>
#include <set>
#include <vector>

namespace puna {

namespace {

using Json = nlohmann::json;

// Far above any model, far below what overflows a product of two.
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxWidth = 1 << 20; // hidden size, heads * head_dim
constexpr std::int64_t kMaxIntermediate = 1 << 22;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxContext = 1 << 30;
constexpr double kMaxTheta = 1e15;
constexpr double kMaxRopeFactor = 1e6;

std::string plain(double value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.10g", value);
    return text;
}

Error refused(const std::string& file, const std::string& what)
{
    return {ErrorCode::format, file + ": " + what};
}

// An object without repeated keys, not nested deeper than 32.
Result<Json> parseObject(const std::string& file, std::string_view text)
{
    constexpr int kMaxDepth = 32;
    if (text.find('\0') != std::string_view::npos) // the parser would take it for the end
        return refused(file, "it is not valid JSON: it holds a zero byte.");
    std::vector<std::set<std::string>> keys;
    std::string problem;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (!problem.empty())
            return false;
        if (depth > kMaxDepth)
            problem = "it is nested deeper than " + std::to_string(kMaxDepth) + " levels";
        else if (event == Json::parse_event_t::object_start)
            keys.emplace_back();
        else if (event == Json::parse_event_t::object_end)
            keys.pop_back();
        else if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
            problem = "the field '" + printable(parsed.get<std::string>()) + "' occurs twice";
        return problem.empty();
    };
    try {
        Json json = Json::parse(text.begin(), text.end(), watch);
        if (!problem.empty())
            return refused(file, problem + ", expected a plain configuration.");
        if (!json.is_object())
            return refused(file, "it holds " + std::string(json.type_name()) + ", expected an object of fields.");
        return json;
    } catch (const Json::parse_error& error) {
        return refused(file, "it is not valid JSON at byte " + std::to_string(error.byte) + ".");
    } catch (const Json::out_of_range&) {
        return refused(file, "it holds a number that is too large.");
    }
}

std::string shown(const Json& value)
{
    return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

// Looks fields up by several spellings; the first that is there and not null counts.
class Fields {
public:
    using Names = std::initializer_list<const char*>;

    Fields(std::string file, const Json& object, const Json* fallback = nullptr)
        : m_file(std::move(file))
        , m_object(object)
        , m_fallback(fallback)
    {
    }

    struct Found {
        const char* name;
        const Json* value;
    };
    std::optional<Found> find(Names names) const
    {
        for (const Json* object : {&m_object, m_fallback})
            for (const char* name : names)
                if (object)
                    if (const auto it = object->find(name); it != object->end() && !it->is_null())
                        return Found {name, &*it};
        return {};
    }

    Result<double> number(Names names, double low, double high, std::optional<double> otherwise = {}) const
    {
        const auto found = find(names);
        if (!found)
            return missingOr(names, otherwise);
        const double value = found->value->is_number() ? found->value->get<double>() : std::nan("");
        if (!(value >= low && value <= high))
            return refused(m_file,
                "'" + std::string(found->name) + "' is " + shown(*found->value) + ", expected a number from "
                    + plain(low) + " to " + plain(high) + ".");
        return value;
    }

    Result<std::int64_t> integer(
        Names names, std::int64_t low, std::int64_t high, std::optional<std::int64_t> otherwise = {}) const
    {
        const auto found = find(names);
        if (!found)
            return missingOr(names, otherwise);
        const double value = found->value->is_number() ? found->value->get<double>() : std::nan("");
        if (!(value >= static_cast<double>(low) && value <= static_cast<double>(high)) || value != std::floor(value))
            return refused(m_file,
                "'" + std::string(found->name) + "' is " + shown(*found->value) + ", expected a whole number from "
                    + std::to_string(low) + " to " + std::to_string(high) + ".");
        return static_cast<std::int64_t>(value);
    }

    Result<bool> flag(Names names, bool otherwise) const
    {
        const auto found = find(names);
        if (!found)
            return otherwise;
        if (!found->value->is_boolean())
            return refused(
                m_file, "'" + std::string(found->name) + "' is " + shown(*found->value) + ", expected true or false.");
        return found->value->get<bool>();
    }

    Result<std::string> text(Names names, std::string otherwise) const
    {
        const auto found = find(names);
        if (!found)
            return otherwise;
        if (!found->value->is_string())
            return refused(
                m_file, "'" + std::string(found->name) + "' is " + shown(*found->value) + ", expected a text.");
        return found->value->get<std::string>();
    }

    // nullptr: absent.
    Result<const Json*> object(Names names) const
    {
        const auto found = find(names);
        if (!found)
            return nullptr;
        if (!found->value->is_object())
            return refused(
                m_file, "'" + std::string(found->name) + "' is " + shown(*found->value) + ", expected an object.");
        return found->value;
    }

private:
    template <class T> Result<T> missingOr(Names names, const std::optional<T>& otherwise) const
    {
        if (otherwise)
            return *otherwise;
        return refused(m_file, "'" + std::string(*names.begin()) + "' is missing; the model cannot be run without it.");
    }

    std::string m_file;
    const Json& m_object;
    const Json* m_fallback;
};

// What holds between fields, whatever they were read from.
Result<void> checkTogether(const std::string& file, const ModelConfig& c)
{
    if (c.n_heads % c.n_kv_heads != 0)
        return refused(file,
            "there are " + std::to_string(c.n_heads) + " attention heads and " + std::to_string(c.n_kv_heads)
                + " key/value heads, expected a divisor.");
    if (static_cast<std::int64_t>(c.n_heads) * c.head_dim > kMaxWidth)
        return refused(file,
            "the attention heads are " + std::to_string(c.n_heads) + " times " + std::to_string(c.head_dim)
                + " wide, expected at most " + std::to_string(kMaxWidth) + ".");
    if (c.head_dim % 2 != 0 || c.rope.rotary_dim % 2 != 0)
        return refused(file,
            "the heads have " + std::to_string(c.head_dim) + " dimensions of which " + std::to_string(c.rope.rotary_dim)
                + " rotate, expected even numbers.");
    return {};
}

Error unsupportedRope(const std::string& file, const std::string& type)
{
    return {ErrorCode::unsupported,
        file + ": rope scaling '" + printable(type) + "' is not supported; expected none, linear or llama3."};
}

// rope_scaling and rope_theta, or Transformers 5's rope_parameters, which holds both.
Result<RopeConfig> readRope(const std::string& file, const Fields& fields, int head_dim)
{
    RopeConfig rope;
    const double partial = TRY(fields.number({"partial_rotary_factor"}, 1e-3, 1.0, 1.0));
    rope.rotary_dim = static_cast<int>(head_dim * partial);
    rope.theta = TRY(fields.number({"rope_theta"}, 1.0, kMaxTheta, 10000.0));
    const Json* object = TRY(fields.object({"rope_parameters", "rope_scaling"}));
    if (!object)
        return rope;
    const Fields scaling(file, *object);
    rope.theta = TRY(scaling.number({"rope_theta"}, 1.0, kMaxTheta, rope.theta));
    const double own_partial = TRY(scaling.number({"partial_rotary_factor"}, 1e-3, 1.0, partial));
    rope.rotary_dim = static_cast<int>(head_dim * own_partial);
    const std::string type = TRY(scaling.text({"rope_type"}, ""));
    const std::string old_type = TRY(scaling.text({"type"}, type));
    if (!type.empty() && type != old_type)
        return refused(file,
            "its rope scaling is both '" + printable(type) + "' and '" + printable(old_type)
                + "', expected one of them.");
    // "dynamic" changes nothing within max_position_embeddings, which is our limit.
    if (old_type.empty() || old_type == "default" || old_type == "dynamic")
        return rope;
    if (old_type != "linear" && old_type != "llama3")
        return unsupportedRope(file, old_type);
    rope.factor = TRY(scaling.number({"factor"}, 1.0, kMaxRopeFactor));
    rope.scaling = RopeScaling::linear;
    if (old_type == "llama3") {
        rope.scaling = RopeScaling::llama3;
        rope.low_freq_factor = TRY(scaling.number({"low_freq_factor"}, 1e-3, 1e6));
        rope.high_freq_factor = TRY(scaling.number({"high_freq_factor"}, 1e-3, 1e6));
        rope.original_max_position =
            static_cast<int>(TRY(scaling.integer({"original_max_position_embeddings"}, 1, kMaxContext)));
        if (rope.high_freq_factor <= rope.low_freq_factor)
            return refused(file, "'high_freq_factor' is not above 'low_freq_factor'.");
    }
    return rope;
}

Result<void> readQuantisation(const std::string& file, const Json& object, FolderConfig& config)
{
    const Fields fields(file, object);
    config.quant_method = TRY(fields.text({"quant_method"}, config.quant_method));
    const std::string format = TRY(fields.text({"checkpoint_format"}, "gptq"));
    const bool gptq = config.quant_method == "gptq" || config.quant_method.empty();
    if (config.quant_method == "awq")
        return Error {ErrorCode::unsupported,
            file
                + ": the model is quantised with AWQ, which Puna cannot read. Get it "
                  "as EXL2, GPTQ, GGUF or unquantised safetensors."};
    if (!gptq && config.quant_method != "exl2")
        return Error {ErrorCode::unsupported,
            file + ": the model is quantised with '" + printable(config.quant_method)
                + "', which Puna cannot read. Get it as EXL2, GPTQ, GGUF or unquantised safetensors."};
    if (!gptq)
        return {};
    if (format != "gptq" && format != "gptq_v2")
        return Error {ErrorCode::unsupported,
            file + ": its GPTQ weights are in the format '" + printable(format) + "', expected gptq or gptq_v2."};
    config.gptq_v2 = format == "gptq_v2";
    config.gptq_symmetric = TRY(fields.flag({"sym"}, false));
    config.gptq_group_size =
        static_cast<int>(std::max<std::int64_t>(0, TRY(fields.integer({"group_size"}, -1, kMaxIntermediate, 0))));
    return {};
}

} // namespace

Result<FolderConfig> parseConfig(std::string_view config_json, std::string_view quantize_config_json)
{
    const std::string file = "config.json";
    const Json root = TRY(parseObject(file, config_json));

    const auto list = root.find("architectures");
    if (list == root.end() || !list->is_array() || list->size() != 1 || !(*list)[0].is_string())
        return refused(file,
            "'architectures' is " + (list == root.end() ? "missing" : shown(*list)) + ", expected a list of one name.");
    const auto name = (*list)[0].get<std::string>();
    const Architecture* architecture = findArchitecture(name);
    if (!architecture)
        return Error {ErrorCode::unsupported,
            file + ": the architecture '" + printable(name)
                + "' is not supported; expected one of: " + supportedArchitectures() + "."};

    const Json* text_config = TRY(Fields(file, root).object({"text_config"}));
    const Fields fields(file, root, text_config);
    FolderConfig config;
    ModelConfig& m = config.model;
    m.architecture = name;
    m.n_layers = static_cast<int>(TRY(fields.integer({"num_hidden_layers", "n_layers", "n_layer"}, 1, kMaxLayers)));
    m.hidden_size = static_cast<int>(TRY(fields.integer({"hidden_size", "d_model", "n_embd"}, 1, kMaxWidth)));
    m.intermediate_size = static_cast<int>(TRY(fields.integer({"intermediate_size", "n_inner"}, 1, kMaxIntermediate)));
    m.vocab_size = static_cast<int>(TRY(fields.integer({"vocab_size"}, 1, kMaxVocabulary)));

    const bool has_heads = fields.find({"num_attention_heads", "n_heads", "n_head"}).has_value();
    if (has_heads) {
        m.n_heads = static_cast<int>(TRY(fields.integer({"num_attention_heads", "n_heads", "n_head"}, 1, kMaxHeads)));
        m.head_dim = static_cast<int>(TRY(fields.integer({"head_dim"}, 2, kMaxHeadDim, m.hidden_size / m.n_heads)));
    } else {
        m.head_dim = static_cast<int>(TRY(fields.integer({"head_dim"}, 2, kMaxHeadDim)));
        m.n_heads = m.hidden_size / m.head_dim;
    }
    if (m.n_heads < 1 || m.head_dim < 2 || m.head_dim > kMaxHeadDim || m.n_heads > kMaxHeads)
        return refused(file,
            "'hidden_size' is " + std::to_string(m.hidden_size) + " and gives " + std::to_string(m.n_heads)
                + " attention heads of " + std::to_string(m.head_dim) + " dimensions.");
    m.n_kv_heads = static_cast<int>(TRY(fields.integer({"num_key_value_heads"}, 1, kMaxHeads, m.n_heads)));
    m.norm_eps = static_cast<float>(TRY(fields.number({"rms_norm_eps"}, 1e-12, 1e-1)));
    m.max_context = TRY(fields.integer(
        {"max_sequence_length", "model_max_length", "max_position_embeddings", "max_seq_len", "n_positions"}, 1,
        kMaxContext, 2048));
    m.attention_scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
    m.rope = TRY(readRope(file, fields, m.head_dim));
    m.rope.style = architecture->rope;

    const std::string activation = TRY(fields.text({"hidden_act", "hidden_activation"}, "silu"));
    if (activation != "silu" && activation != "swish")
        return Error {ErrorCode::unsupported,
            file + ": 'hidden_act' is '" + printable(activation) + "', expected silu for " + name + "."};
    config.tied_head = TRY(fields.flag({"tie_word_embeddings"}, false));
    config.attention_bias = TRY(fields.flag({"attention_bias"}, false));
    config.mlp_bias = TRY(fields.flag({"mlp_bias"}, false));

    if (!quantize_config_json.empty()) {
        const Json own = TRY(parseObject("quantize_config.json", quantize_config_json));
        TRY(readQuantisation("quantize_config.json", own, config));
    }
    if (const Json* quantisation = TRY(fields.object({"quantization_config"})))
        TRY(readQuantisation(file, *quantisation, config));
    TRY(checkTogether(file, m));
    return config;
}

Result<ModelConfig> ggufConfig(const Gguf& gguf)
{
    const std::string file = printable(gguf.path().filename().string());
    const auto name = gguf.string("general.architecture");
    if (!name)
        return refused(file, "'general.architecture' is missing; expected a model, not only a vocabulary or adapter.");
    const Architecture* architecture = findGgufArchitecture(*name);
    if (!architecture)
        return Error {ErrorCode::unsupported,
            file + ": the architecture '" + printable(*name)
                + "' is not supported; expected one of: " + supportedArchitectures() + "."};
    const std::string prefix = std::string(*name) + ".";

    const auto integer = [&](const char* field, std::int64_t low, std::int64_t high,
                             std::optional<std::int64_t> otherwise = {}) -> Result<std::int64_t> {
        const std::string key = prefix + field;
        if (!gguf.find(key)) {
            if (otherwise)
                return *otherwise;
            return refused(file, "'" + key + "' is missing; the model cannot be run without it.");
        }
        const auto value = gguf.integer(key);
        if (!value || *value < low || *value > high)
            return refused(file,
                "'" + key + "' is " + (value ? std::to_string(*value) : "not a whole number")
                    + ", expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) + ".");
        return *value;
    };
    const auto number = [&](const char* field, double low, double high,
                            std::optional<double> otherwise = {}) -> Result<double> {
        const std::string key = prefix + field;
        if (!gguf.find(key)) {
            if (otherwise)
                return *otherwise;
            return refused(file, "'" + key + "' is missing; the model cannot be run without it.");
        }
        const auto value = gguf.number(key);
        if (!value || !(*value >= low && *value <= high))
            return refused(file,
                "'" + key + "' is " + (value ? plain(*value) : "not a number") + ", expected a number from "
                    + plain(low) + " to " + plain(high) + ".");
        return *value;
    };

    ModelConfig m;
    m.architecture = architecture->name;
    m.n_layers = static_cast<int>(TRY(integer("block_count", 1, kMaxLayers)));
    m.hidden_size = static_cast<int>(TRY(integer("embedding_length", 1, kMaxWidth)));
    m.intermediate_size = static_cast<int>(TRY(integer("feed_forward_length", 1, kMaxIntermediate)));
    m.n_heads = static_cast<int>(TRY(integer("attention.head_count", 1, kMaxHeads)));
    m.n_kv_heads = static_cast<int>(TRY(integer("attention.head_count_kv", 1, kMaxHeads, m.n_heads)));
    m.head_dim = static_cast<int>(TRY(integer("attention.key_length", 2, kMaxHeadDim, m.hidden_size / m.n_heads)));
    if (m.head_dim < 2 || m.head_dim > kMaxHeadDim)
        return refused(file,
            "'" + prefix + "attention.head_count' is " + std::to_string(m.n_heads) + " for an embedding length of "
                + std::to_string(m.hidden_size) + ".");
    if (TRY(integer("attention.value_length", 1, kMaxHeadDim, m.head_dim)) != m.head_dim)
        return Error {
            ErrorCode::unsupported, file + ": keys and values have different lengths, which is not supported."};
    if (TRY(integer("expert_count", 0, kMaxWidth, 0)) != 0)
        return Error {ErrorCode::unsupported,
            file + ": the model is a mixture of experts, which is not supported for this architecture."};
    m.norm_eps = static_cast<float>(TRY(number("attention.layer_norm_rms_epsilon", 1e-12, 1e-1)));
    m.max_context = TRY(integer("context_length", 1, kMaxContext, 2048));
    m.attention_scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));

    m.rope.style = architecture->gguf_rope;
    m.rope.rotary_dim = static_cast<int>(TRY(integer("rope.dimension_count", 2, m.head_dim, m.head_dim)));
    m.rope.theta = TRY(number("rope.freq_base", 1.0, kMaxTheta, 10000.0));
    const std::string scaling(gguf.string(prefix + "rope.scaling.type").value_or("none"));
    if (scaling == "linear") {
        m.rope.scaling = RopeScaling::linear;
        m.rope.factor = TRY(number("rope.scaling.factor", 1.0, kMaxRopeFactor));
    } else if (scaling != "none")
        return unsupportedRope(file, scaling);
    if (const TensorView factors = gguf.tensor("rope_freqs.weight")) { // llama3 scaling, worked out by the converter
        if (factors.dtype != DType::f32 || factors.rank != 1 || factors.shape[0] != m.rope.rotary_dim / 2
            || m.rope.scaling != RopeScaling::none)
            return refused(file,
                "'rope_freqs.weight' is not a list of " + std::to_string(m.rope.rotary_dim / 2) + " numbers in F32.");
        m.rope.scaling = RopeScaling::factors;
        for (std::int64_t i = 0; i < factors.shape[0]; ++i) {
            const auto factor = factors.load<float>(i);
            if (!(factor > 0.0f && factor <= static_cast<float>(kMaxRopeFactor)))
                return refused(file,
                    "'rope_freqs.weight' holds " + plain(static_cast<double>(factor)) + ", expected positive numbers.");
            m.rope.frequency_factors.push_back(factor);
        }
    }
    TRY(checkTogether(file, m));
    return m;
}

} // namespace puna
