#include "app/storage/conversation_store.h"
#include "app/storage/migrations.h"

#include <QFileInfo>
#include <QRandomGenerator>
#include <QTemporaryDir>
#include <QtTest>

#include <map>

using namespace puna;
using namespace puna::app;

namespace {

ConversationStore storeInMemory()
{
    Database database = Database::open(QStringLiteral(":memory:")).value();
    if (!database.exec("PRAGMA foreign_keys = ON") || !migrate(database))
        qFatal("no database in memory");
    return ConversationStore(std::move(database));
}

Result<void> finish(ConversationStore& store, Message answer, const QString& text)
{
    answer.text = text;
    return store.finishAnswer(answer);
}

} // namespace

class TestConversationStore : public QObject {
    Q_OBJECT

private slots:
    void firstTurnMakesAConversationWithATitle();
    void answerIsInterruptedUntilItIsFinished();
    void deadProcessLeavesTheTextItHadStored();
    void regeneratedAnswersAreSiblings();
    void parentOfAnotherConversationIsRefused();
    void deletedConversationComesBackWhole();
    void draftIsClearedByTheTurn();
    void modelsAreOnePerPathLastUsedFirst();
    void longAnswerIsNotRewrittenWhileItGrows();
    void titleIsTheFirstWords_data();
    void titleIsTheFirstWords();
    void randomEditsEqualAModelInMemory();
};

void TestConversationStore::firstTurnMakesAConversationWithATitle()
{
    ConversationStore store = storeInMemory();
    auto turn = store.beginTurn(0, 0, QStringLiteral("Hello\nthere"), QStringLiteral("tiny"), 5);
    QVERIFY(turn);
    QCOMPARE(turn->conversation.title, QStringLiteral("Hello there"));
    QCOMPARE(turn->answer.parentId, turn->user.id);
    auto conversation = store.conversation(turn->conversation.id);
    QVERIFY(conversation);
    QCOMPARE(conversation->messages.size(), 2U);
    QCOMPARE(conversation->messages[0].text, QStringLiteral("Hello\nthere"));
    QCOMPARE(conversation->headId, turn->answer.id);
    QCOMPARE(store.conversations()->size(), 1U);
}

void TestConversationStore::answerIsInterruptedUntilItIsFinished()
{
    ConversationStore store = storeInMemory();
    auto turn = store.beginTurn(0, 0, QStringLiteral("Hi"), QStringLiteral("tiny"), 5);
    QVERIFY(store.appendText(turn->answer.id, QStringLiteral("Good ")));
    QVERIFY(store.appendText(turn->answer.id, QStringLiteral("day")));
    auto conversation = store.conversation(turn->conversation.id);
    QCOMPARE(conversation->messages[1].state, MessageState::Interrupted);
    QCOMPARE(conversation->messages[1].text, QStringLiteral("Good day"));

    Message answer = turn->answer;
    answer.state = MessageState::Done;
    answer.author = QStringLiteral("other");
    answer.statistics = {
        .prompt_tokens = 9, .reused_tokens = 4, .tokens = 3, .prefill_s = 0.5, .decode_s = 0.25, .first_token_s = 0.75};
    QVERIFY(finish(store, answer, QStringLiteral("Good day!")));
    conversation = store.conversation(turn->conversation.id);
    const Message& stored = conversation->messages[1];
    QCOMPARE(stored.state, MessageState::Done);
    QCOMPARE(stored.text, QStringLiteral("Good day!"));
    QCOMPARE(stored.author, QStringLiteral("other"));
    QCOMPARE(stored.statistics.prompt_tokens, 9);
    QCOMPARE(stored.statistics.reused_tokens, 4);
    QCOMPARE(stored.statistics.tokens, 3);
    QCOMPARE(stored.statistics.first_token_s, 0.75);
    QCOMPARE(*store.database().integer("SELECT count(*) FROM message_parts"), 0);
}

void TestConversationStore::deadProcessLeavesTheTextItHadStored()
{
    ConversationStore store = storeInMemory();
    auto turn = store.beginTurn(0, 0, QStringLiteral("Hi"), QStringLiteral("tiny"), 5);
    QVERIFY(store.appendText(turn->answer.id, QStringLiteral("Half an ")));
    QVERIFY(store.appendText(turn->answer.id, QStringLiteral("ans")));
    QCOMPARE(*store.settleInterrupted(), 1);
    QCOMPARE(*store.settleInterrupted(), 0);
    auto conversation = store.conversation(turn->conversation.id);
    QCOMPARE(conversation->messages[1].text, QStringLiteral("Half an ans"));
    QCOMPARE(conversation->messages[1].state, MessageState::Interrupted);
}

void TestConversationStore::regeneratedAnswersAreSiblings()
{
    ConversationStore store = storeInMemory();
    auto turn = store.beginTurn(0, 0, QStringLiteral("Hi"), QStringLiteral("tiny"), 5);
    QVERIFY(finish(store, turn->answer, QStringLiteral("one")));
    auto second = store.beginAnswer(turn->conversation.id, turn->user.id, QStringLiteral("tiny"), 6);
    QVERIFY(second);
    QVERIFY(finish(store, *second, QStringLiteral("two")));
    auto conversation = store.conversation(turn->conversation.id);
    QCOMPARE(conversation->messages.size(), 3U);
    QCOMPARE(conversation->messages[1].text, QStringLiteral("one"));
    QCOMPARE(conversation->messages[2].text, QStringLiteral("two"));
    QCOMPARE(conversation->messages[2].parentId, turn->user.id);
    QCOMPARE(conversation->headId, second->id);
    QVERIFY(store.setHead(turn->conversation.id, turn->answer.id));
    QCOMPARE(store.conversation(turn->conversation.id)->headId, turn->answer.id);
}

void TestConversationStore::parentOfAnotherConversationIsRefused()
{
    ConversationStore store = storeInMemory();
    auto one = store.beginTurn(0, 0, QStringLiteral("a"), {}, 5);
    auto two = store.beginTurn(0, 0, QStringLiteral("b"), {}, 6);
    QVERIFY(!store.beginTurn(one->conversation.id, two->answer.id, QStringLiteral("c"), {}, 7));
    QVERIFY(!store.beginAnswer(one->conversation.id, two->user.id, {}, 7));
    QVERIFY(!store.beginTurn(999, 0, QStringLiteral("c"), {}, 7));
    QVERIFY(!store.setHead(one->conversation.id, two->user.id));
    QCOMPARE(*store.database().integer("SELECT count(*) FROM messages"), 4);
}

void TestConversationStore::deletedConversationComesBackWhole()
{
    ConversationStore store = storeInMemory();
    auto turn = store.beginTurn(0, 0, QStringLiteral("keep me"), {}, 5);
    QVERIFY(store.setDeleted(turn->conversation.id, true, 6));
    QVERIFY(store.conversations()->empty());
    QVERIFY(store.setDeleted(turn->conversation.id, false, 7));
    QCOMPARE(store.conversations()->size(), 1U);
    QCOMPARE(store.conversation(turn->conversation.id)->messages.size(), 2U);
}

void TestConversationStore::draftIsClearedByTheTurn()
{
    ConversationStore store = storeInMemory();
    auto turn = store.beginTurn(0, 0, QStringLiteral("a"), {}, 5);
    QVERIFY(store.setDraft(turn->conversation.id, QStringLiteral("unfinished"), QStringLiteral("next")));
    QCOMPARE(store.conversation(turn->conversation.id)->draft, QStringLiteral("unfinished"));
    QCOMPARE(store.conversation(turn->conversation.id)->queued, QStringLiteral("next"));
    QVERIFY(store.beginTurn(turn->conversation.id, turn->answer.id, QStringLiteral("next"), {}, 6));
    QVERIFY(store.conversation(turn->conversation.id)->queued.isEmpty());
}

void TestConversationStore::modelsAreOnePerPathLastUsedFirst()
{
    ConversationStore store = storeInMemory();
    ModelRecord model;
    model.path = QStringLiteral("/models/a");
    model.name = QStringLiteral("A");
    const qint64 a = store.addModel(model, 1)->id;
    model.path = QStringLiteral("/models/b");
    const qint64 b = store.addModel(model, 2)->id;
    QVERIFY(store.useModel(a, 10));
    model.path = QStringLiteral("/models/a");
    model.name = QStringLiteral("A again");
    QCOMPARE(store.addModel(model, 11)->id, a);
    const std::vector<ModelRecord> models = store.models().value();
    QCOMPARE(models.size(), 2U);
    QCOMPARE(models[0].id, a);
    QCOMPARE(models[0].name, QStringLiteral("A again"));
    QCOMPARE(models[0].usedMs, 10);
    QVERIFY(store.forgetModel(b));
    QCOMPARE(store.models()->size(), 1U);
}

// 2,000 tokens, stored twice a second at 50 a second, into a chat of 1,000 messages: not more than 3 MB are written.
void TestConversationStore::longAnswerIsNotRewrittenWhileItGrows()
{
    QTemporaryDir folder;
    auto opened = openChats(folder.path());
    QVERIFY(opened);
    ConversationStore store(std::move(opened->database));
    QVERIFY(store.database().exec("PRAGMA synchronous = OFF")); // it changes when, not what, is written
    qint64 conversation = 0, parent = 0;
    for (int i = 0; i < 500; ++i) {
        auto turn = store.beginTurn(conversation, parent, QStringLiteral("text ").repeated(40), {}, i);
        QVERIFY(turn);
        conversation = turn->conversation.id;
        parent = turn->answer.id;
        QVERIFY(finish(store, turn->answer, QStringLiteral("text ").repeated(100)));
    }
    QVERIFY(store.database().exec("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint = 0"));
    auto turn = store.beginTurn(conversation, parent, QStringLiteral("go"), {}, 1000);
    for (int i = 0; i < 80; ++i)
        QVERIFY(store.appendText(turn->answer.id, QStringLiteral("word ").repeated(25)));
    QVERIFY(finish(store, turn->answer, QStringLiteral("word ").repeated(2000)));
    const qint64 written = QFileInfo(folder.filePath(QStringLiteral("puna.db-wal"))).size(); // all that was written
    QVERIFY2(written > 0 && written <= 3'000'000, QByteArray::number(written).constData());
}

void TestConversationStore::titleIsTheFirstWords_data()
{
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("title");
    QTest::newRow("short") << QStringLiteral("  Plan   a trip\nto Porto ") << QStringLiteral("Plan a trip to Porto");
    QTest::newRow("long") << QStringLiteral("Please explain to me how the tides of the sea come about, in detail")
                          << QStringLiteral("Please explain to me how the tides of the sea…");
    QTest::newRow("one word") << QString(100, QLatin1Char('x')) << QString(48, QLatin1Char('x')) + QStringLiteral("…");
}

void TestConversationStore::titleIsTheFirstWords()
{
    QFETCH(QString, text);
    QFETCH(QString, title);
    QCOMPARE(ConversationStore::titleOf(text), title);
}

void TestConversationStore::randomEditsEqualAModelInMemory()
{
    struct Known {
        qint64 parent;
        MessageRole role;
        QString text;
        MessageState state;
    };
    struct Chat {
        std::map<qint64, Known> messages;
        qint64 head = 0;
        bool deleted = false;
        QString title;
    };
    ConversationStore store = storeInMemory();
    std::map<qint64, Chat> chats;
    QRandomGenerator random(20);
    const auto anyChat = [&] { return std::next(chats.begin(), random.bounded(static_cast<int>(chats.size()))); };
    const auto anyMessage = [&](Chat& chat) {
        return std::next(chat.messages.begin(), random.bounded(static_cast<int>(chat.messages.size())));
    };
    const auto write = [&](Chat& chat, const Message& answer) {
        QString text;
        for (int part = random.bounded(4); part > 0; --part) {
            const QString piece = QString::number(random.generate());
            if (!store.appendText(answer.id, piece))
                return false;
            text += piece;
        }
        if (random.bounded(5) == 0) { // the process dies here
            chat.messages[answer.id] = {answer.parentId, MessageRole::Assistant, text, MessageState::Interrupted};
            return random.bounded(2) == 0 || store.settleInterrupted().has_value();
        }
        Message done = answer;
        done.state = random.bounded(3) == 0 ? MessageState::Stopped : MessageState::Done;
        chat.messages[answer.id] = {answer.parentId, MessageRole::Assistant, text + QLatin1Char('.'), done.state};
        return finish(store, done, text + QLatin1Char('.')).has_value();
    };
    const auto begin = [&](qint64 id, qint64 parent) {
        const QString text = QStringLiteral("message %1").arg(random.generate());
        auto turn = store.beginTurn(id, parent, text, {}, random.bounded(1000));
        if (!turn)
            return false;
        Chat& chat = chats[turn->conversation.id];
        if (id == 0)
            chat.title = text;
        chat.messages[turn->user.id] = {parent, MessageRole::User, text, MessageState::Done};
        chat.head = turn->answer.id;
        return write(chat, turn->answer);
    };
    const auto compare = [&](qint64 id) {
        const Chat& chat = chats.at(id);
        auto stored = store.conversation(id);
        if (!stored || stored->headId != chat.head || stored->title != chat.title
            || stored->messages.size() != chat.messages.size())
            return false;
        return std::all_of(stored->messages.begin(), stored->messages.end(), [&](const Message& message) {
            const auto known = chat.messages.find(message.id);
            return known != chat.messages.end() && known->second.parent == message.parentId
                && known->second.role == message.role && known->second.text == message.text
                && known->second.state == message.state;
        });
    };

    constexpr int kEdits = 2000;
    for (int edit = 0; edit < kEdits; ++edit) {
        const int what = chats.empty() ? 0 : random.bounded(8);
        if (what == 0 && chats.size() < 12) {
            QVERIFY(begin(0, 0));
            continue;
        }
        if (chats.empty())
            continue;
        const auto at = anyChat();
        auto& [id, chat] = *at;
        if (what <= 2) { // the next message of the branch shown
            QVERIFY(begin(id, chat.head));
        } else if (what == 3) { // edit: a sibling of any message of the person's
            auto message = anyMessage(chat);
            if (message->second.role == MessageRole::User)
                QVERIFY(begin(id, message->second.parent));
        } else if (what == 4) { // regenerate
            auto message = anyMessage(chat);
            if (message->second.role != MessageRole::User)
                continue;
            auto answer = store.beginAnswer(id, message->first, {}, 1);
            QVERIFY(answer);
            chat.head = answer->id;
            QVERIFY(write(chat, *answer));
        } else if (what == 5) {
            chat.head = anyMessage(chat)->first;
            QVERIFY(store.setHead(id, chat.head));
        } else if (what == 6) {
            chat.deleted = !chat.deleted;
            QVERIFY(store.setDeleted(id, chat.deleted, 1));
        } else {
            chat.title = QString::number(random.generate());
            QVERIFY(store.rename(id, chat.title));
        }
        QVERIFY(compare(id));
        QVERIFY(compare(anyChat()->first)); // nothing else has changed
    }
    const std::size_t visible = static_cast<std::size_t>(
        std::count_if(chats.begin(), chats.end(), [](const auto& entry) { return !entry.second.deleted; }));
    QCOMPARE(store.conversations()->size(), visible);
    for (const auto& entry : chats)
        QVERIFY(compare(entry.first));
    QCOMPARE(*store.database().quickCheck(), QStringLiteral("ok"));
}

QTEST_GUILESS_MAIN(TestConversationStore)
#include "tst_conversation_store.moc"
