#include "tests/support/compare.h"

#include "engine/cpu/cpu_executor.h"
#include "engine/model/safetensors.h"
#include "engine/text/tokenizer.h"
#include "tests/support/model_writer.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

namespace puna::test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

template <class T> T orAbort(Result<T> result)
{
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().message.c_str());
        std::abort();
    }
    return std::move(result).value();
}

const Json& golden(const std::string& name)
{
    static std::map<std::string, Json> loaded;
    Json& json = loaded[name];
    if (json.is_null())
        json = Json::parse(readFile(shared("testdata/golden/" + name + ".json")));
    return json;
}

std::string text(const char* format, auto... values)
{
    char line[400];
    std::snprintf(line, sizeof line, format, values...);
    return line;
}

double logSumExp(std::span<const float> row)
{
    const auto largest = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double sum = 0.0;
    for (const float x : row)
        sum += std::exp(static_cast<double>(x) - largest);
    return largest + std::log(sum);
}

std::span<const float> rowOf(std::span<const float> logits, int vocabulary, std::size_t row)
{
    return logits.subspan(row * static_cast<std::size_t>(vocabulary), static_cast<std::size_t>(vocabulary));
}

TokenId bestOf(std::span<const float> row)
{
    return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The comparison of one model, gathering what it finds.
class Checker {
public:
    Checker(const GoldenModel& model, const LoadExecutor& load, const Bounds& bounds)
        : m_model(model)
        , m_bounds(bounds)
        , m_run(model.path, load)
    {
    }

    Comparison result;

    void logitsClose(double difference, const std::string& what)
    {
        m_largest = std::max(m_largest, difference);
        if (!(difference <= m_bounds.logits))
            fail(what + text(": a logit is off by %.6f, allowed are %.4f", difference, m_bounds.logits));
    }

    // A plain text with the reference's probes of the logits at every position.
    void plainText(const Json& raw, const char* key, const Json& probe_ids, const std::string& what)
    {
        const auto tokens = raw["tokens"].get<std::vector<TokenId>>();
        const Json& probe = raw[key];
        const std::vector<float> logits = m_run.logits(tokens);
        double largest = 0.0;
        const auto see = [&](double ours, double theirs) {
            const double difference = std::abs(ours - theirs);
            largest = difference <= largest ? largest : difference; // NaN counts
        };
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const std::span<const float> row = rowOf(logits, m_run.vocabulary(), i);
            for (std::size_t j = 0; j < probe_ids.size(); ++j)
                see(static_cast<double>(row[probe_ids[j].get<std::size_t>()]),
                    probe["probe_values"][i][j].get<double>());
            for (std::size_t j = 0; j < probe["top_ids"][i].size(); ++j)
                see(static_cast<double>(row[probe["top_ids"][i][j].get<std::size_t>()]),
                    probe["top_values"][i][j].get<double>());
            see(logSumExp(row), probe["logsumexp"][i].get<double>());
        }
        logitsClose(largest, what);
    }

    void allLogits(
        const std::vector<TokenId>& tokens, const fs::path& file, const char* tensor, const std::string& what)
    {
        const auto opened = orAbort(Safetensors::open(file));
        const TensorView expected = opened->tensor(tensor);
        const std::vector<float> logits = m_run.logits(tokens);
        if (expected.elements() != static_cast<std::int64_t>(logits.size()))
            return fail(what + ": the golden file has another shape");
        double largest = 0.0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const auto difference =
                static_cast<double>(std::abs(logits[i] - expected.load<float>(static_cast<std::int64_t>(i))));
            largest = difference <= largest ? largest : difference;
        }
        logitsClose(largest, what);
    }

    // The reference's greedy answer, its own tokens fed: every step with a margin above the bound is ours too. Without
    // margins: the reference's choice is within the bound of ours.
    void greedy(
        std::vector<TokenId> tokens, const std::vector<TokenId>& answer, const Json& margins, const std::string& what)
    {
        const std::size_t prompt = tokens.size();
        tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
        const std::vector<float> logits = m_run.logits(tokens, static_cast<std::int64_t>(prompt) - 1);
        for (std::size_t i = 0; i < answer.size(); ++i) {
            const std::span<const float> row = rowOf(logits, m_run.vocabulary(), i);
            const TokenId best = bestOf(row);
            if (best == answer[i])
                continue;
            const auto behind =
                static_cast<double>(row[static_cast<std::size_t>(best)] - row[static_cast<std::size_t>(answer[i])]);
            const double margin = margins.is_null() ? behind : margins[i].get<double>();
            if (!(margin < m_bounds.margin))
                fail(what
                    + text(
                        ": step %zu is %d, the reference chose %d with a margin of %.3f", i, best, answer[i], margin));
            else
                ++m_close_steps;
        }
        m_steps += answer.size();
    }

    // Windows of the evaluation text, against the sums of the reference where it gives them, and against the reference
    // executor where the bounds ask for it.
    void windows(const std::vector<std::vector<TokenId>>& windows, const std::vector<double>& expected)
    {
        if (windows.empty()) {
            m_windows = "; the evaluation text is not here";
            return;
        }
        std::optional<ModelRun> reference;
        if (m_bounds.kl_mean > 0.0)
            reference.emplace(m_model.path, LoadExecutor(loadReferenceExecutor));
        double nll = 0.0, nll_expected = 0.0, kl = 0.0, same = 0.0;
        std::size_t predictions = 0;
        for (std::size_t w = 0; w < windows.size(); ++w) {
            const std::vector<TokenId>& tokens = windows[w];
            const std::vector<float> logits = m_run.logits(tokens);
            const std::vector<float> other = reference ? reference->logits(tokens) : std::vector<float>();
            const Divergence d =
                divergence(logits, reference ? std::span<const float>(other) : logits, m_run.vocabulary(), tokens);
            const double wanted = w < expected.size() ? expected[w] : d.nll_to;
            m_nll = std::max(m_nll, std::abs(d.nll_of - wanted));
            if (m_bounds.window_nll > 0.0 && !(std::abs(d.nll_of - wanted) <= m_bounds.window_nll))
                fail(text("window %zu has %.4f nats, the reference %.4f, allowed are %.2f", w, d.nll_of, wanted,
                    m_bounds.window_nll));
            nll += d.nll_of;
            nll_expected += wanted;
            kl += d.kl_mean;
            same += d.same_choice;
            predictions += tokens.size() - 1;
        }
        const auto count = static_cast<double>(windows.size());
        const double share = std::exp((nll - nll_expected) / static_cast<double>(predictions)) - 1.0;
        if (m_bounds.perplexity_share > 0.0 && !(std::abs(share) <= m_bounds.perplexity_share))
            fail(text("the perplexity differs by %.3f %%, allowed are %.1f %%", 100.0 * share,
                100.0 * m_bounds.perplexity_share));
        if (m_bounds.kl_mean > 0.0 && !(kl / count <= m_bounds.kl_mean))
            fail(text(
                "KL divergence to the reference executor is %.5f, allowed are %.4f", kl / count, m_bounds.kl_mean));
        if (m_bounds.kl_mean > 0.0 && !(same / count >= m_bounds.same_choice))
            fail(text("%.2f %% of first choices are the reference executor's, expected %.1f %%", 100.0 * same / count,
                100.0 * m_bounds.same_choice));
        m_windows = text("; windows: largest difference %.4f nats, perplexity %+.3f %%", m_nll, 100.0 * share);
        if (reference)
            m_windows += text(", KL %.5f, same choice %.2f %%", kl / count, 100.0 * same / count);
    }

    Comparison finish()
    {
        result.summary = m_model.name
            + text(": largest difference of a logit %.6f; %zu greedy steps, %d close ones differ", m_largest, m_steps,
                m_close_steps)
            + m_windows;
        return std::move(result);
    }

private:
    void fail(std::string what) { result.failures.push_back(m_model.name + ", " + std::move(what)); }

    const GoldenModel& m_model;
    Bounds m_bounds;
    ModelRun m_run;
    double m_largest = 0.0, m_nll = 0.0;
    std::size_t m_steps = 0;
    int m_close_steps = 0;
    std::string m_windows;
};

// The first windows of the evaluation text; empty where the text or the tokenizer's folder is absent.
std::vector<std::vector<TokenId>> evaluationWindows(std::size_t count, std::size_t length)
{
    const fs::path file = shared("testdata/eval/eval.txt");
    const fs::path folder = model("hf-fp16");
    if (file.empty() || folder.empty())
        return {};
    static const std::vector<TokenId> tokens =
        orAbort(Tokenizer::fromFolder(folder)).encode(readFile(file), {.add_special = false, .special_as_text = true});
    const Json& first = golden("smollm2")["windows_1024"]["first_ids"];
    for (std::size_t i = 0; i < first.size(); ++i)
        if (tokens.at(i) != first[i].get<TokenId>()) {
            std::fprintf(stderr, "the evaluation text is not tokenised as by the reference\n");
            std::abort();
        }
    std::vector<std::vector<TokenId>> windows;
    for (std::size_t w = 0; w < count; ++w)
        windows.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(w * length),
            tokens.begin() + static_cast<std::ptrdiff_t>((w + 1) * length));
    return windows;
}

} // namespace

ModelRun::ModelRun(const fs::path& path, const LoadExecutor& load, int context, int max_rows)
    : m_files(orAbort(openModelFiles(path)))
    , m_max_rows(max_rows)
{
    MemoryPlan plan;
    plan.max_context = context;
    plan.kv_pages = (context + kPageSize - 1) / kPageSize;
    plan.max_rows = max_rows;
    m_executor = orAbort(load(m_files.config, m_files.weights, plan, {}, {}));
    for (PageId page = static_cast<PageId>(plan.kv_pages); page-- > 0;)
        m_pages.push_back(page);
}

std::vector<float> ModelRun::logits(std::span<const TokenId> tokens, std::int64_t first, int chunk)
{
    const auto size = static_cast<std::int64_t>(tokens.size());
    std::vector<float> logits;
    ForwardResult result;
    for (std::int64_t begin = 0; begin < size;) {
        std::int64_t end = std::min<std::int64_t>(size, begin + (chunk > 0 ? chunk : m_max_rows));
        if (begin < first)
            end = std::min(end, first);
        Sequence sequence;
        sequence.tokens = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        sequence.start = begin;
        sequence.pages = m_pages;
        sequence.logits = begin < first ? LogitRows::none : LogitRows::all;
        Batch batch;
        batch.sequences = {&sequence, 1};
        if (const Result<void> done = m_executor->forward(batch, result); !done) {
            std::fprintf(stderr, "%s\n", done.error().message.c_str());
            std::abort();
        }
        logits.insert(logits.end(), result.logits.begin(), result.logits.end());
        begin = end;
    }
    return logits;
}

bool GoldenModel::available() const
{
    return !path.empty() && !shared("testdata/golden/smollm2.json").empty();
}

const std::vector<GoldenModel>& goldenModels()
{
    static const std::vector<GoldenModel> models = [] {
        std::vector<GoldenModel> list = {{"starter", starterModel()}};
        for (const char* name : {"hf-fp16", "exl2-3.0", "gptq-v1", "gptq-v2", "stories", "synthetic-tiny-2.5",
                 "synthetic-tiny-4.5", "synthetic-tiny-8.0"})
            list.push_back({name, model(name)});
        return list;
    }();
    return models;
}

const GoldenModel* goldenModel(std::string_view name)
{
    for (const GoldenModel& model : goldenModels())
        if (model.name == name)
            return &model;
    return nullptr;
}

std::string Comparison::failureText() const
{
    std::string all;
    for (const std::string& failure : failures)
        all += (all.empty() ? "" : "\n") + failure;
    return all;
}

Comparison compareWithGolden(
    const GoldenModel& model, const LoadExecutor& load, const Bounds& bounds, GoldenExtent extent)
{
    Checker check(model, load, bounds);
    const bool whole = extent == GoldenExtent::whole;
    const Json& tiny = golden("tiny");
    if (tiny.contains(model.name)) {
        const Json& t = tiny[model.name];
        const auto tokens = t["tokens"].get<std::vector<TokenId>>();
        check.allLogits(
            tokens, shared("testdata/golden/" + model.name + "-logits.safetensors"), "float32", "all logits");
        check.greedy(tokens, t["greedy"].get<std::vector<TokenId>>(), t["margins"], "the greedy continuation");
        return check.finish();
    }

    const Json& starter = golden("smollm2");
    const bool exact = model.name == "starter";
    const bool halves = model.name == "hf-fp16";
    const Json& own = exact || halves ? starter : golden("quantised")["models"][model.name];
    const char* key = exact ? "exact" : halves ? "fp16" : "float32";
    const Json& texts = own["raw"];
    for (std::size_t i = 0; i < (whole ? texts.size() : 1); ++i) {
        check.plainText(texts[i], key, starter["probe_ids"], "plain text " + std::to_string(i));
        if (exact) {
            const Json& more = texts[i]["continuation"];
            check.greedy(texts[i]["tokens"].get<std::vector<TokenId>>(), more["tokens"].get<std::vector<TokenId>>(),
                more["margins"], "continuation " + std::to_string(i));
        }
    }
    if (whole && (exact || halves))
        check.allLogits(texts.back()["tokens"].get<std::vector<TokenId>>(),
            shared("testdata/golden/smollm2-logits.safetensors"), exact ? "logits_exact" : "logits_fp16",
            "all logits of the last plain text");
    const Json& chats = own["chat"];
    for (std::size_t i = 0; i < (whole ? chats.size() : 4); ++i) {
        const auto answer = chats[i][halves ? "tokens_fp16" : "tokens"].get<std::vector<TokenId>>();
        check.greedy(chats[i]["prompt_tokens"].get<std::vector<TokenId>>(), answer,
            halves ? Json() : chats[i]["margins"], "conversation " + std::to_string(i));
    }

    if (whole) {
        const Json& sums = starter["windows_1024"]["nll_sum_of_first_windows"];
        const auto expected =
            sums.contains(model.name) ? sums[model.name].get<std::vector<double>>() : std::vector<double>();
        if (!expected.empty() || bounds.kl_mean > 0.0)
            check.windows(evaluationWindows(4, 1024), expected);
    } else {
        static const Json sums = Json::parse(readFile(source("tests/golden/windows/windows-256.json")));
        check.windows(evaluationWindows(1, 256), {sums[model.name].get<double>()});
    }
    return check.finish();
}

Divergence divergence(
    std::span<const float> of, std::span<const float> to, int vocabulary, std::span<const TokenId> tokens)
{
    Divergence d;
    const std::size_t rows = of.size() / static_cast<std::size_t>(vocabulary);
    for (std::size_t r = 0; r < rows; ++r) {
        const std::span<const float> a = rowOf(of, vocabulary, r);
        const std::span<const float> b = rowOf(to, vocabulary, r);
        const double log_a = logSumExp(a);
        const double log_b = logSumExp(b);
        double kl = 0.0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            const double p = static_cast<double>(b[i]) - log_b;
            kl += std::exp(p) * (p - (static_cast<double>(a[i]) - log_a));
            d.largest = std::max(d.largest, static_cast<double>(std::abs(a[i] - b[i])));
        }
        d.kl_mean += kl / static_cast<double>(rows);
        d.same_choice += (bestOf(a) == bestOf(b) ? 1.0 : 0.0) / static_cast<double>(rows);
        if (r + 1 < rows && r + 1 < tokens.size()) {
            const auto next = static_cast<std::size_t>(tokens[r + 1]);
            d.nll_of += log_a - static_cast<double>(a[next]);
            d.nll_to += log_b - static_cast<double>(b[next]);
        }
    }
    return d;
}

} // namespace puna::test
