// EngineWorker: the thread that owns the one Engine.
//
// Members are called on the GUI thread and return at once; signals come from the engine's thread and reach their
// receivers queued. Between two steps of the engine the thread looks at what was asked for, so submit, cancel and
// unload take effect within a step. Text is gathered to at most one signal per answer and 16 ms. A load waits for the
// answers under way and goes before those asked for after it; with no model loaded, requests wait for one. Nothing
// thrown in the engine leaves this class: it ends the answer or the load as a failure with a sentence.
#pragma once

#include "app/chat/generation_request.h"
#include "engine/engine.h"

#include <QElapsedTimer>
#include <QHash>
#include <QObject>
#include <QThread>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

namespace puna::app {

class EngineWorker : public QObject {
    Q_OBJECT

public:
    explicit EngineWorker(QObject* parent = nullptr);
    ~EngineWorker() override; // finish()

    void load(qint64 modelId, const QString& path, const QString& name);
    void cancelLoad(); // the one in progress and the one waiting
    void unload(); // answers under way end as stopped
    void submit(AnswerRequest request);
    void cancel(qint64 answerId); // its end comes by answerFinished
    void finish(); // ends everything and the thread

signals:
    void loadStarted(qint64 modelId);
    void loadProgress(qint64 modelId, double fraction);
    void loaded(qint64 modelId, const puna::DeviceInfo& device, qint64 contextTokens);
    void loadFailed(qint64 modelId, const QString& sentence, bool cancelled); // nothing is loaded now
    void unloaded();
    void runningChanged(int answers);

    void answerWaiting(qint64 answerId, bool forModel); // not started: no model yet, or others go first
    void answerStarted(qint64 answerId, int promptTokens, const QString& note, bool startsThinking);
    void answerPrefill(qint64 answerId, int done, int total);
    void answerText(qint64 answerId, const QString& text, int tokens);
    void answerFinished(qint64 answerId, const QString& modelName, puna::FinishReason reason,
        const puna::Statistics& statistics, const QString& error);

private:
    struct Load {
        qint64 modelId;
        QString path, name;
        int serial; // of m_loadSerial; another value there: no longer wanted
    };
    struct Job {
        qint64 answerId = 0;
        QByteArray text; // gathered, UTF-8
        int tokens = 0;
    };

    template <class Work> void post(Work work); // to the engine's thread
    int stopLoading(); // the serial for the next load
    // All below run there.
    void pump();
    void schedulePump();
    void begin(const AnswerRequest& request);
    void handle(const puna::Event& event);
    void flushText(Job& job);
    void startLoad(const Load& load);
    void doUnload();
    void failAll(const QString& sentence);
    void endWaiting(puna::FinishReason reason, const QString& error);
    void end(qint64 answerId, puna::FinishReason reason, const puna::Statistics& statistics, const QString& error);

    QThread m_thread;
    QObject* m_context; // lives in m_thread

    std::unique_ptr<puna::Engine> m_engine;
    qint64 m_modelId = 0;
    QString m_modelName;
    QHash<puna::JobId, Job> m_jobs;
    std::deque<AnswerRequest> m_waiting;
    std::optional<Load> m_pendingLoad;
    bool m_pumpScheduled = false;
    QElapsedTimer m_sinceFlush;

    std::mutex m_mutex; // for what is used on both threads:
    std::stop_source m_loadStop;
    int m_loadSerial = 0;
    puna::Engine* m_stoppable = nullptr; // for requestStop()
};

} // namespace puna::app
