// Executor: one model on one device, run as a whole.
//
// The interface is the forward pass, not its operations, because speed is won by fusing across them. A batch is
// a list of sequences; each brings new tokens (a chunk of a prompt, or one token when decoding), the position of
// the first of them and the block table of its KV pages. Keys and values of the new tokens are written into those
// pages. One call is one bounded piece of work. Executors look at the stop token between layers.
//
// After load() nothing is allocated that grows with the context. Not thread-safe: one thread calls.
#pragma once

#include "engine/base/model.h"
#include "engine/base/result.h"
#include "engine/base/types.h"

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace puna {

enum class KvType : std::uint8_t { fp16, q8, q4 };

// Everything an executor may allocate, decided before it loads.
struct MemoryPlan {
    std::int64_t max_context = 0; // tokens of one sequence, at most
    std::int64_t kv_pages = 0;    // of kPageSize tokens, shared by all sequences
    int max_rows = 512;           // new tokens in one batch, over all sequences
    int max_sequences = 1;        // sequences in one batch
    KvType kv_type = KvType::fp16;
    int threads = 0; // CPU executors; 0: one per physical core
};

// Which logits a sequence of the batch is asked for.
enum class LogitRows : std::uint8_t { none, last, all };

// What an executor that can sample on its device needs; others leave it to engine/sample.
struct DeviceSampling {
    float temperature = 0.0f; // 0: greedy
    int top_k = 0;            // 0: off
    float top_p = 1.0f;
    float min_p = 0.0f;
    std::uint64_t seed = 0;
    std::uint64_t step = 0; // counter of the generator: the position sampled for
};

struct Sequence {
    std::span<const TokenId> tokens; // new ones, at least one, each below vocab_size
    std::int64_t start = 0;          // absolute position of the first
    std::span<const PageId> pages;   // covers positions 0 ... start + tokens.size() + decode_steps - 2
    LogitRows logits = LogitRows::last;
    const DeviceSampling* sampling = nullptr; // set: sample on the device instead of returning logits
};

struct Batch {
    std::span<const Sequence> sequences;
    int decode_steps = 1; // above 1 only if DeviceInfo::samples, every sequence has one token and `sampling`
    std::stop_token stop;
};

// Reused from call to call so that its buffers stay allocated.
struct ForwardResult {
    std::vector<float> logits;   // [sum of asked rows, vocab_size], in batch order
    std::vector<TokenId> tokens; // [sequences that sample, decode_steps]
};

struct PageCopy {
    PageId from, to;
    int tokens; // the first so many of the page
};

// Measured, by what it is for.
struct MemoryReport {
    Bytes weights, kv, workspace, other;
    Bytes total() const { return weights + kv + workspace + other; }
};

struct DeviceInfo {
    std::string kind; // "cpu", "cuda:0", "reference"
    std::string name; // as the vendor spells it
    std::string detail; // instruction set, driver version, why no GPU
    Bytes total, free;
    int threads = 0;
    bool samples = false; // honours Sequence::sampling and decode_steps
};

// fraction 0 ... 1 and what is being done; called from the loading thread.
using LoadProgress = std::function<void(double fraction)>;

class Executor {
public:
    virtual ~Executor() = default;

    // On an error (device, memory, cancelled) the pages of the batch's new positions are undefined; all others hold.
    virtual Result<void> forward(const Batch& batch, ForwardResult& result) = 0;
    virtual Result<void> copyPages(std::span<const PageCopy> copies) = 0;
    virtual MemoryReport memory() const = 0;
    virtual DeviceInfo device() const = 0;

    // Fills keys and values of the pages with made-up finite numbers, for benchmarks at long contexts.
    virtual Result<void> fillPages(std::span<const PageId> pages, std::uint64_t seed) = 0;
};

} // namespace puna
