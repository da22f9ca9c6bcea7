#include "engine/tools/json_writer.h"
#include "engine/tools/tool.h"

#include <cstdio>

namespace puna::tool {

int inspect(const Common& options)
{
    const ModelInfo info = inspectModel(options.model);
    if (options.json) {
        JsonObject()
            .add("ok", info.ok)
            .add("problems", info.problems)
            .add("name", info.name)
            .add("format", info.format)
            .add("architecture", info.architecture)
            .add("bpw", info.bpw)
            .add("head_bits", info.head_bits)
            .add("layers", info.layers)
            .add("hidden_size", info.hidden_size)
            .add("vocab_size", info.vocab_size)
            .add("max_context", info.max_context)
            .add("weight_bytes", info.weight_bytes.count)
            .add("tokenizer", info.tokenizer)
            .add("template", info.has_template)
            .add("eos_token_ids", info.eos_token_ids)
            .print();
    } else if (!info.architecture.empty()) {
        std::string eos;
        for (const TokenId id : info.eos_token_ids)
            eos += (eos.empty() ? "" : ", ") + std::to_string(id);
        std::printf("%s: %s, %s, %.2f bits per weight (head %d)\n", info.name.c_str(), info.architecture.c_str(),
            info.format.c_str(), info.bpw, info.head_bits);
        std::printf("  layers       %d of width %d\n", info.layers, info.hidden_size);
        std::printf("  vocabulary   %d tokens\n", info.vocab_size);
        std::printf("  context      %lld tokens at most\n", static_cast<long long>(info.max_context));
        std::printf("  weights      %.1f MiB\n", info.weight_bytes.mib());
        std::printf("  tokenizer    %s\n", info.tokenizer.empty() ? "none" : info.tokenizer.c_str());
        std::printf("  template     %s\n", info.has_template ? "yes" : "none");
        std::printf("  ends with    %s\n", eos.empty() ? "nothing: it never stops by itself" : eos.c_str());
    }
    // What keeps it from running goes to stderr; what does not is for reading.
    for (const std::string& problem : info.problems) {
        if (!info.ok)
            return fail(problem);
        if (!options.json)
            std::printf("  note         %s\n", problem.c_str());
    }
    return kOk;
}

} // namespace puna::tool
