#include "app/chat/chat_controller.h"

#include "app/chat/engine_worker.h"
#include "app/storage/store_thread.h"

#include <QCoreApplication>
#include <QDateTime>

#include <spdlog/spdlog.h>

#include <algorithm>

namespace puna::app {

namespace {

constexpr char kProvided[] = "_puna_controller";
const QString kOpenChat = QStringLiteral("open_chat");
const QString kCurrentModel = QStringLiteral("current_model");

struct StartState {
    std::vector<ConversationSummary> conversations;
    std::vector<ModelRecord> models;
    qint64 openChat = 0;
    qint64 currentModel = 0;
    qint64 unfinishedLoad = 0;
};

Result<StartState> readStart(ConversationStore& store)
{
    StartState state;
    state.conversations = TRY(store.conversations());
    state.models = TRY(store.models());
    state.openChat = TRY(store.state(kOpenChat)).toLongLong();
    state.currentModel = TRY(store.state(kCurrentModel)).toLongLong();
    state.unfinishedLoad = TRY(store.state(ModelLibrary::unfinishedLoadKey())).toLongLong();
    return state;
}

} // namespace

ChatController::ChatController(const QString& dataFolder, QObject* parent)
    : QObject(parent)
    , m_store(new StoreThread(dataFolder, this))
    , m_engine(new EngineWorker(this))
    , m_conversations(new ConversationListModel(this))
    , m_library(new ModelLibrary(*m_store, *m_engine, this))
{
    connect(m_store, &StoreThread::opened, this, [this](const QString& notice) {
        if (notice.isEmpty())
            return;
        m_startupProblem = notice;
        emit startupProblemChanged();
    });
    connect(m_store, &StoreThread::writeFailed, this, [this](const QString& sentence) {
        m_storageProblem = sentence;
        emit storageProblemChanged();
    });
    connect(m_store, &StoreThread::written, this, [this] {
        if (m_storageProblem.isEmpty())
            return;
        m_storageProblem.clear();
        emit storageProblemChanged();
    });
    connect(m_library, &ModelLibrary::currentChanged, this, [this] {
        m_store->write([id = m_library->currentId()](
                           ConversationStore& store) { return store.setState(kCurrentModel, QString::number(id)); });
    });
    setSession(makeSession());
    start();
}

ChatController::~ChatController()
{
    m_engine->finish();
    QCoreApplication::sendPostedEvents(m_library, QEvent::MetaCall);
    for (ChatSession* session : m_sessions) {
        QCoreApplication::sendPostedEvents(session, QEvent::MetaCall); // the engine's last signals
        session->flush();
    }
    m_store->finish();
}

void ChatController::provide(QQmlEngine& engine)
{
    QJSEngine::setObjectOwnership(this, QJSEngine::CppOwnership);
    engine.setProperty(kProvided, QVariant::fromValue<QObject*>(this));
}

ChatController* ChatController::create(QQmlEngine* engine, QJSEngine*)
{
    return qobject_cast<ChatController*>(engine->property(kProvided).value<QObject*>());
}

void ChatController::start()
{
    m_store->run(readStart, this, [this](Result<StartState> result) {
        if (!result) {
            spdlog::error("start: {}", result.error().message);
            m_startupProblem = QString::fromStdString(result.error().message);
            emit startupProblemChanged();
        } else {
            m_conversations->setConversations(std::move(result->conversations));
            m_library->setModels(std::move(result->models), result->currentModel, result->unfinishedLoad);
            const bool untouched =
                m_session->conversationId() == 0 && !m_session->busy() && m_session->draft().isEmpty();
            if (untouched && m_conversations->rowOf(result->openChat) >= 0)
                openChat(result->openChat);
            else
                m_session->loadNewChatDraft();
        }
        emit ready();
    });
}

ChatSession* ChatController::makeSession()
{
    auto* session = new ChatSession(*m_store, *m_engine, *m_library, this);
    m_sessions.push_back(session);
    connect(session, &ChatSession::stored, this, [this, session](const ConversationSummary& conversation) {
        // A chat that was put into the trash meanwhile stays there.
        if (std::find(m_deleted.begin(), m_deleted.end(), conversation.id) != m_deleted.end())
            return;
        m_conversations->put(conversation);
        m_conversations->setBusy(conversation.id, session->busy());
        if (session == m_session)
            rememberOpen();
    });
    connect(session, &ChatSession::busyChanged, this,
        [this, session] { m_conversations->setBusy(session->conversationId(), session->busy()); });
    connect(session, &ChatSession::settled, this, &ChatController::dropIdleSessions);
    return session;
}

void ChatController::setSession(ChatSession* session)
{
    m_session = session;
    rememberOpen();
    emit sessionChanged();
    dropIdleSessions();
}

void ChatController::rememberOpen()
{
    const qint64 id = m_session->conversationId();
    if (m_conversations->currentId() == id)
        return;
    m_conversations->setCurrentId(id);
    m_store->write([id](ConversationStore& store) { return store.setState(kOpenChat, QString::number(id)); });
}

// Sessions that are neither open nor at work.
void ChatController::dropIdleSessions()
{
    std::erase_if(m_sessions, [this](ChatSession* session) {
        if (session == m_session || session->busy() || session->hasUnstored())
            return false;
        session->flush();
        session->deleteLater();
        return true;
    });
}

void ChatController::newChat()
{
    if (m_session->conversationId() == 0 && !m_session->busy())
        return;
    ChatSession* session = makeSession();
    session->loadNewChatDraft();
    setSession(session);
}

void ChatController::openChat(qint64 id)
{
    if (id == 0 || id == m_session->conversationId())
        return;
    const auto at = std::find_if(m_sessions.begin(), m_sessions.end(),
        [id](const ChatSession* session) { return session->conversationId() == id; });
    if (at != m_sessions.end()) {
        setSession(*at);
        return;
    }
    ChatSession* session = makeSession();
    session->load(id);
    session->setTitle(m_conversations->titleOf(id));
    setSession(session);
}

void ChatController::renameChat(qint64 id, const QString& title)
{
    const QString wanted = title.simplified();
    if (wanted.isEmpty() || id == 0)
        return;
    m_store->write([id, wanted](ConversationStore& store) { return store.rename(id, wanted); });
    m_conversations->setTitle(id, wanted);
    for (ChatSession* session : m_sessions)
        if (session->conversationId() == id)
            session->setTitle(wanted);
}

void ChatController::deleteChat(qint64 id)
{
    if (id == 0)
        return;
    for (ChatSession* session : m_sessions)
        if (session->conversationId() == id) {
            session->removeQueued();
            session->stop();
        }
    m_store->write(
        [id](ConversationStore& store) { return store.setDeleted(id, true, QDateTime::currentMSecsSinceEpoch()); });
    const int row = m_conversations->rowOf(id);
    m_conversations->remove(id);
    m_deleted.push_back(id);
    emit canUndoDeleteChanged();
    if (m_session->conversationId() != id)
        return;
    const qint64 next = m_conversations->idAt(std::min(row, m_conversations->count() - 1));
    if (next != 0)
        openChat(next);
    else
        newChat();
}

void ChatController::undoDelete()
{
    if (m_deleted.empty())
        return;
    const qint64 id = m_deleted.back();
    m_deleted.pop_back();
    emit canUndoDeleteChanged();
    m_store->write([id](ConversationStore& store) { return store.setDeleted(id, false, 0); });
    m_store->run([id](ConversationStore& store) { return store.conversation(id); }, this,
        [this, id](Result<Conversation> result) {
            if (!result)
                return;
            m_conversations->put({id, result->title, result->updatedMs});
            openChat(id);
        });
}

void ChatController::importPaths(const QList<QUrl>& urls)
{
    m_library->importPaths(urls);
}

} // namespace puna::app
