// Whatever the bytes are: a refusal, or tensors that fill the file's data exactly.
#include "engine/model/safetensors.h"
#include "tests/fuzz/memory_file.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const puna::test::MemoryFile file(data, size);
    const auto opened = puna::Safetensors::open(file.path());
    if (!opened) {
        if (opened.error().message.empty() || opened.error().message.size() > 1000)
            std::abort();
        return 0;
    }
    std::int64_t bytes = 0;
    unsigned sum = 0;
    for (const auto& [name, view] : (*opened)->tensors()) {
        if (view.bytes() < 0 || view.elements() < 0)
            std::abort();
        bytes += view.bytes();
        for (std::int64_t i = 0; i < view.bytes(); ++i)
            sum += static_cast<unsigned>(view.data[i]);
    }
    if (bytes > static_cast<std::int64_t>(size) || sum == 0xffffffffu)
        std::abort();
    return 0;
}
