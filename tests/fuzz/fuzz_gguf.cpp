// Whatever the bytes are: a refusal, or tensors that do not overlap within the file; the config of it likewise.
#include "engine/base/rope.h"
#include "engine/model/gguf.h"
#include "engine/model/model_config.h"
#include "tests/fuzz/memory_file.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const puna::test::MemoryFile file(data, size);
    const auto opened = puna::Gguf::open(file.path());
    if (!opened) {
        if (opened.error().message.empty() || opened.error().message.size() > 1000)
            std::abort();
        return 0;
    }
    std::int64_t bytes = 0;
    unsigned sum = 0;
    for (const auto& [name, view] : (*opened)->tensors()) {
        bytes += view.bytes();
        for (std::int64_t i = 0; i < view.bytes(); ++i)
            sum += static_cast<unsigned>(view.data[i]);
    }
    if (bytes > static_cast<std::int64_t>(size) || sum == 0xffffffffu)
        std::abort();
    if (const auto config = puna::ggufConfig(**opened)) {
        if (config->n_heads < 1 || config->n_heads % config->n_kv_heads != 0 || config->head_dim < 2)
            std::abort();
        (void)puna::ropeFrequencies(config->rope);
    }
    return 0;
}
