// The angles of RoPE: position times frequency in double precision, reduced, then cosine and sine as float.
#pragma once

namespace puna::cuda {

__device__ inline float2 rotation(int position, double frequency)
{
    constexpr double kTurn = 6.283185307179586;
    const double angle = position * frequency;
    const auto rest = static_cast<float>(angle - rint(angle / kTurn) * kTurn);
    float sine;
    float cosine;
    sincosf(rest, &sine, &cosine);
    return {cosine, sine};
}

// Element d of a head after rotation. turns: of each pair, in any memory.
template <class At> __device__ float rotated(const At& at, const float2* turns, int pairs, bool interleaved, int d)
{
    if (d >= 2 * pairs)
        return at(d);
    const int pair = interleaved ? d / 2 : d % pairs;
    const float first = at(interleaved ? 2 * pair : pair);
    const float second = at(interleaved ? 2 * pair + 1 : pair + pairs);
    const bool is_first = interleaved ? d % 2 == 0 : d < pairs;
    const float2 turn = turns[pair];
    return is_first ? first * turn.x - second * turn.y : second * turn.x + first * turn.y;
}

} // namespace puna::cuda
