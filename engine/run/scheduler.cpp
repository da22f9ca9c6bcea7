#include "engine/run/scheduler.h"

#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

namespace puna {

namespace {

constexpr int kMaxDecodeSteps = 8; // on the device before anyone looks at the tokens

double seconds(std::chrono::steady_clock::duration d)
{
    return std::chrono::duration<double>(d).count();
}

} // namespace

struct Scheduler::Job {
    Job(PreparedJob prepared, const Tokenizer* tokenizer)
        : id(prepared.id)
        , prompt_size(static_cast<std::int64_t>(prepared.prompt.size()))
        , tokens(std::move(prepared.prompt))
        , note(std::move(prepared.note))
        , starts_thinking(prepared.starts_thinking)
        , generator(tokenizer, std::move(prepared.options), tokens)
        , submitted(Clock::now())
    {
    }

    std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
    std::int64_t pending() const { return size() - cached; }
    bool decodes() const { return generator.drawn() > 0 && pending() == 1; }

    JobId id;
    std::int64_t prompt_size;
    std::vector<TokenId> tokens; // prompt and answer
    std::int64_t cached = 0; // how many of them have keys and values in the pages
    BlockTable table;
    std::string note;
    bool starts_thinking;
    Generator generator;
    bool started = false; // StartedEvent is out
    bool cancelled = false;
    bool finished = false;
    Clock::time_point submitted;
    Statistics statistics;
};

Scheduler::Scheduler(Executor& executor, const MemoryPlan& plan, int vocab_size, const Tokenizer* tokenizer)
    : m_executor(executor)
    , m_plan(plan)
    , m_vocab_size(vocab_size)
    , m_tokenizer(tokenizer)
    , m_device_samples(executor.device().samples)
    , m_pool(plan.kv_pages)
{
}

Scheduler::~Scheduler() = default;

void Scheduler::add(PreparedJob job)
{
    m_waiting.push_back(std::make_unique<Job>(std::move(job), m_tokenizer));
}

void Scheduler::cancel(JobId id)
{
    for (Jobs* jobs : {&m_running, &m_waiting})
        for (const auto& job : *jobs)
            if (job->id == id)
                job->cancelled = true;
}

void Scheduler::step(std::stop_token stop, std::vector<Event>& events)
{
    m_step_start = Clock::now();
    finishCancelled(events);
    admit(events);

    Job* prompt = nullptr; // whose turn it is
    std::vector<Job*> decoding;
    for (const auto& job : m_running) {
        if (job->decodes())
            decoding.push_back(job.get());
        else if (!prompt)
            prompt = job.get();
    }
    m_prefilled_last = prompt && (decoding.empty() || !m_prefilled_last);
    if (m_prefilled_last)
        prefill(*prompt, stop, events);
    else if (!decoding.empty())
        decode(decoding, stop, events);
    std::erase_if(m_running, [](const auto& job) { return job->finished; });
}

void Scheduler::failAll(const Error& error, std::vector<Event>& events)
{
    for (Jobs* jobs : {&m_running, &m_waiting}) {
        for (const auto& job : *jobs)
            finish(*job, job->cancelled ? FinishReason::cancelled : FinishReason::failed, error, events);
        jobs->clear();
    }
}

Result<void> Scheduler::pretendComputed(std::vector<TokenId> tokens)
{
    BlockTable table;
    if (!m_pool.grow(table, static_cast<std::int64_t>(tokens.size())))
        return Error {ErrorCode::memory,
            "The cache has no room for " + std::to_string(tokens.size()) + " tokens beside what is running."};
    if (const auto filled = m_executor.fillPages(table.span(), tokens.size()); !filled) {
        m_pool.release(table);
        return filled.error();
    }
    m_pool.retain(table, std::move(tokens));
    return {};
}

void Scheduler::finishCancelled(std::vector<Event>& events)
{
    for (Jobs* jobs : {&m_running, &m_waiting}) {
        for (const auto& job : *jobs)
            if (job->cancelled)
                finish(*job, FinishReason::cancelled, {ErrorCode::cancelled, {}}, events);
        std::erase_if(*jobs, [](const auto& job) { return job->finished; });
    }
}

void Scheduler::admit(std::vector<Event>& events)
{
    if (m_running.empty())
        m_short_of_pages = false;
    while (!m_waiting.empty() && !m_short_of_pages
        && m_running.size() < static_cast<std::size_t>(std::max(1, m_plan.max_sequences))) {
        Job& job = *m_waiting.front();
        takeOverPages(job);
        if (!job.started) {
            job.started = true;
            job.statistics.prompt_tokens = static_cast<int>(job.prompt_size);
            job.statistics.reused_tokens = static_cast<int>(job.cached);
            events.push_back(
                {job.id, StartedEvent {job.tokens, job.statistics.reused_tokens, job.note, job.starts_thinking}});
        }
        const auto younger =
            std::find_if(m_running.begin(), m_running.end(), [&](const auto& running) { return running->id > job.id; });
        m_running.insert(younger, std::move(m_waiting.front()));
        m_waiting.erase(m_waiting.begin());
    }
}

// The last token is always computed: its logits are wanted.
void Scheduler::takeOverPages(Job& job)
{
    PagePool::Reused reused = m_pool.reuse(std::span<const TokenId>(job.tokens).first(job.tokens.size() - 1));
    if (!reused.copies.empty() && !m_executor.copyPages(reused.copies)) {
        m_pool.release(reused.table); // nothing lost but time; a broken device says so in the next forward pass
        return;
    }
    job.table = std::move(reused.table);
    job.cached = reused.tokens;
}

// Pages for so many tokens of a job. False: the job itself has to wait.
bool Scheduler::makeRoom(Job& job, std::int64_t tokens)
{
    while (!m_pool.grow(job.table, tokens)) {
        m_short_of_pages = true;
        Job& youngest = *m_running.back();
        const bool itself = &youngest == &job;
        putBack(youngest);
        if (itself)
            return false;
    }
    return true;
}

// From running to waiting, in order of age. What it has computed stays of use as long as nobody needs the room.
void Scheduler::putBack(Job& job)
{
    m_pool.retain(job.table, {job.tokens.begin(), job.tokens.begin() + job.cached});
    job.cached = 0;
    const auto running =
        std::find_if(m_running.begin(), m_running.end(), [&](const auto& other) { return other.get() == &job; });
    const auto younger =
        std::find_if(m_waiting.begin(), m_waiting.end(), [&](const auto& waiting) { return waiting->id > job.id; });
    m_waiting.insert(younger, std::move(*running));
    m_running.erase(running);
}

bool Scheduler::samplesOnDevice(const Job& job) const
{
    return m_device_samples && job.generator.sampling().repetition_penalty == 1.0f;
}

namespace {

DeviceSampling deviceSampling(const SamplingParams& p, std::int64_t position)
{
    return {p.temperature, p.top_k, p.top_p, p.min_p, p.seed, static_cast<std::uint64_t>(position)};
}

} // namespace

void Scheduler::prefill(Job& job, const std::stop_token& stop, std::vector<Event>& events)
{
    const std::int64_t count = std::min<std::int64_t>(job.pending(), m_plan.max_rows);
    if (!makeRoom(job, job.cached + count))
        return;
    const bool last = count == job.pending();
    const bool on_device = last && samplesOnDevice(job);
    m_sampling.assign(1, deviceSampling(job.generator.sampling(), job.size()));
    m_sequences.assign(1, {});
    Sequence& sequence = m_sequences[0];
    sequence.tokens = std::span<const TokenId>(job.tokens)
                          .subspan(static_cast<std::size_t>(job.cached), static_cast<std::size_t>(count));
    sequence.start = job.cached;
    sequence.pages = job.table.span();
    sequence.logits = last ? LogitRows::last : LogitRows::none;
    sequence.sampling = on_device ? m_sampling.data() : nullptr;
    if (const auto done = m_executor.forward({m_sequences, 1, stop}, m_result); !done)
        return failed({&job}, done.error(), events);

    job.cached += count;
    job.statistics.prefill_s += seconds(Clock::now() - m_step_start);
    if (job.generator.drawn() == 0)
        events.push_back({job.id, PrefillEvent {static_cast<int>(job.cached), static_cast<int>(job.prompt_size)}});
    if (!last)
        return;
    if (on_device)
        takeTokens(job, {}, std::span<const TokenId>(m_result.tokens).first(1), events);
    else
        takeTokens(job, std::span<float>(m_result.logits).first(static_cast<std::size_t>(m_vocab_size)), {}, events);
}

void Scheduler::decode(const std::vector<Job*>& decoding, const std::stop_token& stop, std::vector<Event>& events)
{
    // Several steps at once only where nobody else waits for the device.
    std::int64_t steps =
        decoding.size() == m_running.size() && (m_waiting.empty() || m_short_of_pages) ? kMaxDecodeSteps : 1;
    for (const Job* job : decoding)
        steps = samplesOnDevice(*job) ? std::min(steps, job->generator.remaining()) : 1;
    steps = std::max<std::int64_t>(1, steps);

    // The oldest take their pages first; some of the younger may have to wait instead.
    for (Job* job : decoding)
        if (std::any_of(m_running.begin(), m_running.end(), [&](const auto& r) { return r.get() == job; })
            && !makeRoom(*job, job->cached + steps))
            break;
    std::vector<Job*> jobs;
    for (const auto& job : m_running)
        if (job->decodes() && job->table.capacity() >= job->cached + steps)
            jobs.push_back(job.get());
    if (jobs.empty())
        return;

    m_sampling.clear();
    m_sequences.clear();
    for (const Job* job : jobs)
        m_sampling.push_back(deviceSampling(job->generator.sampling(), job->size()));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        Sequence& sequence = m_sequences.emplace_back();
        sequence.tokens = std::span<const TokenId>(jobs[i]->tokens).last(1);
        sequence.start = jobs[i]->cached;
        sequence.pages = jobs[i]->table.span();
        sequence.sampling = samplesOnDevice(*jobs[i]) ? &m_sampling[i] : nullptr;
    }
    if (const auto done = m_executor.forward({m_sequences, static_cast<int>(steps), stop}, m_result); !done)
        return failed(jobs, done.error(), events);

    const double step_s = seconds(Clock::now() - m_step_start);
    std::span<float> logits(m_result.logits);
    std::span<const TokenId> drawn(m_result.tokens);
    for (Job* job : jobs) {
        job->statistics.decode_s += step_s;
        ++job->cached; // its last token; takeTokens counts those that the device has drawn and computed beyond it
        if (samplesOnDevice(*job)) {
            takeTokens(*job, {}, drawn.first(static_cast<std::size_t>(steps)), events);
            drawn = drawn.subspan(static_cast<std::size_t>(steps));
        } else {
            takeTokens(*job, logits.first(static_cast<std::size_t>(m_vocab_size)), {}, events);
            logits = logits.subspan(static_cast<std::size_t>(m_vocab_size));
        }
    }
}

void Scheduler::failed(const std::vector<Job*>& jobs, const Error& error, std::vector<Event>& events)
{
    if (error.code == ErrorCode::cancelled)
        return; // to be repeated
    for (Job* job : jobs)
        finish(*job, FinishReason::failed, error, events);
}

bool Scheduler::takeTokens(
    Job& job, std::span<float> logits, std::span<const TokenId> drawn, std::vector<Event>& events)
{
    TokenId own = 0;
    if (drawn.empty()) {
        const auto token = job.generator.draw(logits, job.tokens);
        if (!token) {
            finish(job, FinishReason::failed, token.error(), events);
            return true;
        }
        own = *token;
        drawn = {&own, 1};
    }
    TextEvent text;
    std::optional<FinishReason> reason;
    for (std::size_t i = 0; i < drawn.size() && !reason; ++i) {
        job.cached += i > 0; // the device has gone on from the token before
        job.tokens.push_back(drawn[i]);
        text.tokens.push_back(drawn[i]);
        reason = job.generator.push(drawn[i], text.text);
    }
    if (job.statistics.tokens == 0)
        job.statistics.first_token_s = seconds(Clock::now() - job.submitted);
    job.statistics.tokens = static_cast<int>(job.generator.drawn());
    events.push_back({job.id, std::move(text)});
    if (reason)
        finish(job, *reason, {ErrorCode::cancelled, {}}, events);
    return reason.has_value();
}

void Scheduler::finish(Job& job, FinishReason reason, Error error, std::vector<Event>& events)
{
    if (reason == FinishReason::cancelled || reason == FinishReason::failed) {
        TextEvent rest;
        job.generator.flush(rest.text);
        if (!rest.text.empty())
            events.push_back({job.id, std::move(rest)});
    }
    if (reason == FinishReason::failed)
        m_pool.release(job.table);
    else
        m_pool.retain(job.table, {job.tokens.begin(), job.tokens.begin() + job.cached});
    if (reason != FinishReason::failed)
        error = {ErrorCode::cancelled, {}};
    events.push_back({job.id, FinishedEvent {reason, job.statistics, std::move(error)}});
    job.finished = true;
    m_short_of_pages = false;
}

} // namespace puna
