#include "engine/tools/json_writer.h"
#include "engine/tools/tool.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iostream>
#include <unistd.h>

namespace puna::tool {

namespace {

using Json = nlohmann::json;

Result<std::vector<ChatMessage>> readMessages(const std::filesystem::path& path)
{
    const std::string text = TRY(readFile(path));
    const Json json = Json::parse(text, nullptr, false);
    const auto refused = [&] {
        return Error {ErrorCode::format,
            path.filename().string() + ": expected a JSON list of messages, each with the texts 'role' and 'content'."};
    };
    if (!json.is_array())
        return refused();
    std::vector<ChatMessage> messages;
    for (const Json& m : json) {
        if (!m.is_object() || !m.contains("role") || !m.contains("content") || !m["role"].is_string()
            || !m["content"].is_string())
            return refused();
        messages.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
    }
    return messages;
}

struct Answer {
    std::string text;
    std::vector<TokenId> prompt_tokens, tokens;
    FinishedEvent finished;
};

// Runs one request to its end; text goes to stdout as it comes where `stream` is set.
Result<Answer> answer(Engine& engine, GenerationRequest request, bool stream)
{
    const Interruptible answering(&engine);
    const JobId job = TRY(engine.submit(std::move(request)));
    Answer result;
    bool cancelled = false;
    while (engine.busy()) {
        if (answering.interrupted() && !cancelled) {
            cancelled = true;
            engine.cancel(job);
        }
        for (const Event& event : engine.step()) {
            if (const auto* started = std::get_if<StartedEvent>(&event.what)) {
                result.prompt_tokens = started->prompt_tokens;
                if (!started->note.empty())
                    note(started->note);
            } else if (const auto* prefill = std::get_if<PrefillEvent>(&event.what)) {
                showProgress("Reading", static_cast<double>(prefill->done) / prefill->total);
            } else if (const auto* text = std::get_if<TextEvent>(&event.what)) {
                result.tokens.insert(result.tokens.end(), text->tokens.begin(), text->tokens.end());
                result.text += text->text;
                if (stream) {
                    std::fwrite(text->text.data(), 1, text->text.size(), stdout);
                    std::fflush(stdout);
                }
            } else if (const auto* finished = std::get_if<FinishedEvent>(&event.what)) {
                result.finished = *finished;
            }
        }
    }
    showProgress("Reading", 1.0);
    if (stream)
        std::printf("\n");
    if (result.finished.reason == FinishReason::failed)
        return result.finished.error;
    return result;
}

const char* name(FinishReason reason)
{
    switch (reason) {
    case FinishReason::stop:
        return "stop";
    case FinishReason::length:
        return "length";
    case FinishReason::cancelled:
        return "cancelled";
    case FinishReason::failed:
        return "failed";
    }
    return "";
}

void printJson(const Answer& answer, std::uint64_t seed, const std::string& device)
{
    const Statistics& s = answer.finished.statistics;
    JsonObject()
        .add("text", answer.text)
        .add("prompt_tokens", answer.prompt_tokens)
        .add("tokens", answer.tokens)
        .add("finish", name(answer.finished.reason))
        .add("prefill_tokens_per_second", s.prefillTokensPerSecond())
        .add("decode_tokens_per_second", s.decodeTokensPerSecond())
        .add("time_to_first_token_s", s.first_token_s)
        .add("reused_tokens", s.reused_tokens)
        .add("seed", std::to_string(seed))
        .add("device", device)
        .print();
}

// A conversation, one line of input per message, until the input ends.
int converse(Engine& engine, const RunOptions& options, std::vector<ChatMessage> messages)
{
    const bool terminal = isatty(STDIN_FILENO) == 1;
    if (terminal)
        note("Write a message and press Enter; Ctrl+C stops an answer, Ctrl+D ends the conversation.");
    std::string line = options.prompt;
    for (std::uint64_t turn = 0;; ++turn) {
        if (turn > 0 || line.empty()) {
            if (terminal)
                std::fputs("> ", stderr);
            if (!std::getline(std::cin, line)) {
                if (terminal)
                    std::fputs("\n", stderr);
                return kOk;
            }
        }
        if (line.find_first_not_of(" \t\r") == std::string::npos)
            continue;
        messages.push_back({"user", line});
        GenerationRequest request = options.request;
        request.sampling.seed += turn;
        request.prompt = ChatPrompt {messages, "{}"};
        const auto result = answer(engine, std::move(request), true);
        if (result) {
            messages.push_back({"assistant", result->text});
            continue;
        }
        if (!terminal)
            return fail(result.error().message);
        note(result.error().message);
        messages.pop_back();
    }
}

} // namespace

int run(const RunOptions& options)
{
    std::vector<ChatMessage> messages;
    if (!options.system.empty())
        messages.push_back({"system", options.system});
    if (!options.messages.empty()) {
        const auto read = readMessages(options.messages);
        if (!read)
            return fail(read.error().message);
        messages.insert(messages.end(), read->begin(), read->end());
    }

    Engine engine;
    if (!load(engine, options.common))
        return kFailed;
    if (options.interactive)
        return converse(engine, options, std::move(messages));

    GenerationRequest request = options.request;
    if (options.chat) {
        if (!options.prompt.empty())
            messages.push_back({"user", options.prompt});
        request.prompt = ChatPrompt {std::move(messages), "{}"};
    } else {
        request.prompt = TextPrompt {options.prompt};
    }
    const auto result = answer(engine, std::move(request), !options.common.json);
    if (!result)
        return fail(result.error().message);
    if (options.common.json)
        printJson(*result, options.request.sampling.seed, engine.device().kind);
    return kOk;
}

} // namespace puna::tool
