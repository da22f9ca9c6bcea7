#include "app/storage/conversation_store.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

#include <QElapsedTimer>
#include <QFile>
#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QRandomGenerator>
#include <QTemporaryDir>
#include <QtTest>

#include <map>

using namespace puna::app;

// The real program, with its real store, killed while it writes: 20 times, or as often as PUNA_KILL_ROUNDS says.
// What was on the screen is known from what the script runner prints.
class TestKill : public QObject {
    Q_OBJECT

private slots:
    void initTestCase();
    void nothingCommittedIsLost_data();
    void nothingCommittedIsLost();

private:
    struct Shown {
        qint64 chat = 0;
        std::vector<std::pair<qint64, int>> lengths; // ms, characters
        qint64 endedMs = -1;
    };

    QString m_puna;
    QString m_model;
    int m_longestMs = 1200; // after the first text
    QTemporaryDir m_models;
    QTemporaryDir m_data;
    std::map<qint64, std::vector<std::pair<qint64, QString>>> m_before; // chat -> (message, text), after the last kill
};

void TestKill::initTestCase()
{
    m_puna = QString::fromStdString(puna::test::program("puna").string());
    if (!QFile::exists(m_puna))
        QSKIP("the program puna has not been built");
    // Answers of the starter model take long enough to be cut anywhere; those of the tiny one do as well as they can.
    const auto starter = puna::test::starterModel();
    if (!starter.empty())
        m_longestMs = 2500;
    m_model = QString::fromStdString(
        (starter.empty() ? puna::test::writeTinyModel(m_models.path().toStdString(), {.max_context = 8192}) : starter)
            .string());
}

// In rows of 20, all on one data folder.
void TestKill::nothingCommittedIsLost_data()
{
    QTest::addColumn<int>("rounds");
    const int all =
        qEnvironmentVariableIsSet("PUNA_KILL_ROUNDS") ? qEnvironmentVariableIntValue("PUNA_KILL_ROUNDS") : 20;
    for (int done = 0; done < all; done += 20)
        QTest::addRow("from %d", done) << std::min(20, all - done);
}

void TestKill::nothingCommittedIsLost()
{
    QFETCH(int, rounds);
    constexpr qint64 kMissingMs = 1000; // of an answer's text, at most
    const QString script = m_data.filePath(QStringLiteral("script"));
    {
        QFile file(script);
        QVERIFY(file.open(QIODevice::WriteOnly));
        for (int i = 0; i < 500; ++i)
            file.write(QStringLiteral("new\nsend Question %1: tell me a long story about the sea.\n").arg(i).toUtf8());
    }
    QRandomGenerator random(static_cast<quint32>(QDateTime::currentMSecsSinceEpoch()));
    int midStream = 0;
    int checkedAnswers = 0;
    for (int round = 0; round < rounds; ++round) {
        QProcess puna;
        puna.setProcessChannelMode(QProcess::SeparateChannels);
        puna.start(m_puna,
            {QStringLiteral("--data"), m_data.path(), QStringLiteral("--import"), m_model, QStringLiteral("--script"),
                script});
        QVERIFY(puna.waitForStarted());
        QElapsedTimer clock;
        clock.start();
        std::map<qint64, Shown> answers;
        QByteArray problem;
        const auto read = [&] {
            while (puna.canReadLine()) {
                const QJsonObject event = QJsonDocument::fromJson(puna.readLine()).object();
                const QString what = event[QStringLiteral("event")].toString();
                const auto answer = event[QStringLiteral("answer")].toVariant().toLongLong();
                if (what == QLatin1String("shown")) {
                    answers[answer].chat = event[QStringLiteral("chat")].toVariant().toLongLong();
                    answers[answer].lengths.emplace_back(clock.elapsed(), event[QStringLiteral("length")].toInt());
                } else if (what == QLatin1String("ended") && answers.contains(answer)) { // else it had no text
                    answers[answer].endedMs = clock.elapsed();
                } else if (what == QLatin1String("failed")) {
                    problem = event[QStringLiteral("error")].toString().toUtf8();
                }
            }
        };
        // A random moment after the first text.
        qint64 killAt = 60'000;
        while (clock.elapsed() < killAt && puna.state() == QProcess::Running && problem.isEmpty()) {
            if (puna.waitForReadyRead(5))
                read();
            if (killAt == 60'000 && !answers.empty())
                killAt = clock.elapsed() + random.bounded(m_longestMs);
        }
        QVERIFY2(problem.isEmpty(), problem.constData());
        QVERIFY2(puna.state() == QProcess::Running, puna.readAllStandardError().constData());
        puna.kill(); // SIGKILL
        const qint64 killedMs = clock.elapsed();
        QVERIFY(puna.waitForFinished());
        read(); // what it had said before
        QVERIFY2(!answers.empty(), "nothing was written within a minute");

        auto opened = openChats(m_data.path());
        QVERIFY2(opened, opened ? "" : opened.error().message.c_str());
        QVERIFY2(opened->notice.isEmpty(), qPrintable(opened->notice));
        auto check = opened->database.query("PRAGMA integrity_check");
        QVERIFY(check && *check->step());
        QCOMPARE(check->text(0), QStringLiteral("ok"));
        check = puna::Error {puna::ErrorCode::argument, {}}; // closes the statement
        ConversationStore store(std::move(opened->database));

        for (const auto& [id, answer] : answers) {
            auto conversation = store.conversation(answer.chat);
            QVERIFY(conversation);
            QCOMPARE(conversation->messages.size(), 2U);
            const Message& user = conversation->messages[0];
            const Message& stored = conversation->messages[1];
            QVERIFY(user.text.startsWith(QStringLiteral("Question ")));
            QCOMPARE(stored.id, id);
            int due = 0; // characters that were on the screen a second before the end
            for (const auto& [ms, length] : answer.lengths)
                if (ms <= killedMs - kMissingMs)
                    due = length;
            QVERIFY2(stored.text.size() >= due,
                qPrintable(QStringLiteral("%1 of %2 characters").arg(stored.text.size()).arg(due)));
            if (stored.state == MessageState::Interrupted) {
                QVERIFY(answer.endedMs < 0 || answer.endedMs > killedMs - kMissingMs);
                ++midStream;
            } else { // complete, if only just: then nothing at all is missing
                QCOMPARE(stored.state, MessageState::Done);
                QVERIFY(stored.text.size() >= answer.lengths.back().second);
            }
            ++checkedAnswers;
        }
        // What was there after the last kill is there now.
        const std::vector<ConversationSummary> chats = store.conversations().value();
        std::map<qint64, std::vector<std::pair<qint64, QString>>> now;
        for (const ConversationSummary& chat : chats) {
            auto conversation = store.conversation(chat.id);
            QVERIFY(conversation);
            for (const Message& message : conversation->messages)
                now[chat.id].emplace_back(message.id, message.text);
        }
        for (const auto& [chat, messages] : m_before)
            QVERIFY(now[chat] == messages);
        m_before = std::move(now);
    }
    qInfo("%d kills, %d of them in the middle of an answer; %d answers checked", rounds, midStream, checkedAnswers);
    QVERIFY(midStream >= rounds / 3);
}

int main(int argc, char** argv)
{
    if (qEnvironmentVariableIsSet("PUNA_KILL_ROUNDS")) // more than Qt Test's five minutes
        qputenv("QTEST_FUNCTION_TIMEOUT", "7200000");
    QCoreApplication application(argc, argv);
    TestKill test;
    return QTest::qExec(&test, argc, argv);
}

#include "tst_kill.moc"
