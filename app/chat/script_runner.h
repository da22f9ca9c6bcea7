// ScriptRunner: drives a ChatController without a window, for tests and measurements of the whole program.
//
// A script is a text file, one command a line; each waits for the one before:
//     send TEXT      when a model is ready and nothing is under way; \n in TEXT is a new line
//     regenerate     the last answer
//     stop SECONDS   stops the answer of the next send or regenerate so long after its first text
//     new            a new chat
//     quit           ends the program when everything is done; without it, the script ends and the program goes on
// What happens is printed, one JSON object a line: ready, shown (characters of the answer on screen), ended, failed.
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QStringList>

namespace puna::app {

class ChatController;
class ChatSession;

class ScriptRunner : public QObject {
    Q_OBJECT

public:
    // Begins by itself when the controller is ready and has a model. problem(): why the file cannot be used, or empty.
    ScriptRunner(ChatController& controller, const QString& file, QObject* parent = nullptr);
    QString problem() const { return m_problem; }

signals:
    void finished(int exitCode); // after quit, or a failure

private:
    void next();
    void watch(ChatSession* session);
    void fail(const QString& sentence);

    ChatController& m_controller;
    QStringList m_lines;
    qsizetype m_line = 0;
    ChatSession* m_watched = nullptr;
    bool m_waiting = false; // for an answer
    double m_stopAfter = -1.0;
    QString m_problem;
};

} // namespace puna::app
