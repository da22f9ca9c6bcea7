#include "engine/tools/forward.h"
#include "engine/tools/json_writer.h"
#include "engine/tools/safetensors_writer.h"
#include "engine/tools/tool.h"

#include <cstdio>

namespace puna::tool {

int logits(const LogitsOptions& options)
{
    Common common = options.common;
    common.load.max_sequences = 1;
    common.load.tokens_only = true;
    Engine engine;
    if (!load(engine, common))
        return kFailed;
    const auto rows = static_cast<std::int64_t>(options.tokens.size());
    const std::int64_t vocab_size = engine.model().vocab_size;
    const SafetensorsWriter::Tensor tensor {"logits", "F32", {rows, vocab_size}};
    const auto work = [&]() -> Result<void> {
        SafetensorsWriter writer = TRY(SafetensorsWriter::create(options.out, {&tensor, 1}));
        TRY(forwardAll(engine, options.tokens, options.one_by_one ? 1 : engine.plan().max_rows,
            [&](std::span<const float> values, std::int64_t) { return writer.write(std::as_bytes(values)); }));
        return writer.finish();
    };
    if (const auto done = work(); !done)
        return fail(done.error().message);
    if (options.common.json)
        JsonObject().add("rows", rows).add("vocab_size", vocab_size).print();
    else
        std::printf("%lld rows of %lld logits\n", static_cast<long long>(rows), static_cast<long long>(vocab_size));
    return kOk;
}

} // namespace puna::tool
