#include "app/storage/conversation_store.h"

namespace puna::app {

namespace {

constexpr int kTitleLength = 48; // UTF-16 units of a made title, at most

Error noSuch(const char* what, qint64 id)
{
    return {
        ErrorCode::argument, std::string("There is no ") + what + " " + std::to_string(id) + " in the chat database."};
}

MessageRole roleOf(const QString& name)
{
    return name == QLatin1String("user")  ? MessageRole::User
        : name == QLatin1String("system") ? MessageRole::System
                                          : MessageRole::Assistant;
}

MessageState stateOf(const QString& name)
{
    return name == QLatin1String("done")   ? MessageState::Done
        : name == QLatin1String("stopped") ? MessageState::Stopped
        : name == QLatin1String("failed")  ? MessageState::Failed
                                           : MessageState::Interrupted;
}

} // namespace

QString roleName(MessageRole role)
{
    switch (role) {
    case MessageRole::System:
        return QStringLiteral("system");
    case MessageRole::User:
        return QStringLiteral("user");
    case MessageRole::Assistant:
        break;
    }
    return QStringLiteral("assistant");
}

QString stateName(MessageState state)
{
    switch (state) {
    case MessageState::Done:
        return QStringLiteral("done");
    case MessageState::Stopped:
        return QStringLiteral("stopped");
    case MessageState::Failed:
        return QStringLiteral("failed");
    case MessageState::Interrupted:
        break;
    }
    return QStringLiteral("interrupted");
}

QString ConversationStore::titleOf(const QString& text)
{
    const QString words = text.left(4 * kTitleLength).simplified();
    if (words.size() <= kTitleLength)
        return words;
    qsizetype end = words.lastIndexOf(QLatin1Char(' '), kTitleLength);
    if (end < kTitleLength / 2) { // one long word, or a script without spaces
        end = kTitleLength;
        if (words.at(end - 1).isHighSurrogate())
            --end;
    }
    return words.left(end) + QStringLiteral("…");
}

Result<int> ConversationStore::settleInterrupted()
{
    return m_database.transaction([&]() -> Result<int> {
        std::vector<qint64> ids;
        Statement statement = TRY(m_database.prepare("SELECT DISTINCT message_id FROM message_parts"));
        while (TRY(statement.step()))
            ids.push_back(statement.integer(0));
        for (const qint64 id : ids) {
            const QString parts = TRY(partsOf(id));
            TRY(m_database.run("UPDATE messages SET text = text || ? WHERE id = ?", parts, id));
            TRY(m_database.run("DELETE FROM message_parts WHERE message_id = ?", id));
        }
        return static_cast<int>(ids.size());
    });
}

Result<std::vector<ConversationSummary>> ConversationStore::conversations()
{
    Statement rows = TRY(m_database.prepare("SELECT id, title, updated_ms FROM conversations WHERE deleted_ms IS NULL "
                                            "ORDER BY updated_ms DESC, id DESC"));
    std::vector<ConversationSummary> result;
    while (TRY(rows.step()))
        result.push_back({rows.integer(0), rows.text(1), rows.integer(2)});
    return result;
}

Result<Conversation> ConversationStore::conversation(qint64 id)
{
    Statement row =
        TRY(m_database.query("SELECT title, updated_ms, head_id, draft, queued FROM conversations WHERE id = ?", id));
    if (!TRY(row.step()))
        return noSuch("chat", id);
    Conversation result {id, row.text(0), row.integer(1), row.integer(2), row.text(3), row.text(4), {}};
    Statement rows = TRY(m_database.query(
        "SELECT id, parent_id, role, state, author, created_ms, text, error, prompt_tokens, reused_tokens, tokens, "
        "prefill_s, decode_s, first_token_s FROM messages WHERE conversation_id = ? ORDER BY id",
        id));
    while (TRY(rows.step())) {
        Message message;
        message.id = rows.integer(0);
        message.parentId = rows.integer(1);
        message.role = roleOf(rows.text(2));
        message.state = stateOf(rows.text(3));
        message.author = rows.text(4);
        message.createdMs = rows.integer(5);
        message.text = rows.text(6);
        message.error = rows.text(7);
        message.statistics.prompt_tokens = static_cast<int>(rows.integer(8));
        message.statistics.reused_tokens = static_cast<int>(rows.integer(9));
        message.statistics.tokens = static_cast<int>(rows.integer(10));
        message.statistics.prefill_s = rows.real(11);
        message.statistics.decode_s = rows.real(12);
        message.statistics.first_token_s = rows.real(13);
        if (message.state == MessageState::Interrupted)
            message.text += TRY(partsOf(message.id));
        result.messages.push_back(std::move(message));
    }
    return result;
}

Result<Message> ConversationStore::insertMessage(qint64 conversationId, Message message)
{
    // A parent is of the same conversation; anything else would tie two trees together.
    if (message.parentId != 0
        && TRY(m_database.integer(
               "SELECT count(*) FROM messages WHERE id = ? AND conversation_id = ?", message.parentId, conversationId))
            == 0)
        return noSuch("message", message.parentId);
    TRY(m_database.run("INSERT INTO messages (conversation_id, parent_id, role, state, author, created_ms, text) "
                       "VALUES (?, nullif(?, 0), ?, ?, ?, ?, ?)",
        conversationId, message.parentId, roleName(message.role), stateName(message.state), message.author,
        message.createdMs, message.text));
    message.id = m_database.lastInsertId();
    TRY(m_database.run("UPDATE conversations SET head_id = ?, updated_ms = max(updated_ms, ?) WHERE id = ?", message.id,
        message.createdMs, conversationId));
    if (m_database.changes() != 1)
        return noSuch("chat", conversationId);
    return message;
}

Result<Turn> ConversationStore::beginTurn(
    qint64 conversationId, qint64 parentId, const QString& text, const QString& author, qint64 nowMs)
{
    return m_database.transaction([&]() -> Result<Turn> {
        Turn turn;
        turn.conversation.id = conversationId;
        if (conversationId == 0) {
            TRY(m_database.run("INSERT INTO conversations (title, created_ms, updated_ms) VALUES (?, ?, ?)",
                titleOf(text), nowMs, nowMs));
            turn.conversation.id = m_database.lastInsertId();
        }
        Message user;
        user.parentId = parentId;
        user.createdMs = nowMs;
        user.text = text;
        turn.user = TRY(insertMessage(turn.conversation.id, std::move(user)));
        Message answer;
        answer.parentId = turn.user.id;
        answer.role = MessageRole::Assistant;
        answer.state = MessageState::Interrupted;
        answer.author = author;
        answer.createdMs = nowMs;
        turn.answer = TRY(insertMessage(turn.conversation.id, std::move(answer)));
        TRY(m_database.run("UPDATE conversations SET draft = '', queued = '' WHERE id = ?", turn.conversation.id));
        Statement row =
            TRY(m_database.query("SELECT title, updated_ms FROM conversations WHERE id = ?", turn.conversation.id));
        TRY(row.step());
        turn.conversation.title = row.text(0);
        turn.conversation.updatedMs = row.integer(1);
        return turn;
    });
}

Result<Message> ConversationStore::beginAnswer(
    qint64 conversationId, qint64 parentId, const QString& author, qint64 nowMs)
{
    return m_database.transaction([&]() -> Result<Message> {
        Message answer;
        answer.parentId = parentId;
        answer.role = MessageRole::Assistant;
        answer.state = MessageState::Interrupted;
        answer.author = author;
        answer.createdMs = nowMs;
        return insertMessage(conversationId, std::move(answer));
    });
}

Result<void> ConversationStore::appendText(qint64 answerId, const QString& text)
{
    return m_database.run("INSERT INTO message_parts (message_id, text) VALUES (?, ?)", answerId, text);
}

Result<QString> ConversationStore::partsOf(qint64 messageId)
{
    Statement rows =
        TRY(m_database.query("SELECT text FROM message_parts WHERE message_id = ? ORDER BY id", messageId));
    QString text;
    while (TRY(rows.step()))
        text += rows.text(0);
    return text;
}

Result<void> ConversationStore::finishAnswer(const Message& answer)
{
    return m_database.transaction([&]() -> Result<void> {
        const puna::Statistics& statistics = answer.statistics;
        TRY(m_database.run("UPDATE messages SET text = ?, state = ?, author = ?, error = ?, prompt_tokens = ?, "
                           "reused_tokens = ?, tokens = ?, prefill_s = ?, decode_s = ?, first_token_s = ? WHERE id = ?",
            answer.text, stateName(answer.state), answer.author, answer.error, statistics.prompt_tokens,
            statistics.reused_tokens, statistics.tokens, statistics.prefill_s, statistics.decode_s,
            statistics.first_token_s, answer.id));
        if (m_database.changes() != 1)
            return noSuch("message", answer.id);
        return m_database.run("DELETE FROM message_parts WHERE message_id = ?", answer.id);
    });
}

Result<void> ConversationStore::setHead(qint64 conversationId, qint64 messageId)
{
    TRY(m_database.run("UPDATE conversations SET head_id = ?1 WHERE id = ?2 AND EXISTS "
                       "(SELECT 1 FROM messages WHERE id = ?1 AND conversation_id = ?2)",
        messageId, conversationId));
    return m_database.changes() == 1 ? Result<void>() : noSuch("message", messageId);
}

Result<void> ConversationStore::rename(qint64 conversationId, const QString& title)
{
    TRY(m_database.run("UPDATE conversations SET title = ? WHERE id = ?", title, conversationId));
    return m_database.changes() == 1 ? Result<void>() : noSuch("chat", conversationId);
}

Result<void> ConversationStore::setDeleted(qint64 conversationId, bool deleted, qint64 nowMs)
{
    TRY(m_database.run("UPDATE conversations SET deleted_ms = nullif(?, 0) WHERE id = ?", deleted ? nowMs : qint64(0),
        conversationId));
    return m_database.changes() == 1 ? Result<void>() : noSuch("chat", conversationId);
}

Result<void> ConversationStore::setDraft(qint64 conversationId, const QString& draft, const QString& queued)
{
    return m_database.run("UPDATE conversations SET draft = ?, queued = ? WHERE id = ?", draft, queued, conversationId);
}

Result<std::vector<ModelRecord>> ConversationStore::models()
{
    Statement rows = TRY(m_database.prepare("SELECT id, path, name, format, bpw, weight_bytes, max_context, used_ms "
                                            "FROM models ORDER BY used_ms DESC, id DESC"));
    std::vector<ModelRecord> result;
    while (TRY(rows.step()))
        result.push_back({rows.integer(0), rows.text(1), rows.text(2), rows.text(3), rows.real(4), rows.integer(5),
            rows.integer(6), rows.integer(7)});
    return result;
}

Result<ModelRecord> ConversationStore::addModel(ModelRecord model, qint64 nowMs)
{
    TRY(m_database.run("INSERT INTO models (path, name, format, bpw, weight_bytes, max_context, added_ms) "
                       "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET name = excluded.name, "
                       "format = excluded.format, bpw = excluded.bpw, weight_bytes = excluded.weight_bytes, "
                       "max_context = excluded.max_context",
        model.path, model.name, model.format, model.bpw, model.weightBytes, model.maxContext, nowMs));
    Statement row = TRY(m_database.query("SELECT id, used_ms FROM models WHERE path = ?", model.path));
    TRY(row.step());
    model.id = row.integer(0);
    model.usedMs = row.integer(1);
    return model;
}

Result<void> ConversationStore::useModel(qint64 id, qint64 nowMs)
{
    return m_database.run("UPDATE models SET used_ms = ? WHERE id = ?", nowMs, id);
}

Result<void> ConversationStore::forgetModel(qint64 id)
{
    return m_database.run("DELETE FROM models WHERE id = ?", id);
}

Result<QString> ConversationStore::state(const QString& key)
{
    Statement row = TRY(m_database.query("SELECT value FROM state WHERE key = ?", key));
    return TRY(row.step()) ? row.text(0) : QString();
}

Result<void> ConversationStore::setState(const QString& key, const QString& value)
{
    return m_database.run(
        "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key,
        value);
}

} // namespace puna::app
