#include "ui/desktop.h"

#include <QClipboard>
#include <QDesktopServices>
#include <QDir>
#include <QFile>
#include <QGuiApplication>
#include <QSaveFile>

#include <algorithm>
#include <chrono>

#include <unistd.h>

namespace puna::ui {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

QUrl allowedLink(const QString& link)
{
    const QUrl url(link, QUrl::StrictMode);
    const QString scheme = url.scheme();
    const bool web = (scheme == QLatin1String("https") || scheme == QLatin1String("http")) && !url.host().isEmpty();
    return web || (scheme == QLatin1String("mailto") && !url.path().isEmpty()) ? url : QUrl();
}

} // namespace

Desktop::Desktop(QObject* parent)
    : QObject(parent)
{
    m_timer.setInterval(std::chrono::seconds(2));
    connect(&m_timer, &QTimer::timeout, this, &Desktop::readMemory);
}

void Desktop::copyText(const QString& text) const
{
    QGuiApplication::clipboard()->setText(text);
}

bool Desktop::saveText(const QUrl& file, const QString& text) const
{
    if (!file.isLocalFile())
        return false;
    QSaveFile out(file.toLocalFile());
    if (!out.open(QIODevice::WriteOnly))
        return false;
    out.write(text.toUtf8());
    return out.commit();
}

QString Desktop::linkHost(const QString& link) const
{
    const QUrl url = allowedLink(link);
    return url.scheme() == QLatin1String("mailto") ? url.path() : url.host();
}

bool Desktop::openLink(const QString& link) const
{
    const QUrl url = allowedLink(link);
    return url.isValid() && !url.isEmpty() && QDesktopServices::openUrl(url);
}

QUrl Desktop::homeFolder() const
{
    return QUrl::fromLocalFile(QDir::homePath());
}

void Desktop::setWatchMemory(bool watch)
{
    if (watch == m_timer.isActive())
        return;
    if (watch) {
        readMemory();
        m_timer.start();
    } else {
        m_timer.stop();
    }
    emit watchMemoryChanged();
}

void Desktop::readMemory()
{
    double total = 0.0, available = 0.0, ours = 0.0, anonymous = 0.0;
    QFile info(QStringLiteral("/proc/meminfo"));
    if (info.open(QIODevice::ReadOnly)) {
        for (const QByteArray& line : info.readAll().split('\n')) {
            const auto kib = [&line] { return line.simplified().split(' ').value(1).toDouble(); };
            if (line.startsWith("MemTotal:"))
                total = kib() * 1024.0;
            else if (line.startsWith("MemAvailable:"))
                available = kib() * 1024.0;
        }
    }
    QFile statm(QStringLiteral("/proc/self/statm"));
    if (statm.open(QIODevice::ReadOnly)) {
        const QList<QByteArray> pages = statm.readAll().split(' '); // size, resident, of that backed by files ...
        const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
        ours = pages.value(1).toDouble() * page;
        anonymous = ours - pages.value(2).toDouble() * page;
    }
    // Pages of mapped model files are ours, yet the kernel counts them as available.
    const double others = std::clamp(total - available - anonymous, 0.0, std::max(0.0, total - ours));
    m_total = total / kGiB;
    m_ours = ours / kGiB;
    m_others = others / kGiB;
    emit memoryChanged();
}

} // namespace puna::ui
