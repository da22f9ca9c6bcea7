#include "tests/golden/answers.h"

#include "tests/support/model_writer.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace puna::test {

namespace {

std::filesystem::path goldenFile()
{
    return shared("testdata/golden/smollm2.json");
}

std::filesystem::path starter()
{
    const auto fetched = starterModel();
    return fetched.empty() ? model("SmolLM2-135M-Instruct.Q4_1.gguf") : fetched;
}

} // namespace

bool goldenAnswersAvailable()
{
    return !goldenFile().empty() && !starter().empty();
}

std::vector<std::string> differingAnswers(
    DeviceKind device, double margin, const std::vector<std::size_t>& conversations)
{
    const auto golden = nlohmann::json::parse(readFile(goldenFile()));
    const auto& chats = golden["chat"];
    Engine engine;
    LoadOptions options;
    options.device = device;
    options.context = 1024;
    if (const auto loaded = engine.load(starter(), options); !loaded)
        return {loaded.error().message};

    std::vector<std::string> failures;
    for (const std::size_t index : conversations) {
        const auto& chat = chats[index];
        const std::string where = "conversation " + std::to_string(index) + ": ";
        GenerationRequest request;
        ChatPrompt prompt;
        for (const auto& message : chat["messages"])
            prompt.messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
        request.prompt = std::move(prompt);
        request.sampling.temperature = 0.0f;
        request.max_tokens = 96;
        if (const auto job = engine.submit(std::move(request)); !job) {
            failures.push_back(where + job.error().message);
            continue;
        }
        std::vector<TokenId> prompt_tokens, tokens;
        std::string text;
        while (engine.busy())
            for (const Event& event : engine.step()) {
                if (const auto* started = std::get_if<StartedEvent>(&event.what))
                    prompt_tokens = started->prompt_tokens;
                else if (const auto* piece = std::get_if<TextEvent>(&event.what)) {
                    tokens.insert(tokens.end(), piece->tokens.begin(), piece->tokens.end());
                    text += piece->text;
                }
            }

        const auto expected = chat["tokens"].get<std::vector<TokenId>>();
        const auto margins = chat["margins"].get<std::vector<double>>();
        if (prompt_tokens != chat["prompt_tokens"].get<std::vector<TokenId>>())
            failures.push_back(where + "the prompt's tokens differ");
        const auto sure = std::find_if(margins.begin(), margins.end(), [&](double m) { return m < margin; });
        const auto count = static_cast<std::size_t>(sure - margins.begin());
        const auto differs = std::mismatch(expected.begin(), expected.end(), tokens.begin(), tokens.end()).first;
        if (static_cast<std::size_t>(differs - expected.begin()) < count)
            failures.push_back(where + "token " + std::to_string(differs - expected.begin()) + " of "
                + std::to_string(count) + " differs");
        if (tokens == expected && text != chat["text"].get<std::string>())
            failures.push_back(where + "equal tokens, but the text is \"" + text + "\"");
    }
    return failures;
}

} // namespace puna::test
