#include "ui/network_refusal.h"

#include <QNetworkAccessManager>
#include <QNetworkReply>
#include <QTimer>

namespace puna::ui {
namespace {

class RefusedReply : public QNetworkReply {
public:
    RefusedReply(const QNetworkRequest& request, QNetworkAccessManager::Operation operation, QObject* parent)
        : QNetworkReply(parent)
    {
        setRequest(request);
        setUrl(request.url());
        setOperation(operation);
        setError(ContentAccessDenied, QStringLiteral("Puna's window does not use the network."));
        open(ReadOnly | Unbuffered);
        QTimer::singleShot(0, this, [this] {
            setFinished(true);
            emit errorOccurred(error());
            emit finished();
        });
    }
    void abort() override { }

protected:
    qint64 readData(char*, qint64) override { return -1; }
};

class RefusingManager : public QNetworkAccessManager {
public:
    using QNetworkAccessManager::QNetworkAccessManager;

protected:
    QNetworkReply* createRequest(Operation operation, const QNetworkRequest& request, QIODevice*) override
    {
        return new RefusedReply(request, operation, this);
    }
};

} // namespace

QNetworkAccessManager* NetworkRefusal::create(QObject* parent)
{
    return new RefusingManager(parent);
}

} // namespace puna::ui
