#include "ui/icon.h"

#include <QFile>
#include <QHash>
#include <QPainter>
#include <QSvgRenderer>

namespace puna::ui {
namespace {

const QByteArray& source(const QString& name)
{
    static QHash<QString, QByteArray> cache;
    const auto found = cache.constFind(name);
    if (found != cache.cend())
        return *found;
    QFile file(QStringLiteral(":/puna/icons/%1.svg").arg(name));
    if (!file.open(QIODevice::ReadOnly))
        qWarning("There is no icon named %s.", qPrintable(name));
    return *cache.insert(name, file.isOpen() ? file.readAll() : QByteArray());
}

} // namespace

Icon::Icon(QQuickItem* parent)
    : QQuickPaintedItem(parent)
{
    setAntialiasing(true);
    setImplicitSize(16, 16);
}

void Icon::setName(const QString& name)
{
    if (name == m_name)
        return;
    m_name = name;
    emit nameChanged();
    update();
}

void Icon::setColor(const QColor& color)
{
    if (color == m_color)
        return;
    m_color = color;
    emit colorChanged();
    update();
}

void Icon::paint(QPainter* painter)
{
    if (m_name.isEmpty())
        return;
    QByteArray svg = source(m_name);
    svg.replace("currentColor", m_color.name().toLatin1());
    QSvgRenderer renderer(svg);
    renderer.render(painter, boundingRect());
}

} // namespace puna::ui
