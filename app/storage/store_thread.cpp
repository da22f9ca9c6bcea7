#include "app/storage/store_thread.h"

#include "app/storage/migrations.h"

#include <spdlog/spdlog.h>

namespace puna::app {

namespace {

Result<Database> inMemory()
{
    Database database = TRY(Database::open(QStringLiteral(":memory:")));
    TRY(migrate(database));
    return database;
}

} // namespace

StoreThread::StoreThread(const QString& folder, QObject* parent)
    : QObject(parent)
    , m_worker(new QObject)
{
    m_thread.setObjectName(QStringLiteral("store"));
    m_worker->moveToThread(&m_thread);
    connect(&m_thread, &QThread::finished, m_worker, &QObject::deleteLater);
    m_thread.start();
    QMetaObject::invokeMethod(m_worker, [this, folder] {
        Result<OpenedDatabase> chats = openChats(folder);
        QString notice;
        if (chats) {
            notice = chats->notice;
            m_store = std::make_unique<ConversationStore>(std::move(chats->database));
            if (Result<int> settled = m_store->settleInterrupted(); !settled)
                notice = QString::fromStdString(settled.error().message);
            else if (*settled > 0)
                spdlog::info("store: {} answers were interrupted last time", *settled);
        } else {
            spdlog::error("store: {}", chats.error().message);
            notice = QString::fromStdString(chats.error().message)
                + QStringLiteral(" Until that is solved, new chats are kept in memory only.");
            if (Result<Database> memory = inMemory())
                m_store = std::make_unique<ConversationStore>(std::move(memory).value());
        }
        deliver([this, notice] { emit opened(notice); });
    });
}

StoreThread::~StoreThread()
{
    finish();
}

void StoreThread::finish()
{
    if (!m_thread.isRunning())
        return;
    // Runs after everything posted before it.
    QMetaObject::invokeMethod(
        m_worker, [this] { m_store.reset(); }, Qt::BlockingQueuedConnection);
    m_thread.quit();
    m_thread.wait();
}

void StoreThread::post(std::function<void(ConversationStore&)> work)
{
    QMetaObject::invokeMethod(m_worker, [this, work = std::move(work)] {
        if (m_store)
            work(*m_store);
    });
}

void StoreThread::deliver(std::function<void()> result)
{
    QMetaObject::invokeMethod(this, std::move(result), Qt::QueuedConnection);
}

void StoreThread::write(std::function<Result<void>(ConversationStore&)> work)
{
    run(std::move(work), this, [this](const Result<void>& result) { report(result); });
}

void StoreThread::report(const Result<void>& result)
{
    if (result) {
        emit written();
        return;
    }
    spdlog::error("store: {}", result.error().message);
    emit writeFailed(QString::fromStdString(result.error().message));
}

} // namespace puna::app
