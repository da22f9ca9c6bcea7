#include "app/chat/script_runner.h"

#include "app/chat/chat_controller.h"

#include <QFile>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTimer>

#include <cstdio>

namespace puna::app {

namespace {

void print(const QJsonObject& object)
{
    const QByteArray line = QJsonDocument(object).toJson(QJsonDocument::Compact) + '\n';
    std::fwrite(line.constData(), 1, static_cast<std::size_t>(line.size()), stdout);
    std::fflush(stdout);
}

} // namespace

ScriptRunner::ScriptRunner(ChatController& controller, const QString& file, QObject* parent)
    : QObject(parent)
    , m_controller(controller)
{
    QFile script(file);
    if (!script.open(QIODevice::ReadOnly | QIODevice::Text)) {
        m_problem = QStringLiteral("%1 cannot be read: %2.").arg(file, script.errorString());
        return;
    }
    for (const QString& line : QString::fromUtf8(script.read(1 << 20)).split(QLatin1Char('\n')))
        if (!line.trimmed().isEmpty())
            m_lines.append(line.trimmed());
    connect(controller.library(), &ModelLibrary::stateChanged, this, &ScriptRunner::next);
    connect(controller.library(), &ModelLibrary::refused, this,
        [this](const QString&, const QString& sentence) { fail(sentence); });
    connect(&controller, &ChatController::sessionChanged, this, [this] { watch(m_controller.session()); });
    watch(controller.session());
    connect(&controller, &ChatController::ready, this, &ScriptRunner::next);
}

void ScriptRunner::watch(ChatSession* session)
{
    if (session == m_watched)
        return;
    m_watched = session;
    connect(session, &ChatSession::answerShown, this, [this, session](qint64 answerId, int length) {
        print({{QStringLiteral("event"), QStringLiteral("shown")}, {QStringLiteral("chat"), session->conversationId()},
            {QStringLiteral("answer"), answerId}, {QStringLiteral("length"), length}});
        if (m_stopAfter >= 0) {
            QTimer::singleShot(static_cast<int>(1000 * m_stopAfter), session, &ChatSession::stop);
            m_stopAfter = -1.0;
        }
    });
    connect(session, &ChatSession::answerEnded, this, [](qint64 answerId) {
        print({{QStringLiteral("event"), QStringLiteral("ended")}, {QStringLiteral("answer"), answerId}});
    });
    connect(session, &ChatSession::errorChanged, this, [this, session] {
        if (!session->error().isEmpty())
            fail(session->error());
    });
    connect(session, &ChatSession::settled, this, [this] {
        m_waiting = false;
        next();
    });
    connect(session, &ChatSession::loadingChanged, this, &ScriptRunner::next);
}

void ScriptRunner::fail(const QString& sentence)
{
    print({{QStringLiteral("event"), QStringLiteral("failed")}, {QStringLiteral("error"), sentence}});
    emit finished(1);
}

void ScriptRunner::next()
{
    using State = ModelLibrary::State;
    const State state = m_controller.library()->state();
    if (state == State::Failed) {
        fail(m_controller.library()->problem());
        return;
    }
    ChatSession* session = m_controller.session();
    if (m_waiting || session->busy() || session->loading() || state != State::Ready)
        return;
    if (m_line == 0)
        print({{QStringLiteral("event"), QStringLiteral("ready")}});
    while (m_line < m_lines.size() && !m_waiting) {
        const QString line = m_lines[m_line++];
        const QString command = line.section(QLatin1Char(' '), 0, 0);
        QString argument = line.section(QLatin1Char(' '), 1);
        if (command == QLatin1String("send")) {
            m_waiting = session->send(argument.replace(QStringLiteral("\\n"), QStringLiteral("\n")));
            if (!m_waiting) {
                fail(QStringLiteral("Line %1 of the script could not be sent.").arg(m_line));
                return;
            }
        } else if (command == QLatin1String("regenerate")) {
            session->regenerate(session->lastMessageId(QStringLiteral("assistant")));
            m_waiting = session->busy();
        } else if (command == QLatin1String("stop")) {
            m_stopAfter = argument.toDouble();
        } else if (command == QLatin1String("new")) {
            m_controller.newChat();
            session = m_controller.session();
        } else if (command == QLatin1String("quit")) {
            emit finished(0);
            return;
        } else {
            fail(QStringLiteral("Unknown command '%1' in line %2 of the script.").arg(command).arg(m_line));
            return;
        }
    }
}

} // namespace puna::app
