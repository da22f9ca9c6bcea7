#include "app/storage/migrations.h"

#include <QTemporaryDir>
#include <QtTest>

#include <vector>

using namespace puna;
using namespace puna::app;

class TestMigrations : public QObject {
    Q_OBJECT

private slots:
    void emptyFileGetsTheLatestSchema();
    void migratingTwiceChangesNothing();
    void everyOlderSchemaReachesTheLatest();
    void failingStepLeavesTheOldSchema();
    void rowsSurviveANewStep();

private:
    static QString schemaOf(Database& database);
};

QString TestMigrations::schemaOf(Database& database)
{
    QString schema;
    auto rows = database.query("SELECT name, sql FROM sqlite_schema ORDER BY name");
    while (*rows->step())
        schema += rows->text(0) + rows->text(1);
    return schema;
}

void TestMigrations::emptyFileGetsTheLatestSchema()
{
    auto database = Database::open(QStringLiteral(":memory:"));
    QVERIFY(migrate(*database));
    QCOMPARE(*schemaVersion(*database), latestSchema());
    for (const char* table : {"conversations", "messages", "message_parts", "models", "state"})
        QCOMPARE(*database->integer("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?",
                     QString::fromLatin1(table)),
            1);
}

void TestMigrations::migratingTwiceChangesNothing()
{
    auto database = Database::open(QStringLiteral(":memory:"));
    QVERIFY(migrate(*database));
    const QString schema = schemaOf(*database);
    QVERIFY(migrate(*database));
    QCOMPARE(schemaOf(*database), schema);
}

void TestMigrations::everyOlderSchemaReachesTheLatest()
{
    auto fresh = Database::open(QStringLiteral(":memory:"));
    QVERIFY(migrate(*fresh));
    for (std::size_t version = 1; version <= migrations().size(); ++version) {
        auto database = Database::open(QStringLiteral(":memory:"));
        QVERIFY(migrate(*database, migrations().first(version)));
        QCOMPARE(*schemaVersion(*database), static_cast<qint64>(version));
        QVERIFY(migrate(*database));
        QCOMPARE(schemaOf(*database), schemaOf(*fresh));
    }
}

void TestMigrations::failingStepLeavesTheOldSchema()
{
    auto database = Database::open(QStringLiteral(":memory:"));
    QVERIFY(migrate(*database));
    const QString schema = schemaOf(*database);
    std::vector<const char*> steps(migrations().begin(), migrations().end());
    steps.push_back("CREATE TABLE good (x); ALTER TABLE messages ADD COLUMN y TEXT");
    steps.push_back("CREATE TABLE bad (x; nonsense");
    QVERIFY(!migrate(*database, steps));
    QCOMPARE(schemaOf(*database), schema);
    QCOMPARE(*schemaVersion(*database), latestSchema());
}

void TestMigrations::rowsSurviveANewStep()
{
    QTemporaryDir folder;
    auto opened = openChats(folder.path());
    QVERIFY(opened);
    Database& database = opened->database;
    QVERIFY(database.exec("INSERT INTO conversations (title, created_ms, updated_ms) VALUES ('Kept', 1, 2)"));
    std::vector<const char*> steps(migrations().begin(), migrations().end());
    steps.push_back("ALTER TABLE conversations ADD COLUMN folder TEXT NOT NULL DEFAULT 'none'");
    QVERIFY(migrate(database, steps));
    auto row = database.query("SELECT title, folder FROM conversations");
    QVERIFY(*row->step());
    QCOMPARE(row->text(0), QStringLiteral("Kept"));
    QCOMPARE(row->text(1), QStringLiteral("none"));
}

QTEST_GUILESS_MAIN(TestMigrations)
#include "tst_migrations.moc"
