// Instructions without a C++ spelling, and small device helpers.
#pragma once

#include <cstdint>
#include <cuda_fp16.h>

namespace puna::cuda {

// d += a b, m16n8k16, halves in, float sums. Lane 4g + t holds rows g and g + 8 of a, column g of b, rows g, g + 8 and
// columns 2t, 2t + 1 of d.
__device__ __forceinline__ void mma(
    float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t sharedAddress(const void* p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void ldmatrix4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix4Transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void copyAsync16(uint32_t to, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commitCopies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int Pending> __device__ __forceinline__ void waitCopies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
// Pending known only at run time: 0 ... 7.
__device__ __forceinline__ void waitCopies(int pending)
{
    switch (pending) {
    case 0:
        return waitCopies<0>();
    case 1:
        return waitCopies<1>();
    case 2:
        return waitCopies<2>();
    case 3:
        return waitCopies<3>();
    case 4:
        return waitCopies<4>();
    case 5:
        return waitCopies<5>();
    case 6:
        return waitCopies<6>();
    default:
        return waitCopies<7>();
    }
}

// Barriers in shared memory that count arriving bytes, and bulk copies that report to them.
__device__ __forceinline__ void initBarrier(uint32_t barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void expectBytes(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copyBulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void waitBarrier(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{\n .reg .pred p;\nAGAIN:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN;\n}" ::"r"(
            barrier),
        "r"(parity)
        : "memory");
}

// Programmatic dependent launch: let the next kernel start; wait until all before this one are done and visible.
__device__ __forceinline__ void startDependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void waitForPredecessors()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t bits(half2 h)
{
    return *reinterpret_cast<uint32_t*>(&h);
}
__device__ __forceinline__ half2 asHalf2(uint32_t u)
{
    return *reinterpret_cast<half2*>(&u);
}

__device__ __forceinline__ float warpSum(float v)
{
#pragma unroll
    for (int i = 16; i; i >>= 1)
        v += __shfl_xor_sync(~0u, v, i);
    return v;
}
__device__ __forceinline__ float warpMax(float v)
{
#pragma unroll
    for (int i = 16; i; i >>= 1)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
    return v;
}

// Powers of two that bring a row whose largest magnitude has these bits to 2^14 ... 2^15, and back: so that a half
// holds it without overflow, and small elements lose nothing.
__device__ __forceinline__ unsigned scaleExponent(unsigned largest)
{
    return static_cast<unsigned>(min(max(268 - static_cast<int>(largest >> 23), 1), 253));
}
__device__ __forceinline__ float scaleDown(unsigned largest)
{
    return __uint_as_float(scaleExponent(largest) << 23);
}
__device__ __forceinline__ float scaleUp(unsigned largest)
{
    return __uint_as_float((254u - scaleExponent(largest)) << 23);
}

// An unsigned integer that orders like the float (NaN above all).
__device__ __forceinline__ uint32_t ordered(float f)
{
    if (f != f)
        return 0xffffffffu;
    const uint32_t u = __float_as_uint(f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

} // namespace puna::cuda
