#include "app/chat/chat_session.h"

#include "app/chat/engine_worker.h"
#include "app/library/model_library.h"
#include "app/storage/store_thread.h"

#include <QClipboard>
#include <QDateTime>
#include <QGuiApplication>
#include <QRandomGenerator>

#include <algorithm>
#include <utility>

namespace puna::app {

namespace {

constexpr int kDraftSaveMs = 500;
constexpr int kRetryMs = 2000; // after a write that failed
constexpr int kTextSaveMs = 400; // so that at most half a second is missing after a crash
const QString kNewChatDraft = QStringLiteral("new_chat_draft");

qint64 nowMs()
{
    return QDateTime::currentMSecsSinceEpoch();
}

} // namespace

ChatSession::ChatSession(StoreThread& store, EngineWorker& engine, ModelLibrary& library, QObject* parent)
    : QObject(parent)
    , m_store(store)
    , m_engine(engine)
    , m_library(library)
    , m_blocks(new BlockModel(this))
{
    m_draftTimer.setSingleShot(true);
    m_draftTimer.setInterval(kDraftSaveMs);
    connect(&m_draftTimer, &QTimer::timeout, this, &ChatSession::saveDraft);
    m_textTimer.setInterval(kTextSaveMs);
    connect(&m_textTimer, &QTimer::timeout, this, &ChatSession::saveText);

    connect(&engine, &EngineWorker::answerWaiting, this, &ChatSession::onWaiting);
    connect(&engine, &EngineWorker::answerStarted, this, &ChatSession::onStarted);
    connect(&engine, &EngineWorker::answerPrefill, this, &ChatSession::onPrefill);
    connect(&engine, &EngineWorker::answerText, this, &ChatSession::onText);
    connect(&engine, &EngineWorker::answerFinished, this, &ChatSession::onFinished);
    connect(&library, &ModelLibrary::stateChanged, this, &ChatSession::canSendChanged);
    connect(&library, &ModelLibrary::currentChanged, this, &ChatSession::canSendChanged);
    connect(&library, &ModelLibrary::deviceChanged, this, &ChatSession::contextChanged);
    connect(&library, &ModelLibrary::stateChanged, this, [this] {
        if (m_state == State::Waiting && m_library.state() == ModelLibrary::State::Loading)
            setState(State::LoadingModel);
        else if (m_state == State::LoadingModel && m_library.state() == ModelLibrary::State::Ready)
            setState(State::Waiting);
    });
}

void ChatSession::load(qint64 conversationId)
{
    m_conversationId = conversationId;
    m_loading = true;
    emit conversationIdChanged();
    emit loadingChanged();
    m_store.run([conversationId](ConversationStore& store) { return store.conversation(conversationId); }, this,
        [this](Result<Conversation> result) {
            m_loading = false;
            if (result)
                adopt(std::move(result).value());
            else
                setError(QString::fromStdString(result.error().message));
            emit loadingChanged();
        });
}

void ChatSession::loadNewChatDraft()
{
    m_store.run([](ConversationStore& store) { return store.state(kNewChatDraft); }, this,
        [this](Result<QString> draft) {
            if (!draft || draft->isEmpty() || !m_draft.isEmpty() || m_conversationId != 0)
                return;
            m_draft = *draft;
            emit draftChanged();
        });
}

void ChatSession::adopt(Conversation conversation)
{
    m_title = conversation.title;
    for (Message& message : conversation.messages)
        addMessage(std::move(message));
    m_headId = m_index.contains(conversation.headId) ? conversation.headId : 0;
    if (m_headId == 0 && !m_messages.empty())
        m_headId = m_messages.back().id;
    // What was waiting to be sent when the program ended becomes text to be sent again.
    QStringList draft {m_draft, conversation.queued, conversation.draft};
    draft.removeAll(QString());
    m_draft = draft.join(QStringLiteral("\n\n"));
    showPath();
    for (const Message* shown : pathTo(m_headId))
        if (shown->role == MessageRole::Assistant && shown->statistics.tokens > 0)
            m_contextUsed = shown->statistics.prompt_tokens + shown->statistics.tokens;
    emit titleChanged();
    emit emptyChanged();
    emit draftChanged();
    emit contextChanged();
}

QString ChatSession::stateText() const
{
    switch (m_state) {
    case State::Idle:
        return {};
    case State::Waiting:
        return tr("waiting");
    case State::LoadingModel:
        return tr("loading model");
    case State::ReadingPrompt:
        return tr("reading prompt");
    case State::Writing:
        return tr("writing");
    }
    return {};
}

int ChatSession::contextTotal() const
{
    return m_library.contextTokens();
}

bool ChatSession::canSend() const
{
    return m_library.canAnswer();
}

void ChatSession::setState(State state)
{
    if (m_state == state)
        return;
    const bool wasBusy = busy();
    m_state = state;
    emit stateChanged();
    if (wasBusy != busy())
        emit busyChanged();
}

void ChatSession::setError(const QString& error)
{
    if (m_error == error)
        return;
    m_error = error;
    emit errorChanged();
}

void ChatSession::dismissError()
{
    setError({});
}

void ChatSession::dismissNote()
{
    if (m_note.isEmpty())
        return;
    m_note.clear();
    emit noteChanged();
}

void ChatSession::setTitle(const QString& title)
{
    if (m_title == title)
        return;
    m_title = title;
    emit titleChanged();
}

// --- the tree

void ChatSession::addMessage(Message message)
{
    m_index.insert(message.id, m_messages.size());
    m_children[message.parentId].append(message.id);
    m_messages.push_back(std::move(message));
}

const Message* ChatSession::message(qint64 id) const
{
    const auto place = m_index.constFind(id);
    return place == m_index.cend() ? nullptr : &m_messages[*place];
}

Message* ChatSession::message(qint64 id)
{
    return const_cast<Message*>(std::as_const(*this).message(id));
}

std::vector<const Message*> ChatSession::pathTo(qint64 id) const
{
    std::vector<const Message*> path;
    for (const Message* at = message(id); at && path.size() <= m_messages.size(); at = message(at->parentId))
        path.push_back(at);
    std::reverse(path.begin(), path.end());
    return path;
}

std::vector<qint64> ChatSession::versionsOf(const Message& of) const
{
    std::vector<qint64> versions;
    for (const qint64 id : m_children.value(of.parentId))
        if (message(id)->role == of.role)
            versions.push_back(id);
    return versions;
}

void ChatSession::showPath()
{
    std::vector<BlockModel::Shown> path;
    for (const Message* at : pathTo(m_headId)) {
        const std::vector<qint64> versions = versionsOf(*at);
        const auto place = std::find(versions.begin(), versions.end(), at->id);
        path.push_back({at, static_cast<int>(place - versions.begin()) + 1, static_cast<int>(versions.size()),
            at->id == m_answerId});
    }
    m_blocks->showPath(path);
}

QString ChatSession::messageText(qint64 messageId) const
{
    const Message* at = message(messageId);
    return at ? at->text : QString();
}

void ChatSession::copyText(qint64 messageId) const
{
    if (const Message* at = message(messageId))
        QGuiApplication::clipboard()->setText(at->text);
}

qint64 ChatSession::lastMessageId(const QString& role) const
{
    const std::vector<const Message*> path = pathTo(m_headId);
    const auto found =
        std::find_if(path.rbegin(), path.rend(), [&role](const Message* at) { return roleName(at->role) == role; });
    return found == path.rend() ? 0 : (*found)->id;
}

// --- sending

bool ChatSession::send(const QString& text)
{
    if (text.trimmed().isEmpty() || !canSend() || m_loading)
        return false;
    setError({});
    if (busy()) {
        m_queued = m_queued.isEmpty() ? text : m_queued + QStringLiteral("\n\n") + text;
        emit queuedChanged();
    } else {
        startTurn(m_headId, text);
    }
    setDraft({});
    saveDraft();
    return true;
}

void ChatSession::startTurn(qint64 parentId, const QString& text)
{
    setState(State::Waiting);
    m_stopRequested = false;
    m_store.run(
        [conversationId = m_conversationId, parentId, text, author = m_library.currentName()](
            ConversationStore& store) { return store.beginTurn(conversationId, parentId, text, author, nowMs()); },
        this,
        [this, text](Result<Turn> result) {
            if (!result) { // what was typed is not lost
                setState(State::Idle);
                setError(QString::fromStdString(result.error().message));
                setDraft(m_draft.isEmpty() ? text : text + QStringLiteral("\n\n") + m_draft);
                emit settled();
                return;
            }
            Turn turn = std::move(result).value();
            const bool isNew = m_conversationId == 0;
            if (isNew) {
                m_conversationId = turn.conversation.id;
                m_store.write([](ConversationStore& store) { return store.setState(kNewChatDraft, {}); });
                setTitle(turn.conversation.title);
                emit conversationIdChanged();
            }
            const qint64 answerId = turn.answer.id;
            addMessage(std::move(turn.user));
            addMessage(std::move(turn.answer));
            emit stored(turn.conversation);
            generate(answerId);
        });
}

void ChatSession::startAnswer(qint64 parentId)
{
    setState(State::Waiting);
    m_stopRequested = false;
    m_store.run([conversationId = m_conversationId, parentId, author = m_library.currentName()](
                    ConversationStore& store) { return store.beginAnswer(conversationId, parentId, author, nowMs()); },
        this,
        [this](Result<Message> result) {
            if (!result) {
                setState(State::Idle);
                setError(QString::fromStdString(result.error().message));
                emit settled();
                return;
            }
            const qint64 answerId = result->id;
            const qint64 updatedMs = result->createdMs;
            addMessage(std::move(result).value());
            emit stored({m_conversationId, m_title, updatedMs});
            generate(answerId);
        });
}

// The answer's row is committed; everything on the path before it is the prompt.
void ChatSession::generate(qint64 answerId)
{
    const bool wasEmpty = empty();
    m_answerId = answerId;
    m_headId = answerId;
    m_unsaved.clear();
    m_progress = 0.0;
    showPath();
    if (wasEmpty)
        emit emptyChanged();
    emit progressChanged();
    dismissNote();

    AnswerRequest request {answerId, {}};
    ChatPrompt prompt;
    for (const Message* at : pathTo(message(answerId)->parentId))
        prompt.messages.push_back({roleName(at->role).toStdString(), at->text.toStdString()});
    request.generation.prompt = std::move(prompt);
    request.generation.sampling.seed = QRandomGenerator::system()->generate64();
    m_textTimer.start();
    if (m_stopRequested) {
        onFinished(answerId, message(answerId)->author, FinishReason::cancelled, {}, {});
        return;
    }
    m_library.ensureLoaded();
    m_engine.submit(std::move(request));
}

void ChatSession::stop()
{
    m_stopRequested = true; // also for an answer whose row is only being committed
    if (m_answerId != 0)
        m_engine.cancel(m_answerId);
}

void ChatSession::regenerate(qint64 messageId)
{
    const Message* at = message(messageId);
    if (!at || at->role != MessageRole::Assistant || at->parentId == 0 || busy() || !canSend())
        return;
    setError({});
    startAnswer(at->parentId);
}

void ChatSession::editAndResend(qint64 messageId, const QString& text)
{
    const Message* at = message(messageId);
    if (!at || at->role != MessageRole::User || text.trimmed().isEmpty() || busy() || !canSend())
        return;
    setError({});
    startTurn(at->parentId, text);
}

void ChatSession::selectVersion(qint64 messageId, int delta)
{
    const Message* at = message(messageId);
    if (!at)
        return;
    const std::vector<qint64> versions = versionsOf(*at);
    const auto place = std::find(versions.begin(), versions.end(), messageId) - versions.begin() + delta;
    if (delta == 0 || place < 0 || place >= static_cast<std::ptrdiff_t>(versions.size()))
        return;
    // From there down to the latest message.
    qint64 head = versions[static_cast<std::size_t>(place)];
    for (QList<qint64> children = m_children.value(head); !children.isEmpty(); children = m_children.value(head))
        head = children.last();
    m_headId = head;
    showPath();
    m_store.write([conversationId = m_conversationId, head](
                      ConversationStore& store) { return store.setHead(conversationId, head); });
}

void ChatSession::removeQueued()
{
    if (m_queued.isEmpty())
        return;
    m_queued.clear();
    emit queuedChanged();
    m_draftSaved = false;
    saveDraft();
}

void ChatSession::editQueued()
{
    if (m_queued.isEmpty())
        return;
    setDraft(m_draft.isEmpty() ? m_queued : m_queued + QStringLiteral("\n\n") + m_draft);
    removeQueued();
}

void ChatSession::sendQueued()
{
    if (m_queued.isEmpty() || !canSend())
        return;
    const QString text = std::exchange(m_queued, {});
    emit queuedChanged();
    startTurn(m_headId, text);
}

// --- what the store is given

void ChatSession::setDraft(const QString& draft)
{
    if (m_draft == draft)
        return;
    m_draft = draft;
    m_draftSaved = false;
    m_draftTimer.start();
    emit draftChanged();
}

void ChatSession::saveDraft()
{
    m_draftTimer.stop();
    if (std::exchange(m_draftSaved, true) && m_queued.isEmpty())
        return;
    if (m_conversationId == 0)
        m_store.write([draft = m_draft](ConversationStore& store) { return store.setState(kNewChatDraft, draft); });
    else
        m_store.write([id = m_conversationId, draft = m_draft, queued = m_queued](
                          ConversationStore& store) { return store.setDraft(id, draft, queued); });
}

void ChatSession::saveText()
{
    if (m_answerId == 0 || m_unsaved.isEmpty())
        return;
    const QString text = std::exchange(m_unsaved, {});
    m_store.run([id = m_answerId, text](ConversationStore& store) { return store.appendText(id, text); }, this,
        [this, id = m_answerId, text](const Result<void>& result) {
            m_store.report(result);
            if (!result && id == m_answerId) // the next interval tries again
                m_unsaved.prepend(text);
        });
}

void ChatSession::storeAnswer(qint64 answerId)
{
    m_unstored.insert(answerId);
    m_store.run([answer = *message(answerId)](ConversationStore& store) { return store.finishAnswer(answer); }, this,
        [this, answerId](const Result<void>& result) {
            m_store.report(result);
            if (result) {
                m_unstored.remove(answerId);
                if (!busy())
                    emit settled();
                return;
            }
            QTimer::singleShot(kRetryMs, this, [this, answerId] { storeAnswer(answerId); });
        });
}

void ChatSession::flush()
{
    saveText();
    for (const qint64 answerId : QSet<qint64>(m_unstored))
        storeAnswer(answerId);
    if (!m_draftSaved)
        saveDraft();
}

// --- what the engine says

void ChatSession::onWaiting(qint64 answerId, bool forModel)
{
    if (answerId == m_answerId)
        setState(forModel && m_library.state() == ModelLibrary::State::Loading ? State::LoadingModel : State::Waiting);
}

void ChatSession::onStarted(qint64 answerId, int promptTokens, const QString& note, bool startsThinking)
{
    if (answerId != m_answerId)
        return;
    m_contextUsed = promptTokens;
    emit contextChanged();
    if (m_note != note) {
        m_note = note;
        emit noteChanged();
    }
    setState(State::ReadingPrompt);
    if (startsThinking) // the template opened it; the stored text shall stand by itself
        onText(answerId, QStringLiteral("<think>\n"), 0);
}

void ChatSession::onPrefill(qint64 answerId, int done, int total)
{
    if (answerId != m_answerId || total <= 0)
        return;
    m_progress = static_cast<double>(done) / total;
    setState(State::ReadingPrompt);
    emit progressChanged();
}

void ChatSession::onText(qint64 answerId, const QString& text, int tokens)
{
    if (answerId != m_answerId)
        return;
    if (tokens > 0) {
        setState(State::Writing);
        m_contextUsed += tokens;
        emit contextChanged();
    }
    if (text.isEmpty())
        return;
    m_unsaved += text;
    Message& answer = *message(answerId);
    answer.text += text;
    m_blocks->appendText(answerId, text);
    emit answerShown(answerId, static_cast<int>(answer.text.size()));
}

void ChatSession::onFinished(
    qint64 answerId, const QString& author, FinishReason reason, const Statistics& statistics, const QString& error)
{
    if (answerId != m_answerId)
        return;
    m_textTimer.stop();
    Message& answer = *message(answerId);
    if (!author.isEmpty())
        answer.author = author;
    answer.statistics = statistics;
    answer.error = error;
    answer.state = reason == FinishReason::failed ? MessageState::Failed
        : reason == FinishReason::cancelled       ? MessageState::Stopped
                                                  : MessageState::Done;
    m_answerId = 0;
    m_unsaved.clear();
    storeAnswer(answerId);
    const std::vector<qint64> versions = versionsOf(answer);
    const auto place = std::find(versions.begin(), versions.end(), answerId);
    m_blocks->finish(
        {&answer, static_cast<int>(place - versions.begin()) + 1, static_cast<int>(versions.size()), false});
    setState(State::Idle);
    emit answerEnded(answerId);
    if (reason == FinishReason::stop || reason == FinishReason::length)
        sendQueued();
    else
        editQueued(); // the person decides
    if (!busy())
        emit settled();
}

} // namespace puna::app
