#include "engine/base/rope.h"

#include <cmath>
#include <numbers>

namespace puna {

std::vector<double> ropeFrequencies(const RopeConfig& rope)
{
    std::vector<double> frequencies(static_cast<std::size_t>(rope.rotary_dim / 2));
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
        double f = std::pow(rope.theta, -2.0 * static_cast<double>(j) / rope.rotary_dim);
        switch (rope.scaling) {
        case RopeScaling::none:
            break;
        case RopeScaling::linear:
            f /= rope.factor;
            break;
        case RopeScaling::llama3: {
            const double turns = rope.original_max_position * f / (2.0 * std::numbers::pi); // in the original context
            if (turns < rope.low_freq_factor)
                f /= rope.factor;
            else if (turns <= rope.high_freq_factor) {
                const double t = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
                f = (1.0 - t) * f / rope.factor + t * f;
            }
            break;
        }
        case RopeScaling::factors:
            f /= static_cast<double>(rope.frequency_factors[j]);
            break;
        }
        frequencies[j] = f;
    }
    return frequencies;
}

} // namespace puna
