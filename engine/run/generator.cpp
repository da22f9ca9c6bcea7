#include "engine/run/generator.h"

#include "engine/text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace puna {

namespace {

constexpr std::size_t kContextTokens = 8; // of a prompt, for a decoder that continues its text

}

Generator::Generator(const Tokenizer* tokenizer, GeneratorOptions options, std::span<const TokenId> prompt)
    : m_options(std::move(options))
    , m_known_tokens(std::numeric_limits<std::size_t>::max())
    , m_sampler(m_options.sampling)
    , m_matcher(m_options.stop_strings)
{
    if (!tokenizer)
        return;
    m_known_tokens = static_cast<std::size_t>(tokenizer->vocabSize());
    m_decoder.emplace(*tokenizer,
        m_options.continues_text ? prompt.last(std::min(prompt.size(), kContextTokens)) : std::span<const TokenId>());
}

Result<TokenId> Generator::draw(std::span<float> logits, std::span<const TokenId> history)
{
    return m_sampler.sample(logits.first(std::min(logits.size(), m_known_tokens)), history);
}

std::optional<FinishReason> Generator::push(TokenId token, std::string& text)
{
    ++m_drawn;
    if (std::find(m_options.stop_tokens.begin(), m_options.stop_tokens.end(), token) != m_options.stop_tokens.end()) {
        flush(text);
        return FinishReason::stop;
    }
    if (m_decoder)
        text += m_matcher.push(m_decoder->push(token));
    if (m_matcher.stopped())
        return FinishReason::stop;
    if (remaining() > 0)
        return {};
    flush(text);
    return FinishReason::length;
}

void Generator::flush(std::string& text)
{
    if (!m_decoder)
        return;
    text += m_matcher.push(m_decoder->finish());
    text += m_matcher.finish();
}

} // namespace puna
