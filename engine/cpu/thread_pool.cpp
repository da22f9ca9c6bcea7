#include "engine/cpu/thread_pool.h"

#include <chrono>

namespace puna {

namespace {

void pause()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

constexpr auto kSpin = std::chrono::microseconds(50);

} // namespace

ThreadPool::ThreadPool(int threads)
{
    try {
        for (int i = 1; i < threads; ++i)
            m_threads.emplace_back([this, i] { serve(i); });
    } catch (...) {
        m_quit = true;
        m_work.fetch_add(1, std::memory_order_release);
        m_work.notify_all();
        for (std::thread& thread : m_threads)
            thread.join();
        throw;
    }
}

ThreadPool::~ThreadPool()
{
    m_quit = true;
    m_work.fetch_add(1, std::memory_order_release);
    m_work.notify_all();
    for (std::thread& thread : m_threads)
        thread.join();
}

void ThreadPool::waitWhile(const std::atomic<std::uint32_t>& value, std::uint32_t old) const
{
    for (int i = 0; i < 64; ++i) {
        if (value.load(std::memory_order_acquire) != old)
            return;
        pause();
    }
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 16; ++i) {
            if (value.load(std::memory_order_acquire) != old)
                return;
            pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    value.wait(old, std::memory_order_acquire);
}

void ThreadPool::start()
{
    m_work.fetch_add(1, std::memory_order_release);
    m_work.notify_all();
    m_call(m_context, 0);
    barrier(); // everybody is out of the work before its memory goes away
}

void ThreadPool::serve(int thread)
{
    for (std::uint32_t seen = 0;; ++seen) {
        waitWhile(m_work, seen);
        if (m_quit)
            return;
        m_call(m_context, thread);
        barrier();
    }
}

void ThreadPool::barrier()
{
    const std::uint32_t phase = m_phase.load(std::memory_order_relaxed);
    if (m_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
        m_arrived.store(0, std::memory_order_relaxed);
        m_next.store(0, std::memory_order_relaxed);
        m_phase.store(phase + 1, std::memory_order_release);
        m_phase.notify_all();
    } else {
        waitWhile(m_phase, phase);
    }
}

} // namespace puna
