// Hatch: a ground with 45 degree lines, for memory that other programs use.
#pragma once

#include <QColor>
#include <QPainter>
#include <QQmlEngine>
#include <QQuickPaintedItem>

namespace puna::ui {

class Hatch : public QQuickPaintedItem {
    Q_OBJECT
    QML_ELEMENT
    Q_PROPERTY(QColor color MEMBER m_color NOTIFY changed FINAL)
    Q_PROPERTY(QColor ground MEMBER m_ground NOTIFY changed FINAL)

public:
    explicit Hatch(QQuickItem* parent = nullptr)
        : QQuickPaintedItem(parent)
    {
        connect(this, &Hatch::changed, this, [this] { update(); });
    }

    void paint(QPainter* painter) override
    {
        painter->fillRect(boundingRect(), m_ground);
        painter->setRenderHint(QPainter::Antialiasing);
        painter->setPen(QPen(m_color, 1.0));
        constexpr double kStep = 5.0;
        for (double x = -height(); x < width(); x += kStep)
            painter->drawLine(QPointF(x, height()), QPointF(x + height(), 0.0));
    }

signals:
    void changed();

private:
    QColor m_color = Qt::gray;
    QColor m_ground = Qt::white;
};

} // namespace puna::ui
