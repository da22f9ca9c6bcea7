#include "app/storage/conversation_store.h"
#include "app/storage/database.h"
#include "app/storage/migrations.h"

#include <QFile>
#include <QRandomGenerator>
#include <QTemporaryDir>
#include <QtTest>

using namespace puna;
using namespace puna::app;

class TestDatabase : public QObject {
    Q_OBJECT

private slots:
    void textComesBackAsItWasStored_data();
    void textComesBackAsItWasStored();
    void failedTransactionLeavesNothing();
    void filesAreForTheOwnerOnly();
    void cleanCloseLeavesOneFile();
    void newerSchemaIsRefusedUntouched();
    void databaseOfAnotherProgramIsRefused();
    void fileThatIsNoDatabaseIsKeptAside();
    void damagedPagesCostOnlyTheirRows();
    void damagedFirstPageCostsNothing();
    void truncatedFileGivesWhatIsLeft();
    void randomDamageNeverFails();
    void readOnlyFolderIsASentence();

private:
    static constexpr int kChats = 40;
    static constexpr int kTurns = 20; // two messages each
    void fill(const QString& folder);
    static QByteArray read(const QString& path);
    static void write(const QString& path, const QByteArray& bytes);
};

QByteArray TestDatabase::read(const QString& path)
{
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

void TestDatabase::write(const QString& path, const QByteArray& bytes)
{
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly | QIODevice::Truncate));
    QCOMPARE(file.write(bytes), bytes.size());
}

void TestDatabase::fill(const QString& folder)
{
    auto opened = openChats(folder);
    QVERIFY(opened);
    ConversationStore store(std::move(opened->database));
    QVERIFY(store.database().exec("PRAGMA synchronous = OFF")); // 1,600 commits
    for (int chat = 0; chat < kChats; ++chat) {
        qint64 conversation = 0;
        qint64 parent = 0;
        for (int turn = 0; turn < kTurns; ++turn) {
            auto begun = store.beginTurn(conversation, parent, QStringLiteral("Question %1 ").arg(turn).repeated(20),
                QStringLiteral("tiny"), 1000 * chat + turn);
            QVERIFY(begun);
            conversation = begun->conversation.id;
            parent = begun->answer.id;
            begun->answer.text = QStringLiteral("An answer. ").repeated(30);
            QVERIFY(store.finishAnswer(begun->answer));
        }
    }
}

void TestDatabase::textComesBackAsItWasStored_data()
{
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("expected");
    const auto same = [](const char* name, const QString& text) { QTest::newRow(name) << text << text; };
    same("empty", QStringLiteral(""));
    same("emoji", QStringLiteral("👩‍🚀 — 𝄞"));
    same("right to left", QStringLiteral("שלום עולם"));
    same("NUL", QString::fromUtf16(u"a\0b", 3));
    same("SQL", QStringLiteral("'); DROP TABLE messages; --"));
    QTest::newRow("lone surrogate") << QString(QChar(0xd800)) << QStringLiteral("?");
}

void TestDatabase::textComesBackAsItWasStored()
{
    QFETCH(QString, text);
    QFETCH(QString, expected);
    auto database = Database::open(QStringLiteral(":memory:"));
    QVERIFY(database);
    QVERIFY(database->exec("CREATE TABLE t (x TEXT NOT NULL) STRICT"));
    QVERIFY(database->run("INSERT INTO t VALUES (?)", text));
    auto row = database->query("SELECT x FROM t");
    QVERIFY(row);
    QVERIFY(*row->step());
    QCOMPARE(row->text(0), expected);
}

void TestDatabase::failedTransactionLeavesNothing()
{
    auto database = Database::open(QStringLiteral(":memory:"));
    QVERIFY(database);
    QVERIFY(database->exec("CREATE TABLE t (x INTEGER UNIQUE)"));
    const auto twice = [&]() -> Result<void> {
        TRY(database->run("INSERT INTO t VALUES (1)"));
        return database->run("INSERT INTO t VALUES (1)");
    };
    QVERIFY(!database->transaction(twice));
    QCOMPARE(*database->integer("SELECT count(*) FROM t"), 0);
    QVERIFY(database->transaction([&] { return database->run("INSERT INTO t VALUES (1)"); })); // it can go on
}

void TestDatabase::filesAreForTheOwnerOnly()
{
    QTemporaryDir folder;
    auto opened = openChats(folder.path());
    QVERIFY(opened);
    for (const QFileInfo& file : QDir(folder.path()).entryInfoList(QDir::Files))
        QVERIFY2(!(file.permissions() & (QFile::ReadGroup | QFile::ReadOther)), qPrintable(file.fileName()));
}

void TestDatabase::cleanCloseLeavesOneFile()
{
    QTemporaryDir folder;
    fill(folder.path());
    QCOMPARE(QDir(folder.path()).entryList(QDir::Files), QStringList {QStringLiteral("puna.db")});
}

void TestDatabase::newerSchemaIsRefusedUntouched()
{
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("puna.db"));
    fill(folder.path());
    {
        auto database = Database::open(path);
        QVERIFY(database->exec("PRAGMA user_version = 1000; VACUUM"));
    }
    const QByteArray before = read(path);
    auto opened = openChats(folder.path());
    QVERIFY(!opened);
    QCOMPARE(opened.error().code, ErrorCode::unsupported);
    QVERIFY2(opened.error().message.find("newer Puna") != std::string::npos, opened.error().message.c_str());
    QCOMPARE(read(path), before);
}

void TestDatabase::databaseOfAnotherProgramIsRefused()
{
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("puna.db"));
    {
        auto database = Database::open(path);
        QVERIFY(database->exec("CREATE TABLE theirs (x)"));
    }
    const QByteArray before = read(path);
    auto opened = openChats(folder.path());
    QVERIFY(!opened);
    QCOMPARE(opened.error().code, ErrorCode::unsupported);
    QCOMPARE(read(path), before);
}

void TestDatabase::fileThatIsNoDatabaseIsKeptAside()
{
    QTemporaryDir folder;
    const QByteArray junk = QByteArray("not a database at all, but quite long ").repeated(500);
    write(folder.filePath(QStringLiteral("puna.db")), junk);
    auto opened = openChats(folder.path());
    QVERIFY2(opened, opened ? "" : opened.error().message.c_str());
    QVERIFY(opened->notice.contains(QStringLiteral("damaged")));
    const QStringList aside = QDir(folder.path()).entryList({QStringLiteral("puna.db.damaged-*")});
    QCOMPARE(aside.size(), 1);
    QCOMPARE(read(folder.filePath(aside[0])), junk);
}

void TestDatabase::damagedPagesCostOnlyTheirRows()
{
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("puna.db"));
    fill(folder.path());
    QByteArray bytes = read(path);
    // Leaves of the messages table: pages of type 13 whose text is ours.
    QList<qsizetype> leaves;
    for (qsizetype page = 1; page < bytes.size() / 4096; ++page)
        if (bytes[page * 4096] == 13 && bytes.mid(page * 4096, 4096).contains("An answer."))
            leaves.append(page);
    QVERIFY(leaves.size() > 100);
    constexpr int kDamaged = 5;
    for (int i = 0; i < kDamaged; ++i)
        bytes.replace(leaves[(i * 37 + 3) % leaves.size()] * 4096, 4096, QByteArray(4096, '\0'));
    write(path, bytes);

    auto opened = openChats(folder.path());
    QVERIFY2(opened, opened ? "" : opened.error().message.c_str());
    const qint64 messages = *opened->database.integer("SELECT count(*) FROM messages");
    constexpr int kAll = kChats * kTurns * 2;
    QVERIFY2(messages >= kAll - kDamaged * 16 && messages < kAll, QByteArray::number(messages).constData());
    QVERIFY2(opened->notice.contains(QString::number(messages)), qPrintable(opened->notice));
    QCOMPARE(*opened->database.integer("SELECT count(*) FROM conversations"), kChats);
    QCOMPARE(*opened->database.quickCheck(), QStringLiteral("ok"));
    // Every conversation still reads as one tree.
    ConversationStore store(std::move(opened->database));
    const std::vector<ConversationSummary> conversations = store.conversations().value();
    for (const ConversationSummary& summary : conversations) {
        auto conversation = store.conversation(summary.id);
        QVERIFY(conversation);
        for (const Message& message : conversation->messages)
            QVERIFY(message.parentId < message.id);
    }
}

void TestDatabase::damagedFirstPageCostsNothing()
{
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("puna.db"));
    fill(folder.path());
    QByteArray bytes = read(path);
    bytes.replace(0, 4096, QByteArray(4096, '\0'));
    write(path, bytes);
    auto opened = openChats(folder.path());
    QVERIFY2(opened, opened ? "" : opened.error().message.c_str());
    QCOMPARE(*opened->database.integer("SELECT count(*) FROM messages"), kChats * kTurns * 2);
    QCOMPARE(*opened->database.integer("SELECT count(*) FROM conversations"), kChats);
}

void TestDatabase::truncatedFileGivesWhatIsLeft()
{
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("puna.db"));
    fill(folder.path());
    QByteArray bytes = read(path);
    bytes.truncate(bytes.size() / 2 + 17);
    write(path, bytes);
    auto opened = openChats(folder.path());
    QVERIFY2(opened, opened ? "" : opened.error().message.c_str());
    QVERIFY(*opened->database.integer("SELECT count(*) FROM messages") > kChats * kTurns / 2);
}

void TestDatabase::randomDamageNeverFails()
{
    QTemporaryDir pristine;
    fill(pristine.path());
    const QByteArray whole = read(pristine.filePath(QStringLiteral("puna.db")));
    QRandomGenerator random(7);
    for (int round = 0; round < 20; ++round) {
        QTemporaryDir folder;
        QByteArray bytes = whole;
        for (int flips = 0; flips < 30; ++flips)
            bytes[random.bounded(bytes.size())] = static_cast<char>(random.bounded(256));
        write(folder.filePath(QStringLiteral("puna.db")), bytes);
        auto opened = openChats(folder.path());
        if (!opened) { // the version or the application's mark was hit: refused, and left alone
            QCOMPARE(opened.error().code, ErrorCode::unsupported);
            continue;
        }
        ConversationStore store(std::move(opened->database));
        auto conversations = store.conversations();
        QVERIFY(conversations);
        QVERIFY(conversations->size() > kChats / 2);
        for (const ConversationSummary& summary : *conversations)
            QVERIFY(store.conversation(summary.id));
    }
}

void TestDatabase::readOnlyFolderIsASentence()
{
    auto opened = openChats(QStringLiteral("/proc/no-such-folder"));
    QVERIFY(!opened);
    QCOMPARE(opened.error().code, ErrorCode::io);
    QVERIFY(opened.error().message.ends_with("."));
}

QTEST_GUILESS_MAIN(TestDatabase)
#include "tst_database.moc"
