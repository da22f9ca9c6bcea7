// Scheduler: all jobs of one loaded model, and which of them the next step works on.
//
// A step is one chunk of one prompt (the oldest job's first) or one decode step for every job that is past its
// prompt; where there is both, they take turns. At most max_sequences jobs run, the others wait in order. Pages are
// taken as a job grows; when there are none left, the youngest running job gives up its own and waits until another
// has finished, then goes on where it was. The oldest job always advances, since the pool holds one full context.
//
// A step that is stopped leaves everything as it was and is repeated: draws depend on the seed and the position only.
#pragma once

#include "engine/base/executor.h"
#include "engine/kv/page_pool.h"
#include "engine/run/event.h"
#include "engine/run/generator.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace puna {

class Tokenizer;

// A request whose prompt has been rendered, tokenised and found to fit: prompt + max_tokens <= context.
struct PreparedJob {
    JobId id = 0;
    std::vector<TokenId> prompt; // at least one, each below vocab_size
    GeneratorOptions options;
    std::string note;
    bool starts_thinking = false;
};

class Scheduler {
public:
    // All three outlive the scheduler; tokenizer may be null.
    Scheduler(Executor& executor, const MemoryPlan& plan, int vocab_size, const Tokenizer* tokenizer);
    ~Scheduler();

    void add(PreparedJob job);
    void cancel(JobId id);
    bool busy() const { return !m_running.empty() || !m_waiting.empty(); }

    void step(std::stop_token stop, std::vector<Event>& events);
    void failAll(const Error& error, std::vector<Event>& events);

    // Pages with made-up contents, retained as if a job had computed these tokens.
    Result<void> pretendComputed(std::vector<TokenId> tokens);

private:
    using Clock = std::chrono::steady_clock;
    struct Job;
    using Jobs = std::vector<std::unique_ptr<Job>>; // by age

    void finishCancelled(std::vector<Event>& events);
    void admit(std::vector<Event>& events);
    void takeOverPages(Job& job);
    bool makeRoom(Job& job, std::int64_t tokens);
    void putBack(Job& job);
    bool samplesOnDevice(const Job& job) const;
    void prefill(Job& job, const std::stop_token& stop, std::vector<Event>& events);
    void decode(const std::vector<Job*>& jobs, const std::stop_token& stop, std::vector<Event>& events);
    void failed(const std::vector<Job*>& jobs, const Error& error, std::vector<Event>& events);
    // Draws the next tokens of a job from its row of the result; true: it has finished.
    bool takeTokens(Job& job, std::span<float> logits, std::span<const TokenId> drawn, std::vector<Event>& events);
    void finish(Job& job, FinishReason reason, Error error, std::vector<Event>& events);

    Executor& m_executor;
    MemoryPlan m_plan;
    int m_vocab_size;
    const Tokenizer* m_tokenizer;
    bool m_device_samples;
    PagePool m_pool;
    Jobs m_running, m_waiting;
    bool m_short_of_pages = false; // nobody is admitted until a job has finished
    bool m_prefilled_last = false;
    Clock::time_point m_step_start;
    std::vector<Sequence> m_sequences;
    std::vector<DeviceSampling> m_sampling;
    ForwardResult m_result;
};

} // namespace puna
