// ThreadPool: a fixed set of threads that walk through one piece of work together.
//
// run() starts the same function on every thread, the caller being thread 0. Inside it, stage() hands out items in
// chunks, to whoever comes, and returns when all of them are done; so what a stage's items wrote, those of the next may
// read. Nobody waits for a thread that holds no item: one that the system has put aside (a busy desktop, more threads
// than processors) is left behind, finds the stages over that it missed, and helps again where the others are. So
// outside of items a thread must neither read what items write nor write what they read, and results must not depend
// on who took which item. Who has to wait spins for some 50 microseconds, about ten times what a balanced stage
// needs, and then sleeps in the kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace puna {

class ThreadPool {
public:
    explicit ThreadPool(int threads); // at least 1; throws std::system_error where the system has no more threads
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return static_cast<int>(m_threads.size()) + 1; }

    // work(int thread); must not throw.
    template <class Work> void run(Work&& work)
    {
        m_call = [](void* context, int thread) { (*static_cast<std::remove_reference_t<Work>*>(context))(thread); };
        m_context = &work;
        start();
    }

    // Within run(), called by every thread with the same numbers, in the same order: body(begin, end) until all items
    // are done.
    template <class Body> void stage(std::int64_t items, std::int64_t chunk, Body&& body)
    {
        if (items <= 0)
            return;
        const std::uint64_t number = t_stage++;
        std::uint64_t next = m_next.load(std::memory_order_acquire);
        for (;;) {
            if (next >> 32 != number)
                return; // over, without us
            const auto begin = static_cast<std::int64_t>(next & 0xffffffffu);
            if (begin >= items)
                break;
            const std::int64_t end = begin + chunk < items ? begin + chunk : items;
            if (!m_next.compare_exchange_weak(next, number << 32 | static_cast<std::uint64_t>(end),
                    std::memory_order_acq_rel, std::memory_order_acquire))
                continue;
            body(begin, end);
            if (m_done.fetch_add(end - begin, std::memory_order_acq_rel) + (end - begin) == items)
                return finishStage();
            next = m_next.load(std::memory_order_acquire);
        }
        // m_stage follows m_next; whoever came here in between looks again.
        while (m_next.load(std::memory_order_acquire) >> 32 == number)
            waitWhile(m_stage, static_cast<std::uint32_t>(number));
    }

private:
    void start();
    void serve(int thread);
    void waitWhile(const std::atomic<std::uint32_t>& value, std::uint32_t old) const;

    void finishStage();

    static constexpr std::uint32_t kClosed = 1u << 31;

    void (*m_call)(void*, int) = nullptr;
    void* m_context = nullptr;
    std::uint32_t m_first_stage = 0; // of this run
    alignas(64) std::atomic<std::uint32_t> m_work = 0; // counts calls of run()
    alignas(64) std::atomic<std::uint32_t> m_active = kClosed; // threads inside the work, beside the caller
    alignas(64) std::atomic<std::uint64_t> m_next = 0; // stage << 32 | first item that nobody has taken
    alignas(64) std::atomic<std::int64_t> m_done = 0; // items of the stage
    alignas(64) std::atomic<std::uint32_t> m_stage = 0; // counts stages; what sleepers watch
    bool m_quit = false;
    std::vector<std::thread> m_threads;

    inline static thread_local std::uint32_t t_stage = 0; // that the thread comes to next
};

} // namespace puna
