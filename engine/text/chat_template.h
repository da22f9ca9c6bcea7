// ChatTemplate: an interpreter of our own for the Jinja2 language as Hugging Face's chat templates use it.
//
// Templates come from strangers: there is no file, network, environment or native access to escape to, and source
// size, nesting, steps, output and time are bounded (`tokenizer-and-templates.md` 5 and 6). Compile once; rendering
// is const and thread-safe.
#pragma once

#include "engine/base/result.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class Gguf;

struct TemplateFailure {
    std::string message; // the template's own words where it raised, else what went wrong
    int line = 0; // of the template, from 1; 0: unknown
    bool raised = false; // by raise_exception
};

struct Rendering {
    std::string text;
    std::optional<TemplateFailure> failure; // set: text is empty
};

class ChatTemplate {
public:
    // Fails (format) with the line of the first error.
    static Result<ChatTemplate> compile(std::string source);

    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    // context_json: an object of variables (messages, tools, add_generation_prompt, bos_token ...); order of keys is
    // kept. now: seconds since the epoch for strftime_now, local time; empty: the present.
    Rendering render(std::string_view context_json, std::optional<std::int64_t> now = {}) const;

    const std::string& source() const;

    // Variables that the template reads besides the usual ones (enable_thinking, date_string ...), in order.
    std::vector<std::string> switches() const;

private:
    struct Impl;
    explicit ChatTemplate(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> m_impl;
};

// The default template's source by the precedence of `tokenizer-and-templates.md` 5.1; nullopt: the model has none.
Result<std::optional<std::string>> findChatTemplate(const std::filesystem::path& folder);
std::optional<std::string> findChatTemplate(const Gguf& gguf);

} // namespace puna
