#include "engine/text/stream_decoder.h"

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_impl.h"

#include <algorithm>

namespace puna {
namespace {
constexpr std::size_t kContext = 8; // tokens of a prompt that can matter to what follows
}

struct StreamDecoder::State {
    const Tokenizer::Impl& impl; // outlives moves of its Tokenizer
    DecoderRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::span<const TokenId> context)
    : m_state(
        std::make_unique<State>(State {tokenizer.impl(), tokenizer.impl().decoderRun(DecoderRun::Mode::streaming)}))
{
    for (const TokenId token : context.last(std::min(context.size(), kContext)))
        push(token); // the prompt's own text is known
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(TokenId token)
{
    std::string out;
    const Tokenizer::Impl& impl = m_state->impl;
    const AddedToken* added = impl.added(token);
    if (impl.known(token) && !(added && added->special))
        m_state->run.push(impl.decoderInput(token), out);
    return out;
}

std::string StreamDecoder::finish()
{
    std::string out;
    m_state->run.finish(out);
    return out;
}

} // namespace puna
