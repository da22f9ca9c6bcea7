// The sampler against closed forms: what each stage keeps, and that draws follow the distribution.

#include "engine/sample/sampler.h"

#include <QTest>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

using namespace puna;

namespace {

// Logits of a distribution given by its probabilities.
std::vector<float> logitsOf(const std::vector<double>& probabilities, double shift = 0.0)
{
    std::vector<float> logits;
    for (const double p : probabilities)
        logits.push_back(static_cast<float>(std::log(p) + shift));
    return logits;
}

SamplingParams plain(float temperature = 1.0f)
{
    SamplingParams params;
    params.temperature = temperature;
    params.min_p = 0.0f;
    return params;
}

// Draws as a generator does: the history grows by one token per draw.
std::vector<int> counts(SamplingParams params, const std::vector<float>& logits, int draws)
{
    Sampler sampler(params);
    std::vector<int> seen(logits.size());
    std::vector<TokenId> history;
    for (int i = 0; i < draws; ++i) {
        std::vector<float> row = logits;
        const auto token = sampler.sample(row, history);
        if (!token)
            return {};
        ++seen[static_cast<std::size_t>(*token)];
        history.push_back(*token);
    }
    return seen;
}

std::set<TokenId> support(const SamplingParams& params, const std::vector<float>& logits)
{
    std::set<TokenId> ids;
    const auto seen = counts(params, logits, 4000);
    for (std::size_t i = 0; i < seen.size(); ++i)
        if (seen[i] > 0)
            ids.insert(static_cast<TokenId>(i));
    return ids;
}

double chiSquare(const std::vector<int>& seen, const std::vector<double>& expected)
{
    double total = 0.0;
    for (const int n : seen)
        total += n;
    double sum = 0.0;
    for (std::size_t i = 0; i < seen.size(); ++i)
        if (expected[i] > 0.0)
            sum += std::pow(seen[i] - total * expected[i], 2) / (total * expected[i]);
    return sum;
}

TokenId draw(const SamplingParams& params, std::vector<float> logits, std::vector<TokenId> history = {})
{
    return *Sampler(params).sample(logits, history);
}

} // namespace

class TestSampler : public QObject {
    Q_OBJECT

private slots:
    void greedyTakesTheLargest();
    void greedyTakesTheLowestIdAmongEquals();
    void drawsFollowTheDistribution_data();
    void drawsFollowTheDistribution();
    void topKKeepsTheLargest();
    void topKKeepsTheLowestIdsAmongEquals();
    void topPKeepsTheSmallestSetThatReachesIt_data();
    void topPKeepsTheSmallestSetThatReachesIt();
    void topPFindsItsSetInALargeVocabulary();
    void minPIsAShareOfTheLargest();
    void minPAloneEqualsMinPBehindTopP();
    void penaltyDividesPositiveAndMultipliesNegativeLogits();
    void penaltyCountsEachTokenOnce();
    void penaltyLooksBackItsRangeOnly();
    void penaltyIgnoresTokensOutsideOfTheLogits();
    void sameSeedAndPositionGiveTheSameToken();
    void seedsDiffer();
    void smallTemperaturesBecomeGreedy();
    void logitsThatAreNotFiniteFail_data();
    void logitsThatAreNotFiniteFail();
    void refusesParametersThatMakeNoSense_data();
    void refusesParametersThatMakeNoSense();
};

void TestSampler::greedyTakesTheLargest()
{
    QCOMPARE(draw(plain(0.0f), {-3.0f, 2.0f, 2.5f, -10.0f}), 2);
    QCOMPARE(draw(plain(0.0f), {-3.0f}), 0);
}

void TestSampler::greedyTakesTheLowestIdAmongEquals()
{
    QCOMPARE(draw(plain(0.0f), {1.0f, 7.0f, 7.0f, 7.0f}), 1);
}

void TestSampler::drawsFollowTheDistribution_data()
{
    QTest::addColumn<float>("temperature");
    QTest::addColumn<quint64>("seed");
    for (const float temperature : {0.5f, 1.0f, 2.0f})
        for (const quint64 seed : {0u, 1u, 2u, 12345u})
            QTest::addRow("T %.1f seed %llu", static_cast<double>(temperature), static_cast<unsigned long long>(seed))
                << temperature << seed;
}

void TestSampler::drawsFollowTheDistribution()
{
    QFETCH(float, temperature);
    QFETCH(quint64, seed);
    const std::vector<double> p {0.4, 0.3, 0.15, 0.1, 0.04, 0.01};
    std::vector<double> expected;
    double sum = 0.0;
    for (const double x : p)
        sum += std::pow(x, 1.0 / static_cast<double>(temperature));
    for (const double x : p)
        expected.push_back(std::pow(x, 1.0 / static_cast<double>(temperature)) / sum);
    SamplingParams params = plain(temperature);
    params.seed = seed;
    // 5 degrees of freedom: 20.5 is exceeded once in 1,000 runs; the seeds are fixed.
    QVERIFY2(
        chiSquare(counts(params, logitsOf(p, 30.0), 20000), expected) < 20.5, "draws do not follow softmax(l / T)");
}

void TestSampler::topKKeepsTheLargest()
{
    SamplingParams params = plain();
    params.top_k = 3;
    const std::vector<double> p {0.1, 0.3, 0.15, 0.4, 0.05};
    QCOMPARE(support(params, logitsOf(p)), (std::set<TokenId> {1, 2, 3}));
    const std::vector<double> expected {0.0, 0.3 / 0.85, 0.15 / 0.85, 0.4 / 0.85, 0.0};
    QVERIFY(chiSquare(counts(params, logitsOf(p), 20000), expected) < 13.8); // 2 degrees of freedom
    params.top_k = 50;
    QCOMPARE(support(params, logitsOf(p)).size(), std::size_t {5});
}

void TestSampler::topKKeepsTheLowestIdsAmongEquals()
{
    SamplingParams params = plain();
    params.top_k = 2;
    QCOMPARE(support(params, {1.0f, 1.0f, 1.0f, 0.0f}), (std::set<TokenId> {0, 1}));
}

void TestSampler::topPKeepsTheSmallestSetThatReachesIt_data()
{
    QTest::addColumn<float>("top_p");
    QTest::addColumn<int>("kept");
    QTest::addColumn<std::vector<float>>("logits");
    const std::vector<float> equal(4, 1.0f); // of mass 0.25 each, exactly
    QTest::newRow("0 keeps one") << 0.0f << 1 << equal;
    QTest::newRow("exactly one") << 0.25f << 1 << equal;
    QTest::newRow("crossing the second") << 0.26f << 2 << equal;
    QTest::newRow("exactly two") << 0.5f << 2 << equal;
    QTest::newRow("exactly three") << 0.75f << 3 << equal;
    QTest::newRow("crossing the fourth") << 0.76f << 4 << equal;
    QTest::newRow("off") << 1.0f << 4 << equal;
    const std::vector<float> falling = logitsOf({0.5, 0.3, 0.15, 0.05});
    QTest::newRow("below the first") << 0.45f << 1 << falling;
    QTest::newRow("the crossing one is kept") << 0.7f << 2 << falling;
    QTest::newRow("three") << 0.9f << 3 << falling;
    QTest::newRow("all") << 0.96f << 4 << falling;
}

void TestSampler::topPKeepsTheSmallestSetThatReachesIt()
{
    QFETCH(float, top_p);
    QFETCH(int, kept);
    QFETCH(std::vector<float>, logits);
    SamplingParams params = plain();
    params.top_p = top_p;
    std::set<TokenId> expected;
    for (TokenId id = 0; id < kept; ++id)
        expected.insert(id);
    QCOMPARE(support(params, logits), expected);
}

void TestSampler::topPFindsItsSetInALargeVocabulary()
{
    // 200 equal candidates: half of the mass is 100 of them, the lowest ids.
    SamplingParams params = plain();
    params.top_p = 0.4975f;
    std::vector<float> logits(200, 3.0f);
    const auto seen = counts(params, logits, 4000);
    QVERIFY(std::all_of(seen.begin(), seen.begin() + 100, [](int n) { return n > 0; }));
    QVERIFY(std::all_of(seen.begin() + 100, seen.end(), [](int n) { return n == 0; }));
}

void TestSampler::minPIsAShareOfTheLargest()
{
    SamplingParams params = plain();
    params.min_p = 0.2f;
    QCOMPARE(support(params, logitsOf({0.5, 0.11, 0.09, 0.3})), (std::set<TokenId> {0, 1, 3}));
    params.min_p = 1.0f;
    QCOMPARE(support(params, logitsOf({0.5, 0.2, 0.3})), (std::set<TokenId> {0}));
    // After the temperature: at 0.5 the shares are squared.
    params = plain(0.5f);
    params.min_p = 0.2f;
    QCOMPARE(support(params, logitsOf({0.5, 0.2, 0.3})), (std::set<TokenId> {0, 2}));
}

// Without top-p the small candidates are left out before the exponential; the result must be the same.
void TestSampler::minPAloneEqualsMinPBehindTopP()
{
    std::vector<double> p;
    for (int i = 0; i < 200; ++i)
        p.push_back(1.0 / (1 + (i * 37) % 200));
    SamplingParams alone = plain();
    alone.min_p = 0.05f;
    SamplingParams behind = alone;
    behind.top_p = 0.999999f;
    QCOMPARE(support(alone, logitsOf(p)), support(behind, logitsOf(p)));
}

void TestSampler::penaltyDividesPositiveAndMultipliesNegativeLogits()
{
    SamplingParams params = plain(0.0f);
    params.repetition_penalty = 2.0f;
    QCOMPARE(draw(params, {4.0f, 3.0f, -1.0f}, {0}), 1); // 4 becomes 2
    QCOMPARE(draw(params, {4.0f, 1.9f, -1.0f}, {0}), 0);
    QCOMPARE(draw(params, {-1.0f, -1.5f}, {0}), 1); // -1 becomes -2
    QCOMPARE(draw(params, {-1.0f, -2.5f}, {0}), 0);
}

void TestSampler::penaltyCountsEachTokenOnce()
{
    SamplingParams params = plain(0.0f);
    params.repetition_penalty = 2.0f;
    QCOMPARE(draw(params, {4.0f, 1.9f}, {0, 0, 0, 0}), 0);
}

void TestSampler::penaltyLooksBackItsRangeOnly()
{
    SamplingParams params = plain(0.0f);
    params.repetition_penalty = 2.0f;
    params.repetition_range = 2;
    QCOMPARE(draw(params, {4.0f, 3.0f, 2.5f}, {0, 1, 2}), 0);
    QCOMPARE(draw(params, {4.0f, 3.0f, 2.5f}, {1, 0, 2}), 1);
    params.repetition_range = 0;
    QCOMPARE(draw(params, {4.0f, 3.0f, 2.5f}, {0, 0, 0}), 0);
}

void TestSampler::penaltyIgnoresTokensOutsideOfTheLogits()
{
    SamplingParams params = plain(0.0f);
    params.repetition_penalty = 2.0f;
    QCOMPARE(draw(params, {4.0f, 3.0f}, {7, -1}), 0);
}

void TestSampler::sameSeedAndPositionGiveTheSameToken()
{
    SamplingParams params = plain();
    params.seed = 42;
    const std::vector<float> logits(1000, 1.0f);
    Sampler sampler(params);
    std::vector<TokenId> history {1, 2, 3};
    std::vector<float> row = logits;
    const TokenId first = *sampler.sample(row, history);
    for (int i = 0; i < 3; ++i) { // whatever was drawn in between
        std::vector<float> other = logits;
        (void)sampler.sample(other, std::vector<TokenId>(static_cast<std::size_t>(i)));
    }
    row = logits;
    QCOMPARE(*sampler.sample(row, history), first);
    QCOMPARE(draw(params, logits, history), first);
}

void TestSampler::seedsDiffer()
{
    const std::vector<float> logits(100000, 1.0f);
    std::set<TokenId> drawn;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        SamplingParams params = plain();
        params.seed = seed;
        drawn.insert(draw(params, logits));
    }
    QVERIFY(drawn.size() >= 19);
}

void TestSampler::smallTemperaturesBecomeGreedy()
{
    QCOMPARE(draw(plain(1e-6f), {1.0f, 1.001f, 0.5f}), 1);
    QCOMPARE(draw(plain(1e-30f), {-1e30f, 1e30f, 0.5f}), 1);
}

void TestSampler::logitsThatAreNotFiniteFail_data()
{
    QTest::addColumn<float>("value");
    QTest::newRow("nan") << std::numeric_limits<float>::quiet_NaN();
    QTest::newRow("inf") << std::numeric_limits<float>::infinity();
    QTest::newRow("-inf") << -std::numeric_limits<float>::infinity();
}

void TestSampler::logitsThatAreNotFiniteFail()
{
    QFETCH(float, value);
    for (const float temperature : {0.0f, 1.0f})
        for (const std::size_t at : {0u, 5u, 99u}) {
            std::vector<float> logits(100, 1.0f);
            logits[at] = value;
            const auto token = Sampler(plain(temperature)).sample(logits, {});
            QVERIFY(!token);
            QCOMPARE(token.error().code, ErrorCode::format);
        }
    std::vector<float> none;
    QVERIFY(!Sampler(plain()).sample(none, {}));
}

void TestSampler::refusesParametersThatMakeNoSense_data()
{
    QTest::addColumn<float>("temperature");
    QTest::addColumn<int>("top_k");
    QTest::addColumn<float>("top_p");
    QTest::addColumn<float>("min_p");
    QTest::addColumn<float>("penalty");
    QTest::addColumn<int>("range");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    QTest::newRow("temperature") << -0.1f << 0 << 1.0f << 0.0f << 1.0f << -1;
    QTest::newRow("temperature nan") << nan << 0 << 1.0f << 0.0f << 1.0f << -1;
    QTest::newRow("top-k") << 1.0f << -1 << 1.0f << 0.0f << 1.0f << -1;
    QTest::newRow("top-p") << 1.0f << 0 << 1.1f << 0.0f << 1.0f << -1;
    QTest::newRow("min-p") << 1.0f << 0 << 1.0f << nan << 1.0f << -1;
    QTest::newRow("penalty") << 1.0f << 0 << 1.0f << 0.0f << 0.0f << -1;
    QTest::newRow("range") << 1.0f << 0 << 1.0f << 0.0f << 1.0f << -2;
}

void TestSampler::refusesParametersThatMakeNoSense()
{
    QFETCH(float, temperature);
    QFETCH(int, top_k);
    QFETCH(float, top_p);
    QFETCH(float, min_p);
    QFETCH(float, penalty);
    QFETCH(int, range);
    const auto checked = checkSampling({temperature, top_k, top_p, min_p, penalty, range, 0});
    QVERIFY(!checked);
    QCOMPARE(checked.error().code, ErrorCode::argument);
    QVERIFY(checkSampling({}));
}

QTEST_GUILESS_MAIN(TestSampler)
#include "tst_sampler.moc"
