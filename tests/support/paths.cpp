#include "tests/support/paths.h"

#include <cstdlib>

namespace puna::test {

namespace fs = std::filesystem;

namespace {

fs::path ifPresent(const fs::path& path)
{
    std::error_code ignored;
    return fs::exists(path, ignored) ? path : fs::path();
}

fs::path folder(const char* variable, const char* fallback)
{
    const char* value = std::getenv(variable);
    return value && *value ? value : fallback;
}

} // namespace

fs::path shared(std::string_view relative)
{
    return ifPresent(folder("PUNA_SHARED", PUNA_SHARED_DIR) / relative);
}

fs::path model(std::string_view name)
{
    const fs::path models = folder("PUNA_MODELS", PUNA_MODELS_DIR);
    return models.empty() ? fs::path() : ifPresent(models / name);
}

fs::path starterModel()
{
    if (const char* file = std::getenv("PUNA_STARTER_MODEL"))
        return ifPresent(file);
    return model("SmolLM2-135M-Instruct.Q4_1.gguf");
}

fs::path source(std::string_view relative)
{
    return fs::path(PUNA_SOURCE_DIR) / relative;
}

fs::path program(std::string_view name)
{
    return fs::path(PUNA_BINARY_DIR) / "bin" / name;
}

} // namespace puna::test
