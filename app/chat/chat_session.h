// ChatSession: one conversation in memory, and the answer being written in it.
//
// Keeps the whole tree of messages; the branch that is shown is the path from the root to the head. Sending commits
// the person's message together with an empty answer (marked interrupted) before anything is generated; the text of
// the answer goes to the store at least every 0.4 s and to the block model as it arrives. Whatever ends the program,
// the store holds what was on the screen up to that interval. A regenerated answer or edited message is a sibling of
// the old one, which stays. Text sent while an answer is being written waits as `queued` and is sent after it.
#pragma once

#include "app/chat/block_model.h"
#include "app/storage/conversation_store.h"
#include "engine/run/event.h"

#include <QElapsedTimer>
#include <QHash>
#include <QObject>
#include <QQmlEngine>
#include <QSet>
#include <QTimer>

#include <vector>

namespace puna::app {

class EngineWorker;
class ModelLibrary;
class StoreThread;

class ChatSession : public QObject {
    Q_OBJECT
    QML_ELEMENT
    QML_UNCREATABLE("Made by ChatController")
    Q_PROPERTY(qint64 conversationId READ conversationId NOTIFY conversationIdChanged FINAL) // 0: not stored yet
    Q_PROPERTY(bool saved READ saved NOTIFY conversationIdChanged FINAL)
    Q_PROPERTY(QString title READ title NOTIFY titleChanged FINAL) // empty: nothing sent yet
    Q_PROPERTY(puna::app::BlockModel* blocks READ blocks CONSTANT FINAL)
    Q_PROPERTY(bool empty READ empty NOTIFY emptyChanged FINAL) // no message yet
    Q_PROPERTY(bool busy READ busy NOTIFY busyChanged FINAL) // an answer is under way; stop() ends it
    Q_PROPERTY(State state READ state NOTIFY stateChanged FINAL)
    Q_PROPERTY(QString stateText READ stateText NOTIFY stateChanged FINAL) // "reading prompt"; empty when idle
    Q_PROPERTY(double progress READ progress NOTIFY progressChanged FINAL) // 0 ... 1 of the prompt
    Q_PROPERTY(int contextUsed READ contextUsed NOTIFY contextChanged FINAL) // tokens; 0: not known yet
    Q_PROPERTY(int contextTotal READ contextTotal NOTIFY contextChanged FINAL) // tokens; 0: no model loaded
    Q_PROPERTY(QString draft READ draft WRITE setDraft NOTIFY draftChanged FINAL)
    Q_PROPERTY(QString error READ error NOTIFY errorChanged
            FINAL) // a card, for what no answer's error block tells; cleared by
    // dismissError() or the next send
    Q_PROPERTY(QString note READ note NOTIFY noteChanged FINAL) // what was changed to please the model's template
    Q_PROPERTY(bool canSend READ canSend NOTIFY canSendChanged FINAL) // there is a model to answer
    Q_PROPERTY(QString queued READ queued NOTIFY queuedChanged FINAL) // sent next; empty: nothing
    Q_PROPERTY(bool loading READ loading NOTIFY loadingChanged FINAL) // still being read from the store

public:
    enum class State { Idle, Waiting, LoadingModel, ReadingPrompt, Writing };
    Q_ENUM(State)

    ChatSession(StoreThread& store, EngineWorker& engine, ModelLibrary& library, QObject* parent = nullptr);

    void load(qint64 conversationId); // once, right after the constructor
    void loadNewChatDraft(); // the other way to begin

    qint64 conversationId() const { return m_conversationId; }
    bool saved() const { return m_conversationId != 0; }
    QString title() const { return m_title; }
    BlockModel* blocks() { return m_blocks; }
    bool empty() const { return m_headId == 0; }
    bool busy() const { return m_state != State::Idle; }
    State state() const { return m_state; }
    QString stateText() const;
    double progress() const { return m_progress; }
    int contextUsed() const { return m_contextUsed; }
    int contextTotal() const;
    QString draft() const { return m_draft; }
    void setDraft(const QString& draft);
    QString error() const { return m_error; }
    QString note() const { return m_note; }
    bool canSend() const;
    QString queued() const { return m_queued; }
    bool loading() const { return m_loading; }

    // Takes text out of the draft and sends or queues it. False: not sent (blank, or there is no model).
    Q_INVOKABLE bool send(const QString& text);
    Q_INVOKABLE void stop();
    Q_INVOKABLE void regenerate(qint64 messageId); // an answer; not while busy
    Q_INVOKABLE void selectVersion(qint64 messageId, int delta);
    Q_INVOKABLE void editAndResend(qint64 messageId, const QString& text); // own message; not while busy
    Q_INVOKABLE void copyText(qint64 messageId) const; // as it was written, to the clipboard
    Q_INVOKABLE QString messageText(qint64 messageId) const;
    Q_INVOKABLE qint64 lastMessageId(const QString& role) const; // on the branch shown; 0: none
    Q_INVOKABLE void removeQueued();
    Q_INVOKABLE void editQueued(); // back into the draft
    Q_INVOKABLE void dismissError();
    Q_INVOKABLE void dismissNote();

    void setTitle(const QString& title); // already stored
    void flush(); // hands everything not yet stored to the store thread; the owner calls it before the end
    bool hasUnstored() const { return !m_unstored.isEmpty(); } // an answer is complete but not yet committed

signals:
    void conversationIdChanged();
    void titleChanged();
    void emptyChanged();
    void busyChanged();
    void stateChanged();
    void progressChanged();
    void contextChanged();
    void draftChanged();
    void errorChanged();
    void noteChanged();
    void canSendChanged();
    void queuedChanged();
    void loadingChanged();
    void stored(const puna::app::ConversationSummary& conversation); // a message was committed
    void answerShown(qint64 answerId, int length); // characters of the answer on screen so far
    void answerEnded(qint64 answerId); // and handed to the store
    void settled(); // nothing under way any more

private:
    void adopt(Conversation conversation);
    void startTurn(qint64 parentId, const QString& text);
    void startAnswer(qint64 parentId);
    void generate(qint64 answerId);
    void setState(State state);
    void setError(const QString& error);
    void sendQueued();
    void saveDraft();
    void saveText();
    void storeAnswer(qint64 answerId);
    void showPath();
    const Message* message(qint64 id) const;
    Message* message(qint64 id);
    void addMessage(Message message);
    std::vector<const Message*> pathTo(qint64 id) const;
    std::vector<qint64> versionsOf(const Message& message) const;

    void onWaiting(qint64 answerId, bool forModel);
    void onStarted(qint64 answerId, int promptTokens, const QString& note, bool startsThinking);
    void onPrefill(qint64 answerId, int done, int total);
    void onText(qint64 answerId, const QString& text, int tokens);
    void onFinished(qint64 answerId, const QString& author, puna::FinishReason reason,
        const puna::Statistics& statistics, const QString& error);

    StoreThread& m_store;
    EngineWorker& m_engine;
    ModelLibrary& m_library;
    BlockModel* m_blocks;

    qint64 m_conversationId = 0;
    QString m_title;
    std::vector<Message> m_messages; // in order of id
    QHash<qint64, std::size_t> m_index; // id -> place in m_messages
    QHash<qint64, QList<qint64>> m_children; // parent (0: none) -> ids, oldest first
    qint64 m_headId = 0;

    State m_state = State::Idle;
    qint64 m_answerId = 0; // being written; 0: none, or not committed yet
    bool m_stopRequested = false;
    double m_progress = 0.0;
    int m_contextUsed = 0;
    QString m_unsaved; // text of the answer that the store has not been given
    QSet<qint64> m_unstored;
    bool m_loading = false;

    QString m_draft;
    bool m_draftSaved = true;
    QString m_queued;
    QString m_error;
    QString m_note;
    QTimer m_draftTimer;
    QTimer m_textTimer;
};

} // namespace puna::app
