#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace puna {

namespace {

using Candidate = std::pair<float, TokenId>;

// The larger weight first, the lower id among equals: a total order, so that the result is the same everywhere.
bool before(const Candidate& a, const Candidate& b)
{
    return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// splitmix64 (Steele, Lea, Flood 2014), as a hash of a counter.
std::uint64_t mix(std::uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// In [0, 1).
double uniform(std::uint64_t seed, std::uint64_t step)
{
    return static_cast<double>(mix(mix(seed) ^ step) >> 11) * 0x1p-53;
}

double mass(std::span<const Candidate> candidates)
{
    double sum = 0.0;
    for (const Candidate& c : candidates)
        sum += c.first;
    return sum;
}

std::string shown(double value)
{
    std::string text = std::to_string(value);
    if (text.find('.') != std::string::npos) {
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.')
            text.pop_back();
    }
    return text;
}

Error outOfRange(const char* name, double value, const char* expected)
{
    return {ErrorCode::argument,
        "The sampling parameter '" + std::string(name) + "' is " + shown(value) + ", expected " + expected + "."};
}

} // namespace

Result<void> checkSampling(const SamplingParams& p)
{
    // Written so that NaN fails.
    if (!(p.temperature >= 0.0f && p.temperature <= 100.0f))
        return outOfRange("temperature", p.temperature, "0 (greedy) to 100");
    if (p.top_k < 0)
        return outOfRange("top-k", p.top_k, "0 (off) or more");
    if (!(p.top_p >= 0.0f && p.top_p <= 1.0f))
        return outOfRange("top-p", p.top_p, "0 to 1 (off)");
    if (!(p.min_p >= 0.0f && p.min_p <= 1.0f))
        return outOfRange("min-p", p.min_p, "0 (off) to 1");
    if (!(p.repetition_penalty > 0.0f && p.repetition_penalty <= 100.0f))
        return outOfRange("repetition penalty", p.repetition_penalty, "above 0 up to 100 (1: off)");
    if (p.repetition_range < -1)
        return outOfRange("repetition range", p.repetition_range, "-1 (all) or more");
    return {};
}

Sampler::Sampler(const SamplingParams& params)
    : m_params(params)
{
}

void Sampler::penalise(std::span<float> logits, std::span<const TokenId> history)
{
    const float penalty = m_params.repetition_penalty;
    if (penalty == 1.0f)
        return;
    const auto range = static_cast<std::size_t>(m_params.repetition_range);
    const auto recent = m_params.repetition_range < 0 ? history : history.last(std::min(range, history.size()));
    m_recent.assign(recent.begin(), recent.end());
    std::sort(m_recent.begin(), m_recent.end());
    m_recent.erase(std::unique(m_recent.begin(), m_recent.end()), m_recent.end());
    for (const TokenId token : m_recent) {
        const auto i = static_cast<std::size_t>(token);
        if (token >= 0 && i < logits.size())
            logits[i] = logits[i] > 0.0f ? logits[i] / penalty : logits[i] * penalty;
    }
}

// Leaves the smallest set of candidates whose mass reaches top_p, sorted. Sorts no more of them than it must.
void Sampler::keepTopP()
{
    const double wanted = m_params.top_p * mass(m_candidates);
    double sum = 0.0;
    std::size_t sorted = 0;
    for (std::size_t kept = 0; kept < m_candidates.size();) {
        if (kept == sorted) {
            sorted = std::min(m_candidates.size(), sorted == 0 ? 64 : sorted * 8);
            std::partial_sort(m_candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                m_candidates.begin() + static_cast<std::ptrdiff_t>(sorted), m_candidates.end(), before);
        }
        sum += m_candidates[kept++].first;
        if (sum >= wanted) {
            m_candidates.resize(kept);
            return;
        }
    }
}

Result<TokenId> Sampler::sample(std::span<float> logits, std::span<const TokenId> history)
{
    // x - x is 0 for finite x and NaN otherwise; a sum of them vectorises.
    float strange = 0.0f;
    for (const float l : logits)
        strange += l - l;
    if (logits.empty() || !(strange == 0.0f))
        return Error {ErrorCode::format,
            "The model computed a value that is not a finite number; its weights are damaged. Import the model again."};
    penalise(logits, history);

    const auto best = std::max_element(logits.begin(), logits.end());
    if (m_params.temperature == 0.0f)
        return static_cast<TokenId>(best - logits.begin());

    // Weights are exp((l - max) / T): the largest is 1. Where nothing before min-p depends on the small ones, they
    // are left out from the start.
    const float scale = 1.0f / m_params.temperature;
    const float max = *best;
    const bool top_p = m_params.top_p < 1.0f;
    float floor = -104.0f; // exp of less is 0 in float32
    if (m_params.min_p > 0.0f && !top_p)
        floor = std::max(floor, std::log(m_params.min_p) - 1e-3f);
    m_candidates.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const float x = (logits[i] - max) * scale;
        if (x >= floor)
            m_candidates.emplace_back(std::exp(x), static_cast<TokenId>(i));
    }

    const auto top_k = static_cast<std::size_t>(m_params.top_k);
    if (top_k > 0 && top_k < m_candidates.size()) {
        std::partial_sort(m_candidates.begin(), m_candidates.begin() + static_cast<std::ptrdiff_t>(top_k),
            m_candidates.end(), before);
        m_candidates.resize(top_k);
    }
    if (top_p)
        keepTopP();
    if (m_params.min_p > 0.0f)
        std::erase_if(m_candidates, [this](const Candidate& c) { return c.first < m_params.min_p; });

    const double point = uniform(m_params.seed, history.size()) * mass(m_candidates);
    double sum = 0.0;
    for (const Candidate& c : m_candidates) {
        sum += c.first;
        if (sum > point)
            return c.second;
    }
    return m_candidates.back().second; // rounding
}

} // namespace puna
