// Where tests find data that is not in the repository. Every function returns an empty path for what is absent.
#pragma once

#include <filesystem>
#include <string_view>

namespace puna::test {

std::filesystem::path shared(std::string_view relative); // reference data of the developers' machines
std::filesystem::path model(std::string_view name);      // a reference model made by make_models.sh
std::filesystem::path starterModel(); // SmolLM2-135M-Instruct.Q4_1.gguf, fetched by packaging/test.sh
std::filesystem::path source(std::string_view relative); // in the source tree; always there
std::filesystem::path program(std::string_view name);    // a built executable in bin/

} // namespace puna::test
