// ThreadPool: a fixed set of threads that walk through one piece of work together.
//
// run() starts the same function on every thread, the caller being thread 0. Inside it, stage() hands out items in
// chunks, to whoever is free, and ends in a barrier; so what a stage wrote, the next may read. Results must not
// depend on who took which item. The barrier spins for some 50 microseconds, about ten times what a balanced
// stage needs, and then sleeps in the kernel, so that an interrupted thread never costs a core for longer than that.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
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

    // Within run(), called by every thread with the same numbers: body(begin, end) until all items are done.
    template <class Body> void stage(std::int64_t items, std::int64_t chunk, Body&& body)
    {
        for (;;) {
            const std::int64_t begin = m_next.fetch_add(chunk, std::memory_order_relaxed);
            if (begin >= items)
                break;
            body(begin, begin + chunk < items ? begin + chunk : items);
        }
        barrier();
    }

    void barrier();

private:
    void start();
    void serve(int thread);
    void waitWhile(const std::atomic<std::uint32_t>& value, std::uint32_t old) const;

    void (*m_call)(void*, int) = nullptr;
    void* m_context = nullptr;
    alignas(64) std::atomic<std::uint32_t> m_work = 0; // counts calls of run()
    alignas(64) std::atomic<std::uint32_t> m_phase = 0; // counts barriers
    alignas(64) std::atomic<int> m_arrived = 0;
    alignas(64) std::atomic<std::int64_t> m_next = 0; // first item of the stage that nobody has taken
    bool m_quit = false;
    std::vector<std::thread> m_threads;
};

} // namespace puna
