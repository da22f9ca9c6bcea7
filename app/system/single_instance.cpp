#include "app/system/single_instance.h"

#include <QCryptographicHash>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QLocalSocket>
#include <QTimer>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace puna::app {

namespace {

constexpr int kTimeoutMs = 2000;
constexpr qint64 kMessageBytesMax = 1 << 20;

// Short and the same for every spelling of the folder; a socket's path may have only 107 bytes.
QString socketName(const QString& folder)
{
    const QByteArray hash =
        QCryptographicHash::hash(QFileInfo(folder).canonicalFilePath().toUtf8(), QCryptographicHash::Sha256);
    const QString name = QStringLiteral("puna-") + QString::fromLatin1(hash.toHex().left(24));
    const QString runtime = qEnvironmentVariable("XDG_RUNTIME_DIR");
    if (!runtime.isEmpty() && runtime.size() < 60 && QFileInfo(runtime).isWritable())
        return runtime + QLatin1Char('/') + name;
    return name;
}

bool handOver(const QString& socketPath, const QStringList& paths)
{
    QLocalSocket socket;
    socket.connectToServer(socketPath);
    if (!socket.waitForConnected(kTimeoutMs))
        return false;
    socket.write(QJsonDocument(QJsonArray::fromStringList(paths)).toJson(QJsonDocument::Compact) + '\n');
    return socket.waitForBytesWritten(kTimeoutMs) && socket.waitForReadyRead(kTimeoutMs)
        && socket.readAll().startsWith("ok");
}

} // namespace

SingleInstance::SingleInstance(const QString& dataFolder, QObject* parent)
    : QObject(parent)
    , m_lockFile(dataFolder + QStringLiteral("/puna.lock"))
    , m_socket(socketName(dataFolder))
{
    m_server.setSocketOptions(QLocalServer::UserAccessOption);
    connect(&m_server, &QLocalServer::newConnection, this, &SingleInstance::greet);
}

SingleInstance::~SingleInstance()
{
    m_server.close();
    if (m_lock >= 0)
        ::close(m_lock);
}

SingleInstance::Role SingleInstance::start(const QStringList& importPaths)
{
    m_lock = ::open(QFile::encodeName(m_lockFile).constData(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m_lock < 0) {
        m_problem =
            QStringLiteral("%1 could not be made: %2.").arg(m_lockFile, QString::fromLocal8Bit(std::strerror(errno)));
        return Role::NoLock;
    }
    if (::flock(m_lock, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        ::close(m_lock);
        m_lock = -1;
        if (error != EWOULDBLOCK) {
            m_problem = QStringLiteral("%1 could not be locked: %2.")
                            .arg(m_lockFile, QString::fromLocal8Bit(std::strerror(error)));
            return Role::NoLock;
        }
        // The other one may be just starting, or just ending: a few tries.
        for (int tries = 0; tries < 10; ++tries) {
            if (handOver(m_socket, importPaths))
                return Role::Handed;
            ::usleep(100'000);
        }
        m_problem = QStringLiteral("Another Puna has the chats in %1 open, but does not answer.")
                        .arg(QFileInfo(m_lockFile).path());
        return Role::Unreachable;
    }
    QLocalServer::removeServer(m_socket); // left by a process that was killed; the lock says it is gone
    if (!m_server.listen(m_socket))
        m_problem = QStringLiteral("A second start cannot raise this window: %1.").arg(m_server.errorString());
    return Role::First;
}

void SingleInstance::greet()
{
    while (QLocalSocket* socket = m_server.nextPendingConnection()) {
        connect(socket, &QLocalSocket::disconnected, socket, &QObject::deleteLater);
        QTimer::singleShot(kTimeoutMs, socket, &QLocalSocket::abort);
        auto take = [this, socket] {
            if (!socket->canReadLine()) {
                if (socket->bytesAvailable() > kMessageBytesMax)
                    socket->abort();
                return;
            }
            QStringList paths;
            for (const QJsonValue& path : QJsonDocument::fromJson(socket->readLine(kMessageBytesMax)).array())
                if (path.isString())
                    paths.append(path.toString());
            socket->write("ok\n");
            socket->flush();
            socket->disconnectFromServer();
            emit raised(paths);
        };
        connect(socket, &QLocalSocket::readyRead, this, take);
        take();
    }
}

} // namespace puna::app
