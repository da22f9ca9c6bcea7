// SingleInstance: at most one Puna per data folder.
//
// The holder of an flock on puna.lock is the one; the kernel lets go when the process ends, however it ends, so a lock
// is never stale. It listens on a local socket of this user's; a second start hands its paths over and goes away.
#pragma once

#include <QLocalServer>
#include <QObject>
#include <QStringList>

namespace puna::app {

class SingleInstance : public QObject {
    Q_OBJECT

public:
    explicit SingleInstance(const QString& dataFolder, QObject* parent = nullptr);
    ~SingleInstance() override;

    enum class Role {
        First, // this process has the folder
        Handed, // another one has it and has taken the paths: leave
        Unreachable, // another one has it and did not answer within 2 s
        NoLock, // the lock file could not be made (problem() says why)
    };
    Role start(const QStringList& importPaths);
    QString problem() const { return m_problem; }

signals:
    void raised(const QStringList& importPaths); // a second start: show the window

private:
    void greet();

    QString m_lockFile;
    QString m_socket;
    QString m_problem;
    int m_lock = -1;
    QLocalServer m_server;
};

} // namespace puna::app
