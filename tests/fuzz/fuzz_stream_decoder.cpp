// Any tokens, through decoders of both families: chunks are well-formed, and for byte-level models they join to what
// whole decoding gives. Two bytes of input are a token.
#include "engine/text/stream_decoder.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

puna::Tokenizer make(bool byte_level)
{
    std::string vocabulary;
    char text[32];
    for (int i = 0; i < 256; ++i) { // stand-ins of rising code points from U+00A1 on cover bytes of every kind
        std::snprintf(text, sizeof text, byte_level ? "%s\"\\u%04x\":%d" : "%s\"<0x%02X>\":%d", i ? "," : "",
            byte_level ? (i < 128 ? i + 0xA1 : i + 0x80) : i, i);
        if (!byte_level || (i + 0xA1 < 0x100) || i >= 128)
            vocabulary += text;
    }
    vocabulary += R"(,"▁":256,"▁▁x":257,"<s>":258,"日本":259,"z":260)";
    const std::string decoder =
        byte_level ? R"({"type":"ByteLevel"})" : R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":
        {"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
        {"type":"Strip","content":" ","start":1,"stop":0}]})";
    auto made =
        puna::Tokenizer::fromJson(R"({"added_tokens":[{"id":258,"content":"<s>","special":true}],"pre_tokenizer":)"
                + std::string(byte_level ? R"({"type":"ByteLevel"})" : "null") + R"(,"decoder":)" + decoder
                + R"(,"model":{"type":"BPE","vocab":{)" + vocabulary + R"(},"merges":[]}})",
            {});
    if (!made) {
        std::fputs(made.error().message.c_str(), stderr);
        std::abort();
    }
    return std::move(*made);
}

void check(const puna::Tokenizer& tokenizer, const std::vector<puna::TokenId>& ids, bool equal)
{
    puna::StreamDecoder decoder(tokenizer);
    std::string out;
    for (const puna::TokenId id : ids) {
        const std::string chunk = decoder.push(id);
        if (!puna::unicode::survey(chunk).valid)
            std::abort();
        out += chunk;
    }
    out += decoder.finish();
    const std::string whole = tokenizer.decode(ids, true);
    if (!puna::unicode::survey(out).valid || !puna::unicode::survey(whole).valid)
        std::abort();
    if ((equal || whole.find(puna::unicode::kReplacement) == std::string::npos) && out != whole)
        std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    static const puna::Tokenizer bytes = make(true), pieces = make(false);
    std::vector<puna::TokenId> ids;
    for (std::size_t i = 0; i + 1 < size && i < 4096; i += 2)
        ids.push_back((data[i] | data[i + 1] << 8) % 264 - 1);
    check(bytes, ids, true);
    check(pieces, ids, false);
    return 0;
}
