#include "engine/text/stream_decoder.h"

#include <algorithm>
#include <utility>

namespace puna {

StopMatcher::StopMatcher(std::vector<std::string> stops)
    : m_stops(std::move(stops))
{
    std::erase_if(m_stops, [](const std::string& s) { return s.empty(); });
}

std::string StopMatcher::push(std::string_view text)
{
    if (m_stopped)
        return {};
    m_held += text;
    std::size_t cut = std::string::npos; // the earliest match wins
    for (const std::string& stop : m_stops)
        cut = std::min(cut, m_held.find(stop));
    if (cut != std::string::npos) {
        m_stopped = true;
        std::string shown = m_held.substr(0, cut);
        m_held.clear();
        return shown;
    }
    std::size_t keep = 0; // the longest suffix that is a proper prefix of a stop string
    for (const std::string& stop : m_stops)
        for (std::size_t n = std::min(stop.size() - 1, m_held.size()); n > keep; --n)
            if (m_held.ends_with(std::string_view(stop).substr(0, n))) {
                keep = n;
                break;
            }
    std::string shown = m_held.substr(0, m_held.size() - keep);
    m_held.erase(0, shown.size());
    return shown;
}

std::string StopMatcher::finish()
{
    return std::exchange(m_held, {});
}

} // namespace puna
