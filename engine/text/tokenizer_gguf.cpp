// A GGUF's tokenizer metadata to TokenizerParts.
//
// "gpt2" vocabularies are byte-level BPE whose pre-tokenizer goes by a name (tokenizer.ggml.pre); the table below gives
// the pipeline that the same models have in their tokenizer.json. "llama" vocabularies are SentencePiece's BPE: ranks
// follow from the scores. Everything else is refused by name.
#include "engine/model/gguf.h"
#include "engine/text/tokenizer_impl.h"
#include "engine/text/unicode.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace puna {
namespace {

constexpr std::size_t kPieceBytesMax = 1024; // of a SentencePiece piece that is looked through for merges

enum TokenType : std::int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct PreRow {
    std::string_view name;
    bool digits; // every digit alone first
    std::vector<std::string_view> patterns; // splits, Isolated; empty: GPT-2's
    bool nfc;
    bool ignore_merges;
    bool adds_bos; // where the file does not say
};

const std::vector<PreRow>& preRows()
{
    static const std::vector<PreRow> rows {
        {"gpt-2", false, {}, false, false, false},
        {"phi-2", false, {}, false, false, false},
        {"olmo", false, {}, false, false, false},
        {"mpt", false, {}, false, false, false},
        {"smollm", true, {}, false, false, false},
        {"starcoder", true, {}, false, false, false},
        {"refact", true, {}, false, false, false},
        {"command-r", true, {}, true, false, true},
        {"llama-bpe", false, {kLlama3Pattern}, false, true, true},
        {"llama3", false, {kLlama3Pattern}, false, true, true},
        {"llama-v3", false, {kLlama3Pattern}, false, true, true},
        {"falcon3", false, {kLlama3Pattern}, false, true, false},
        {"dbrx", false, {kLlama3Pattern}, false, false, false},
        {"smaug-bpe", false, {kLlama3Pattern}, false, false, false},
        {"glm4", false, {kLlama3Pattern}, false, false, false},
        {"chatglm-bpe", false, {kLlama3Pattern}, false, false, false},
        {"qwen2", false, {kQwen2Pattern}, true, false, false},
        {"stablelm2", false, {kQwen2Pattern}, false, false, false},
        {"deepseek-r1-qwen", false, {kQwen2Pattern}, true, false, true},
        {"tekken", false, {kTekkenPattern}, false, true, true},
        {"gpt-4o", false, {kO200kPattern}, false, false, false},
        {"llama4", false, {kO200kPattern}, false, false, true},
        {"deepseek-v3", false, {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3Words}, false, false, true},
    };
    return rows;
}

class Reader {
public:
    explicit Reader(const Gguf& gguf)
        : m_gguf(gguf)
        , m_file(gguf.path().filename().string())
    {
    }

    Result<TokenizerParts> read()
    {
        const auto model = m_gguf.string("tokenizer.ggml.model");
        if (!model)
            return bad("there is no tokenizer (tokenizer.ggml.model)");
        if (*model != "gpt2" && *model != "llama")
            return unsupported("the tokenizer '" + std::string(*model) + "' is not supported (known: gpt2, llama)");
        const auto* tokens = m_gguf.strings("tokenizer.ggml.tokens");
        if (!tokens || tokens->empty())
            return bad("there is no vocabulary (tokenizer.ggml.tokens)");
        if (tokens->size() > static_cast<std::size_t>(kTokenIdMax))
            return bad("the vocabulary has " + std::to_string(tokens->size()) + " tokens, expected at most "
                + std::to_string(kTokenIdMax));
        m_tokens = tokens;
        TRY(readTypes());
        const bool byte_level = *model == "gpt2";
        TRY(readTokens(!byte_level));
        if (byte_level)
            TRY(readByteLevel());
        else
            TRY(readSentencePiece());
        TRY(readEnds());
        return std::move(m_parts);
    }

private:
    Error bad(const std::string& what) const
    {
        return {ErrorCode::format, m_file + ": " + what + "; the file is damaged, fetch it again."};
    }
    Error unsupported(const std::string& what) const
    {
        return {ErrorCode::unsupported, m_file + ": " + what + "; this model cannot be used yet."};
    }

    std::optional<bool> flag(std::string_view key) const
    {
        const Gguf::Value* value = m_gguf.find(key);
        const bool* found = value ? std::get_if<bool>(value) : nullptr;
        return found ? std::optional(*found) : std::nullopt;
    }

    Result<void> readTypes()
    {
        m_types.assign(m_tokens->size(), normal);
        const Gguf::Value* value = m_gguf.find("tokenizer.ggml.token_type");
        if (!value)
            return {};
        std::size_t count = 0;
        if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) {
            count = list->size();
            if (count == m_types.size())
                m_types = *list;
        } else if (const auto* unsigned_list = std::get_if<std::vector<std::uint64_t>>(value)) {
            count = unsigned_list->size();
            if (count == m_types.size())
                for (std::size_t i = 0; i < count; ++i)
                    m_types[i] = static_cast<std::int64_t>(std::min<std::uint64_t>((*unsigned_list)[i], 1000));
        } else
            return bad("tokenizer.ggml.token_type is not a list of numbers");
        if (count != m_types.size())
            return bad("there are " + std::to_string(count) + " token types for " + std::to_string(m_types.size())
                + " tokens");
        return {};
    }

    Result<void> readTokens(bool sentence_piece)
    {
        for (std::size_t i = 0; i < m_tokens->size(); ++i) {
            const std::string& text = (*m_tokens)[i];
            const auto id = static_cast<TokenId>(i);
            const std::string shown = "token " + std::to_string(i) + " '" + text.substr(0, 80) + "'";
            if (!unicode::survey(text).valid)
                return bad("token " + std::to_string(i) + " is not UTF-8");
            if (!m_parts.vocabulary.insert(text, id)) {
                if (m_types[i] == unused || m_types[i] == control || m_types[i] == user_defined)
                    continue; // padding of a vocabulary repeats a name now and then; nothing can produce it
                return bad(shown + " stands twice in the vocabulary");
            }
            const std::int64_t type = m_types[i];
            if (type == unknown)
                m_parts.options.unk = id;
            const bool special = type == control || type == unknown;
            if ((special || type == user_defined) && !text.empty()) {
                if (text.size() > kAddedTokenBytesMax)
                    return bad(shown + " has " + std::to_string(text.size()) + " bytes, expected at most "
                        + std::to_string(kAddedTokenBytesMax));
                m_parts.added.push_back({.id = id, .content = text, .special = special});
            }
        }
        if (sentence_piece)
            m_parts.options.fuse_unk = true;
        return {};
    }

    Result<void> readByteLevel()
    {
        const auto pre = m_gguf.string("tokenizer.ggml.pre");
        if (!pre)
            return unsupported(
                "the pre-tokenizer is not named (tokenizer.ggml.pre), so that token ids would be guesses");
        const auto& rows = preRows();
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const PreRow& r) { return r.name == *pre; });
        if (row == rows.end())
            return unsupported("the pre-tokenizer '" + std::string(*pre) + "' (tokenizer.ggml.pre) is not known");
        m_adds_bos = row->adds_bos;
        m_parts.options.unk = kNoToken;
        m_parts.options.ignore_merges = row->ignore_merges;
        if (row->nfc)
            m_parts.normalizer.steps.push_back({Normalizer::Step::nfc});
        using Step = Pretokenizer::Step;
        std::vector<Step> steps;
        if (row->digits)
            steps.push_back({Step::digits});
        const auto regex = [&](std::string_view pattern) { return Regex::compile(pattern, m_file); };
        for (const std::string_view pattern : row->patterns) {
            Step step {Step::split};
            step.regex = TRY(regex(pattern));
            steps.push_back(std::move(step));
        }
        Step last {Step::byte_level};
        if (row->patterns.empty())
            last.regex = TRY(regex(kGpt2Pattern));
        last.add_prefix_space = flag("tokenizer.ggml.add_space_prefix").value_or(false);
        steps.push_back(std::move(last));
        m_parts.pretokenizer = Pretokenizer(std::move(steps));
        m_parts.decoder.push_back({DecoderStep::byte_level});

        const auto* merges = m_gguf.strings("tokenizer.ggml.merges");
        if (!merges)
            return bad("there are no merges (tokenizer.ggml.merges)");
        m_parts.merges.reserve(merges->size());
        for (std::size_t i = 0; i < merges->size(); ++i) {
            const std::string_view merge = (*merges)[i];
            const std::size_t space = merge.find(' ');
            if (space == std::string_view::npos
                || !addMerge(m_parts, merge.substr(0, space), merge.substr(space + 1), static_cast<std::uint32_t>(i)))
                return bad("merge " + std::to_string(i) + " '" + unicode::repair(merge.substr(0, 80))
                    + "' does not join two tokens of the vocabulary to a third");
        }
        return {};
    }

    Result<void> readSentencePiece()
    {
        m_adds_bos = true;
        const std::vector<double> scores = TRY(readScores());
        // Rank by falling score; equal scores share a rank, so that the leftmost pair goes first.
        std::vector<double> order = scores;
        std::sort(order.begin(), order.end(), std::greater<>());
        order.erase(std::unique(order.begin(), order.end()), order.end());
        const auto mergeable = [this](TokenId id) {
            const std::int64_t type = m_types[static_cast<std::size_t>(id)];
            return type == normal;
        };
        for (TokenId id = 0; id < m_parts.vocabulary.idEnd(); ++id) {
            const std::string_view piece = m_parts.vocabulary.text(id);
            if (!mergeable(id) || piece.size() < 2 || piece.size() > kPieceBytesMax)
                continue;
            const auto rank = static_cast<std::uint32_t>(
                std::lower_bound(order.begin(), order.end(), scores[static_cast<std::size_t>(id)], std::greater<>())
                - order.begin());
            for (std::size_t at = unicode::decode(piece.data()).length; at < piece.size();
                 at += unicode::decode(piece.data() + at).length) {
                const TokenId left = m_parts.vocabulary.find(piece.substr(0, at));
                const TokenId right = m_parts.vocabulary.find(piece.substr(at));
                if (left != kNoToken && right != kNoToken && mergeable(left) && mergeable(right))
                    m_parts.merges.push_back({left, right, id, rank});
            }
        }
        m_parts.options.byte_fallback = true;
        constexpr const char* kMark = "\xE2\x96\x81";
        using Step = Normalizer::Step;
        const bool prefix = flag("tokenizer.ggml.add_space_prefix").value_or(true);
        if (prefix)
            m_parts.normalizer.steps.push_back({Step::prepend, kMark});
        m_parts.normalizer.steps.push_back({Step::replace_text, " ", kMark});
        m_parts.decoder.push_back({DecoderStep::replace_text, kMark, " "});
        m_parts.decoder.push_back({DecoderStep::byte_fallback});
        m_parts.decoder.push_back({DecoderStep::fuse});
        if (prefix) {
            m_parts.decoder.push_back({DecoderStep::strip, " "});
            m_parts.decoder.back().start = 1;
        }
        return {};
    }

    Result<std::vector<double>> readScores() const
    {
        const Gguf::Value* value = m_gguf.find("tokenizer.ggml.scores");
        const auto* scores = value ? std::get_if<std::vector<double>>(value) : nullptr;
        if (!scores || scores->size() != m_tokens->size())
            return bad("tokenizer.ggml.scores does not have one number for each of " + std::to_string(m_tokens->size())
                + " tokens");
        if (!std::all_of(scores->begin(), scores->end(), [](double s) { return std::isfinite(s); }))
            return bad("tokenizer.ggml.scores has a value that is not finite");
        return *scores;
    }

    Result<std::optional<TokenId>> named(std::string_view key) const
    {
        if (!m_gguf.find(key))
            return std::optional<TokenId>();
        const auto id = m_gguf.integer(key);
        if (!id || *id < 0 || *id > kTokenIdMax || !m_parts.vocabulary.contains(static_cast<TokenId>(*id)))
            return bad(std::string(key) + " names a token that is not in the vocabulary");
        return std::optional(static_cast<TokenId>(*id));
    }

    Result<void> readEnds()
    {
        m_parts.bos = TRY(named("tokenizer.ggml.bos_token_id"));
        m_parts.eos = TRY(named("tokenizer.ggml.eos_token_id"));
        if (flag("tokenizer.ggml.add_bos_token").value_or(m_adds_bos) && m_parts.bos)
            m_parts.prefix.push_back(*m_parts.bos);
        if (flag("tokenizer.ggml.add_eos_token").value_or(false) && m_parts.eos)
            m_parts.suffix.push_back(*m_parts.eos);
        return {};
    }

    const Gguf& m_gguf;
    std::string m_file;
    const std::vector<std::string>* m_tokens = nullptr;
    std::vector<std::int64_t> m_types;
    TokenizerParts m_parts;
    bool m_adds_bos = false;
};

} // namespace

Result<Tokenizer> Tokenizer::fromGguf(const Gguf& gguf)
{
    return Tokenizer(std::make_unique<Impl>(TRY(Reader(gguf).read())));
}

} // namespace puna
