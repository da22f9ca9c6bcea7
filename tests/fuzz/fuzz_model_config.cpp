// config.json: whatever the text is, a refusal or numbers in range.
#include "engine/base/rope.h"
#include "engine/model/model_config.h"

#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config = puna::parseConfig(text, size % 4 == 0 ? text : std::string_view());
    if (!config) {
        if (config.error().message.empty() || config.error().message.size() > 1000)
            std::abort();
        return 0;
    }
    const puna::ModelConfig& m = config->model;
    if (m.n_layers < 1 || m.hidden_size < 1 || m.n_heads % m.n_kv_heads != 0 || m.rope.rotary_dim > m.head_dim
        || m.max_context < 1)
        std::abort();
    (void)puna::ropeFrequencies(m.rope);
    return 0;
}
