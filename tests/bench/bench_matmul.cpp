// The CPU executor's matrix kernels: every width, in matrices of the starter model and of an 8B one. One JSON line per
// case: nanoseconds per call of a whole matrix, GB/s of packed weights, their share of the read-only bandwidth measured
// at the start, and billions of multiplications per second. One row comes from memory (enough copies to leave no cache
// warm), many rows from wherever the matrix then is.
//     bench_matmul [threads]
#include "engine/cpu/buffer.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace puna;

namespace {

constexpr std::int64_t kCold = 256 << 20; // bytes that no cache holds

double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Body> double medianSeconds(int runs, Body&& body)
{
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
        const double begin = seconds();
        body();
        times.push_back(seconds() - begin);
    }
    std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
    return times[static_cast<std::size_t>(runs / 2)];
}

void randomBytes(std::byte* out, std::int64_t count)
{
    std::uint64_t state = 1;
    for (std::int64_t i = 0; i + 8 <= count; i += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::memcpy(out + i, &state, 8);
    }
}

struct Case {
    const char* format;
    WeightKind kind;
    int bits;
    int group; // rows
    Offset offset;
};

PackedLinear layout(const Case& c, std::int64_t k, std::int64_t n)
{
    PackedLinear p;
    p.kind = c.kind;
    p.offset = c.offset;
    p.in_features = k;
    p.out_features = n;
    p.stripes = n / kStripe;
    if (c.kind != WeightKind::codes) {
        p.stripe_bytes = k * kStripe * 2;
        return p;
    }
    p.blocks = k / kBlock;
    const int blocks_per_group = c.group / kBlock;
    p.groups = p.blocks / blocks_per_group;
    p.runs = {{c.bits, blocks_per_group, static_cast<std::int32_t>(p.groups), 0, 0, 0}};
    p.scales = p.blocks * c.bits * 64;
    p.offsets = p.scales + p.groups * kStripe * 2;
    p.stripe_bytes = (p.offsets + (c.offset == Offset::middle ? 0 : p.groups * kStripe * 2) + 63) / 64 * 64;
    return p;
}

} // namespace

int main(int argc, char** argv)
{
    const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : cpuFeatures().physical_cores;
    const Kernels& kernel = kernels(cpuFeatures().simd);
    ThreadPool pool(threads);
    Buffer weights(kCold + (64 << 20));
    randomBytes(weights.data(), weights.bytes());

    volatile std::uint64_t sink = 0;
    const double read_s = medianSeconds(5, [&] {
        pool.run([&](int thread) {
            const std::int64_t share = kCold / threads / 256 * 256;
            sink = kernel.readAll(weights.data() + thread * share, share);
        });
    });
    const double bandwidth = static_cast<double>(kCold) / read_s * 1e-9;
    std::printf("{\"op\": \"read\", \"device\": \"%s\", \"simd\": \"%s\", \"threads\": %d, \"gbps\": %.1f}\n",
        cpuFeatures().name.c_str(), simdName(kernel.level), threads, bandwidth);

    const Case cases[] = {{"Q4_1", WeightKind::codes, 4, 32, Offset::minimum},
        {"Q4_0", WeightKind::codes, 4, 32, Offset::middle}, {"Q8_0", WeightKind::codes, 8, 32, Offset::middle},
        {"EXL2", WeightKind::codes, 2, 64, Offset::middle}, {"EXL2", WeightKind::codes, 3, 128, Offset::middle},
        {"EXL2", WeightKind::codes, 4, 128, Offset::middle}, {"EXL2", WeightKind::codes, 5, 128, Offset::middle},
        {"EXL2", WeightKind::codes, 6, 128, Offset::middle}, {"EXL2", WeightKind::codes, 8, 128, Offset::middle},
        {"GPTQ", WeightKind::codes, 4, 64, Offset::zero}, {"F16", WeightKind::f16, 16, 0, Offset::middle}};
    constexpr std::int64_t kShapes[][2] = {{576, 1536}, {1536, 576}, {4096, 4096}}; // K, N
    for (const Case& c : cases)
        for (const auto& [k, n] : kShapes)
            for (const std::int64_t rows : {1, 4, 64}) {
                PackedLinear matrix = layout(c, k, n);
                const std::int64_t bytes = matrix.stripes * matrix.stripe_bytes;
                const std::int64_t copies = rows > 1 ? 1 : kCold / bytes;
                const std::int64_t places = rows * (k / kBlock);
                Buffer codes(places * kBlock * 2), values(places * kBlock * 4), numbers(places * 4);
                const std::int64_t tile = matrix.stripes * rows * kStripe;
                Buffer out(threads * tile * 4);
                randomBytes(codes.data(), codes.bytes());
                Input input;
                input.rows = rows;
                input.blocks = k / kBlock;
                input.codes = codes.as<std::int8_t>();
                input.scales = input.scaled_sums = numbers.as<float>();
                input.sums = numbers.as<std::int32_t>();
                input.values = values.as<float>();
                const auto once = [&] {
                    pool.run([&](int thread) {
                        for (std::int64_t copy = 0; copy < copies; ++copy) {
                            PackedLinear here = matrix;
                            here.data = weights.data() + copy * bytes;
                            pool.stage(matrix.stripes,
                                std::max<std::int64_t>(2, matrix.stripes / (8 * threads) / 2 * 2),
                                [&](std::int64_t begin, std::int64_t end) {
                                    kernel.matmul(here, begin, end - begin, input, out.as<float>() + thread * tile);
                                });
                        }
                    });
                };
                once();
                const double s = medianSeconds(5, once) / static_cast<double>(copies);
                const double gbps = static_cast<double>(bytes) / s * 1e-9;
                std::printf(
                    "{\"op\": \"matmul\", \"format\": \"%s\", \"bits\": %d, \"shape\": [%lld, %lld], \"rows\": %lld, "
                    "\"ns\": %.0f, \"gbps\": %.1f, \"bandwidth_share\": %.2f, \"gmacs\": %.0f}\n",
                    c.format, c.bits, static_cast<long long>(k), static_cast<long long>(n),
                    static_cast<long long>(rows), s * 1e9, gbps, gbps / bandwidth,
                    static_cast<double>(k * n * rows) / s * 1e-9);
            }
    return 0;
}
