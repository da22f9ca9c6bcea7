// Executors against reference values that nobody here wrote: Transformers' logits and answers for the reference
// models (testdata/golden), and one executor against another.
//
//     const GoldenModel* model = goldenModel("exl2-3.0");
//     Comparison found = compareWithGolden(*model, loadCpuExecutor, kCpuBounds, GoldenExtent::part);
//     qInfo("%s", found.summary.c_str());
//     QVERIFY2(found.failures.empty(), found.failureText().c_str());
//
// Bounds are those of the golden data's README; none may be widened.
#pragma once

#include "engine/base/executor.h"
#include "engine/model/model_files.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace puna::test {

struct Bounds {
    double logits; // largest difference of a logit
    double margin; // greedy steps of the reference with at least this margin are reproduced
    double window_nll; // largest difference of a window's negative log likelihood, nats; 0: not asked for
    double perplexity_share; // of the windows together; 0: not asked for
    double kl_mean = 0.0; // to the reference executor, over the windows; 0: not asked for
    double same_choice = 0.0; // share of positions with the reference executor's first choice
};
inline constexpr Bounds kReferenceBounds {0.002, 0.01, 0.02, 0.0};
inline constexpr Bounds kCpuBounds {0.6, 1.0, 0.0, 0.005, 0.0035, 0.965};
inline constexpr Bounds kCudaBounds {0.25, 0.5, 0.0, 0.002, 0.0005, 0.99};

using LoadExecutor = std::function<Result<std::unique_ptr<Executor>>(
    const ModelConfig&, const ModelWeights&, const MemoryPlan&, const LoadProgress&, std::stop_token)>;

// One model on one executor, one sequence at a time.
class ModelRun {
public:
    // Aborts the program with the error's sentence if the model cannot be loaded: callers have checked that it is
    // there.
    ModelRun(const std::filesystem::path& path, const LoadExecutor& load, int context = 2048, int max_rows = 512);

    int vocabulary() const { return m_files.config.vocab_size; }
    const ModelConfig& config() const { return m_files.config; }
    Executor& executor() { return *m_executor; }

    // Logits [tokens.size() - first, vocabulary] of the positions from `first` on, as one sequence from an empty cache,
    // in chunks of max_rows or, with `chunk`, of so many tokens.
    std::vector<float> logits(std::span<const TokenId> tokens, std::int64_t first = 0, int chunk = 0);

private:
    ModelFiles m_files;
    std::unique_ptr<Executor> m_executor;
    std::vector<PageId> m_pages; // not in order
    int m_max_rows;
};

// --- golden data ---

struct GoldenModel {
    std::string name;
    std::filesystem::path path; // empty: not made on this machine
    bool available() const; // model and golden data are there
};
const std::vector<GoldenModel>& goldenModels();
const GoldenModel* goldenModel(std::string_view name);

enum class GoldenExtent {
    part, // four conversations, one plain text, one window of 256 tokens: seconds
    whole, // everything: minutes
};

struct Comparison {
    std::vector<std::string> failures;
    std::string summary; // the largest differences, one line
    std::string failureText() const;
};

Comparison compareWithGolden(
    const GoldenModel& model, const LoadExecutor& load, const Bounds& bounds, GoldenExtent extent);

// --- one against another ---

// rows of logits over the same vocabulary; `to` is the reference.
struct Divergence {
    double kl_mean = 0.0; // KL(to || of), nats
    double same_choice = 0.0; // share of rows with the same arg max
    double largest = 0.0; // difference of a logit
    double nll_of = 0.0, nll_to = 0.0; // sums over rows but the last, predicting `tokens`
};
Divergence divergence(
    std::span<const float> of, std::span<const float> to, int vocabulary, std::span<const TokenId> tokens);

} // namespace puna::test
