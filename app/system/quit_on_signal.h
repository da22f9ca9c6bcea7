// QuitOnSignal: SIGTERM, SIGINT and SIGHUP end the program as closing the window does.
//
// The handler only writes one byte to a pipe; the event loop does the rest. Nothing depends on it: what is on the
// screen is in the store, and a second signal ends the process at once.
#pragma once

#include <QObject>

namespace puna::app {

class QuitOnSignal : public QObject {
    Q_OBJECT

public:
    explicit QuitOnSignal(QObject* parent = nullptr); // one per process, after the application object
    ~QuitOnSignal() override;
};

} // namespace puna::app
