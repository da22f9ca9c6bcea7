#include "ui/theme.h"

#include <QDBusConnection>
#include <QDBusMessage>
#include <QDBusMetaType>
#include <QDBusPendingCallWatcher>
#include <QDBusPendingReply>
#include <QEvent>
#include <QFontDatabase>
#include <QFontInfo>
#include <QGuiApplication>
#include <QPalette>
#include <QScreen>

#include <algorithm>
#include <cmath>

namespace puna::ui {
namespace {

constexpr auto kPortalService = "org.freedesktop.portal.Desktop";
constexpr auto kPortalPath = "/org/freedesktop/portal/desktop";
constexpr auto kPortalInterface = "org.freedesktop.portal.Settings";
constexpr auto kAppearance = "org.freedesktop.appearance";
constexpr auto kColorScheme = "color-scheme"; // 0: no preference, 1: dark, 2: light

Theme::Scheme g_forced = Theme::Scheme::System;

// What a platform without a theme of its own reports: Qt's built-in Fusion palette.
bool isFallback(const QPalette& palette)
{
    return palette.color(QPalette::Window) == QColor(0xefefefu) && palette.color(QPalette::Base) == QColor(0xffffffu)
        && palette.color(QPalette::WindowText) == QColor(0x000000u)
        && palette.color(QPalette::Highlight) == QColor(0x308cc6u);
}

QPalette ownPalette(bool dark, const QColor& accent)
{
    const QColor window(dark ? 0x202326u : 0xeff0f1u);
    const QColor base(dark ? 0x141618u : 0xffffffu);
    const QColor text(dark ? 0xfcfcfcu : 0x232629u);
    const ThemeColors c = deriveColors(window, base, text, accent);
    QPalette palette(c.text, dark ? QColor(0x292c30u) : QColor(0xfcfcfcu), c.hover, c.edge, c.press, c.text, c.text,
        c.base, c.window);
    palette.setColor(QPalette::AlternateBase, c.plate);
    palette.setColor(QPalette::Highlight, accent);
    palette.setColor(QPalette::HighlightedText, c.onAccent);
    palette.setColor(QPalette::Link, c.accentInk);
    palette.setColor(QPalette::ToolTipBase, c.window);
    palette.setColor(QPalette::ToolTipText, c.text);
    palette.setColor(QPalette::PlaceholderText, c.textMuted);
    for (const QPalette::ColorRole role : {QPalette::Text, QPalette::WindowText, QPalette::ButtonText})
        palette.setColor(QPalette::Disabled, role, c.textMuted);
    return palette;
}

bool isDarkPalette(const QPalette& palette)
{
    return palette.color(QPalette::WindowText).lightness() > palette.color(QPalette::Window).lightness();
}

} // namespace

void Theme::forceScheme(Scheme scheme)
{
    g_forced = scheme;
}

Theme::Theme(QObject* parent)
    : QObject(parent)
{
    const QPalette palette = QGuiApplication::palette();
    m_desktopPalette = !isFallback(palette);
    m_desktopDark = isDarkPalette(palette);
    qGuiApp->installEventFilter(this);
    askPortal();
    applyScheme();
}

void Theme::askPortal()
{
    QDBusConnection bus = QDBusConnection::sessionBus();
    if (g_forced != Scheme::System || !bus.isConnected())
        return;
    QDBusMessage call = QDBusMessage::createMethodCall(kPortalService, kPortalPath, kPortalInterface, "Read");
    call << QString(kAppearance) << QString(kColorScheme);
    auto* watcher = new QDBusPendingCallWatcher(bus.asyncCall(call, 2000), this);
    // Of any sender: to name one would ask the bus for its owner, and wait for the answer.
    // Qt 6.4 knows QDBusVariant in a slot only after its types have been set up, which any use of the registry does.
    QDBusMetaType::typeToSignature(QMetaType::fromType<QDBusVariant>());
    if (!bus.connect(QString(), kPortalPath, kPortalInterface, "SettingChanged", this,
            SLOT(onPortalSetting(QString, QString, QDBusVariant))))
        qWarning("The desktop's changes of light and dark will not be noticed.");
    connect(watcher, &QDBusPendingCallWatcher::finished, this, [this, watcher] {
        const QDBusPendingReply<QDBusVariant> reply = *watcher;
        watcher->deleteLater();
        if (!reply.isError())
            onPortalSetting(kAppearance, kColorScheme, reply.value());
    });
}

void Theme::onPortalSetting(const QString& group, const QString& key, const QDBusVariant& value)
{
    if (group != QLatin1String(kAppearance) || key != QLatin1String(kColorScheme))
        return;
    QVariant inner = value.variant();
    while (inner.canConvert<QDBusVariant>()) // Read() wraps it twice
        inner = inner.value<QDBusVariant>().variant();
    const uint number = inner.toUInt();
    const Scheme scheme = number == 1 ? Scheme::Dark : number == 2 ? Scheme::Light : Scheme::System;
    if (scheme != m_portal) {
        m_portal = scheme;
        applyScheme();
    }
}

void Theme::applyScheme()
{
    const Scheme wanted = g_forced != Scheme::System ? g_forced : m_portal;
    const bool wantDark = wanted == Scheme::System ? m_desktopDark : wanted == Scheme::Dark;
    m_applying = true;
    if (m_desktopPalette && wantDark == m_desktopDark)
        QGuiApplication::setPalette(QPalette());
    else
        QGuiApplication::setPalette(ownPalette(
            wantDark, m_desktopPalette ? QGuiApplication::palette().color(QPalette::Highlight) : QColor(0x3daee9u)));
    m_applying = false;
    update();
}

bool Theme::eventFilter(QObject* watched, QEvent* event)
{
    if (watched == qGuiApp && !m_applying) {
        if (event->type() == QEvent::ApplicationPaletteChange || event->type() == QEvent::ApplicationFontChange)
            update();
    }
    return QObject::eventFilter(watched, event);
}

void Theme::update()
{
    const QPalette palette = QGuiApplication::palette();
    static_cast<ThemeColors&>(*this) = deriveColors(palette.color(QPalette::Window), palette.color(QPalette::Base),
        palette.color(QPalette::WindowText), palette.color(QPalette::Highlight));
    m_font = QGuiApplication::font();
    m_fixedFont = QFontDatabase::systemFont(QFontDatabase::FixedFont);
    if (!m_desktopPalette && m_font.pointSizeF() > 0)
        m_font.setPointSizeF(std::max(10.0, m_font.pointSizeF())); // no desktop has chosen a size
    const QScreen* screen = QGuiApplication::primaryScreen();
    m_em = m_font.pointSizeF() > 0 && screen ? m_font.pointSizeF() * screen->logicalDotsPerInchY() / 72.0
                                             : QFontInfo(m_font).pixelSize();
    emit colorsChanged();
    emit metricsChanged();
}

void Theme::setTextScale(double scale)
{
    scale = std::clamp(scale, 0.8, 2.0);
    if (scale == m_textScale)
        return;
    m_textScale = scale;
    emit metricsChanged();
}

QFont Theme::scaled(double factor, int weight) const
{
    QFont font = m_font;
    if (font.pointSizeF() > 0)
        font.setPointSizeF(font.pointSizeF() * factor * m_textScale);
    else
        font.setPixelSize(static_cast<int>(std::lround(font.pixelSize() * factor * m_textScale)));
    font.setWeight(static_cast<QFont::Weight>(weight));
    return font;
}

QFont Theme::code() const
{
    QFont font = scaled(0.92);
    font.setFamilies(m_fixedFont.families());
    font.setFixedPitch(true);
    font.setStyleHint(QFont::Monospace);
    return font;
}

int Theme::px(double ems) const
{
    return static_cast<int>(std::lround(ems * em()));
}

} // namespace puna::ui
