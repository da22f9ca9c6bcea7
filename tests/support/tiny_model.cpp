#include "tests/support/tiny_model.h"

#include "engine/base/dtype.h"
#include "tests/support/model_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace puna::test {

namespace fs = std::filesystem;

namespace {

constexpr int kLayers = 2, kHidden = 64, kIntermediate = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 16;

constexpr const char* kChatTemplate = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
                                      "message['content'] + '<|im_end|>\n' }}{% endfor %}"
                                      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

constexpr const char* kWords[] = {
    " the",
    " a",
    " and",
    " of",
    " to",
    " in",
    " is",
    " was",
    " it",
    " on",
    " at",
    " by",
    " with",
    " from",
    " that",
    " lamp",
    " river",
    " stone",
    " quiet",
    " light",
    " hill",
    " wind",
    " paper",
    " small",
    " green",
    " slow",
    " night",
    " road",
    " bird",
    " glass",
    " house",
    " tree",
    " warm",
    " snow",
    " letter",
    " clock",
    " bread",
    " salt",
    " garden",
    " window",
    " cloud",
    " field",
    " song",
    " door",
    " map",
    " sea",
    " ink",
    " under",
    " over",
    " near",
    " moon",
    ".",
    ",",
    "\n\n",
};

class Random {
public:
    explicit Random(std::uint64_t seed)
        : m_state(seed)
    {
    }

    std::uint64_t next() // splitmix64
    {
        std::uint64_t z = m_state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }
    float normal() // nearly: the sum of twelve uniform numbers
    {
        float sum = -6.0f;
        for (int i = 0; i < 12; ++i)
            sum += uniform();
        return sum;
    }
    std::vector<std::int32_t> permutation(int n)
    {
        std::vector<std::int32_t> p(static_cast<std::size_t>(n));
        std::iota(p.begin(), p.end(), 0);
        for (std::size_t i = p.size() - 1; i > 0; --i)
            std::swap(p[i], p[static_cast<std::size_t>(next() % (i + 1))]);
        return p;
    }

private:
    std::uint64_t m_state;
};

// [out, in]
struct Matrix {
    int out = 0, in = 0;
    std::vector<float> values;
    float& at(int row, int column) { return values[static_cast<std::size_t>(row * in + column)]; }
    float at(int row, int column) const { return values[static_cast<std::size_t>(row * in + column)]; }
};

Matrix randomMatrix(Random& random, int out, int in, float deviation)
{
    Matrix m {out, in, std::vector<float>(static_cast<std::size_t>(out * in))};
    for (float& value : m.values)
        value = halfToFloat(floatToHalf(random.normal() * deviation));
    return m;
}

struct Weights {
    Matrix embedding, head;
    struct Layer {
        Matrix q, k, v, o, gate, up, down;
    };
    std::vector<Layer> layers;
};

Weights makeWeights(std::uint64_t seed, const TinyVocabulary& vocabulary)
{
    Random random(seed);
    const auto tokens = static_cast<int>(vocabulary.tokens.size());
    constexpr float kConstant = 2.0f; // first dimension of the residual, always
    Weights w;
    w.embedding = randomMatrix(random, tokens, kHidden, 0.6f);
    w.head = randomMatrix(random, tokens, kHidden, 0.25f);
    for (int t = 0; t < tokens; ++t) {
        w.embedding.at(t, 0) = kConstant;
        w.head.at(t, 0) = -8.0f;
    }
    for (const int word : vocabulary.words)
        w.head.at(word, 0) = 0.0f;
    w.head.at(TinyVocabulary::kEnd, 0) = -0.25f;
    for (int l = 0; l < kLayers; ++l) {
        Weights::Layer& layer = w.layers.emplace_back();
        layer.q = randomMatrix(random, kHeads * kHeadDim, kHidden, 0.25f);
        layer.k = randomMatrix(random, kKvHeads * kHeadDim, kHidden, 0.25f);
        layer.v = randomMatrix(random, kKvHeads * kHeadDim, kHidden, 0.15f);
        layer.o = randomMatrix(random, kHidden, kHeads * kHeadDim, 0.15f);
        layer.gate = randomMatrix(random, kIntermediate, kHidden, 0.15f);
        layer.up = randomMatrix(random, kIntermediate, kHidden, 0.15f);
        layer.down = randomMatrix(random, kHidden, kIntermediate, 0.15f);
        for (Matrix* m : {&layer.o, &layer.down})
            for (int i = 0; i < m->in; ++i)
                m->at(0, i) = 0.0f;
    }
    return w;
}

// --- the tokenizer ---

std::string utf8(std::uint32_t c)
{
    if (c < 0x80)
        return {static_cast<char>(c)};
    return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
}

// GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and on.
std::vector<std::string> byteAlphabet()
{
    std::vector<std::string> alphabet;
    std::uint32_t other = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b)
        alphabet.push_back(utf8((b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad) ? b : other++));
    return alphabet;
}

std::string tokenizerJson(const TinyVocabulary& vocabulary)
{
    std::string vocab, merges, added;
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
        vocab += (i ? "," : "") + jsonString(vocabulary.tokens[i]) + ":" + std::to_string(i);
    for (const std::string& merge : vocabulary.merges)
        merges += (merges.empty() ? "" : ",") + jsonString(merge);
    for (std::size_t i = 0; i < 3; ++i)
        added += (i ? ",{\"id\":" : "{\"id\":") + std::to_string(i) + ",\"content\":" + jsonString(vocabulary.tokens[i])
            + ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}";
    const std::string byte_level = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                                   "\"use_regex\":true}";
    return "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[" + added
        + "],\"normalizer\":null,\"pre_tokenizer\":" + byte_level + ",\"post_processor\":null,\"decoder\":" + byte_level
        + ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
          "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{"
        + vocab + "},\"merges\":[" + merges + "]}}\n";
}

// --- layers in the formats of safetensors folders ---

ByteString halves(const std::vector<float>& values)
{
    std::vector<std::uint16_t> out(values.size());
    std::transform(values.begin(), values.end(), out.begin(), floatToHalf);
    return bytesOf(out);
}

void addDense(std::vector<FileTensor>& to, const std::string& name, const Matrix& m)
{
    to.push_back({name + ".weight", "F16", {m.out, m.in}, halves(m.values)});
}

// Code i of a stream of `bits` each into words at `first`, `stride` apart.
void putBits(std::vector<std::uint32_t>& words, std::size_t first, std::size_t stride, std::size_t i, int bits,
    std::uint32_t code)
{
    const std::size_t bit = i * static_cast<std::size_t>(bits);
    const std::size_t word = first + bit / 32 * stride;
    const int shift = static_cast<int>(bit % 32);
    words[word] |= code << shift;
    if (shift + bits > 32)
        words[word + stride] |= code >> (32 - shift);
}

// Plain rounding. widths: one per group of 32 rows, falling.
void addExl2(
    std::vector<FileTensor>& to, const std::string& name, const Matrix& m, std::vector<int> widths, Random& random)
{
    const int n = (m.out + 31) / 32 * 32;
    const std::vector<std::int32_t> natural = random.permutation(m.in); // stored row -> input feature
    std::vector<std::int32_t> inverse(natural.size());
    for (std::size_t r = 0; r < natural.size(); ++r)
        inverse[static_cast<std::size_t>(natural[r])] = static_cast<std::int32_t>(r);
    const int groups = m.in / 32;
    std::vector<std::uint32_t> words, scales(static_cast<std::size_t>(groups * n / 8));
    std::vector<std::uint16_t> largest, table;
    for (int g = 0; g < groups; ++g) {
        const int bits = widths[static_cast<std::size_t>(g) % widths.size()];
        const int zero = 1 << (bits - 1);
        const auto weight = [&](int row, int column) {
            return column < m.out ? m.at(column, natural[static_cast<std::size_t>(g * 32 + row)]) : 0.0f;
        };
        std::vector<float> wanted(static_cast<std::size_t>(n), 0.0f); // scale of each column
        for (int c = 0; c < n; ++c)
            for (int r = 0; r < 32; ++r)
                wanted[static_cast<std::size_t>(c)] =
                    std::max(wanted[static_cast<std::size_t>(c)], std::abs(weight(r, c)) / static_cast<float>(zero));
        const float most = std::max(1e-4f, *std::max_element(wanted.begin(), wanted.end()));
        largest.push_back(floatToHalf(most));
        const float unit = halfToFloat(floatToHalf(halfToFloat(largest.back()) / 256.0f));
        const std::size_t first = words.size();
        table.push_back(static_cast<std::uint16_t>(bits));
        table.push_back(static_cast<std::uint16_t>(first / static_cast<std::size_t>(n)));
        words.resize(first + static_cast<std::size_t>(bits * n));
        for (int c = 0; c < n; ++c) {
            const float share = std::sqrt(wanted[static_cast<std::size_t>(c)] / most);
            const int code = std::clamp(static_cast<int>(std::lround(16.0f * share)), 1, 16);
            putBits(scales, static_cast<std::size_t>(g * n / 8), 1, static_cast<std::size_t>(c), 4,
                static_cast<std::uint32_t>(code - 1));
            const float scale = halfToFloat(floatToHalf(static_cast<float>(code * code) * unit));
            for (int r = 0; r < 32; ++r) {
                const auto q = static_cast<int>(std::lround(weight(r, c) / scale)) + zero;
                putBits(words, first + static_cast<std::size_t>(c), static_cast<std::size_t>(n),
                    static_cast<std::size_t>(r), bits, static_cast<std::uint32_t>(std::clamp(q, 0, 2 * zero - 1)));
            }
        }
    }
    to.push_back({name + ".q_weight", "I32", {static_cast<std::int64_t>(words.size()) / n, n}, bytesOf(words)});
    to.push_back({name + ".q_scale", "I32", {groups, n / 8}, bytesOf(scales)});
    to.push_back({name + ".q_scale_max", "F16", {groups}, bytesOf(largest)});
    to.push_back({name + ".q_groups", "I16", {2 * groups}, bytesOf(table)});
    to.push_back({name + ".q_invperm", "I32", {m.in}, bytesOf(inverse)});
}

void addGptq(std::vector<FileTensor>& to, const std::string& name, const Matrix& m, Random& random)
{
    const int groups = m.in / 32;
    const auto n = static_cast<std::size_t>(m.out);
    const std::vector<std::int32_t> order = random.permutation(m.in);
    std::vector<std::int32_t> group_of(order.size());
    for (std::size_t r = 0; r < order.size(); ++r)
        group_of[static_cast<std::size_t>(order[r])] = static_cast<std::int32_t>(r / 32);
    std::vector<std::uint32_t> words(static_cast<std::size_t>(m.in) / 8 * n),
        zeros(static_cast<std::size_t>(groups) * n / 8);
    std::vector<std::uint16_t> scales(static_cast<std::size_t>(groups) * n);
    for (int g = 0; g < groups; ++g)
        for (std::size_t c = 0; c < n; ++c) {
            float least = 0.0f, most = 0.0f;
            for (int k = 0; k < m.in; ++k)
                if (group_of[static_cast<std::size_t>(k)] == g) {
                    least = std::min(least, m.at(static_cast<int>(c), k));
                    most = std::max(most, m.at(static_cast<int>(c), k));
                }
            const std::uint16_t scale = floatToHalf(std::max(1e-4f, (most - least) / 15.0f));
            const auto zero = std::clamp(static_cast<int>(std::lround(-least / halfToFloat(scale))), 1, 16);
            scales[static_cast<std::size_t>(g) * n + c] = scale;
            putBits(zeros, static_cast<std::size_t>(g) * n / 8, 1, c, 4, static_cast<std::uint32_t>(zero - 1));
            for (int k = 0; k < m.in; ++k)
                if (group_of[static_cast<std::size_t>(k)] == g) {
                    const auto q =
                        static_cast<int>(std::lround(m.at(static_cast<int>(c), k) / halfToFloat(scale))) + zero;
                    putBits(
                        words, c, n, static_cast<std::size_t>(k), 4, static_cast<std::uint32_t>(std::clamp(q, 0, 15)));
                }
        }
    to.push_back({name + ".qweight", "I32", {m.in / 8, m.out}, bytesOf(words)});
    to.push_back({name + ".qzeros", "I32", {groups, m.out / 8}, bytesOf(zeros)});
    to.push_back({name + ".scales", "F16", {groups, m.out}, bytesOf(scales)});
    to.push_back({name + ".g_idx", "I32", {m.in}, bytesOf(group_of)});
}

std::string configJson(const TinyModelOptions& options, std::size_t tokens)
{
    std::string quantisation;
    if (options.format == TinyFormat::exl2)
        quantisation = ",\n \"quantization_config\": {\"quant_method\": \"exl2\", \"bits\": 4.5, \"head_bits\": 6}";
    else if (options.format == TinyFormat::gptq)
        quantisation = ",\n \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, "
                       "\"desc_act\": true, \"sym\": false, \"checkpoint_format\": \"gptq\"}";
    return "{\n \"architectures\": [\"LlamaForCausalLM\"],\n \"model_type\": \"llama\",\n \"hidden_size\": "
        + std::to_string(kHidden) + ",\n \"intermediate_size\": " + std::to_string(kIntermediate)
        + ",\n \"num_hidden_layers\": " + std::to_string(kLayers) + ",\n \"num_attention_heads\": "
        + std::to_string(kHeads) + ",\n \"num_key_value_heads\": " + std::to_string(kKvHeads)
        + ",\n \"head_dim\": " + std::to_string(kHeadDim) + ",\n \"vocab_size\": " + std::to_string(tokens)
        + ",\n \"max_position_embeddings\": " + std::to_string(options.max_context)
        + ",\n \"hidden_act\": \"silu\",\n \"rms_norm_eps\": 1e-05,\n \"rope_theta\": 10000.0,\n \"rope_scaling\": "
          "null,\n"
          " \"tie_word_embeddings\": false,\n \"attention_bias\": false,\n \"mlp_bias\": false,\n \"bos_token_id\": "
          "1,\n"
          " \"eos_token_id\": 2,\n \"torch_dtype\": \"float16\""
        + quantisation + "\n}\n";
}

fs::path writeFolder(
    const fs::path& folder, const TinyModelOptions& options, const TinyVocabulary& vocabulary, const Weights& w)
{
    const fs::path path = folder / "tiny";
    fs::create_directories(path);
    std::vector<FileTensor> tensors;
    Random random(options.seed + 1);
    const auto addNorm = [&](const std::string& name) {
        tensors.push_back({name + ".weight", "F16", {kHidden}, halves(std::vector<float>(kHidden, 1.0f))});
    };
    const auto add = [&](const std::string& name, const Matrix& m, std::vector<int> widths) {
        if (options.format == TinyFormat::exl2)
            addExl2(tensors, name, m, std::move(widths), random);
        else if (options.format == TinyFormat::gptq && m.out % 8 == 0 && name != "lm_head")
            addGptq(tensors, name, m, random);
        else
            addDense(tensors, name, m);
    };
    addDense(tensors, "model.embed_tokens", w.embedding);
    for (int l = 0; l < kLayers; ++l) {
        const Weights::Layer& layer = w.layers[static_cast<std::size_t>(l)];
        const std::string p = "model.layers." + std::to_string(l) + ".";
        addNorm(p + "input_layernorm");
        add(p + "self_attn.q_proj", layer.q, {5, 4});
        add(p + "self_attn.k_proj", layer.k, {8, 6});
        add(p + "self_attn.v_proj", layer.v, {6, 5});
        add(p + "self_attn.o_proj", layer.o, {4, 4});
        addNorm(p + "post_attention_layernorm");
        add(p + "mlp.gate_proj", layer.gate, {4, 3});
        add(p + "mlp.up_proj", layer.up, {5, 3});
        add(p + "mlp.down_proj", layer.down, {8, 4, 2});
    }
    addNorm("model.norm");
    add("lm_head", w.head, {8, 6});
    writeSafetensors(path / "model.safetensors", tensors);
    writeFile(path / "config.json", configJson(options, vocabulary.tokens.size()));
    writeFile(path / "generation_config.json", "{\"bos_token_id\": 1, \"eos_token_id\": [2, 0]}\n");
    writeFile(path / "tokenizer.json", tokenizerJson(vocabulary));
    writeFile(path / "tokenizer_config.json",
        "{\"add_prefix_space\":false,\"bos_token\":\"<|im_start|>\",\"eos_token\":\"<|im_end|>\","
        "\"clean_up_tokenization_spaces\":false,\"model_max_length\":"
            + std::to_string(options.max_context)
            + ",\"tokenizer_class\":\"GPT2Tokenizer\",\"chat_template\":" + jsonString(kChatTemplate) + "}\n");
    return path;
}

// --- GGUF ---

void put(ByteString& to, std::uint16_t half)
{
    to.push_back(static_cast<std::byte>(half & 0xff));
    to.push_back(static_cast<std::byte>(half >> 8));
}

// Rows of blocks of 32; plain rounding.
ByteString blocks(const std::vector<float>& values, TinyFormat format)
{
    ByteString out;
    for (std::size_t begin = 0; begin < values.size(); begin += 32) {
        const float* v = values.data() + begin;
        const auto [low, high] = std::minmax_element(v, v + 32);
        if (format == TinyFormat::gguf_q8_0) {
            const std::uint16_t scale = floatToHalf(std::max(std::abs(*low), std::abs(*high)) / 127.0f);
            const float s = std::max(halfToFloat(scale), 0x1p-24f);
            put(out, scale);
            for (int i = 0; i < 32; ++i)
                out.push_back(static_cast<std::byte>(std::clamp(static_cast<int>(std::lround(v[i] / s)), -127, 127)));
        } else {
            const std::uint16_t scale = floatToHalf((*high - *low) / 15.0f);
            const std::uint16_t least = floatToHalf(*low);
            const float s = std::max(halfToFloat(scale), 0x1p-24f);
            put(out, scale);
            put(out, least);
            const auto code = [&](int i) {
                return static_cast<unsigned>(
                    std::clamp(static_cast<int>(std::lround((v[i] - halfToFloat(least)) / s)), 0, 15));
            };
            for (int i = 0; i < 16; ++i)
                out.push_back(static_cast<std::byte>(code(i) | code(i + 16) << 4));
        }
    }
    return out;
}

// Rotary pairs side by side, as GGUF's llama wants the rows of q and k.
Matrix interleaved(const Matrix& m)
{
    Matrix out = m;
    for (int row = 0; row < m.out; ++row) {
        const int head = row / kHeadDim, i = row % kHeadDim;
        const int from = head * kHeadDim + (i % 2) * (kHeadDim / 2) + i / 2;
        for (int k = 0; k < m.in; ++k)
            out.at(row, k) = m.at(from, k);
    }
    return out;
}

fs::path writeGguf(
    const fs::path& folder, const TinyModelOptions& options, const TinyVocabulary& vocabulary, const Weights& w)
{
    GgufWriter out;
    out.text("general.architecture", "llama");
    out.text("general.name", "Tiny");
    out.number("llama.block_count", kLayers);
    out.number("llama.context_length", static_cast<std::uint32_t>(options.max_context));
    out.number("llama.embedding_length", kHidden);
    out.number("llama.feed_forward_length", kIntermediate);
    out.number("llama.attention.head_count", kHeads);
    out.number("llama.attention.head_count_kv", kKvHeads);
    out.number("llama.rope.dimension_count", kHeadDim);
    out.real("llama.rope.freq_base", 10000.0f);
    out.real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    out.text("tokenizer.ggml.model", "gpt2");
    out.text("tokenizer.ggml.pre", "gpt-2");
    out.texts("tokenizer.ggml.tokens", vocabulary.tokens);
    std::vector<std::int32_t> types(vocabulary.tokens.size(), 1);
    std::fill_n(types.begin(), 3, 3);
    out.numbers("tokenizer.ggml.token_type", types);
    out.texts("tokenizer.ggml.merges", vocabulary.merges);
    out.number("tokenizer.ggml.bos_token_id", TinyVocabulary::kStart);
    out.number("tokenizer.ggml.eos_token_id", TinyVocabulary::kEnd);
    out.flag("tokenizer.ggml.add_bos_token", false);
    out.text("tokenizer.chat_template", kChatTemplate);

    const auto addNorm = [&](const std::string& name) {
        out.tensor(name + ".weight", 0, {kHidden}, bytesOf(std::vector<float>(kHidden, 1.0f)));
    };
    const auto addAs = [&](const std::string& name, const Matrix& m, TinyFormat format) {
        if (format == TinyFormat::gguf)
            out.tensor(name + ".weight", 1, {m.out, m.in}, halves(m.values));
        else
            out.tensor(
                name + ".weight", format == TinyFormat::gguf_q8_0 ? 8 : 3, {m.out, m.in}, blocks(m.values, format));
    };
    const auto add = [&](const std::string& name, const Matrix& m) { addAs(name, m, options.format); };
    addAs("token_embd", w.embedding, options.format == TinyFormat::gguf ? TinyFormat::gguf : TinyFormat::gguf_q8_0);
    for (int l = 0; l < kLayers; ++l) {
        const Weights::Layer& layer = w.layers[static_cast<std::size_t>(l)];
        const std::string p = "blk." + std::to_string(l) + ".";
        addNorm(p + "attn_norm");
        add(p + "attn_q", interleaved(layer.q));
        add(p + "attn_k", interleaved(layer.k));
        add(p + "attn_v", layer.v);
        add(p + "attn_output", layer.o);
        addNorm(p + "ffn_norm");
        add(p + "ffn_gate", layer.gate);
        add(p + "ffn_up", layer.up);
        add(p + "ffn_down", layer.down);
    }
    addNorm("output_norm");
    add("output", w.head);
    fs::create_directories(folder);
    const fs::path path = folder / "tiny.gguf";
    writeFile(path, out.finish());
    return path;
}

} // namespace

TinyVocabulary tinyVocabulary()
{
    TinyVocabulary v;
    v.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    const std::vector<std::string> alphabet = byteAlphabet();
    v.tokens.insert(v.tokens.end(), alphabet.begin(), alphabet.end());
    std::map<std::string, int> ids;
    for (std::size_t i = 0; i < v.tokens.size(); ++i)
        ids.emplace(v.tokens[i], static_cast<int>(i));
    for (const std::string word : kWords) {
        std::string piece; // grows by a letter at a time
        for (const char c : word) {
            const std::string& letter = alphabet[static_cast<unsigned char>(c)];
            if (!piece.empty() && ids.emplace(piece + letter, static_cast<int>(v.tokens.size())).second) {
                v.tokens.push_back(piece + letter);
                v.merges.push_back(piece + " " + letter);
            }
            piece += letter;
        }
        v.words.push_back(ids.at(piece));
    }
    return v;
}

fs::path writeTinyModel(const fs::path& folder, const TinyModelOptions& options)
{
    const TinyVocabulary vocabulary = tinyVocabulary();
    Weights weights = makeWeights(options.seed, vocabulary);
    if (!options.ends)
        weights.head.at(TinyVocabulary::kEnd, 0) = -8.0f; // as unlikely as what is no word
    switch (options.format) {
    case TinyFormat::fp16:
    case TinyFormat::exl2:
    case TinyFormat::gptq:
        return writeFolder(folder, options, vocabulary, weights);
    case TinyFormat::gguf:
    case TinyFormat::gguf_q8_0:
    case TinyFormat::gguf_q4_1:
        break;
    }
    return writeGguf(folder, options, vocabulary, weights);
}

} // namespace puna::test
