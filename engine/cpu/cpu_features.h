// What this processor can do, found once at run time.
#pragma once

#include <string>

namespace puna {

enum class SimdLevel { portable, avx2, avx512_vnni };

struct CpuFeatures {
    SimdLevel simd = SimdLevel::portable;
    bool f16c = false;
    bool avx_vnni = false; // VNNI on 256-bit registers
    int physical_cores = 1; // usable by this process
    std::string name;       // "Intel(R) Xeon(R) ...", for people
};

// PUNA_SIMD=portable|avx2|avx512 in the environment lowers (never raises) the level, for tests.
const CpuFeatures& cpuFeatures();

const char* simdName(SimdLevel level); // "AVX-512 VNNI" ...

} // namespace puna
