// ConversationStore: chats, models and small facts in the database, as plain synchronous calls of one thread.
//
// A conversation is a tree of messages; the branch shown is the path to its head. A person's message is committed, with
// an empty answer in state Interrupted, before anything is generated; text is appended as rows of its own, so a long
// answer is never rewritten while it grows; finishAnswer() folds them. A process that dies at any point leaves what a
// clean stop leaves. Nothing a person wrote is removed: deleting a conversation marks it.
#pragma once

#include "app/storage/database.h"
#include "engine/run/event.h"

#include <QList>
#include <QString>

#include <vector>

namespace puna::app {

enum class MessageRole { System, User, Assistant };
enum class MessageState { Done, Interrupted, Stopped, Failed };

QString roleName(MessageRole role); // "user"
QString stateName(MessageState state); // "done"

struct ConversationSummary {
    qint64 id = 0;
    QString title;
    qint64 updatedMs = 0;

    bool operator==(const ConversationSummary&) const = default;
};

struct Message {
    qint64 id = 0;
    qint64 parentId = 0; // 0: the first
    MessageRole role = MessageRole::User;
    MessageState state = MessageState::Done;
    QString author;
    qint64 createdMs = 0;
    QString text;
    QString error;
    puna::Statistics statistics;
};

struct Conversation {
    qint64 id = 0;
    QString title;
    qint64 updatedMs = 0;
    qint64 headId = 0; // 0: no message
    QString draft;
    QString queued;
    std::vector<Message> messages; // in order of id; parents come before children
};

struct Turn { // a message and the answer that is to come
    ConversationSummary conversation;
    Message user;
    Message answer;
};

struct ModelRecord {
    qint64 id = 0;
    QString path; // canonical
    QString name;
    QString format;
    double bpw = 0.0;
    qint64 weightBytes = 0;
    qint64 maxContext = 0;
    qint64 usedMs = 0; // 0: never
};

class ConversationStore {
public:
    explicit ConversationStore(Database database)
        : m_database(std::move(database))
    {
    }

    // Once after opening: folds the text that answers of a dead process had. Returns how many there were.
    Result<int> settleInterrupted();

    Result<std::vector<ConversationSummary>> conversations(); // not those in the trash; latest change first
    Result<Conversation> conversation(qint64 id);

    // conversationId 0: a new one with a title made of the text. parentId 0: no message before it.
    Result<Turn> beginTurn(
        qint64 conversationId, qint64 parentId, const QString& text, const QString& author, qint64 nowMs);
    Result<Message> beginAnswer(qint64 conversationId, qint64 parentId, const QString& author, qint64 nowMs);
    Result<void> appendText(qint64 answerId, const QString& text);
    // The row becomes the answer (id, text, state, author, error, statistics); what was appended goes.
    Result<void> finishAnswer(const Message& answer);

    Result<void> setHead(qint64 conversationId, qint64 messageId);
    Result<void> rename(qint64 conversationId, const QString& title);
    Result<void> setDeleted(qint64 conversationId, bool deleted, qint64 nowMs);
    Result<void> setDraft(qint64 conversationId, const QString& draft, const QString& queued);

    Result<std::vector<ModelRecord>> models(); // the one used last first
    Result<ModelRecord> addModel(ModelRecord model, qint64 nowMs); // the same path: its facts are renewed
    Result<void> useModel(qint64 id, qint64 nowMs);
    Result<void> forgetModel(qint64 id);

    Result<QString> state(const QString& key); // empty: none
    Result<void> setState(const QString& key, const QString& value);

    Database& database() { return m_database; }

    static QString titleOf(const QString& text); // first words of a message, for a conversation without a title

private:
    Result<Message> insertMessage(qint64 conversationId, Message message);
    Result<QString> partsOf(qint64 messageId);

    Database m_database;
};

} // namespace puna::app
