#include "app/chat/block_model.h"

#include <QAbstractItemModelTester>
#include <QElapsedTimer>
#include <QSignalSpy>
#include <QtTest>

#include <deque>

using namespace puna;
using namespace puna::app;

class TestBlockModel : public QObject {
    Q_OBJECT

private slots:
    void init();
    void messageIsHeadAndBlocks();
    void streamingTouchesOnlyTheOpenBlock();
    void streamedRowsEqualThoseOfTheWholeText();
    void finishingAddsTheStatusLine();
    void failedAnswerHasAnErrorRow();
    void branchSwitchKeepsTheCommonRows();
    void textOfAMessageThatIsNotShownIsIgnored();
    void longChatIsShownAtOnce();
    void statusText_data();
    void statusText();

private:
    const Message* add(MessageRole role, const QString& text, MessageState state = MessageState::Done);
    QStringList column(const BlockModel& model, BlockModel::Role role) const;

    std::deque<Message> m_messages; // addresses stay
};

void TestBlockModel::init()
{
    m_messages.clear();
}

const Message* TestBlockModel::add(MessageRole role, const QString& text, MessageState state)
{
    Message message;
    message.id = static_cast<qint64>(m_messages.size()) + 1;
    message.role = role;
    message.text = text;
    message.state = state;
    if (role == MessageRole::Assistant)
        message.author = QStringLiteral("tiny");
    m_messages.push_back(message);
    return &m_messages.back();
}

QStringList TestBlockModel::column(const BlockModel& model, BlockModel::Role role) const
{
    QStringList list;
    for (int row = 0; row < model.rowCount(); ++row)
        list.append(model.data(model.index(row), role).toString());
    return list;
}

void TestBlockModel::messageIsHeadAndBlocks()
{
    BlockModel model;
    QAbstractItemModelTester tester(&model);
    model.showPath({{add(MessageRole::User, QStringLiteral("# not parsed\n\n- as written"))},
        {add(MessageRole::Assistant, QStringLiteral("# Yes\n\n- a\n- b\n\n```c\nx\n```")), 2, 3}});
    QCOMPARE(column(model, BlockModel::KindRole),
        (QStringList {"messageHead", "text", "messageHead", "heading", "listItem", "listItem", "code"}));
    QCOMPARE(
        model.data(model.index(1), BlockModel::TextRole).toString(), QStringLiteral("# not parsed\n\n- as written"));
    QCOMPARE(model.data(model.index(2), BlockModel::RoleRole).toString(), QStringLiteral("assistant"));
    QCOMPARE(model.data(model.index(2), BlockModel::AuthorRole).toString(), QStringLiteral("tiny"));
    QCOMPARE(model.data(model.index(2), BlockModel::VersionIndexRole).toInt(), 2);
    QCOMPARE(model.data(model.index(2), BlockModel::VersionCountRole).toInt(), 3);
    QCOMPARE(model.data(model.index(6), BlockModel::LanguageRole).toString(), QStringLiteral("c"));
    QCOMPARE(model.data(model.index(6), BlockModel::MessageIdRole).toLongLong(), 2);
}

void TestBlockModel::streamingTouchesOnlyTheOpenBlock()
{
    BlockModel model;
    QAbstractItemModelTester tester(&model);
    model.showPath({{add(MessageRole::User, QStringLiteral("Hi"))},
        {add(MessageRole::Assistant, QString(), MessageState::Interrupted), 1, 1, true}});
    QSignalSpy reset(&model, &QAbstractItemModel::modelReset);
    QSignalSpy changed(&model, &QAbstractItemModel::dataChanged);
    QSignalSpy inserted(&model, &QAbstractItemModel::rowsInserted);
    QSignalSpy removed(&model, &QAbstractItemModel::rowsRemoved);

    model.appendText(2, QStringLiteral("One"));
    QCOMPARE(inserted.count(), 1);
    QVERIFY(model.data(model.index(3), BlockModel::StreamingRole).toBool());
    model.appendText(2, QStringLiteral(" two"));
    QCOMPARE(changed.count(), 1);
    QCOMPARE(changed[0][0].toModelIndex().row(), 3);
    QCOMPARE(changed[0][2].value<QList<int>>(), QList<int> {BlockModel::TextRole});
    model.appendText(2, QStringLiteral("\n\nThree"));
    QCOMPARE(inserted.count(), 2);
    QVERIFY(!model.data(model.index(3), BlockModel::StreamingRole).toBool());
    changed.clear();
    for (int i = 0; i < 10; ++i)
        model.appendText(2, QStringLiteral(" more"));
    for (const QList<QVariant>& signal : changed)
        QCOMPARE(signal[0].toModelIndex().row(), 4);
    QCOMPARE(changed.count(), 10);
    QCOMPARE(reset.count(), 0);
    QCOMPARE(removed.count(), 0);
    QCOMPARE(
        column(model, BlockModel::TextRole).mid(3), (QStringList {"One two", "Three" + QString(" more").repeated(10)}));
}

void TestBlockModel::streamedRowsEqualThoseOfTheWholeText()
{
    const QString text = QStringLiteral(
        "<think>\nhm\n</think>\n\n1. a\n2. b\n\n   c\n\n```\nx\n\ny\n```\n\n|a|b|\n|---|---|\n|1|2|\n\n> q\n\nend");
    BlockModel whole;
    whole.showPath({{add(MessageRole::Assistant, text)}});
    Message* message = &m_messages.back();
    message->id = 7;
    for (const int step : {1, 3, 11}) {
        message->text.clear();
        BlockModel streamed;
        QAbstractItemModelTester tester(&streamed);
        streamed.showPath({{message, 1, 1, true}});
        for (qsizetype at = 0; at < text.size(); at += step)
            streamed.appendText(7, text.mid(at, step));
        QCOMPARE(column(streamed, BlockModel::StreamingRole).count(QStringLiteral("true")), 1);
        message->text = text;
        streamed.finish({message});
        for (const BlockModel::Role role : {BlockModel::KindRole, BlockModel::TextRole, BlockModel::MarkerRole,
                 BlockModel::LevelRole, BlockModel::StreamingRole})
            QCOMPARE(column(streamed, role), column(whole, role));
    }
}

void TestBlockModel::finishingAddsTheStatusLine()
{
    BlockModel model;
    QAbstractItemModelTester tester(&model);
    add(MessageRole::User, QStringLiteral("Hi"));
    add(MessageRole::Assistant, QString(), MessageState::Interrupted);
    add(MessageRole::User, QStringLiteral("next"));
    model.showPath({{&m_messages[0]}, {&m_messages[1], 1, 1, true}});
    model.appendText(2, QStringLiteral("Hello"));
    QCOMPARE(model.data(model.index(2), BlockModel::MessageStateRole).toString(), QStringLiteral("writing"));
    Message& answer = m_messages[1];
    answer.text = QStringLiteral("Hello");
    answer.state = MessageState::Done;
    answer.statistics.tokens = 101;
    answer.statistics.decode_s = 2.0;
    answer.statistics.first_token_s = 0.62;
    QSignalSpy reset(&model, &QAbstractItemModel::modelReset);
    model.finish({&answer});
    QCOMPARE(
        column(model, BlockModel::KindRole), (QStringList {"messageHead", "text", "messageHead", "text", "status"}));
    QCOMPARE(model.data(model.index(4), BlockModel::TextRole).toString(),
        QStringLiteral("50 t/s · 101 tokens · 0.6 s to first token"));
    QCOMPARE(model.data(model.index(2), BlockModel::MessageStateRole).toString(), QStringLiteral("done"));
    QCOMPARE(reset.count(), 0);
    model.showPath({{&m_messages[0]}, {&m_messages[1]}, {&m_messages[2]}});
    QCOMPARE(model.rowCount(), 7);
}

void TestBlockModel::failedAnswerHasAnErrorRow()
{
    BlockModel model;
    add(MessageRole::Assistant, QStringLiteral("Half"), MessageState::Failed);
    m_messages[0].error = QStringLiteral("The GPU stopped responding.");
    model.showPath({{&m_messages[0]}});
    QCOMPARE(column(model, BlockModel::KindRole), (QStringList {"messageHead", "text", "error"}));
    QCOMPARE(model.data(model.index(2), BlockModel::TextRole).toString(), m_messages[0].error);
}

void TestBlockModel::branchSwitchKeepsTheCommonRows()
{
    BlockModel model;
    QAbstractItemModelTester tester(&model);
    const Message* question = add(MessageRole::User, QStringLiteral("Q"));
    const Message* one = add(MessageRole::Assistant, QStringLiteral("one\n\nmore"));
    const Message* two = add(MessageRole::Assistant, QStringLiteral("two"));
    model.showPath({{question}, {one}});
    QPersistentModelIndex kept(model.index(1));
    QSignalSpy reset(&model, &QAbstractItemModel::modelReset);
    QSignalSpy removed(&model, &QAbstractItemModel::rowsRemoved);
    model.showPath({{question}, {two, 2, 2}});
    QCOMPARE(column(model, BlockModel::TextRole), (QStringList {"", "Q", "", "two"}));
    QCOMPARE(removed.count(), 1);
    QCOMPARE(removed[0][1].toInt(), 2);
    QVERIFY(kept.isValid());
    QCOMPARE(reset.count(), 0);
    model.showPath({{question}, {one, 1, 2}});
    QCOMPARE(model.data(model.index(2), BlockModel::VersionCountRole).toInt(), 2);
    model.showPath({});
    QCOMPARE(model.rowCount(), 0);
}

void TestBlockModel::textOfAMessageThatIsNotShownIsIgnored()
{
    BlockModel model;
    model.showPath({{add(MessageRole::User, QStringLiteral("Q"))}});
    model.appendText(99, QStringLiteral("x"));
    QCOMPARE(model.rowCount(), 2);
}

void TestBlockModel::longChatIsShownAtOnce()
{
    const QString text =
        QStringLiteral("A paragraph with **bold** and `code`, of some length.\n\n- one\n- two\n\n").repeated(5);
    std::vector<BlockModel::Shown> path;
    for (int i = 0; i < 5000; ++i)
        path.push_back({add(i % 2 ? MessageRole::Assistant : MessageRole::User, text)});
    BlockModel model;
    QElapsedTimer timer;
    timer.start();
    model.showPath(path);
    const qint64 ms = timer.elapsed();
    qInfo(
        "5,000 messages of %lld characters: %lld ms", static_cast<long long>(text.size()), static_cast<long long>(ms));
    QVERIFY(ms < 1000); // the goal is 100 ms to switch chats; this bound only catches what grows faster than the chat
    QCOMPARE(model.rowCount(), 2500 * 2 + 2500 * 16);
}

void TestBlockModel::statusText_data()
{
    QTest::addColumn<MessageState>("state");
    QTest::addColumn<int>("tokens");
    QTest::addColumn<QString>("expected");
    QTest::newRow("nothing") << MessageState::Done << 0 << QString();
    QTest::newRow("stopped") << MessageState::Stopped << 3
                             << QStringLiteral("Stopped · 4.0 t/s · 3 tokens · 0.1 s to first token");
    QTest::newRow("one token") << MessageState::Done << 1 << QStringLiteral("1 token · 0.1 s to first token");
    QTest::newRow("interrupted") << MessageState::Interrupted << 0
                                 << QStringLiteral("Interrupted before it was complete");
}

void TestBlockModel::statusText()
{
    QFETCH(MessageState, state);
    QFETCH(int, tokens);
    QFETCH(QString, expected);
    Message message;
    message.role = MessageRole::Assistant;
    message.state = state;
    message.statistics.tokens = tokens;
    message.statistics.decode_s = 0.5;
    message.statistics.first_token_s = 0.1;
    QCOMPARE(BlockModel::statusText(message), expected);
}

QTEST_GUILESS_MAIN(TestBlockModel)
#include "tst_block_model.moc"
