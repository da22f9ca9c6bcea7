// ChatController: the program as QML sees it, and the owner of its parts.
//
// Holds the store's and the engine's threads, the list of conversations, the model library and the open chat.
// There is always an open chat: at first start, and after newChat(), one that is stored with its first message.
// A chat that is generating lives on when another one is opened, until its answer is complete and stored.
// Made in C++ with a data folder; give it to a QML engine with provide() before any QML is loaded.
#pragma once

#include "app/chat/chat_session.h"
#include "app/chat/conversation_list_model.h"
#include "app/library/model_library.h"

#include <QObject>
#include <QQmlEngine>
#include <QString>
#include <QUrl>

#include <vector>

namespace puna::app {

class EngineWorker;
class StoreThread;

class ChatController : public QObject {
    Q_OBJECT
    QML_ELEMENT
    QML_SINGLETON
    Q_PROPERTY(puna::app::ConversationListModel* conversations READ conversations CONSTANT FINAL)
    Q_PROPERTY(puna::app::ModelLibrary* library READ library CONSTANT FINAL)
    Q_PROPERTY(puna::app::ChatSession* session READ session NOTIFY sessionChanged FINAL)
    // What a person should know about the stored chats (repaired, not readable, made by a newer Puna); else empty.
    Q_PROPERTY(QString startupProblem READ startupProblem NOTIFY startupProblemChanged FINAL)
    // Why the last change could not be written (disk full ...); empty again after the next write that succeeds.
    Q_PROPERTY(QString storageProblem READ storageProblem NOTIFY storageProblemChanged FINAL)
    Q_PROPERTY(bool canUndoDelete READ canUndoDelete NOTIFY canUndoDeleteChanged FINAL)

public:
    // dataFolder: an existing folder of this user's. Nothing blocks: chats and models appear when they are read.
    explicit ChatController(const QString& dataFolder, QObject* parent = nullptr);
    ~ChatController() override; // stops answers, stores what they have, closes the store

    // QML in this engine sees this controller. It must outlive the engine.
    void provide(QQmlEngine& engine);
    static ChatController* create(QQmlEngine* engine, QJSEngine* scriptEngine);

    ConversationListModel* conversations() { return m_conversations; }
    ModelLibrary* library() { return m_library; }
    ChatSession* session() { return m_session; }
    QString startupProblem() const { return m_startupProblem; }
    QString storageProblem() const { return m_storageProblem; }
    bool canUndoDelete() const { return !m_deleted.empty(); }

    Q_INVOKABLE void newChat();
    Q_INVOKABLE void openChat(qint64 id);
    Q_INVOKABLE void renameChat(qint64 id, const QString& title);
    Q_INVOKABLE void renameOpenChat(const QString& title) { renameChat(m_session->conversationId(), title); }
    Q_INVOKABLE void deleteOpenChat() { deleteChat(m_session->conversationId()); }
    Q_INVOKABLE void deleteChat(qint64 id); // to the trash; nothing is removed from the store
    Q_INVOKABLE void undoDelete(); // the last one deleted since the start comes back
    Q_INVOKABLE void importPaths(const QList<QUrl>& urls); // = library.importPaths

    StoreThread& store() { return *m_store; }

signals:
    void ready(); // chats and models have been read; once
    void sessionChanged();
    void startupProblemChanged();
    void storageProblemChanged();
    void canUndoDeleteChanged();

private:
    void start();
    ChatSession* makeSession();
    void setSession(ChatSession* session);
    void rememberOpen();
    void dropIdleSessions();

    StoreThread* m_store;
    EngineWorker* m_engine;
    ConversationListModel* m_conversations;
    ModelLibrary* m_library;
    ChatSession* m_session = nullptr;
    std::vector<ChatSession*> m_sessions; // the open one and those with an answer under way
    std::vector<qint64> m_deleted; // latest last
    QString m_startupProblem;
    QString m_storageProblem;
};

} // namespace puna::app
