// NetworkRefusal: given to the QML engine, so that nothing in the window can reach the network or a server's file.
// The program's own downloads, when there are any, do not go through QML.
#pragma once

#include <QQmlNetworkAccessManagerFactory>

namespace puna::ui {

class NetworkRefusal : public QQmlNetworkAccessManagerFactory {
public:
    QNetworkAccessManager* create(QObject* parent) override;
};

} // namespace puna::ui
