#include "engine/text/tokenizer.h"

#include "engine/text/byte_level.h"
#include "engine/text/tokenizer_impl.h"
#include "engine/text/unicode.h"

#include <algorithm>
#include <utility>

namespace puna {
namespace {

Bpe::Options withByteLevel(Bpe::Options options, bool byte_level)
{
    options.byte_level = byte_level;
    return options;
}

} // namespace

bool addMerge(TokenizerParts& parts, std::string_view left, std::string_view right, std::uint32_t rank)
{
    thread_local std::string joined;
    joined = left;
    joined += right;
    const Bpe::Merge merge {
        parts.vocabulary.find(left), parts.vocabulary.find(right), parts.vocabulary.find(joined), rank};
    if (merge.left == kNoToken || merge.right == kNoToken || merge.result == kNoToken)
        return false;
    parts.merges.push_back(merge);
    return true;
}

Tokenizer::Impl::Impl(TokenizerParts parts)
    : m_bpe(std::move(parts.vocabulary), std::move(parts.merges),
        withByteLevel(parts.options, parts.pretokenizer.byteLevel()))
    , m_added(std::move(parts.added))
    , m_normalizer(std::move(parts.normalizer))
    , m_pretokenizer(std::move(parts.pretokenizer))
    , m_decoder(std::move(parts.decoder))
    , m_raw_bytes(m_bpe.options().byte_level && !m_decoder.empty() && m_decoder.front().kind == DecoderStep::byte_level)
    , m_prefix(std::move(parts.prefix))
    , m_suffix(std::move(parts.suffix))
    , m_bos(parts.bos)
    , m_eos(parts.eos)
    , m_id_end(m_bpe.vocabulary().idEnd())
{
    std::vector<std::pair<std::string, std::int32_t>> raw, normalized, control_raw, control_normalized;
    for (std::size_t i = 0; i < m_added.size(); ++i) {
        const AddedToken& token = m_added[i];
        const auto index = static_cast<std::int32_t>(i);
        m_id_end = std::max(m_id_end, token.id + 1);
        if (static_cast<std::size_t>(token.id) >= m_added_by_id.size())
            m_added_by_id.resize(static_cast<std::size_t>(token.id) + 1, -1);
        m_added_by_id[static_cast<std::size_t>(token.id)] = index;
        std::string bytes;
        if (!m_raw_bytes || !appendStandInBytes(bytes, token.content))
            bytes = token.content;
        m_added_bytes.push_back(std::move(bytes));

        std::string form;
        if (!token.normalized || !m_normalizer.apply(token.content, unicode::survey(token.content).late, form))
            form = token.content;
        (token.normalized ? normalized : raw).emplace_back(form, index);
        if (isControlToken(token)) {
            control_raw.emplace_back(token.content, index);
            if (token.normalized)
                control_normalized.emplace_back(form, index);
        }
    }
    m_raw_matcher = AddedTokenMatcher(std::move(raw), m_added);
    m_normalized_matcher = AddedTokenMatcher(std::move(normalized), m_added);
    m_control_raw = PatternTrie(std::move(control_raw));
    m_control_normalized = PatternTrie(std::move(control_normalized));
}

std::string_view Tokenizer::Impl::text(TokenId id) const
{
    if (const AddedToken* token = added(id))
        return token->content;
    return m_bpe.vocabulary().text(id);
}

std::string_view Tokenizer::Impl::decoderInput(TokenId id) const
{
    if (added(id))
        return m_added_bytes[static_cast<std::size_t>(m_added_by_id[static_cast<std::size_t>(id)])];
    return m_raw_bytes ? m_bpe.bytes(id) : m_bpe.vocabulary().text(id);
}

void Tokenizer::Impl::encode(std::string_view text, Mode mode, std::vector<TokenId>& out) const
{
    const unicode::Survey survey = unicode::survey(text);
    std::string repaired;
    if (!survey.valid) {
        repaired = unicode::repair(text);
        text = repaired;
    }
    std::string normalized;
    m_raw_matcher.split(
        text, mode.special_as_text, mode.guarded,
        [&](std::size_t begin, std::size_t end) {
            std::string_view stretch = text.substr(begin, end - begin);
            if (m_normalizer.apply(stretch, survey.late, normalized))
                stretch = normalized;
            m_normalized_matcher.split(
                stretch, mode.special_as_text, mode.guarded,
                [&](std::size_t from, std::size_t to) {
                    encodeStretch(stretch.substr(from, to - from), begin == 0 && from == 0, survey.late, mode, out);
                },
                [&](const AddedToken& token) { out.push_back(token.id); });
        },
        [&](const AddedToken& token) { out.push_back(token.id); });
}

void Tokenizer::Impl::encodeStretch(
    std::string_view text, bool at_start, bool late, Mode mode, std::vector<TokenId>& out) const
{
    std::string unguarded;
    if (mode.guarded && text.find(kGuard) != std::string_view::npos) {
        removeGuards(text, unguarded);
        text = unguarded;
    }
    auto sink = [this, &out](std::string_view piece) { m_bpe.encode(piece, out); };
    m_pretokenizer.split(text, at_start, late, sink);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl)
    : m_impl(std::move(impl))
{
}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const
{
    std::vector<TokenId> out;
    out.reserve(text.size() / 4 + 8);
    if (options.add_special)
        out = m_impl->m_prefix;
    m_impl->encode(text, {.special_as_text = options.special_as_text}, out);
    if (options.add_special)
        out.insert(out.end(), m_impl->m_suffix.begin(), m_impl->m_suffix.end());
    return out;
}

std::vector<TokenId> Tokenizer::encodePrompt(std::string_view rendered) const
{
    std::vector<TokenId> out;
    out.reserve(rendered.size() / 4 + 8);
    m_impl->encode(rendered, {.guarded = true}, out);
    return out;
}

std::string Tokenizer::guard(std::string_view text) const
{
    const unicode::Survey survey = unicode::survey(text);
    std::string repaired;
    if (!survey.valid) {
        repaired = unicode::repair(text);
        text = repaired;
    }
    // Where control tokens are looked for in normalised text, some other spelling may turn into one (full-width
    // brackets, capitals). If it does, every character that may become the first of one is followed by a guard.
    bool spelled_otherwise = false;
    std::string form;
    if (!m_impl->m_control_normalized.empty() && m_impl->m_normalizer.apply(text, survey.late, form)) {
        PatternTrie::Hit hit {};
        spelled_otherwise = m_impl->m_control_normalized.find(form, 0, hit);
    }
    const auto mayBecomeStart = [&](std::string_view character) {
        if (!m_impl->m_normalizer.apply(character, survey.late, form))
            form = character;
        return std::any_of(form.begin(), form.end(),
            [this](char c) { return m_impl->m_control_normalized.canStart(static_cast<unsigned char>(c)); });
    };

    std::string out;
    std::size_t from = 0; // copied up to here
    PatternTrie::Hit hit {};
    bool hits = m_impl->m_control_raw.find(text, 0, hit);
    if (!hits && !spelled_otherwise && text.find(kGuard) == std::string_view::npos)
        return std::string(text);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = unicode::decode(text.data() + at).length;
        const std::string_view character = text.substr(at, length);
        const bool starts = hits && hit.begin == at;
        const bool alone = starts && hit.end == at + length; // nothing inside to break up: a guard before it
        if (starts && m_impl->m_control_raw.find(text, at + 1, hit) == false)
            hits = false;
        out.append(text, from, at - from);
        if (alone)
            out += kGuard;
        out += character;
        at += length;
        from = at;
        if (character == kGuard)
            out += kGuard; // typed by the person
        else if ((starts && !alone) || (spelled_otherwise && mayBecomeStart(character)))
            out += kGuard;
    }
    return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const
{
    std::string out;
    out.reserve(ids.size() * 5);
    DecoderRun run = m_impl->decoderRun(DecoderRun::Mode::whole);
    for (const TokenId id : ids)
        if (m_impl->known(id) && !(skip_special && isSpecial(id)))
            run.push(m_impl->decoderInput(id), out);
    run.finish(out);
    return out;
}

int Tokenizer::vocabSize() const
{
    return m_impl->m_id_end;
}

std::optional<TokenId> Tokenizer::find(std::string_view content) const
{
    for (const AddedToken& token : m_impl->m_added)
        if (token.content == content)
            return token.id;
    const TokenId id = m_impl->m_bpe.vocabulary().find(content);
    return id == kNoToken ? std::nullopt : std::optional(id);
}

bool Tokenizer::isSpecial(TokenId id) const
{
    const AddedToken* token = m_impl->added(id);
    return token && token->special;
}

std::optional<TokenId> Tokenizer::bosToken() const
{
    return m_impl->m_bos;
}
std::optional<TokenId> Tokenizer::eosToken() const
{
    return m_impl->m_eos;
}

std::string_view Tokenizer::tokenText(TokenId id) const
{
    return m_impl->text(id);
}

bool Tokenizer::addsBos() const
{
    return m_impl->m_bos && !m_impl->m_prefix.empty() && m_impl->m_prefix.front() == *m_impl->m_bos;
}

std::string Tokenizer::describe() const
{
    return "BPE, " + std::to_string(vocabSize()) + " tokens";
}

} // namespace puna
