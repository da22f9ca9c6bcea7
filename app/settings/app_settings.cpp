#include "app/settings/app_settings.h"

#include <QFile>
#include <QJsonDocument>
#include <QSaveFile>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

namespace puna::app {

namespace {

constexpr char kProvided[] = "_puna_settings";
constexpr qint64 kFileBytesMax = 1 << 20;

int number(const QJsonObject& object, const char* key, int fallback, int least, int most)
{
    const QJsonValue value = object.value(QLatin1String(key));
    if (!value.isDouble() || !(value.toDouble() >= least && value.toDouble() <= most))
        return fallback;
    return static_cast<int>(std::lround(value.toDouble()));
}

bool flag(const QJsonObject& object, const char* key, bool fallback)
{
    return object.value(QLatin1String(key)).toBool(fallback);
}

} // namespace

AppSettings::AppSettings(const QString& file, QObject* parent)
    : QObject(parent)
    , m_file(file)
{
    m_saveTimer.setSingleShot(true);
    m_saveTimer.setInterval(300);
    connect(&m_saveTimer, &QTimer::timeout, this, &AppSettings::save);
    read();
}

AppSettings::~AppSettings()
{
    if (m_saveTimer.isActive())
        save();
}

void AppSettings::provide(QQmlEngine& engine)
{
    QJSEngine::setObjectOwnership(this, QJSEngine::CppOwnership);
    engine.setProperty(kProvided, QVariant::fromValue<QObject*>(this));
}

AppSettings* AppSettings::create(QQmlEngine* engine, QJSEngine*)
{
    return qobject_cast<AppSettings*>(engine->property(kProvided).value<QObject*>());
}

void AppSettings::read()
{
    QFile file(m_file);
    if (!file.open(QIODevice::ReadOnly))
        return;
    QJsonParseError error;
    const QJsonDocument document = QJsonDocument::fromJson(file.read(kFileBytesMax), &error);
    if (!document.isObject()) {
        const QString kept = m_file + QStringLiteral(".bad");
        QFile::remove(kept);
        file.copy(kept);
        spdlog::warn("settings: not a JSON object ({}); the defaults are used and the file is kept as {}",
            error.errorString().toStdString(), kept.toStdString());
        return;
    }
    m_read = document.object();
    m_windowX = number(m_read, "windowX", m_windowX, -1, 65535);
    m_windowY = number(m_read, "windowY", m_windowY, -1, 65535);
    m_windowWidth = number(m_read, "windowWidth", m_windowWidth, 480, 16384);
    m_windowHeight = number(m_read, "windowHeight", m_windowHeight, 400, 16384);
    m_windowMaximized = flag(m_read, "windowMaximized", m_windowMaximized);
    m_sidebarVisible = flag(m_read, "sidebarVisible", m_sidebarVisible);
    m_sidebarWidth = number(m_read, "sidebarWidth", m_sidebarWidth, 160, 600);
    m_textPercent = number(m_read, "textPercent", m_textPercent, 80, 200);
}

void AppSettings::save()
{
    m_saveTimer.stop();
    QJsonObject object = m_read;
    object[QStringLiteral("windowX")] = m_windowX;
    object[QStringLiteral("windowY")] = m_windowY;
    object[QStringLiteral("windowWidth")] = m_windowWidth;
    object[QStringLiteral("windowHeight")] = m_windowHeight;
    object[QStringLiteral("windowMaximized")] = m_windowMaximized;
    object[QStringLiteral("sidebarVisible")] = m_sidebarVisible;
    object[QStringLiteral("sidebarWidth")] = m_sidebarWidth;
    object[QStringLiteral("textPercent")] = m_textPercent;
    QSaveFile file(m_file);
    if (!file.open(QIODevice::WriteOnly) || file.write(QJsonDocument(object).toJson()) < 0 || !file.commit())
        spdlog::warn("settings: {} could not be written: {}", m_file.toStdString(), file.errorString().toStdString());
}

template <class T> void AppSettings::change(T& value, T to, void (AppSettings::*changed)())
{
    if (value == to)
        return;
    value = to;
    m_saveTimer.start();
    emit(this->*changed)();
}

void AppSettings::setWindowX(int x)
{
    change(m_windowX, std::clamp(x, -1, 65535), &AppSettings::windowChanged);
}

void AppSettings::setWindowY(int y)
{
    change(m_windowY, std::clamp(y, -1, 65535), &AppSettings::windowChanged);
}

void AppSettings::setWindowWidth(int width)
{
    change(m_windowWidth, std::clamp(width, 480, 16384), &AppSettings::windowChanged);
}

void AppSettings::setWindowHeight(int height)
{
    change(m_windowHeight, std::clamp(height, 400, 16384), &AppSettings::windowChanged);
}

void AppSettings::setWindowMaximized(bool maximized)
{
    change(m_windowMaximized, maximized, &AppSettings::windowChanged);
}

void AppSettings::setSidebarVisible(bool visible)
{
    change(m_sidebarVisible, visible, &AppSettings::sidebarVisibleChanged);
}

void AppSettings::setSidebarWidth(int width)
{
    change(m_sidebarWidth, std::clamp(width, 160, 600), &AppSettings::sidebarWidthChanged);
}

void AppSettings::setTextPercent(int percent)
{
    change(m_textPercent, std::clamp(percent, 80, 200), &AppSettings::textPercentChanged);
}

} // namespace puna::app
