// The reference executor: its operations against double precision, its invariances to the bit, and its refusals.
// Agreement with other programs: tests/golden.
#include "engine/cpu/cpu_executor.h"
#include "engine/cpu/parallel_for.h"
#include "engine/cpu/reference.h"
#include "engine/model/model_files.h"
#include "tests/support/model_writer.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

#include <QTest>

#include <atomic>
#include <cmath>
#include <numeric>
#include <random>

using namespace puna;
using namespace puna::test;

namespace {

std::vector<float> randomVector(std::size_t n, unsigned seed)
{
    std::mt19937 generator(seed);
    std::vector<float> v(n);
    for (float& x : v)
        x = static_cast<float>(generator()) * 0x1p-31f - 1.0f;
    return v;
}

double dotExact(const float* a, const float* b, std::size_t n)
{
    double sum = 0.0;
    for (std::size_t i = 0; i < n; ++i)
        sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
}

// Whether two numbers agree to so many roundings of the magnitudes that were summed.
bool near(float ours, double exact, double magnitude)
{
    return std::abs(static_cast<double>(ours) - exact) <= 1e-6 * (magnitude + 1e-30);
}

struct Run {
    ModelFiles files;
    std::unique_ptr<Executor> executor;

    explicit Run(const std::filesystem::path& path, int threads = 1, int max_rows = 512)
        : files(std::move(openModelFiles(path)).value())
    {
        MemoryPlan plan;
        plan.max_context = 1024;
        plan.kv_pages = 8;
        plan.max_rows = max_rows;
        plan.threads = threads;
        executor = std::move(loadReferenceExecutor(files.config, files.weights, plan, {}, {})).value();
    }

    std::vector<float> logits(const std::vector<TokenId>& tokens, std::vector<PageId> pages, std::size_t chunk)
    {
        std::vector<float> all;
        ForwardResult result;
        for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
            Sequence s;
            s.tokens = std::span(tokens).subspan(begin, std::min(chunk, tokens.size() - begin));
            s.start = static_cast<std::int64_t>(begin);
            s.pages = pages;
            s.logits = LogitRows::all;
            Batch batch;
            batch.sequences = {&s, 1};
            if (!executor->forward(batch, result))
                return {};
            all.insert(all.end(), result.logits.begin(), result.logits.end());
        }
        return all;
    }
};

std::vector<TokenId> someTokens(std::size_t n, int vocabulary)
{
    std::vector<TokenId> tokens(n);
    for (std::size_t i = 0; i < n; ++i)
        tokens[i] = static_cast<TokenId>((i * 7919 + 13) % static_cast<std::size_t>(vocabulary));
    return tokens;
}

} // namespace

class tst_reference_executor : public QObject {
    Q_OBJECT

    TemporaryFolder m_folder;
    std::filesystem::path tiny(TinyFormat format)
    {
        return writeTinyModel(m_folder.path() / std::to_string(static_cast<int>(format)), {.format = format});
    }

private slots:
    void linearIsTheProduct_data()
    {
        QTest::addColumn<int>("rows");
        QTest::addColumn<int>("k");
        QTest::addColumn<int>("n");
        for (const auto& [rows, k, n] :
            {std::array {1, 1, 1}, {1, 16, 3}, {3, 17, 5}, {4, 64, 1}, {5, 172, 64}, {65, 31, 7}, {130, 576, 9}})
            QTest::addRow("%d x %d x %d", rows, k, n) << rows << k << n;
    }
    void linearIsTheProduct()
    {
        QFETCH(int, rows);
        QFETCH(int, k);
        QFETCH(int, n);
        const auto wide = static_cast<std::size_t>(k);
        const std::vector<float> x = randomVector(static_cast<std::size_t>(rows) * wide, 1);
        const std::vector<float> w = randomVector(static_cast<std::size_t>(n) * wide, 2);
        const std::vector<float> bias = randomVector(static_cast<std::size_t>(n), 3);
        std::vector<float> y(static_cast<std::size_t>(rows * n), 1e9f), plain = y;
        reference::linear(x.data(), rows, k, w.data(), bias.data(), n, 0, n / 2, y.data());
        reference::linear(x.data(), rows, k, w.data(), bias.data(), n, n / 2, n, y.data());
        reference::linear(x.data(), rows, k, w.data(), nullptr, n, 0, n, plain.data());
        for (int r = 0; r < rows; ++r)
            for (int j = 0; j < n; ++j) {
                const auto i = static_cast<std::size_t>(r * n + j);
                const float* a = x.data() + static_cast<std::size_t>(r) * wide;
                const float* b = w.data() + static_cast<std::size_t>(j) * wide;
                QVERIFY(near(plain[i], dotExact(a, b, wide), std::sqrt(k)));
                QCOMPARE(y[i], plain[i] + bias[static_cast<std::size_t>(j)]);
                QCOMPARE(plain[i], reference::dot(a, b, k));
            }
    }

    void rmsNormIsTheFormula()
    {
        for (const std::size_t n : {1u, 5u, 64u, 577u}) {
            const std::vector<float> x = randomVector(n, 4), w = randomVector(n, 5);
            std::vector<float> y(n);
            reference::rmsNorm(x.data(), w.data(), static_cast<std::int64_t>(n), 1e-5f, y.data());
            const double scale = 1.0 / std::sqrt(dotExact(x.data(), x.data(), n) / static_cast<double>(n) + 1e-5);
            for (std::size_t i = 0; i < n; ++i)
                QVERIFY(near(y[i], static_cast<double>(x[i]) * scale * static_cast<double>(w[i]), 2.0));
        }
    }

    // Turning by the angle p in both styles keeps lengths and makes q.k depend on the distance only.
    void ropeTurnsPairs()
    {
        for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
            const std::vector<float> q = randomVector(10, 6), k = randomVector(10, 7);
            const auto turned = [&](std::vector<float> v, double p) {
                std::vector<float> cosines, sines;
                for (const double f : {1.0, 0.3, 0.07, 0.01}) {
                    cosines.push_back(static_cast<float>(std::cos(p * f)));
                    sines.push_back(static_cast<float>(std::sin(p * f)));
                }
                reference::rope(v.data(), cosines.data(), sines.data(), 4, style);
                return v;
            };
            const auto product = [](const std::vector<float>& a, const std::vector<float>& b) {
                return dotExact(a.data(), b.data(), 10);
            };
            QVERIFY(std::abs(product(turned(q, 17), turned(k, 12)) - product(turned(q, 5), turned(k, 0))) < 1e-5);
            QVERIFY(std::abs(product(turned(q, 17), turned(k, 12)) - product(turned(q, 17), turned(k, 0))) > 1e-3);
            QCOMPARE(turned(q, 9)[8], q[8]); // beyond the rotary dimensions
            QCOMPARE(turned(q, 9)[9], q[9]);
            const std::size_t partner = style == RopeStyle::half ? 4 : 1;
            const double first =
                static_cast<double>(q[0]) * std::cos(2.0) - static_cast<double>(q[partner]) * std::sin(2.0);
            QVERIFY(near(turned(q, 2)[0], first, 2.0));
        }
    }

    void attentionIsSoftmaxOverPages()
    {
        constexpr int kDim = 6;
        constexpr std::int64_t kLength = 700;
        const std::vector<PageId> pages {3, 0, 2};
        const std::int64_t stride = 2 * kPageSize * kDim; // another head lies between
        const std::vector<float> keys = randomVector(static_cast<std::size_t>(4 * stride), 8);
        const std::vector<float> values = randomVector(static_cast<std::size_t>(4 * stride), 9);
        const std::vector<float> q = randomVector(kDim, 10);
        std::vector<float> scores(kLength), out(kDim);
        reference::attend(
            q.data(), {keys.data(), values.data(), stride, pages, kLength, kDim, 3.0f}, scores.data(), out.data());
        std::vector<double> exact(kDim);
        double sum = 0.0;
        for (std::int64_t p = 0; p < kLength; ++p) {
            const auto at = static_cast<std::size_t>(
                pages[static_cast<std::size_t>(p / kPageSize)] * stride + p % kPageSize * kDim);
            const double weight = std::exp(3.0 * dotExact(q.data(), keys.data() + at, kDim));
            sum += weight;
            for (std::size_t d = 0; d < kDim; ++d)
                exact[d] += weight * static_cast<double>(values[at + d]);
        }
        for (std::size_t d = 0; d < kDim; ++d)
            QVERIFY(near(out[d], exact[d] / sum, 2.0));
    }

    void siluIsTheFormula()
    {
        const std::vector<float> gate {-100.0f, -3.0f, 0.0f, 0.5f, 100.0f}, up {2.0f, 2.0f, 2.0f, -2.0f, 1.0f};
        std::vector<float> out(gate.size());
        reference::siluMultiply(gate.data(), up.data(), 5, out.data());
        for (std::size_t i = 0; i < gate.size(); ++i) {
            const double g = gate[i];
            QVERIFY(near(out[i], g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]), std::abs(g)));
        }
    }

    void parallelForVisitsEveryIndexOnce()
    {
        for (const int threads : {1, 2, 5}) {
            ParallelFor parallel(threads);
            for (int round = 0; round < 200; ++round) {
                std::vector<std::atomic<int>> seen(static_cast<std::size_t>(round * 7));
                parallel(round * 7, 3, [&](std::int64_t begin, std::int64_t end, int thread) {
                    if (thread < 0 || thread >= threads)
                        std::abort();
                    for (std::int64_t i = begin; i < end; ++i)
                        ++seen[static_cast<std::size_t>(i)];
                });
                QVERIFY(std::all_of(seen.begin(), seen.end(), [](const std::atomic<int>& n) { return n == 1; }));
            }
        }
    }

    // A prompt cut into chunks in any way, decoded token by token, on any number of threads and in pages in any order
    // gives the same logits to the bit.
    void chunksThreadsAndPagesDoNotMatter_data()
    {
        QTest::addColumn<int>("format");
        QTest::newRow("fp16") << int(TinyFormat::fp16);
        QTest::newRow("exl2") << int(TinyFormat::exl2);
        QTest::newRow("gptq") << int(TinyFormat::gptq);
        QTest::newRow("gguf_q4_1") << int(TinyFormat::gguf_q4_1);
    }
    void chunksThreadsAndPagesDoNotMatter()
    {
        QFETCH(int, format);
        const std::filesystem::path path = tiny(static_cast<TinyFormat>(format));
        Run one(path, 1), three(path, 3);
        const std::vector<TokenId> tokens = someTokens(300, one.files.config.vocab_size);
        const std::vector<float> whole = one.logits(tokens, {0, 1}, 300);
        QCOMPARE(whole.size(), 300u * static_cast<std::size_t>(one.files.config.vocab_size));
        QVERIFY(*std::max_element(whole.begin(), whole.end()) > 1.0f);
        QVERIFY(one.logits(tokens, {7, 2}, 64) == whole);
        QVERIFY(one.logits(tokens, {3, 4}, 1) == whole);
        QVERIFY(three.logits(tokens, {5, 0}, 77) == whole);
    }

    // GGUF's rows of q and k are in another order, and so is the sum of their products.
    void folderAndGgufOfTheSameWeightsAgree()
    {
        Run folder(tiny(TinyFormat::fp16)), gguf(tiny(TinyFormat::gguf));
        QCOMPARE(gguf.files.config.rope.style, RopeStyle::interleaved);
        const std::vector<TokenId> tokens = someTokens(40, folder.files.config.vocab_size);
        const std::vector<float> a = folder.logits(tokens, {0}, 40), b = gguf.logits(tokens, {0}, 40);
        QCOMPARE(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i)
            QVERIFY(std::abs(a[i] - b[i]) < 1e-4f);
    }

    // The quantised formats hold the same model: logits that differ, but not by much. A wrong permutation, zero point
    // or scale is far off.
    void quantisedModelsAreTheSameModel_data()
    {
        QTest::addColumn<int>("format");
        QTest::addColumn<double>("allowed"); // relative error; found: 0.019, 0.20, 0.15, 0.10
        QTest::newRow("gguf_q8_0") << int(TinyFormat::gguf_q8_0) << 0.04;
        QTest::newRow("gguf_q4_1") << int(TinyFormat::gguf_q4_1) << 0.35;
        QTest::newRow("exl2") << int(TinyFormat::exl2) << 0.35;
        QTest::newRow("gptq") << int(TinyFormat::gptq) << 0.25;
    }
    void quantisedModelsAreTheSameModel()
    {
        QFETCH(int, format);
        QFETCH(double, allowed);
        Run exact(tiny(TinyFormat::fp16)), quantised(tiny(static_cast<TinyFormat>(format)));
        const std::vector<TokenId> tokens = someTokens(40, exact.files.config.vocab_size);
        const std::vector<float> a = exact.logits(tokens, {0}, 40), b = quantised.logits(tokens, {0}, 40);
        QCOMPARE(a.size(), b.size());
        double difference = 0.0, size = 0.0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            difference += std::pow(static_cast<double>(a[i] - b[i]), 2);
            size += std::pow(static_cast<double>(a[i]), 2);
        }
        const double relative = std::sqrt(difference / size);
        QVERIFY2(relative > 0.0 && relative < allowed, qPrintable(QString::number(relative)));
    }

    void sequencesOfABatchDoNotTouchEachOther()
    {
        Run run(tiny(TinyFormat::exl2), 2);
        const int vocabulary = run.files.config.vocab_size;
        const std::vector<TokenId> a = someTokens(30, vocabulary), b {5, 60, 300, 7};
        const std::vector<float> a_alone = run.logits(a, {0}, 30), b_alone = run.logits(b, {1}, 4);
        const std::vector<PageId> a_pages {2}, b_pages {3};
        Sequence sa, sb, none;
        sa.tokens = a;
        sa.pages = a_pages;
        sb.tokens = b;
        sb.pages = b_pages;
        sb.logits = LogitRows::all;
        const std::vector<PageId> other {4};
        none.tokens = b;
        none.pages = other;
        none.logits = LogitRows::none;
        const std::array sequences {sa, none, sb};
        Batch batch;
        batch.sequences = sequences;
        ForwardResult result;
        QVERIFY(run.executor->forward(batch, result).has_value());
        QCOMPARE(result.logits.size(), 5u * static_cast<std::size_t>(vocabulary));
        QVERIFY(std::equal(result.logits.begin(), result.logits.begin() + vocabulary, a_alone.end() - vocabulary));
        QVERIFY(std::equal(result.logits.begin() + vocabulary, result.logits.end(), b_alone.begin()));
    }

    void aCopiedPageContinuesTheSame()
    {
        Run run(tiny(TinyFormat::fp16));
        const std::vector<TokenId> tokens = someTokens(20, run.files.config.vocab_size);
        const std::vector<float> whole = run.logits(tokens, {0}, 20);
        const std::array copies {PageCopy {0, 5, 12}};
        QVERIFY(run.executor->copyPages(copies).has_value());
        const std::array outside {PageCopy {0, 8, 12}};
        QCOMPARE(run.executor->copyPages(outside).error().code, ErrorCode::argument);
        const std::vector<PageId> pages {5};
        Sequence s;
        s.tokens = std::span(tokens).subspan(12);
        s.start = 12;
        s.pages = pages;
        s.logits = LogitRows::all;
        Batch batch;
        batch.sequences = {&s, 1};
        ForwardResult result;
        QVERIFY(run.executor->forward(batch, result).has_value());
        QVERIFY(
            std::equal(result.logits.begin(), result.logits.end(), whole.begin() + 12 * run.files.config.vocab_size));
    }

    void filledPagesAreFinite()
    {
        Run run(tiny(TinyFormat::fp16));
        const std::array<PageId, 2> pages {6, 1};
        QVERIFY(run.executor->fillPages(pages, 42).has_value());
        const std::vector<TokenId> token {9};
        Sequence s;
        s.tokens = token;
        s.start = 500;
        s.pages = pages;
        Batch batch;
        batch.sequences = {&s, 1};
        ForwardResult result;
        QVERIFY(run.executor->forward(batch, result).has_value());
        QVERIFY(std::all_of(result.logits.begin(), result.logits.end(), [](float x) { return std::isfinite(x); }));
    }

    void badBatchesAreRefused()
    {
        Run run(tiny(TinyFormat::fp16), 1, 16);
        const std::vector<PageId> pages {0, 1, 2, 3};
        const auto code = [&](const std::vector<TokenId>& tokens, std::int64_t start, const std::vector<PageId>& with) {
            Sequence s;
            s.tokens = tokens;
            s.start = start;
            s.pages = with;
            Batch batch;
            batch.sequences = {&s, 1};
            ForwardResult result;
            const auto done = run.executor->forward(batch, result);
            return done ? -1 : static_cast<int>(done.error().code);
        };
        const int argument = static_cast<int>(ErrorCode::argument);
        QCOMPARE(code({1, 2}, 0, pages), -1);
        QCOMPARE(code({}, 0, pages), argument);
        QCOMPARE(code({1, run.files.config.vocab_size}, 0, pages), argument);
        QCOMPARE(code({-1}, 0, pages), argument);
        QCOMPARE(code(std::vector<TokenId>(17, 1), 0, pages), argument);
        QCOMPARE(code({1}, -1, pages), argument);
        QCOMPARE(code({1}, 1024, pages), argument);
        QCOMPARE(code({1}, std::numeric_limits<std::int64_t>::max(), pages), argument);
        QCOMPARE(code({1}, 256, {0}), argument);
        QCOMPARE(code({1}, 0, {8}), argument);
        QCOMPARE(code({1}, 0, {-1}), argument);
        QCOMPARE(code({1}, 1023, pages), -1);
    }

    void stopIsSeen()
    {
        const std::filesystem::path path = tiny(TinyFormat::fp16);
        Run run(path);
        std::stop_source source;
        source.request_stop();
        const std::vector<TokenId> tokens {1, 2};
        const std::vector<PageId> pages {0};
        Sequence s;
        s.tokens = tokens;
        s.pages = pages;
        Batch batch;
        batch.sequences = {&s, 1};
        batch.stop = source.get_token();
        ForwardResult result;
        QCOMPARE(run.executor->forward(batch, result).error().code, ErrorCode::cancelled);
        MemoryPlan plan;
        plan.max_context = 256;
        plan.kv_pages = 1;
        const auto loaded = loadReferenceExecutor(run.files.config, run.files.weights, plan, {}, source.get_token());
        QVERIFY(!loaded.has_value());
        QCOMPARE(loaded.error().code, ErrorCode::cancelled);
    }

    void loadingReportsProgressAndMemory()
    {
        const auto files = openModelFiles(tiny(TinyFormat::exl2));
        MemoryPlan plan;
        plan.max_context = 256;
        plan.kv_pages = 3;
        std::vector<double> seen;
        const auto loaded =
            loadReferenceExecutor(files->config, files->weights, plan, [&](double f) { seen.push_back(f); }, {});
        QVERIFY(loaded.has_value());
        QVERIFY(seen.size() >= 2 && std::is_sorted(seen.begin(), seen.end()) && seen.back() == 1.0);
        const MemoryReport memory = (*loaded)->memory();
        QCOMPARE(memory.kv.count, 2ll * 3 * kPageSize * 2 * 2 * 16 * 4);
        QVERIFY(memory.weights.count > files->weights.bytes);
        QCOMPARE(QString::fromStdString((*loaded)->device().kind), QString("reference"));
        plan.kv_pages = 1ll << 40;
        const auto refused = loadReferenceExecutor(files->config, files->weights, plan, {}, {});
        QCOMPARE(refused.error().code, ErrorCode::memory);
        QVERIFY(refused.error().message.find("GiB") != std::string::npos);
    }

    // A weight that is no number ends in one sentence that names the layer, not in an endless answer.
    void valuesThatAreNoNumbersAreReported()
    {
        const std::filesystem::path path = tiny(TinyFormat::fp16);
        ModelFiles files = std::move(openModelFiles(path)).value();
        const TensorView up = std::get<DenseLinear>(files.weights.layers[1].up.weight).weight;
        std::vector<std::byte> copy(up.data, up.data + up.bytes());
        copy[0] = std::byte {0};
        copy[1] = std::byte {0x7e}; // a NaN in FP16
        std::get<DenseLinear>(files.weights.layers[1].up.weight).weight.data = copy.data();
        MemoryPlan plan;
        plan.max_context = 256;
        plan.kv_pages = 1;
        const auto loaded = loadReferenceExecutor(files.config, files.weights, plan, {}, {});
        QVERIFY(loaded.has_value());
        const std::vector<TokenId> tokens {1, 2};
        const std::vector<PageId> pages {0};
        Sequence s;
        s.tokens = tokens;
        s.pages = pages;
        Batch batch;
        batch.sequences = {&s, 1};
        ForwardResult result;
        const auto done = (*loaded)->forward(batch, result);
        QVERIFY(!done.has_value());
        QVERIFY2(done.error().message.starts_with("Layer 1 computed"), done.error().message.c_str());
    }
};

QTEST_GUILESS_MAIN(tst_reference_executor)
#include "tst_reference_executor.moc"
