#include "app/system/quit_on_signal.h"

#include <QCoreApplication>
#include <QSocketNotifier>

#include <array>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

namespace puna::app {

namespace {

constexpr std::array kSignals {SIGTERM, SIGINT, SIGHUP};

int wakePipe[2] = {-1, -1}; // a handler has nothing but globals

void wake(int)
{
    const char byte = 0;
    (void)!::write(wakePipe[1], &byte, 1);
}

void setHandlers(void (*handler)(int))
{
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | (handler == SIG_DFL ? 0 : static_cast<int>(SA_RESETHAND));
    for (const int signal : kSignals)
        ::sigaction(signal, &action, nullptr);
}

} // namespace

QuitOnSignal::QuitOnSignal(QObject* parent)
    : QObject(parent)
{
    if (::pipe2(wakePipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return; // signals end the process at once, as without this object
    auto* notifier = new QSocketNotifier(wakePipe[0], QSocketNotifier::Read, this);
    connect(notifier, &QSocketNotifier::activated, this, [notifier] {
        notifier->setEnabled(false);
        QCoreApplication::quit();
    });
    setHandlers(wake);
}

QuitOnSignal::~QuitOnSignal()
{
    setHandlers(SIG_DFL);
    for (int& end : wakePipe) {
        if (end >= 0)
            ::close(end);
        end = -1;
    }
}

} // namespace puna::app
