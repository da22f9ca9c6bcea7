#include "engine/cpu/cpu_features.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <set>
#include <string_view>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace puna {

namespace {

std::string trimmedAfterColon(const std::string& line)
{
    const auto begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
}

CpuFeatures detect()
{
    CpuFeatures f;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vnni");
    unsigned a = 0, b = 0, c = 0, d = 0;
    f.f16c = avx2 && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    f.avx_vnni = avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4));
    if (avx512 && f.f16c)
        f.simd = SimdLevel::avx512_vnni;
    else if (avx2 && f.f16c)
        f.simd = SimdLevel::avx2;
#endif
    if (const char* wish = std::getenv("PUNA_SIMD")) {
        const std::string_view level = wish;
        if (level == "portable")
            f.simd = SimdLevel::portable;
        else if (level == "avx2")
            f.simd = std::min(f.simd, SimdLevel::avx2);
    }

    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    std::set<std::pair<int, int>> cores; // package, core
    int processors = 0, package = 0, core = 0, processor = -1;
    const auto add = [&] {
        if (processor >= 0 && (!known || CPU_ISSET(static_cast<std::size_t>(processor), &allowed))) {
            cores.insert({package, core});
            ++processors;
        }
    };
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        if (line.starts_with("processor")) {
            add();
            processor = std::atoi(trimmedAfterColon(line).c_str());
            core = processor; // where the file does not tell cores apart
        } else if (line.starts_with("physical id"))
            package = std::atoi(trimmedAfterColon(line).c_str());
        else if (line.starts_with("core id"))
            core = std::atoi(trimmedAfterColon(line).c_str());
        else if (f.name.empty() && line.starts_with("model name"))
            f.name = trimmedAfterColon(line);
    }
    add();
    f.physical_cores = std::max(1, static_cast<int>(cores.size()));
    if (f.name.empty())
        f.name = "CPU";
    return f;
}

} // namespace

const CpuFeatures& cpuFeatures()
{
    static const CpuFeatures features = detect();
    return features;
}

const char* simdName(SimdLevel level)
{
    switch (level) {
    case SimdLevel::portable: return "portable";
    case SimdLevel::avx2: return "AVX2";
    case SimdLevel::avx512_vnni: return "AVX-512 VNNI";
    }
    return "?";
}

} // namespace puna
