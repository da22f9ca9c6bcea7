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
    m_first_stage = t_stage = static_cast<std::uint32_t>(m_next.load(std::memory_order_relaxed) >> 32);
    m_active.store(0, std::memory_order_release);
    m_work.fetch_add(1, std::memory_order_release);
    m_work.notify_all();
    m_call(m_context, 0);
    // Nobody comes in any more, and everybody is out before the work's memory goes away.
    std::uint32_t active = m_active.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
    while (active != kClosed) {
        waitWhile(m_active, active);
        active = m_active.load(std::memory_order_acquire);
    }
}

void ThreadPool::serve(int thread)
{
    for (std::uint32_t seen = 0;;) {
        waitWhile(m_work, seen);
        seen = m_work.load(std::memory_order_acquire);
        if (m_quit)
            return;
        std::uint32_t active = m_active.load(std::memory_order_acquire);
        while (!(active & kClosed)
            && !m_active.compare_exchange_weak(
                active, active + 1, std::memory_order_acq_rel, std::memory_order_acquire)) { }
        if (active & kClosed)
            continue; // too late for this run
        t_stage = m_first_stage;
        m_call(m_context, thread);
        m_active.fetch_sub(1, std::memory_order_acq_rel);
        m_active.notify_all();
    }
}

// By the thread that finished the last item. As soon as m_next is written others may finish the stage after it: so
// m_stage is counted up, not written, and comes to the right number in any order.
void ThreadPool::finishStage()
{
    m_done.store(0, std::memory_order_relaxed);
    m_next.store(std::uint64_t {t_stage} << 32, std::memory_order_release); // t_stage is already the next
    m_stage.fetch_add(1, std::memory_order_release);
    m_stage.notify_all();
}

} // namespace puna
