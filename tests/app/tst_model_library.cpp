#include "app/chat/chat_controller.h"
#include "app/library/model_import.h"
#include "app/storage/store_thread.h"
#include "tests/support/tiny_model.h"

#include <QElapsedTimer>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include <sys/stat.h>

using namespace puna::app;
using puna::test::TinyFormat;
using puna::test::writeTinyModel;
using State = ModelLibrary::State;

namespace {

QString tiny(const QString& folder, TinyFormat format = TinyFormat::fp16)
{
    return QString::fromStdString(writeTinyModel(folder.toStdString(), {.format = format}).string());
}

QList<QUrl> urls(const QStringList& paths)
{
    QList<QUrl> list;
    for (const QString& path : paths)
        list.append(QUrl::fromLocalFile(path));
    return list;
}

void write(const QString& path, const QByteArray& bytes)
{
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size())
        qFatal("cannot write a test's file");
}

} // namespace

class TestModelLibrary : public QObject {
    Q_OBJECT

private slots:
    void everyWayToNameAModelFindsIt();
    void parentFolderGivesAllItsModels();
    void cacheOfLinksIsFollowed();
    void refusals_data();
    void refusals();
    void specialFilesAreNotOpened();
    void importedModelIsLoadedAndRemembered();
    void sameModelTwiceIsOneRow();
    void missingModelIsSaidSo();
    void forgettingKeepsTheFiles();
    void loadCanBeCancelled();
    void choosingAnotherModelLoadsIt();
    void modelThatEndedTheProgramIsNotLoadedByItself();
};

void TestModelLibrary::everyWayToNameAModelFindsIt()
{
    QTemporaryDir folder;
    const QString model = tiny(folder.path());
    for (const QString& given : {model, model + QStringLiteral("/config.json"),
             model + QStringLiteral("/model.safetensors"), model + QStringLiteral("/"), folder.path()}) {
        const std::vector<FoundModel> found = findModels(urls({given}));
        QCOMPARE(found.size(), 1U);
        QVERIFY2(found[0].problem.isEmpty(), qPrintable(given + QStringLiteral(": ") + found[0].problem));
        QCOMPARE(found[0].record.path, QFileInfo(model).canonicalFilePath());
        QVERIFY(!found[0].record.name.isEmpty());
        QVERIFY(found[0].record.weightBytes > 0);
    }
}

void TestModelLibrary::parentFolderGivesAllItsModels()
{
    QTemporaryDir folder;
    QDir(folder.path()).mkpath(QStringLiteral("a/b"));
    QDir(folder.path()).mkpath(QStringLiteral("c"));
    tiny(folder.filePath(QStringLiteral("a/b")), TinyFormat::exl2);
    tiny(folder.filePath(QStringLiteral("c")), TinyFormat::gguf);
    tiny(folder.path(), TinyFormat::gptq);
    const std::vector<FoundModel> found = findModels(urls({folder.path(), folder.filePath(QStringLiteral("c"))}));
    QCOMPARE(found.size(), 3U);
    QStringList formats;
    for (const FoundModel& model : found) {
        QVERIFY2(model.problem.isEmpty(), qPrintable(model.problem));
        formats.append(model.record.format.section(QLatin1Char(' '), 0, 0));
    }
    formats.sort();
    QCOMPARE(formats, (QStringList {"EXL2", "GGUF", "GPTQ"}));
}

// As Hugging Face keeps them: snapshots/x/file -> ../../blobs/hash.
void TestModelLibrary::cacheOfLinksIsFollowed()
{
    QTemporaryDir folder;
    const QString model = tiny(folder.path());
    const QString cache = folder.filePath(QStringLiteral("models--x--y"));
    QDir().mkpath(cache + QStringLiteral("/blobs"));
    QDir().mkpath(cache + QStringLiteral("/snapshots/abc"));
    int number = 0;
    for (const QFileInfo& file : QDir(model).entryInfoList(QDir::Files)) {
        const QString blob = QStringLiteral("%1").arg(++number, 8, 16, QLatin1Char('0'));
        QVERIFY(QFile::rename(file.filePath(), cache + QStringLiteral("/blobs/") + blob));
        QVERIFY(QFile::link(
            QStringLiteral("../../blobs/") + blob, cache + QStringLiteral("/snapshots/abc/") + file.fileName()));
    }
    for (const QString& given : {cache, cache + QStringLiteral("/snapshots/abc/model.safetensors")}) {
        const std::vector<FoundModel> found = findModels(urls({given}));
        QCOMPARE(found.size(), 1U);
        QVERIFY2(found[0].problem.isEmpty(), qPrintable(found[0].problem));
        QVERIFY(found[0].path.endsWith(QStringLiteral("snapshots/abc")));
    }
}

void TestModelLibrary::refusals_data()
{
    QTest::addColumn<QString>("name"); // of what is given, below a fresh folder
    QTest::addColumn<QString>("file"); // made in it
    QTest::addColumn<QByteArray>("bytes");
    QTest::addColumn<QString>("says");
    const auto row = [](const char* test, const char* name, const char* file, const QByteArray& bytes,
                         const char* says) {
        QTest::newRow(test) << QString::fromUtf8(name) << QString::fromUtf8(file) << bytes << QString::fromUtf8(says);
    };
    row("nothing there", "absent", "", {}, "nothing at");
    row("empty folder", "", "", {}, "No model was found");
    row("text file", "notes.txt", "notes.txt", "hello", "not a model");
    row("pickle", "pytorch_model.bin", "pytorch_model.bin", "\x80\x02", "can run programs");
    row("folder of pickles", "", "pytorch_model.bin", "\x80\x02", "can run programs");
    row("archive", "model.zip", "model.zip", "PK", "unpack");
    row("GGUF of zeros", "x.gguf", "x.gguf", QByteArray(100, '\0'), "x.gguf");
    row("truncated GGUF", "x.gguf", "x.gguf", "GGUF\x03", "x.gguf");
    row("safetensors of junk", "model.safetensors", "model.safetensors", QByteArray(100, '\xff'), "");
    row("no config", "", "model.safetensors", QByteArray("\x02\0\0\0\0\0\0\0{}", 10), "config.json");
}

void TestModelLibrary::refusals()
{
    QFETCH(QString, name);
    QFETCH(QString, file);
    QFETCH(QByteArray, bytes);
    QFETCH(QString, says);
    QTemporaryDir folder;
    if (!file.isEmpty())
        write(folder.filePath(file), bytes);
    QElapsedTimer timer;
    timer.start();
    const std::vector<FoundModel> found = findModels(urls({folder.filePath(name)}));
    QVERIFY(timer.elapsed() < 2000);
    QCOMPARE(found.size(), 1U);
    QVERIFY(!found[0].problem.isEmpty());
    QVERIFY2(found[0].problem.contains(says), qPrintable(found[0].problem));
    QVERIFY2(found[0].problem.endsWith(QLatin1Char('.')), qPrintable(found[0].problem));
}

void TestModelLibrary::specialFilesAreNotOpened()
{
    QTemporaryDir folder;
    const QString pipe = folder.filePath(QStringLiteral("x.gguf"));
    QVERIFY(::mkfifo(pipe.toLocal8Bit().constData(), 0600) == 0);
    QVERIFY(QFile::link(folder.path(), folder.filePath(QStringLiteral("loop"))));
    const QList<QUrl> given {QUrl::fromLocalFile(pipe), QUrl::fromLocalFile(QStringLiteral("/dev/zero")),
        QUrl(QStringLiteral("https://example.org/model.gguf")), QUrl(QStringLiteral("file://server/share/model.gguf")),
        QUrl::fromLocalFile(folder.path())};
    QElapsedTimer timer;
    timer.start();
    const std::vector<FoundModel> found = findModels(given);
    QVERIFY(timer.elapsed() < 2000);
    QCOMPARE(found.size(), 5U);
    for (const FoundModel& model : found)
        QVERIFY(!model.problem.isEmpty());
    QVERIFY(found[0].problem.contains(QStringLiteral("pipe")));
    QVERIFY(found[2].problem.contains(QStringLiteral("address")));
}

void TestModelLibrary::importedModelIsLoadedAndRemembered()
{
    QTemporaryDir data, models;
    const QString model = tiny(models.path());
    {
        ChatController controller(data.path());
        ModelLibrary& library = *controller.library();
        QSignalSpy imported(&library, &ModelLibrary::imported);
        QSignalSpy refused(&library, &ModelLibrary::refused);
        QCOMPARE(library.stateText(), QStringLiteral("Not loaded"));
        controller.importPaths(urls({model, QStringLiteral("/dev/null")}));
        QVERIFY(library.importing());
        QTRY_COMPARE(imported.count(), 1);
        QCOMPARE(refused.count(), 1);
        QTRY_COMPARE(library.state(), State::Ready);
        QCOMPARE(library.count(), 1);
        QVERIFY(!library.deviceText().isEmpty());
        QVERIFY(!library.deviceDetail().isEmpty());
        QVERIFY(library.contextTokens() > 0);
        QVERIFY(!library.importing());
    }
    ChatController again(data.path());
    QTRY_COMPARE(again.library()->state(), State::Ready);
    QCOMPARE(again.library()->count(), 1);
    QCOMPARE(again.library()->models()->data(again.library()->models()->index(0), ModelListModel::CurrentRole).toBool(),
        true);
}

void TestModelLibrary::sameModelTwiceIsOneRow()
{
    QTemporaryDir data, models;
    const QString model = tiny(models.path());
    ChatController controller(data.path());
    QSignalSpy finished(controller.library(), &ModelLibrary::importFinished);
    controller.importPaths(urls({model}));
    controller.importPaths(urls({models.path()}));
    QTRY_COMPARE(finished.count(), 2);
    QCOMPARE(controller.library()->count(), 1);
}

void TestModelLibrary::missingModelIsSaidSo()
{
    QTemporaryDir data, models;
    const QString model = tiny(models.path());
    {
        ChatController controller(data.path());
        controller.importPaths(urls({model}));
        QTRY_COMPARE(controller.library()->state(), State::Ready);
    }
    QVERIFY(QFile::rename(model, model + QStringLiteral("-away")));
    ChatController controller(data.path());
    ModelListModel& rows = *controller.library()->models();
    QTRY_COMPARE(controller.library()->state(), State::Failed);
    QTRY_COMPARE(rows.data(rows.index(0), ModelListModel::StateRole).toString(), QStringLiteral("missing"));
    QVERIFY(!controller.library()->problem().isEmpty());
    QVERIFY(!controller.session()->canSend());
    QVERIFY(QFile::rename(model + QStringLiteral("-away"), model));
    controller.library()->refresh();
    QTRY_COMPARE(rows.data(rows.index(0), ModelListModel::StateRole).toString(), QStringLiteral("ok"));
    controller.library()->load(controller.library()->currentId());
    QTRY_COMPARE(controller.library()->state(), State::Ready);
}

void TestModelLibrary::forgettingKeepsTheFiles()
{
    QTemporaryDir data, models;
    const QString model = tiny(models.path());
    ChatController controller(data.path());
    controller.importPaths(urls({model}));
    QTRY_COMPARE(controller.library()->state(), State::Ready);
    controller.library()->forget(controller.library()->currentId());
    QCOMPARE(controller.library()->count(), 0);
    QTRY_COMPARE(controller.library()->state(), State::NotLoaded);
    QCOMPARE(controller.library()->currentId(), 0);
    QVERIFY(QFile::exists(model + QStringLiteral("/model.safetensors")));
    QVERIFY(!controller.session()->canSend());
}

void TestModelLibrary::loadCanBeCancelled()
{
    QTemporaryDir data, models;
    const QString model = tiny(models.path());
    ChatController controller(data.path());
    ModelLibrary& library = *controller.library();
    controller.importPaths(urls({model}));
    QTRY_COMPARE(library.state(), State::Ready);
    library.unload();
    QTRY_COMPARE(library.state(), State::NotLoaded);
    QVERIFY(library.canAnswer());
    library.load(library.currentId());
    library.cancelLoad();
    QTRY_VERIFY(library.state() == State::NotLoaded || library.state() == State::Ready); // it may have been faster
    library.load(library.currentId());
    QTRY_COMPARE(library.state(), State::Ready);
}

void TestModelLibrary::choosingAnotherModelLoadsIt()
{
    QTemporaryDir data, one, two;
    ChatController controller(data.path());
    ModelLibrary& library = *controller.library();
    QSignalSpy finished(&library, &ModelLibrary::importFinished);
    controller.importPaths(urls({tiny(one.path())}));
    QTRY_COMPARE(library.state(), State::Ready);
    const qint64 first = library.currentId();
    controller.importPaths(urls({tiny(two.path(), TinyFormat::gguf)}));
    QTRY_COMPARE(finished.count(), 2);
    QCOMPARE(library.currentId(), first); // adding one does not choose it
    const qint64 second = library.models()->data(library.models()->index(0), ModelListModel::IdRole).toLongLong();
    QVERIFY(second != first);
    library.load(second);
    library.load(first);
    library.load(second);
    QCOMPARE(library.state(), State::Loading);
    QTRY_COMPARE(library.state(), State::Ready);
    QCOMPARE(library.currentId(), second);
    QVERIFY(
        library.models()->data(library.models()->index(0), ModelListModel::FormatRole).toString().startsWith("GGUF"));
}

void TestModelLibrary::modelThatEndedTheProgramIsNotLoadedByItself()
{
    QTemporaryDir data, models;
    {
        ChatController controller(data.path());
        controller.importPaths(urls({tiny(models.path())}));
        QTRY_COMPARE(controller.library()->state(), State::Ready);
    }
    {
        auto opened = openChats(data.path()); // as a crash while loading leaves it
        QVERIFY(opened);
        ConversationStore store(std::move(opened->database));
        const qint64 id = store.models()->front().id;
        QVERIFY(store.setState(ModelLibrary::unfinishedLoadKey(), QString::number(id)));
    }
    ChatController controller(data.path());
    QTRY_COMPARE(controller.library()->state(), State::Failed);
    QVERIFY(controller.library()->problem().contains(controller.library()->currentName()));
    QVERIFY(!controller.session()->canSend());
    controller.library()->load(controller.library()->currentId());
    QTRY_COMPARE(controller.library()->state(), State::Ready);
}

QTEST_GUILESS_MAIN(TestModelLibrary)
#include "tst_model_library.moc"
