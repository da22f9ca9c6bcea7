// Engine: the facade of the whole engine, and the only engine header that app/ includes.
//
// One Engine holds at most one loaded model and answers any number of jobs on it. submit() accepts a request,
// step() does one bounded piece of work (a chunk of a prompt or one decode step for all running jobs) and returns
// the events that came of it; cancel() ends a job at the next step. No callbacks, no threads of its own visible to
// the caller; all calls come from one thread, except requestStop(). Deterministic for given seeds and order of calls.
//
//     auto engine = Engine();
//     TRY(engine.load("model.gguf", {}));
//     JobId job = TRY(engine.submit({ChatPrompt{{{"user", "Hello"}}}}));
//     while (engine.busy())
//         for (const Event& event : engine.step()) ...
#pragma once

#include "engine/base/executor.h"
#include "engine/run/event.h"

#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace puna {

enum class DeviceKind : std::uint8_t {
    automatic, // a CUDA device where one can run the model, else the CPU
    cpu,
    cuda,
    reference, // float32 throughout; slow; what everything is checked against
};

struct LoadOptions {
    DeviceKind device = DeviceKind::automatic;
    int cuda_index = 0;
    int threads = 0;          // CPU; 0: one per physical core
    std::int64_t context = 0; // tokens; 0: the model's own limit, at most 8192
    KvType kv_type = KvType::fp16;
    int max_sequences = 4;    // jobs decoded together
    bool tokens_only = false; // load a model without a tokenizer too: token prompts, answers without text
};

// What is known of a model without loading it. Never fails: what is wrong is listed.
struct ModelInfo {
    bool ok = false;                   // can be loaded
    std::vector<std::string> problems; // one sentence each
    std::filesystem::path path;
    std::string name;         // for people: the folder's name, or a GGUF file's without its type of quantisation
    std::string format;       // "EXL2", "GPTQ", "FP16", "BF16", "FP32", "GGUF Q4_1" ...
    std::string architecture; // "LlamaForCausalLM"
    double bpw = 0.0;         // of the decoder's linear layers, scales included
    int head_bits = 0;
    int layers = 0;
    int hidden_size = 0;
    int vocab_size = 0;
    std::int64_t max_context = 0;
    Bytes weight_bytes;
    std::string tokenizer;     // "BPE, 49152 tokens"; empty: none
    bool has_template = false; // a chat template that compiles
    std::vector<TokenId> eos_token_ids;
};

// path: a folder or a .gguf file. Within a second for any size of model.
ModelInfo inspectModel(const std::filesystem::path& path);

class Tokenizer;

class Engine {
public:
    Engine();
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Replaces the loaded model. On failure nothing is loaded and every job has been failed.
    Result<void> load(const std::filesystem::path& path, const LoadOptions& options, const LoadProgress& progress = {},
                      std::stop_token stop = {});
    void unload();

    bool loaded() const;
    const ModelInfo& model() const;       // requires loaded()
    const Tokenizer& tokenizer() const;   // requires loaded() and that model().tokenizer is not empty
    DeviceInfo device() const;            // requires loaded()
    MemoryReport memory() const;          // requires loaded()
    std::int64_t context() const;         // tokens of one sequence; requires loaded()

    // Renders and tokenises; nothing runs. Fails where the template refuses, naming its line.
    Result<std::vector<TokenId>> tokenize(const GenerationRequest& request) const;

    // Fails (argument, unsupported) if nothing is loaded, the template refuses or the prompt does not fit.
    Result<JobId> submit(GenerationRequest request);
    void cancel(JobId job); // unknown ids are ignored; the job's FinishedEvent comes with the next step
    bool busy() const;      // step() has something to do

    // The span is valid until the next call of a non-const member.
    std::span<const Event> step();

    // From any thread: makes the step in progress return early; what it was computing for is repeated or cancelled
    // by the following steps.
    void requestStop();

    // Below the generator, for measurements: the executor itself and what it was given. Requires loaded(), and no
    // jobs, whose pages these are.
    Executor& executor();
    const MemoryPlan& plan() const;

    // For measurements at long contexts: the next request that begins with these tokens finds them computed, with
    // made-up keys and values.
    Result<void> pretendComputed(std::vector<TokenId> tokens);

private:
    struct State;
    std::unique_ptr<State> m_state;
};

} // namespace puna
