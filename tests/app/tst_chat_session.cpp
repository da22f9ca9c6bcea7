#include "app/chat/chat_controller.h"
#include "app/storage/store_thread.h"
#include "tests/support/tiny_model.h"

#include <QAbstractItemModelTester>
#include <QClipboard>
#include <QGuiApplication>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

using namespace puna::app;
using State = ChatSession::State;

// Everything but the window: the real engine with a tiny model, the real store, on their threads.
class TestChatSession : public QObject {
    Q_OBJECT

private slots:
    void initTestCase();
    void answerIsStreamedAndStored();
    void chatsComeBackAfterARestart();
    void stopKeepsWhatWasWritten();
    void regenerateKeepsTheOldAnswer();
    void editedMessageStartsABranch();
    void textSentWhileBusyIsSentAfterwards();
    void queuedTextCanBeTakenBack();
    void textSentWhileLoadingIsAnswered();
    void otherChatGoesOnWriting();
    void draftsAreOfTheirChat();
    void withoutAModelNothingIsSent();
    void deletedChatComesBack();
    void promptThatDoesNotFitIsASentence();
    void unloadEndsTheAnswer();
    void quittingWhileWritingKeepsTheText();
    void copyGivesTheTextAsWritten();
    void chatsOfANewerPunaAreLeftAlone();

private:
    std::unique_ptr<ChatController> start(const QString& data) { return start(data, m_model); }
    std::unique_ptr<ChatController> start(const QString& data, const QUrl& model);
    static void sendAndWait(ChatSession* session, const QString& text);
    static QStringList kinds(ChatSession* session);
    static Conversation stored(ChatController& controller, qint64 id);

    QTemporaryDir m_models;
    QTemporaryDir m_endlessModels;
    QUrl m_model;
    QUrl m_endlessModel; // its answers end with the context
};

void TestChatSession::initTestCase()
{
    m_model =
        QUrl::fromLocalFile(QString::fromStdString(puna::test::writeTinyModel(m_models.path().toStdString()).string()));
    m_endlessModel = QUrl::fromLocalFile(QString::fromStdString(
        puna::test::writeTinyModel(m_endlessModels.path().toStdString(), {.ends = false}).string()));
}

std::unique_ptr<ChatController> TestChatSession::start(const QString& data, const QUrl& model)
{
    auto controller = std::make_unique<ChatController>(data);
    QSignalSpy ready(controller.get(), &ChatController::ready);
    if (!ready.wait())
        qFatal("the store did not open");
    if (controller->library()->count() == 0)
        controller->importPaths({model});
    if (!QTest::qWaitFor([&] { return controller->library()->state() == ModelLibrary::State::Ready; }))
        qFatal("the tiny model was not loaded: %s", qPrintable(controller->library()->problem()));
    if (!QTest::qWaitFor([&] { return !controller->session()->loading(); }))
        qFatal("the chat was not read");
    return controller;
}

void TestChatSession::sendAndWait(ChatSession* session, const QString& text)
{
    QVERIFY(session->send(text));
    QVERIFY(session->busy());
    QTRY_VERIFY_WITH_TIMEOUT(!session->busy(), 20'000);
}

QStringList TestChatSession::kinds(ChatSession* session)
{
    QStringList list;
    for (int row = 0; row < session->blocks()->rowCount(); ++row)
        list.append(session->blocks()->data(session->blocks()->index(row), BlockModel::KindRole).toString());
    return list;
}

Conversation TestChatSession::stored(ChatController& controller, qint64 id)
{
    std::optional<Conversation> result;
    controller.store().run([id](ConversationStore& store) { return store.conversation(id); }, &controller,
        [&](puna::Result<Conversation> conversation) { result = std::move(conversation).value(); });
    if (!QTest::qWaitFor([&] { return result.has_value(); }))
        qFatal("the store does not answer");
    return *result;
}

void TestChatSession::answerIsStreamedAndStored()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    QAbstractItemModelTester tester(session->blocks());
    QSignalSpy reset(session->blocks(), &QAbstractItemModel::modelReset);
    QSignalSpy shown(session, &ChatSession::answerShown);
    QList<State> states;
    connect(session, &ChatSession::stateChanged, this, [&] { states.append(session->state()); });
    QVERIFY(session->empty());
    QVERIFY(session->canSend());
    sendAndWait(session, QStringLiteral("Tell me about the sea, please"));

    QCOMPARE(session->title(), QStringLiteral("Tell me about the sea, please"));
    QVERIFY(session->conversationId() != 0);
    QVERIFY(!session->empty());
    QVERIFY(shown.count() >= 1);
    QCOMPARE(reset.count(), 0);
    QCOMPARE(states.first(), State::Waiting);
    QVERIFY(states.contains(State::ReadingPrompt));
    QVERIFY(states.contains(State::Writing));
    QCOMPARE(states.last(), State::Idle);
    QVERIFY(session->contextUsed() > 0 && session->contextUsed() <= session->contextTotal());
    const Conversation conversation = stored(*controller, session->conversationId());
    QCOMPARE(conversation.messages.size(), 2U);
    QCOMPARE(conversation.messages[0].text, QStringLiteral("Tell me about the sea, please"));
    const Message& answer = conversation.messages[1];
    QCOMPARE(answer.state, MessageState::Done);
    QVERIFY(!answer.text.isEmpty());
    QCOMPARE(answer.text, session->messageText(answer.id));
    QCOMPARE(answer.author, controller->library()->currentName());
    QVERIFY(answer.statistics.tokens > 0);
    QVERIFY(kinds(session).contains(QStringLiteral("status")));
    QCOMPARE(controller->conversations()->count(), 1);
}

void TestChatSession::chatsComeBackAfterARestart()
{
    QTemporaryDir data;
    QStringList rows;
    qint64 id = 0;
    {
        const auto controller = start(data.path());
        sendAndWait(controller->session(), QStringLiteral("First"));
        sendAndWait(controller->session(), QStringLiteral("Second"));
        controller->renameChat(controller->session()->conversationId(), QStringLiteral(" My  title "));
        id = controller->session()->conversationId();
        rows = kinds(controller->session());
    }
    const auto controller = start(data.path());
    QCOMPARE(controller->session()->conversationId(), id); // the chat that was open
    QTRY_COMPARE(kinds(controller->session()), rows);
    QCOMPARE(controller->session()->title(), QStringLiteral("My title"));
    QCOMPARE(controller->conversations()->currentId(), id);
    sendAndWait(controller->session(), QStringLiteral("Third"));
    QCOMPARE(stored(*controller, id).messages.size(), 6U);
}

void TestChatSession::stopKeepsWhatWasWritten()
{
    QTemporaryDir data;
    const auto controller = start(data.path(), m_endlessModel);
    ChatSession* session = controller->session();
    QSignalSpy shown(session, &ChatSession::answerShown);
    QVERIFY(session->send(QStringLiteral("Write")));
    QTRY_VERIFY(shown.count() > 0);
    session->stop();
    QTRY_VERIFY(!session->busy());
    const Message answer = stored(*controller, session->conversationId()).messages.back();
    QCOMPARE(answer.text, session->messageText(answer.id));
    QVERIFY(answer.state == MessageState::Stopped);
    QVERIFY(!answer.text.isEmpty());
    QVERIFY(session->error().isEmpty());
}

void TestChatSession::regenerateKeepsTheOldAnswer()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    sendAndWait(session, QStringLiteral("Hello"));
    const qint64 first = session->lastMessageId(QStringLiteral("assistant"));
    session->regenerate(first);
    QVERIFY(session->busy());
    QTRY_VERIFY(!session->busy());
    const qint64 second = session->lastMessageId(QStringLiteral("assistant"));
    QVERIFY(second != first);
    const auto versions = [session] {
        const QModelIndex head = session->blocks()->index(2);
        return QStringLiteral("%1/%2")
            .arg(session->blocks()->data(head, BlockModel::VersionIndexRole).toInt())
            .arg(session->blocks()->data(head, BlockModel::VersionCountRole).toInt());
    };
    QCOMPARE(versions(), QStringLiteral("2/2"));
    session->selectVersion(second, -1);
    QCOMPARE(versions(), QStringLiteral("1/2"));
    QCOMPARE(session->lastMessageId(QStringLiteral("assistant")), first);
    session->selectVersion(first, -1); // there is none before
    QCOMPARE(versions(), QStringLiteral("1/2"));
    QCOMPARE(stored(*controller, session->conversationId()).headId, first);
}

void TestChatSession::editedMessageStartsABranch()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    sendAndWait(session, QStringLiteral("one"));
    const qint64 edited = session->lastMessageId(QStringLiteral("user"));
    sendAndWait(session, QStringLiteral("two"));
    session->editAndResend(edited, QStringLiteral("other one"));
    QVERIFY(session->busy());
    QTRY_VERIFY(!session->busy());
    const Conversation conversation = stored(*controller, session->conversationId());
    QCOMPARE(conversation.messages.size(), 6U);
    QCOMPARE(conversation.messages[4].parentId, 0);
    QCOMPARE(kinds(session).count(QStringLiteral("messageHead")), 2);
    session->selectVersion(session->lastMessageId(QStringLiteral("user")), -1);
    QCOMPARE(kinds(session).count(QStringLiteral("messageHead")), 4); // down to the end of that branch
}

void TestChatSession::textSentWhileBusyIsSentAfterwards()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    QVERIFY(session->send(QStringLiteral("one")));
    QVERIFY(session->send(QStringLiteral("two")));
    QVERIFY(session->send(QStringLiteral("three")));
    QCOMPARE(session->queued(), QStringLiteral("two\n\nthree"));
    QTRY_VERIFY_WITH_TIMEOUT(!session->busy() && session->queued().isEmpty(), 20'000);
    const Conversation conversation = stored(*controller, session->conversationId());
    QCOMPARE(conversation.messages.size(), 4U);
    QCOMPARE(conversation.messages[2].text, QStringLiteral("two\n\nthree"));
    QVERIFY(conversation.queued.isEmpty());
}

void TestChatSession::queuedTextCanBeTakenBack()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    QVERIFY(session->send(QStringLiteral("one")));
    QVERIFY(session->send(QStringLiteral("two")));
    session->editQueued();
    QVERIFY(session->queued().isEmpty());
    QCOMPARE(session->draft(), QStringLiteral("two"));
    QTRY_VERIFY_WITH_TIMEOUT(!session->busy(), 20'000);
    QCOMPARE(stored(*controller, session->conversationId()).messages.size(), 2U);
}

void TestChatSession::textSentWhileLoadingIsAnswered()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    controller->library()->unload();
    QTRY_COMPARE(controller->library()->state(), ModelLibrary::State::NotLoaded);
    QVERIFY(session->canSend());
    QVERIFY(session->send(QStringLiteral("while there is no model")));
    QTRY_VERIFY_WITH_TIMEOUT(!session->busy(), 20'000);
    QCOMPARE(stored(*controller, session->conversationId()).messages.back().state, MessageState::Done);
}

void TestChatSession::otherChatGoesOnWriting()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* first = controller->session();
    QSignalSpy stored1(first, &ChatSession::stored);
    QSignalSpy ended(first, &ChatSession::answerEnded);
    QVERIFY(first->send(QStringLiteral("one")));
    QTRY_COMPARE(stored1.count(), 1);
    const qint64 id = first->conversationId();
    controller->newChat();
    QVERIFY(controller->session() != first);
    const QModelIndex row = controller->conversations()->index(0);
    const bool busy = controller->conversations()->data(row, ConversationListModel::BusyRole).toBool();
    QVERIFY(busy || ended.count() == 1);
    sendAndWait(controller->session(), QStringLiteral("two"));
    QTRY_VERIFY(stored(*controller, id).messages.back().state == MessageState::Done);
    controller->openChat(id);
    QTRY_VERIFY(!controller->session()->loading());
    QVERIFY(!controller->session()
                 ->messageText(controller->session()->lastMessageId(QStringLiteral("assistant")))
                 .isEmpty());
    QCOMPARE(controller->conversations()->count(), 2);
}

void TestChatSession::draftsAreOfTheirChat()
{
    QTemporaryDir data;
    qint64 id = 0;
    {
        const auto controller = start(data.path());
        sendAndWait(controller->session(), QStringLiteral("one"));
        id = controller->session()->conversationId();
        controller->session()->setDraft(QStringLiteral("half a question"));
        controller->newChat();
        QCOMPARE(controller->session()->draft(), QString());
        controller->session()->setDraft(QStringLiteral("of a new chat"));
    }
    const auto controller = start(data.path());
    QTRY_COMPARE(controller->session()->draft(), QStringLiteral("of a new chat"));
    controller->openChat(id);
    QTRY_COMPARE(controller->session()->draft(), QStringLiteral("half a question"));
    sendAndWait(controller->session(), QStringLiteral("half a question and its end"));
    QCOMPARE(controller->session()->draft(), QString());
}

void TestChatSession::withoutAModelNothingIsSent()
{
    QTemporaryDir data;
    ChatController controller(data.path());
    QSignalSpy ready(&controller, &ChatController::ready);
    QVERIFY(ready.wait());
    ChatSession* session = controller.session();
    session->setDraft(QStringLiteral("typed"));
    QVERIFY(!session->canSend());
    QVERIFY(!session->send(QStringLiteral("typed")));
    QCOMPARE(session->draft(), QStringLiteral("typed"));
    QVERIFY(!session->busy());
    QSignalSpy can(session, &ChatSession::canSendChanged);
    controller.importPaths({m_model});
    QTRY_VERIFY(session->canSend());
    QVERIFY(can.count() > 0);
    QVERIFY(!session->send(QStringLiteral("  \n")));
}

void TestChatSession::deletedChatComesBack()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    sendAndWait(controller->session(), QStringLiteral("keep"));
    const qint64 id = controller->session()->conversationId();
    controller->deleteChat(id);
    QCOMPARE(controller->conversations()->count(), 0);
    QCOMPARE(controller->session()->conversationId(), 0);
    QVERIFY(controller->canUndoDelete());
    controller->undoDelete();
    QTRY_COMPARE(controller->conversations()->count(), 1);
    QTRY_COMPARE(controller->session()->conversationId(), id);
    QTRY_VERIFY(!controller->session()->loading());
    QCOMPARE(kinds(controller->session()).count(QStringLiteral("messageHead")), 2);
    QVERIFY(!controller->canUndoDelete());
}

void TestChatSession::promptThatDoesNotFitIsASentence()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    sendAndWait(session, QStringLiteral("lorem ipsum ").repeated(5000));
    const Message answer = stored(*controller, session->conversationId()).messages.back();
    QCOMPARE(answer.state, MessageState::Failed);
    QVERIFY(answer.error.endsWith(QLatin1Char('.')));
    QVERIFY(kinds(session).contains(QStringLiteral("error")));
    controller->newChat();
    sendAndWait(controller->session(), QStringLiteral("short"));
    QCOMPARE(stored(*controller, controller->session()->conversationId()).messages.back().state, MessageState::Done);
}

void TestChatSession::unloadEndsTheAnswer()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    ChatSession* session = controller->session();
    QVERIFY(session->send(QStringLiteral("Write")));
    QTRY_VERIFY(session->state() == State::Writing || !session->busy());
    controller->library()->unload();
    QTRY_VERIFY(!session->busy());
    QTRY_COMPARE(controller->library()->state(), ModelLibrary::State::NotLoaded);
    QVERIFY(stored(*controller, session->conversationId()).messages.back().state != MessageState::Interrupted);
}

void TestChatSession::quittingWhileWritingKeepsTheText()
{
    QTemporaryDir data;
    QString shownText;
    {
        const auto controller = start(data.path());
        ChatSession* session = controller->session();
        QSignalSpy shown(session, &ChatSession::answerShown);
        QVERIFY(session->send(QStringLiteral("Write")));
        QTRY_VERIFY(shown.count() > 0);
        shownText = session->messageText(session->lastMessageId(QStringLiteral("assistant")));
    }
    const auto controller = start(data.path());
    const Message answer = stored(*controller, controller->session()->conversationId()).messages.back();
    QVERIFY(answer.text.startsWith(shownText));
    QVERIFY(answer.state == MessageState::Stopped || answer.state == MessageState::Done);
}

void TestChatSession::copyGivesTheTextAsWritten()
{
    QTemporaryDir data;
    const auto controller = start(data.path());
    const QString text = QStringLiteral("a  **b**\n\n\tc ");
    sendAndWait(controller->session(), text);
    controller->session()->copyText(controller->session()->lastMessageId(QStringLiteral("user")));
    QCOMPARE(QGuiApplication::clipboard()->text(), text);
}

// The program works all the same, on a store in memory, and says so.
void TestChatSession::chatsOfANewerPunaAreLeftAlone()
{
    QTemporaryDir data;
    const QString path = data.filePath(QStringLiteral("puna.db"));
    {
        auto opened = openChats(data.path());
        QVERIFY(opened);
        QVERIFY(opened->database.exec("PRAGMA user_version = 1000"));
    }
    const auto bytes = [&path] {
        QFile file(path);
        return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
    };
    const QByteArray before = bytes();
    {
        const auto controller = start(data.path());
        QVERIFY(controller->startupProblem().contains(QStringLiteral("newer Puna")));
        sendAndWait(controller->session(), QStringLiteral("Hello"));
        QCOMPARE(controller->conversations()->count(), 1);
    }
    QCOMPARE(bytes(), before);
}

QTEST_MAIN(TestChatSession)
#include "tst_chat_session.moc"
