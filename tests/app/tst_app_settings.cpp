#include "app/settings/app_settings.h"

#include <QFile>
#include <QRandomGenerator>
#include <QTemporaryDir>
#include <QtTest>

using namespace puna::app;

class TestAppSettings : public QObject {
    Q_OBJECT

private slots:
    void valuesComeBack();
    void valuesOutOfRangeAreTheDefaults_data();
    void valuesOutOfRangeAreTheDefaults();
    void unknownValuesAreKept();
    void fileThatIsNotJsonIsKeptAside();
    void damagedFilesNeverFail();

private:
    void write(const QString& path, const QByteArray& bytes)
    {
        QFile file(path);
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(bytes);
    }
};

void TestAppSettings::valuesComeBack()
{
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("settings.json"));
    {
        AppSettings settings(file);
        settings.setWindowWidth(800);
        settings.setWindowX(17);
        settings.setSidebarVisible(false);
        settings.setSidebarWidth(9999); // clamped
    }
    AppSettings settings(file);
    QCOMPARE(settings.windowWidth(), 800);
    QCOMPARE(settings.windowX(), 17);
    QCOMPARE(settings.sidebarVisible(), false);
    QCOMPARE(settings.sidebarWidth(), 600);
}

void TestAppSettings::valuesOutOfRangeAreTheDefaults_data()
{
    QTest::addColumn<QByteArray>("width");
    for (const char* width : {"0", "-5", "1e308", "479", "16385", "\"800\"", "null", "[]", "true", "2147483648"})
        QTest::newRow(width) << QByteArray(width);
}

void TestAppSettings::valuesOutOfRangeAreTheDefaults()
{
    QFETCH(QByteArray, width);
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("settings.json"));
    write(file, "{\"windowWidth\": " + width + ", \"windowHeight\": 500}");
    AppSettings settings(file);
    QCOMPARE(settings.windowWidth(), 1100);
    QCOMPARE(settings.windowHeight(), 500);
}

void TestAppSettings::unknownValuesAreKept()
{
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("settings.json"));
    write(file, "{\"ofALaterVersion\": {\"x\": 1}}");
    {
        AppSettings settings(file);
        settings.setSidebarVisible(false);
    }
    QFile read(file);
    QVERIFY(read.open(QIODevice::ReadOnly));
    QVERIFY(read.readAll().contains("ofALaterVersion"));
}

void TestAppSettings::fileThatIsNotJsonIsKeptAside()
{
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("settings.json"));
    write(file, "window=@Variant(\\0\\0)");
    AppSettings settings(file);
    QCOMPARE(settings.windowWidth(), 1100);
    QVERIFY(QFile::exists(file + QStringLiteral(".bad")));
}

void TestAppSettings::damagedFilesNeverFail()
{
    QTemporaryDir folder;
    const QString file = folder.filePath(QStringLiteral("settings.json"));
    const QByteArray good = "{\"windowX\":3,\"windowWidth\":700,\"sidebarVisible\":false,\"sidebarWidth\":300}";
    QRandomGenerator random(1);
    for (int round = 0; round < 100; ++round) {
        QByteArray bytes = good;
        for (int flips = 1 + random.bounded(5); flips > 0; --flips)
            bytes[random.bounded(bytes.size())] = static_cast<char>(random.bounded(256));
        write(file, bytes);
        AppSettings settings(file);
        QVERIFY(settings.windowWidth() >= 480 && settings.windowWidth() <= 16384);
        QVERIFY(settings.sidebarWidth() >= 160 && settings.sidebarWidth() <= 600);
    }
}

QTEST_GUILESS_MAIN(TestAppSettings)
#include "tst_app_settings.moc"
