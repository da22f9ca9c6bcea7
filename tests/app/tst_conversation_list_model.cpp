#include "app/chat/conversation_list_model.h"

#include <QAbstractItemModelTester>
#include <QLocale>
#include <QRandomGenerator>
#include <QSignalSpy>
#include <QtTest>

using namespace puna::app;

class TestConversationListModel : public QObject {
    Q_OBJECT

private slots:
    void initTestCase() { QLocale::setDefault(QLocale::c()); }
    void groups_data();
    void groups();
    void latestChangeIsFirst();
    void changedChatMovesUp();
    void filterFindsPartsOfTitles();
    void busyAndCurrentAreOfOneRow();
    void randomChangesKeepTheOrder();

private:
    static QStringList titles(const ConversationListModel& model);
};

QStringList TestConversationListModel::titles(const ConversationListModel& model)
{
    QStringList list;
    for (int row = 0; row < model.rowCount(); ++row)
        list.append(model.data(model.index(row), ConversationListModel::TitleRole).toString());
    return list;
}

void TestConversationListModel::groups_data()
{
    QTest::addColumn<QDateTime>("updated");
    QTest::addColumn<QString>("group");
    QTest::addColumn<QString>("text");
    const auto at = [](int year, int month, int day, int hour) {
        return QDateTime(QDate(year, month, day), QTime(hour, 5));
    };
    QTest::newRow("now") << at(2026, 5, 20, 12) << "Today"
                         << "12:05:00";
    QTest::newRow("clock set back") << at(2026, 5, 21, 12) << "Today"
                                    << "12:05:00";
    QTest::newRow("midnight") << at(2026, 5, 20, 0) << "Today"
                              << "00:05:00";
    QTest::newRow("yesterday") << at(2026, 5, 19, 23) << "Yesterday"
                               << "Tue";
    QTest::newRow("six days") << at(2026, 5, 14, 1) << "This week"
                              << "Thu";
    QTest::newRow("seven days") << at(2026, 5, 13, 23) << "May"
                                << "13 May 2026";
    QTest::newRow("January") << at(2026, 1, 1, 1) << "January"
                             << "1 Jan 2026";
    QTest::newRow("last year") << at(2025, 12, 31, 1) << "2025"
                               << "31 Dec 2025";
}

void TestConversationListModel::groups()
{
    QFETCH(QDateTime, updated);
    QFETCH(QString, group);
    QFETCH(QString, text);
    const QDateTime now(QDate(2026, 5, 20), QTime(12, 30));
    QCOMPARE(ConversationListModel::groupOf(updated, now), group);
    QCOMPARE(ConversationListModel::updatedText(updated, now), text);
}

void TestConversationListModel::latestChangeIsFirst()
{
    ConversationListModel model;
    QAbstractItemModelTester tester(&model);
    model.setConversations({{1, "old", 10}, {2, "new", 30}, {3, "middle", 20}});
    QCOMPARE(titles(model), (QStringList {"new", "middle", "old"}));
    model.put({4, "newest", 40});
    QCOMPARE(titles(model).first(), QStringLiteral("newest"));
    model.remove(2);
    QCOMPARE(titles(model), (QStringList {"newest", "middle", "old"}));
}

void TestConversationListModel::changedChatMovesUp()
{
    ConversationListModel model;
    QAbstractItemModelTester tester(&model);
    model.setConversations({{1, "a", 10}, {2, "b", 30}, {3, "c", 20}});
    QSignalSpy moved(&model, &QAbstractItemModel::rowsMoved);
    QSignalSpy reset(&model, &QAbstractItemModel::modelReset);
    model.touch(1, 50);
    QCOMPARE(moved.count(), 1);
    QCOMPARE(titles(model), (QStringList {"a", "b", "c"}));
    model.setTitle(3, QStringLiteral("renamed"));
    QCOMPARE(titles(model), (QStringList {"a", "b", "renamed"}));
    QCOMPARE(reset.count(), 0);
}

void TestConversationListModel::filterFindsPartsOfTitles()
{
    ConversationListModel model;
    QAbstractItemModelTester tester(&model);
    model.setConversations({{1, "Trip to Porto", 10}, {2, "SQL question", 30}, {3, "Porto again", 20}});
    model.setFilter(QStringLiteral(" porto "));
    QCOMPARE(titles(model), (QStringList {"Porto again", "Trip to Porto"}));
    QCOMPARE(model.totalCount(), 3);
    model.put({4, "Another", 50});
    QCOMPARE(model.count(), 2);
    model.setTitle(1, QStringLiteral("Trip to Lisbon"));
    QCOMPARE(titles(model), QStringList {"Porto again"});
    model.setTitle(2, QStringLiteral("Porto SQL"));
    QCOMPARE(titles(model), (QStringList {"Porto SQL", "Porto again"}));
    model.setFilter({});
    QCOMPARE(model.count(), 4);
}

void TestConversationListModel::busyAndCurrentAreOfOneRow()
{
    ConversationListModel model;
    model.setConversations({{1, "a", 10}, {2, "b", 30}});
    QSignalSpy changed(&model, &QAbstractItemModel::dataChanged);
    model.setBusy(1, true);
    QCOMPARE(changed.count(), 1);
    QCOMPARE(changed[0][0].toModelIndex().row(), 1);
    QVERIFY(model.data(model.index(1), ConversationListModel::BusyRole).toBool());
    model.setBusy(1, true);
    QCOMPARE(changed.count(), 1);
    model.setCurrentId(2);
    QVERIFY(model.data(model.index(0), ConversationListModel::CurrentRole).toBool());
}

void TestConversationListModel::randomChangesKeepTheOrder()
{
    ConversationListModel model;
    QAbstractItemModelTester tester(&model);
    QRandomGenerator random(5);
    model.setFilter(QStringLiteral("1"));
    for (int change = 0; change < 2000; ++change) {
        const qint64 id = 1 + random.bounded(20);
        switch (random.bounded(4)) {
        case 0:
            model.put({id, QString::number(random.bounded(100)), random.bounded(50)});
            break;
        case 1:
            model.touch(id, random.bounded(100));
            break;
        case 2:
            model.setTitle(id, QString::number(random.bounded(100)));
            break;
        default:
            model.remove(id);
            break;
        }
        const QStringList shown = titles(model);
        QVERIFY(std::all_of(shown.begin(), shown.end(), [](const QString& title) { return title.contains(u'1'); }));
    }
    const QStringList filtered = titles(model);
    model.setFilter({});
    QStringList expected = titles(model);
    expected.removeIf([](const QString& title) { return !title.contains(u'1'); });
    QCOMPARE(filtered, expected);
}

QTEST_GUILESS_MAIN(TestConversationListModel)
#include "tst_conversation_list_model.moc"
