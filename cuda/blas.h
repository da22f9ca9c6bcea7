// The vendor's matrix product (cuBLAS), if it is installed: found at run time, never linked. Long prompts are faster
// with it; without it gemm.h does everything.
//
// Weights are unpacked to halves, a slice of outputs at a time, and multiplied with float32 sums. Cost of unpacking:
// the packed bytes read, 2 bytes per weight written and read again.
#pragma once

#include "cuda/gemm.h"

#include <memory>

namespace puna::cuda {

class Blas {
public:
    // Null where the library is not installed or does not work.
    static std::unique_ptr<Blas> open(cudaStream_t stream);
    virtual ~Blas() = default;

    // False: not one for this product (few rows, a bias, row scales).
    virtual bool takes(const GemmArguments& a) const = 0;
    // scratch: [rows, n] floats, needed where a.row_max is set.
    virtual Result<void> multiply(const GemmArguments& a, float* scratch) = 0;
    virtual std::int64_t bytes() const = 0; // of device memory
};

} // namespace puna::cuda
