// ParallelFor: the plainest pool of threads that shares a range of indices.
//
// Work is handed out in chunks of `grain` from a counter; the calling thread takes part. Which thread computes what is
// not determined, so the work on an index must not depend on it. One caller at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace puna {

class ParallelFor {
public:
    using Work = std::function<void(std::int64_t begin, std::int64_t end, int thread)>;

    explicit ParallelFor(int threads)
    {
        for (int i = 1; i < threads; ++i)
            m_threads.emplace_back([this, i](std::stop_token stop) { help(stop, i); });
    }

    int threads() const { return static_cast<int>(m_threads.size()) + 1; }

    void operator()(std::int64_t count, std::int64_t grain, const Work& work)
    {
        m_count = count;
        m_grain = std::max<std::int64_t>(1, grain);
        m_work = &work;
        m_next = 0;
        if (m_threads.empty() || count <= m_grain) {
            share(0);
            return;
        }
        {
            const std::lock_guard lock(m_mutex);
            m_busy = static_cast<int>(m_threads.size());
            ++m_round;
        }
        m_wake.notify_all();
        share(0);
        std::unique_lock lock(m_mutex);
        m_done.wait(lock, [this] { return m_busy == 0; });
    }

private:
    void share(int thread)
    {
        for (std::int64_t begin; (begin = m_next.fetch_add(m_grain)) < m_count;)
            (*m_work)(begin, std::min(m_count, begin + m_grain), thread);
    }

    void help(const std::stop_token& stop, int thread)
    {
        for (std::uint64_t seen = 0;;) {
            {
                std::unique_lock lock(m_mutex);
                if (!m_wake.wait(lock, stop, [&] { return m_round != seen; }))
                    return;
                seen = m_round;
            }
            share(thread);
            const std::lock_guard lock(m_mutex);
            if (--m_busy == 0)
                m_done.notify_one();
        }
    }

    std::mutex m_mutex;
    std::condition_variable_any m_wake;
    std::condition_variable m_done;
    std::uint64_t m_round = 0;
    int m_busy = 0;
    const Work* m_work = nullptr;
    std::int64_t m_count = 0;
    std::int64_t m_grain = 1;
    std::atomic<std::int64_t> m_next = 0;
    std::vector<std::jthread> m_threads; // last: joined first
};

} // namespace puna
