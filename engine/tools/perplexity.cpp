#include "engine/base/foreign_text.h"
#include "engine/model/safetensors.h"
#include "engine/text/tokenizer.h"
#include "engine/tools/forward.h"
#include "engine/tools/json_writer.h"
#include "engine/tools/safetensors_writer.h"
#include "engine/tools/tool.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

namespace puna::tool {

namespace {

constexpr std::int64_t kDefaultWindow = 2048;

// log(sum(exp(x))), in double.
double logSumExp(const float* x, std::int64_t n)
{
    const double max = *std::max_element(x, x + n);
    double sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i)
        sum += std::exp(static_cast<double>(x[i]) - max);
    return max + std::log(sum);
}

// KL(p || q) of two rows of logits, in nats.
double klDivergence(const float* p, double p_sum, const float* q, double q_sum, std::int64_t n)
{
    double kl = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
        const double log_p = p[i] - p_sum;
        kl += std::exp(log_p) * (log_p - (q[i] - q_sum));
    }
    return std::max(0.0, kl);
}

std::filesystem::path windowFile(const std::filesystem::path& folder, std::int64_t window)
{
    char name[40];
    std::snprintf(name, sizeof name, "window-%05lld.safetensors", static_cast<long long>(window));
    return folder / name;
}

// The logits that another run has saved of the same window.
struct Saved {
    std::shared_ptr<const Safetensors> file;
    TensorView logits;
};

Result<Saved> openSaved(const std::filesystem::path& path, std::span<const TokenId> tokens, std::int64_t vocab_size)
{
    Saved saved {TRY(Safetensors::open(path)), {}};
    saved.logits = saved.file->tensor("logits");
    const TensorView their_tokens = saved.file->tensor("tokens");
    const auto rows = static_cast<std::int64_t>(tokens.size()) - 1;
    const auto differs = [&](const char* what) {
        return Error {ErrorCode::format,
            printable(path.string(), 300) + ": it was made " + what
                + "; save the logits again with the same text, window and vocabulary."};
    };
    if (saved.logits.rank != 2 || saved.logits.dtype != DType::f32 || saved.logits.shape[0] != rows
        || saved.logits.shape[1] != vocab_size)
        return differs("for windows or a vocabulary of another size");
    if (their_tokens.dtype != DType::i32 || their_tokens.rank != 1 || their_tokens.shape[0] != rows + 1
        || std::memcmp(their_tokens.data, tokens.data(), tokens.size_bytes()) != 0)
        return differs("from another text");
    return saved;
}

struct Sums {
    double nll = 0.0;
    std::int64_t tokens = 0;
    std::vector<double> kl;
    std::int64_t same_choice = 0;
};

Result<void> evaluateWindow(
    Engine& engine, const PerplexityOptions& options, std::int64_t window, std::span<const TokenId> tokens, Sums& sums)
{
    const std::int64_t vocab_size = engine.model().vocab_size;
    const auto size = static_cast<std::int64_t>(tokens.size());
    std::optional<SafetensorsWriter> writer;
    std::optional<Saved> saved;
    if (!options.save_logits.empty()) {
        const SafetensorsWriter::Tensor tensors[] = {
            {"tokens", "I32", {size}}, {"logits", "F32", {size - 1, vocab_size}}};
        writer.emplace(TRY(SafetensorsWriter::create(windowFile(options.save_logits, window), tensors)));
        TRY(writer->write(std::as_bytes(tokens)));
    }
    if (!options.against.empty())
        saved = TRY(openSaved(windowFile(options.against, window), tokens, vocab_size));

    std::int64_t position = 0;
    std::vector<float> theirs(static_cast<std::size_t>(vocab_size));
    const TakeLogits count = [&](std::span<const float> logits, std::int64_t rows) -> Result<void> {
        for (std::int64_t r = 0; r < rows; ++r, ++position) {
            const float* own = logits.data() + r * vocab_size;
            const double own_sum = logSumExp(own, vocab_size);
            sums.nll += own_sum - own[tokens[static_cast<std::size_t>(position + 1)]];
            ++sums.tokens;
            if (!saved)
                continue;
            std::memcpy(theirs.data(),
                saved->logits.data + position * vocab_size * static_cast<std::int64_t>(sizeof(float)),
                theirs.size() * sizeof(float));
            const double their_sum = logSumExp(theirs.data(), vocab_size);
            sums.kl.push_back(klDivergence(theirs.data(), their_sum, own, own_sum, vocab_size));
            sums.same_choice += std::max_element(own, own + vocab_size) - own
                == std::max_element(theirs.begin(), theirs.end()) - theirs.begin();
        }
        if (writer)
            TRY(writer->write(std::as_bytes(logits)));
        return {};
    };
    TRY(forwardAll(engine, tokens.first(tokens.size() - 1), engine.plan().max_rows, count));
    return writer ? writer->finish() : Result<void>();
}

double percentile99(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(0.99 * static_cast<double>(values.size() - 1) + 0.5)];
}

} // namespace

int perplexity(const PerplexityOptions& options)
{
    const auto text = readFile(options.text_file);
    if (!text)
        return fail(text.error().message);
    Common common = options.common;
    common.load.max_sequences = 1;
    if (common.load.context == 0)
        common.load.context = kDefaultWindow;
    if (common.load.context < 2)
        return fail("A window has at least 2 tokens.");
    if (!options.save_logits.empty()) {
        std::error_code failed;
        std::filesystem::create_directories(options.save_logits, failed);
        if (failed)
            return fail(
                printable(options.save_logits.string(), 300) + ": it cannot be made (" + failed.message() + ").");
    }
    Engine engine;
    if (!load(engine, common))
        return kFailed;

    const auto window_size = static_cast<std::size_t>(common.load.context);
    const Tokenizer& tokenizer = engine.tokenizer();
    const std::vector<TokenId> tokens = tokenizer.encode(*text, {});
    std::size_t windows = tokens.size() / window_size;
    if (windows == 0)
        return fail("The text has " + std::to_string(tokens.size()) + " tokens, less than one window of "
            + std::to_string(window_size) + "; choose a smaller --context.");
    if (options.windows > 0)
        windows = std::min(windows, static_cast<std::size_t>(options.windows));

    Sums sums;
    for (std::size_t w = 0; w < windows; ++w) {
        std::vector<TokenId> window(tokens.begin() + static_cast<std::ptrdiff_t>(w * window_size),
            tokens.begin() + static_cast<std::ptrdiff_t>((w + 1) * window_size));
        if (tokenizer.addsBos() && tokenizer.bosToken()) {
            window.insert(window.begin(), *tokenizer.bosToken());
            window.pop_back();
        }
        if (const auto done = evaluateWindow(engine, options, static_cast<std::int64_t>(w), window, sums); !done)
            return fail(done.error().message);
        showProgress("Reading", static_cast<double>(w + 1) / static_cast<double>(windows));
    }

    const double result = std::exp(sums.nll / static_cast<double>(sums.tokens));
    JsonObject json;
    json.add("perplexity", result).add("tokens", sums.tokens).add("windows", windows);
    if (!options.common.json)
        std::printf("perplexity %.4f over %lld tokens\n", result, static_cast<long long>(sums.tokens));
    if (!sums.kl.empty()) {
        double mean = 0.0;
        for (const double kl : sums.kl)
            mean += kl / static_cast<double>(sums.kl.size());
        const double p99 = percentile99(sums.kl);
        const double agreement = static_cast<double>(sums.same_choice) / static_cast<double>(sums.kl.size());
        json.add("kl_mean", mean).add("kl_p99", p99).add("top1_agreement", agreement);
        if (!options.common.json)
            std::printf("KL divergence %.6f nats (99th percentile %.6f), same first choice %.2f %%\n", mean, p99,
                100 * agreement);
    }
    if (options.common.json)
        json.print();
    return kOk;
}

} // namespace puna::tool
