#include "app/chat/engine_worker.h"

#include <QFile>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

namespace puna::app {

namespace {

constexpr qint64 kFlushMs = 16; // one frame

QString sentence(const Error& error)
{
    return QString::fromStdString(error.message);
}

// Runs work; what it throws becomes a sentence.
template <class Work> std::optional<QString> guarded(Work work)
{
    try {
        work();
        return std::nullopt;
    } catch (const std::bad_alloc&) {
        return QStringLiteral("There was not enough memory. Load a smaller model or close other programs.");
    } catch (const std::exception& error) {
        spdlog::critical("engine: {}", error.what());
        return QStringLiteral("The engine failed (%1). Load the model again.")
            .arg(QString::fromLocal8Bit(error.what()));
    }
}

} // namespace

EngineWorker::EngineWorker(QObject* parent)
    : QObject(parent)
    , m_context(new QObject)
{
    m_thread.setObjectName(QStringLiteral("engine"));
    m_context->moveToThread(&m_thread);
    connect(&m_thread, &QThread::finished, m_context, &QObject::deleteLater);
    m_thread.start();
    m_sinceFlush.start();
    post([this] {
        const auto problem = guarded([this] { m_engine = std::make_unique<puna::Engine>(); });
        if (problem)
            spdlog::critical("engine: {}", problem->toStdString());
        const std::lock_guard lock(m_mutex);
        m_stoppable = m_engine.get();
    });
}

EngineWorker::~EngineWorker()
{
    finish();
}

template <class Work> void EngineWorker::post(Work work)
{
    QMetaObject::invokeMethod(m_context, std::move(work), Qt::QueuedConnection);
}

void EngineWorker::finish()
{
    if (!m_thread.isRunning())
        return;
    cancelLoad();
    {
        const std::lock_guard lock(m_mutex);
        if (m_stoppable)
            m_stoppable->requestStop();
    }
    post([this] {
        doUnload();
        const std::lock_guard lock(m_mutex);
        m_stoppable = nullptr;
        m_engine.reset();
    });
    QMetaObject::invokeMethod(
        m_context, [] {}, Qt::BlockingQueuedConnection);
    m_thread.quit();
    m_thread.wait();
}

int EngineWorker::stopLoading()
{
    const std::lock_guard lock(m_mutex);
    m_loadStop.request_stop();
    return ++m_loadSerial;
}

void EngineWorker::load(qint64 modelId, const QString& path, const QString& name)
{
    const int serial = stopLoading();
    post([this, load = Load {modelId, path, name, serial}] {
        if (m_pendingLoad)
            emit loadFailed(m_pendingLoad->modelId, {}, true);
        m_pendingLoad = load;
        emit loadStarted(load.modelId);
        schedulePump();
    });
}

void EngineWorker::cancelLoad()
{
    stopLoading();
    post([this] {
        if (m_pendingLoad)
            emit loadFailed(std::exchange(m_pendingLoad, std::nullopt)->modelId, {}, true);
        if (!m_engine || !m_engine->loaded())
            endWaiting(FinishReason::cancelled, {}); // they would wait for ever
        schedulePump();
    });
}

void EngineWorker::unload()
{
    cancelLoad();
    post([this] { doUnload(); });
}

void EngineWorker::submit(AnswerRequest request)
{
    post([this, request = std::move(request)]() mutable {
        m_waiting.push_back(std::move(request));
        const bool forModel = m_pendingLoad || !m_engine || !m_engine->loaded();
        emit answerWaiting(m_waiting.back().answerId, forModel);
        schedulePump();
    });
}

void EngineWorker::cancel(qint64 answerId)
{
    {
        const std::lock_guard lock(m_mutex);
        if (m_stoppable)
            m_stoppable->requestStop();
    }
    post([this, answerId] {
        const auto waiting = std::find_if(m_waiting.begin(), m_waiting.end(),
            [&](const AnswerRequest& request) { return request.answerId == answerId; });
        if (waiting != m_waiting.end()) {
            m_waiting.erase(waiting);
            end(answerId, FinishReason::cancelled, {}, {});
            return;
        }
        for (auto job = m_jobs.cbegin(); job != m_jobs.cend(); ++job)
            if (job->answerId == answerId)
                m_engine->cancel(job.key());
        schedulePump();
    });
}

void EngineWorker::schedulePump()
{
    if (m_pumpScheduled)
        return;
    m_pumpScheduled = true;
    post([this] {
        m_pumpScheduled = false;
        if (const auto problem = guarded([this] { pump(); }))
            failAll(*problem);
    });
}

void EngineWorker::pump()
{
    if (m_pendingLoad && m_jobs.empty()) {
        const Load load = *m_pendingLoad;
        m_pendingLoad.reset();
        startLoad(load);
        schedulePump();
        return;
    }
    if (!m_pendingLoad && m_engine && m_engine->loaded()) {
        while (!m_waiting.empty()) {
            const AnswerRequest request = std::move(m_waiting.front());
            m_waiting.pop_front();
            begin(request);
        }
    }
    if (!m_engine || !m_engine->busy())
        return;
    for (const Event& event : m_engine->step())
        handle(event);
    if (m_sinceFlush.elapsed() >= kFlushMs) {
        for (Job& job : m_jobs)
            flushText(job);
        m_sinceFlush.restart();
    }
    if (m_engine->busy() || m_pendingLoad)
        schedulePump();
}

void EngineWorker::begin(const AnswerRequest& request)
{
    Result<JobId> submitted = m_engine->submit(request.generation);
    if (!submitted) {
        end(request.answerId, FinishReason::failed, {}, sentence(submitted.error()));
        return;
    }
    m_jobs.insert(*submitted, Job {request.answerId, {}, 0});
    emit runningChanged(static_cast<int>(m_jobs.size()));
}

void EngineWorker::handle(const Event& event)
{
    const auto found = m_jobs.find(event.job);
    if (found == m_jobs.end())
        return;
    Job& job = *found;
    if (const auto* started = std::get_if<StartedEvent>(&event.what)) {
        emit answerStarted(job.answerId, static_cast<int>(started->prompt_tokens.size()),
            QString::fromStdString(started->note), started->starts_thinking);
    } else if (const auto* prefill = std::get_if<PrefillEvent>(&event.what)) {
        emit answerPrefill(job.answerId, prefill->done, prefill->total);
    } else if (const auto* text = std::get_if<TextEvent>(&event.what)) {
        job.text.append(text->text.data(), static_cast<qsizetype>(text->text.size()));
        job.tokens += static_cast<int>(text->tokens.size());
    } else if (const auto* finished = std::get_if<FinishedEvent>(&event.what)) {
        flushText(job);
        const qint64 answerId = job.answerId;
        m_jobs.erase(found);
        end(answerId, finished->reason, finished->statistics,
            finished->reason == FinishReason::failed ? sentence(finished->error) : QString());
        emit runningChanged(static_cast<int>(m_jobs.size()));
    }
}

void EngineWorker::flushText(Job& job)
{
    if (job.text.isEmpty() && job.tokens == 0)
        return;
    emit answerText(job.answerId, QString::fromUtf8(job.text), job.tokens);
    job.text.clear();
    job.tokens = 0;
}

void EngineWorker::startLoad(const Load& load)
{
    if (!m_engine) {
        emit loadFailed(load.modelId, QStringLiteral("The engine could not be started."), false);
        return;
    }
    std::stop_token stop;
    {
        const std::lock_guard lock(m_mutex);
        m_loadStop = std::stop_source();
        if (load.serial != m_loadSerial)
            m_loadStop.request_stop();
        stop = m_loadStop.get_token();
    }
    if (stop.stop_requested()) { // what is loaded stays
        emit loadFailed(load.modelId, {}, true);
        if (m_engine->loaded())
            emit loaded(m_modelId, m_engine->device(), m_engine->context());
        return;
    }
    double shown = 0.0;
    const auto progress = [&](double fraction) {
        if (fraction - shown < 0.01 && fraction < 1.0)
            return;
        shown = fraction;
        emit loadProgress(load.modelId, fraction);
    };
    Result<void> result;
    QElapsedTimer timer;
    timer.start();
    const auto problem = guarded([&] {
        result = m_engine->load(std::filesystem::path(QFile::encodeName(load.path).toStdString()), {}, progress, stop);
    });
    if (problem)
        result = Error {ErrorCode::device, problem->toStdString()};
    if (!result) {
        spdlog::warn("engine: loading {} failed: {}", load.path.toStdString(), result.error().message);
        m_modelName.clear();
        const bool cancelled = result.error().code == ErrorCode::cancelled;
        if (!cancelled)
            endWaiting(FinishReason::failed, sentence(result.error()));
        emit loadFailed(load.modelId, sentence(result.error()), cancelled);
        return;
    }
    m_modelName = load.name;
    m_modelId = load.modelId;
    const DeviceInfo device = m_engine->device();
    spdlog::info("engine: loaded {} on {} ({}) in {} ms, context {}", load.path.toStdString(), device.name,
        device.detail, timer.elapsed(), m_engine->context());
    emit loaded(load.modelId, device, m_engine->context());
}

void EngineWorker::doUnload()
{
    endWaiting(FinishReason::cancelled, {});
    const auto problem = guarded([this] {
        if (!m_engine)
            return;
        for (auto job = m_jobs.cbegin(); job != m_jobs.cend(); ++job)
            m_engine->cancel(job.key());
        for (int steps = 0; !m_jobs.empty() && m_engine->busy() && steps < 1000; ++steps)
            for (const Event& event : m_engine->step())
                handle(event);
        m_engine->unload();
    });
    for (QHash<JobId, Job> left = std::exchange(m_jobs, {}); Job & job : left) {
        flushText(job);
        end(job.answerId, FinishReason::cancelled, {}, {});
    }
    m_modelName.clear();
    if (problem)
        spdlog::error("engine: unloading: {}", problem->toStdString());
    emit runningChanged(0);
    emit unloaded();
}

void EngineWorker::endWaiting(FinishReason reason, const QString& error)
{
    for (std::deque<AnswerRequest> waiting = std::exchange(m_waiting, {}); const AnswerRequest& request : waiting)
        end(request.answerId, reason, {}, error);
}

void EngineWorker::failAll(const QString& problem)
{
    for (QHash<JobId, Job> jobs = std::exchange(m_jobs, {}); Job & job : jobs) {
        flushText(job);
        end(job.answerId, FinishReason::failed, {}, problem);
    }
    doUnload();
}

void EngineWorker::end(qint64 answerId, FinishReason reason, const Statistics& statistics, const QString& error)
{
    emit answerFinished(answerId, m_modelName, reason, statistics, error);
}

} // namespace puna::app
