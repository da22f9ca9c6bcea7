#include "engine/engine.h"

#include "engine/cpu/cpu_executor.h"
#include "engine/memory/memory_planner.h"
#include "engine/model_info.h"
#include "engine/run/scheduler.h"
#include "engine/sample/sampler.h"
#include "engine/text/chat_prompt.h"
#include "engine/text/tokenizer.h"
#ifdef PUNA_HAVE_CUDA
#include "cuda/cuda_executor.h"
#endif

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace puna {

namespace {

constexpr std::size_t kMaxStopStrings = 64;
constexpr std::size_t kMaxStopString = 1024; // bytes

const Error kUnloaded {ErrorCode::cancelled, "The model was unloaded while it was answering."};

// What a prompt becomes on its way to the scheduler.
struct Prompt {
    std::vector<TokenId> tokens;
    std::string note;
    bool starts_thinking = false;
};

struct Chosen { // a device and what it said
    std::unique_ptr<Executor> executor;
    MemoryPlan plan;
    std::string note; // why it is not a GPU
};

Result<Chosen> loadOnHost(const ModelFiles& files, DeviceKind kind, const LoadOptions& options,
    const LoadProgress& progress, const std::stop_token& stop)
{
    Chosen chosen;
    chosen.plan = TRY(planMemory(files.config, files.weights, kind, options, availableHostMemory())).plan;
    const auto load = kind == DeviceKind::reference ? loadReferenceExecutor : loadCpuExecutor;
    chosen.executor = TRY(load(files.config, files.weights, chosen.plan, progress, stop));
    return chosen;
}

#ifdef PUNA_HAVE_CUDA
Result<Chosen> loadOnGpu(
    const ModelFiles& files, const LoadOptions& options, const LoadProgress& progress, const std::stop_token& stop)
{
    const CudaDevices found = cudaDevices();
    if (found.devices.empty())
        return Error {ErrorCode::device, found.problem};
    const auto device = std::find_if(
        found.devices.begin(), found.devices.end(), [&](const CudaDevice& d) { return d.index == options.cuda_index; });
    if (device == found.devices.end())
        return Error {ErrorCode::device,
            "There is no usable CUDA device " + std::to_string(options.cuda_index) + "; the first is "
                + std::to_string(found.devices.front().index) + ", " + found.devices.front().name + "."};
    Chosen chosen;
    chosen.plan = TRY(planMemory(files.config, files.weights, DeviceKind::cuda, options, device->free)).plan;
    chosen.executor = TRY(loadCudaExecutor(device->index, files.config, files.weights, chosen.plan, progress, stop));
    return chosen;
}
#else
Result<Chosen> loadOnGpu(const ModelFiles&, const LoadOptions&, const LoadProgress&, const std::stop_token&)
{
    return Error {ErrorCode::device, "This build has no CUDA support."};
}
#endif

Result<Chosen> loadOnDevice(
    const ModelFiles& files, const LoadOptions& options, const LoadProgress& progress, const std::stop_token& stop)
{
    if (options.device == DeviceKind::cpu || options.device == DeviceKind::reference)
        return loadOnHost(files, options.device, options, progress, stop);
    auto on_gpu = loadOnGpu(files, options, progress, stop);
    if (on_gpu || options.device == DeviceKind::cuda || on_gpu.error().code == ErrorCode::cancelled
        || on_gpu.error().code == ErrorCode::argument)
        return on_gpu;
    Chosen chosen = TRY(loadOnHost(files, DeviceKind::cpu, options, progress, stop));
    chosen.note = on_gpu.error().message;
    return chosen;
}

// Counts and times; never what was said.
void logFinished(JobId job, const FinishedEvent& event)
{
    constexpr const char* kNames[] = {"stop", "length", "cancelled", "failed"};
    const Statistics& s = event.statistics;
    spdlog::debug(
        "Job {}: {} after {} tokens; prompt {} of which {} from the cache, {:.1f} tokens/s; answer {:.1f} tokens/s",
        job, kNames[static_cast<std::size_t>(event.reason)], s.tokens, s.prompt_tokens, s.reused_tokens,
        s.prefillTokensPerSecond(), s.decodeTokensPerSecond());
    if (event.reason == FinishReason::failed && event.error.code != ErrorCode::cancelled)
        spdlog::info("Job {} failed: {}", job, event.error.message);
}

} // namespace

struct Engine::State {
    // Of the loaded model; in the order in which they depend on each other.
    std::optional<OpenedModel> model;
    Chosen device;
    std::unique_ptr<Scheduler> scheduler;

    JobId last_job = 0;
    std::vector<Event> pending; // came up outside of a step
    std::vector<Event> events; // of the latest step

    std::mutex stop_mutex; // guards stop, which requestStop() reaches from other threads
    std::stop_source stop;

    Result<Prompt> prepare(const GenerationRequest& request) const;
    Result<Prompt> render(const ChatPrompt& chat) const;
    const Tokenizer* tokenizer() const { return model->tokenizer ? &*model->tokenizer : nullptr; }
};

Engine::Engine()
    : m_state(std::make_unique<State>())
{
}

Engine::~Engine() = default;

Result<void> Engine::load(
    const std::filesystem::path& path, const LoadOptions& options, const LoadProgress& progress, std::stop_token stop)
{
    unload();
    const auto start = std::chrono::steady_clock::now();
    OpenedModel model = openModel(path);
    if (model.error)
        return *model.error;
    if (model.tokenizer_error && !options.tokens_only)
        return *model.tokenizer_error;
    if (stop.stop_requested())
        return Error {ErrorCode::cancelled, "Loading was stopped."};
    Chosen device = TRY(loadOnDevice(*model.files, options, progress, stop));

    State& s = *m_state;
    s.model = std::move(model);
    s.device = std::move(device);
    s.scheduler = std::make_unique<Scheduler>(
        *s.device.executor, s.device.plan, s.model->files->config.vocab_size, s.tokenizer());
    const DeviceInfo info = this->device();
    spdlog::info(
        "Loaded a model ({}, {}, {:.1f} MiB) on {} ({}; {}) in {:.2f} s: context {}, {} jobs at once, {} pages",
        s.model->info.architecture, s.model->info.format, s.model->info.weight_bytes.mib(), info.kind, info.name,
        info.detail, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
        s.device.plan.max_context, s.device.plan.max_sequences, s.device.plan.kv_pages);
    return {};
}

void Engine::unload()
{
    State& s = *m_state;
    if (s.scheduler) {
        s.scheduler->failAll(kUnloaded, s.pending);
        spdlog::info("Unloaded the model");
    }
    s.scheduler.reset();
    s.device = {};
    s.model.reset();
}

bool Engine::loaded() const
{
    return m_state->scheduler != nullptr;
}

const ModelInfo& Engine::model() const
{
    return m_state->model->info;
}

const Tokenizer& Engine::tokenizer() const
{
    return *m_state->model->tokenizer;
}

DeviceInfo Engine::device() const
{
    DeviceInfo info = m_state->device.executor->device();
    if (!m_state->device.note.empty())
        info.detail += (info.detail.empty() ? "" : ". ") + m_state->device.note;
    return info;
}

MemoryReport Engine::memory() const
{
    return m_state->device.executor->memory();
}

std::int64_t Engine::context() const
{
    return m_state->device.plan.max_context;
}

Executor& Engine::executor()
{
    return *m_state->device.executor;
}

const MemoryPlan& Engine::plan() const
{
    return m_state->device.plan;
}

Result<void> Engine::pretendComputed(std::vector<TokenId> tokens)
{
    return m_state->scheduler->pretendComputed(std::move(tokens));
}

Result<Prompt> Engine::State::render(const ChatPrompt& chat) const
{
    if (!model->chat_template)
        return Error {ErrorCode::unsupported, model->no_template};
    if (chat.messages.empty())
        return Error {ErrorCode::argument, "The conversation has no messages."};
    const Tokenizer& t = *model->tokenizer;
    std::vector<ChatMessage> messages = chat.messages;
    for (ChatMessage& message : messages)
        message.content = t.guard(message.content);
    const auto text = [&](std::optional<TokenId> id) { return id ? t.tokenText(*id) : std::string_view(); };
    RenderedPrompt rendered =
        TRY(renderChat(*model->chat_template, messages, chat.variables_json, text(t.bosToken()), text(t.eosToken())));
    return Prompt {t.encodePrompt(rendered.text), std::move(rendered.note), rendered.starts_thinking};
}

Result<Prompt> Engine::State::prepare(const GenerationRequest& request) const
{
    if (!model)
        return Error {ErrorCode::argument, "No model is loaded."};
    Prompt prompt;
    if (const auto* given = std::get_if<TokenPrompt>(&request.prompt))
        prompt.tokens = given->tokens;
    else if (!model->tokenizer)
        return model->tokenizer_error.value();
    else if (const auto* text = std::get_if<TextPrompt>(&request.prompt))
        prompt.tokens = model->tokenizer->encode(text->text, {.add_special = true});
    else
        prompt = TRY(render(std::get<ChatPrompt>(request.prompt)));

    if (prompt.tokens.empty())
        return Error {ErrorCode::argument, "The prompt is empty; write at least one word."};
    const int vocab_size = model->files->config.vocab_size;
    for (const TokenId token : prompt.tokens)
        if (token < 0 || token >= vocab_size)
            return Error {ErrorCode::argument,
                "The prompt holds token " + std::to_string(token) + ", and the model's vocabulary has "
                    + std::to_string(vocab_size) + " tokens."};
    return prompt;
}

Result<std::vector<TokenId>> Engine::tokenize(const GenerationRequest& request) const
{
    return TRY(m_state->prepare(request)).tokens;
}

Result<JobId> Engine::submit(GenerationRequest request)
{
    State& s = *m_state;
    TRY(checkSampling(request.sampling));
    if (request.max_tokens == 0 || request.max_tokens < -1)
        return Error {ErrorCode::argument,
            "An answer of at most " + std::to_string(request.max_tokens)
                + " tokens was asked for, expected 1 or more, or -1 for as many as fit."};
    if (request.stop.size() > kMaxStopStrings)
        return Error {ErrorCode::argument,
            std::to_string(request.stop.size()) + " stop strings were given, at most " + std::to_string(kMaxStopStrings)
                + " are possible."};
    for (const std::string& text : request.stop)
        if (text.size() > kMaxStopString)
            return Error {ErrorCode::argument,
                "A stop string has " + std::to_string(text.size()) + " bytes, at most " + std::to_string(kMaxStopString)
                    + " are possible."};
    Prompt prompt = TRY(s.prepare(request));

    const std::int64_t limit = context();
    const auto size = static_cast<std::int64_t>(prompt.tokens.size());
    if (size >= limit)
        return Error {ErrorCode::argument,
            "The prompt has " + std::to_string(size) + " tokens; the context holds " + std::to_string(limit)
                + " and the answer needs at least one of them. Shorten the conversation or load the model with a "
                  "longer "
                  "context."};

    PreparedJob job;
    job.id = ++s.last_job;
    job.prompt = std::move(prompt.tokens);
    job.note = std::move(prompt.note);
    job.starts_thinking = prompt.starts_thinking;
    job.options.sampling = request.sampling;
    job.options.max_tokens = limit - size;
    if (request.max_tokens > 0)
        job.options.max_tokens = std::min<std::int64_t>(job.options.max_tokens, request.max_tokens);
    if (!request.ignore_eos)
        job.options.stop_tokens = s.model->stop_tokens;
    // A control token never shows in the text: a stop string that spells one is looked for by its id.
    for (std::string& text : request.stop) {
        const auto id = s.tokenizer() ? s.tokenizer()->find(text) : std::nullopt;
        if (id && s.tokenizer()->isSpecial(*id))
            job.options.stop_tokens.push_back(*id);
        else
            job.options.stop_strings.push_back(std::move(text));
    }
    job.options.continues_text = !std::holds_alternative<ChatPrompt>(request.prompt);
    spdlog::debug("Job {}: {} prompt tokens, at most {} new ones", job.id, size, job.options.max_tokens);
    s.scheduler->add(std::move(job));
    return s.last_job;
}

void Engine::cancel(JobId job)
{
    if (m_state->scheduler)
        m_state->scheduler->cancel(job);
}

bool Engine::busy() const
{
    return !m_state->pending.empty() || (m_state->scheduler && m_state->scheduler->busy());
}

std::span<const Event> Engine::step()
{
    State& s = *m_state;
    s.events.clear();
    std::swap(s.events, s.pending);
    if (s.scheduler) {
        std::stop_token stop;
        {
            const std::lock_guard lock(s.stop_mutex);
            stop = s.stop.get_token();
        }
        s.scheduler->step(stop, s.events);
        // A request that came too early for this step has been served by it: the next one computes again.
        const std::lock_guard lock(s.stop_mutex);
        if (s.stop.stop_requested())
            s.stop = std::stop_source();
    }
    for (const Event& event : s.events)
        if (const auto* finished = std::get_if<FinishedEvent>(&event.what))
            logFinished(event.job, *finished);
    return s.events;
}

void Engine::requestStop()
{
    const std::lock_guard lock(m_state->stop_mutex);
    m_state->stop.request_stop();
}

} // namespace puna
