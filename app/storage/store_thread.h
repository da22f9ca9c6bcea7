// StoreThread: the thread that owns the ConversationStore. Work goes in as functions on the store, one after another;
// results come back on the thread of this object (the GUI's), unless their receiver is gone by then.
//
// The store opens in the background; work asked for meanwhile waits. Where it cannot be opened, one in memory takes
// its place, so that the program works, and opened() says why.
#pragma once

#include "app/storage/conversation_store.h"

#include <QObject>
#include <QPointer>
#include <QThread>

#include <functional>
#include <memory>

namespace puna::app {

class StoreThread : public QObject {
    Q_OBJECT

public:
    explicit StoreThread(const QString& folder, QObject* parent = nullptr);
    ~StoreThread() override; // finish()

    // work: ConversationStore& -> R; done: R -> void, called if receiver still lives.
    template <class Work, class Done> void run(Work work, QObject* receiver, Done done)
    {
        post([this, work = std::move(work), receiver = QPointer<QObject>(receiver), done = std::move(done)](
                 ConversationStore& store) mutable {
            deliver([result = std::make_shared<decltype(work(store))>(work(store)), receiver,
                        done = std::move(done)]() mutable {
                if (receiver)
                    done(std::move(*result));
            });
        });
    }
    // Writes whose failure only the person needs to know of.
    void write(std::function<Result<void>(ConversationStore&)> work);
    void report(const Result<void>& result); // of a write that was asked for with run()

    void finish(); // everything asked for is done and the store closed when this returns

signals:
    void opened(const QString& notice);
    void written(); // a write succeeded
    void writeFailed(const QString& sentence);

private:
    void post(std::function<void(ConversationStore&)> work);
    void deliver(std::function<void()> result); // from the store's thread

    QThread m_thread;
    QObject* m_worker; // lives in m_thread
    std::unique_ptr<ConversationStore> m_store; // used in m_thread only
};

} // namespace puna::app
