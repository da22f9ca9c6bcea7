#include "app/system/single_instance.h"

#include <QElapsedTimer>
#include <QLocalSocket>
#include <QProcess>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QThread>
#include <QtTest>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

using namespace puna::app;
using Role = SingleInstance::Role;

// A second start blocks until the first has answered, so it runs beside it.
class Second : public QThread {
public:
    explicit Second(const QString& folder, const QStringList& paths)
        : m_folder(folder)
        , m_paths(paths)
    {
    }
    Role role = Role::NoLock;

protected:
    void run() override { role = SingleInstance(m_folder).start(m_paths); }

private:
    QString m_folder;
    QStringList m_paths;
};

class TestSingleInstance : public QObject {
    Q_OBJECT

private slots:
    void secondStartHandsOverItsPaths();
    void anotherFolderIsAnotherInstance();
    void folderIsFreeAfterTheFirstHasGone();
    void lockOfAKilledProcessIsNoLock();
    void missingFolderIsASentence();
    void nonsenseFromTheSocketIsIgnored();
};

void TestSingleInstance::secondStartHandsOverItsPaths()
{
    QTemporaryDir folder;
    SingleInstance first(folder.path());
    QCOMPARE(first.start({}), Role::First);
    QSignalSpy raised(&first, &SingleInstance::raised);
    QElapsedTimer timer;
    timer.start();
    Second second(folder.path() + QStringLiteral("/."), {QStringLiteral("/a model"), QStringLiteral("/ü")});
    second.start();
    QTRY_VERIFY(second.isFinished());
    QVERIFY2(timer.elapsed() < 500, QByteArray::number(timer.elapsed()).constData());
    QCOMPARE(second.role, Role::Handed);
    QCOMPARE(raised.count(), 1);
    QCOMPARE(raised[0][0].toStringList(), (QStringList {QStringLiteral("/a model"), QStringLiteral("/ü")}));
}

void TestSingleInstance::anotherFolderIsAnotherInstance()
{
    QTemporaryDir one, two;
    SingleInstance first(one.path()), second(two.path());
    QCOMPARE(first.start({}), Role::First);
    QCOMPARE(second.start({}), Role::First);
}

void TestSingleInstance::folderIsFreeAfterTheFirstHasGone()
{
    QTemporaryDir folder;
    for (int i = 0; i < 3; ++i) {
        SingleInstance instance(folder.path());
        QCOMPARE(instance.start({}), Role::First);
    }
}

void TestSingleInstance::lockOfAKilledProcessIsNoLock()
{
    QTemporaryDir folder;
    int ready[2];
    QVERIFY(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        SingleInstance first(folder.path());
        const char answer = first.start({}) == Role::First ? 'y' : 'n';
        (void)!::write(ready[1], &answer, 1);
        ::pause();
        ::_exit(0);
    }
    char answer = 0;
    QVERIFY(::read(ready[0], &answer, 1) == 1);
    QCOMPARE(answer, 'y');
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    SingleInstance next(folder.path()); // lock file and socket are still there
    QCOMPARE(next.start({}), Role::First);
    QSignalSpy raised(&next, &SingleInstance::raised);
    Second second(folder.path(), {});
    second.start();
    QTRY_VERIFY(second.isFinished());
    QCOMPARE(second.role, Role::Handed);
    QCOMPARE(raised.count(), 1);
}

void TestSingleInstance::missingFolderIsASentence()
{
    SingleInstance instance(QStringLiteral("/no/such/folder"));
    QCOMPARE(instance.start({}), Role::NoLock);
    QVERIFY(instance.problem().contains(QStringLiteral("/no/such/folder/puna.lock")));
}

void TestSingleInstance::nonsenseFromTheSocketIsIgnored()
{
    QTemporaryDir folder, runtime;
    qputenv("XDG_RUNTIME_DIR", runtime.path().toLocal8Bit());
    SingleInstance first(folder.path());
    QCOMPARE(first.start({}), Role::First);
    const QStringList sockets = QDir(runtime.path()).entryList(QDir::System | QDir::AllEntries | QDir::NoDotAndDotDot);
    QCOMPARE(sockets.size(), 1);
    QSignalSpy raised(&first, &SingleInstance::raised);
    for (const QByteArray& message : {QByteArray("\n"), QByteArray("{\"a\":1}\n"), QByteArray("[1,null,\"/x\"]\n")}) {
        QLocalSocket socket;
        socket.connectToServer(runtime.filePath(sockets[0]));
        QVERIFY(socket.waitForConnected());
        socket.write(message);
        QTRY_COMPARE(socket.state(), QLocalSocket::UnconnectedState);
    }
    QCOMPARE(raised.count(), 3); // each raises the window, with what paths there were
    QCOMPARE(raised[2][0].toStringList(), QStringList {QStringLiteral("/x")});
    qunsetenv("XDG_RUNTIME_DIR");
}

QTEST_GUILESS_MAIN(TestSingleInstance)
#include "tst_single_instance.moc"
