#include "ui/turn_ruler.h"

#include <QPainter>

#include <algorithm>
#include <cmath>

namespace puna::ui {
namespace {

constexpr int kCharactersPerLine = 80;

} // namespace

TurnRuler::TurnRuler(QQuickItem* parent)
    : QQuickPaintedItem(parent)
{
    connect(this, &TurnRuler::colorsChanged, this, [this] { update(); });
}

void TurnRuler::setModel(QAbstractItemModel* model)
{
    if (model == m_model)
        return;
    if (m_model)
        m_model->disconnect(this);
    m_model = model;
    if (model) {
        const QHash<int, QByteArray> names = model->roleNames();
        m_kindRole = names.key("kind", -1);
        m_roleRole = names.key("role", -1);
        m_textRole = names.key("text", -1);
        connect(model, &QAbstractItemModel::rowsInserted, this, [this](const QModelIndex&, int first, int last) {
            m_rows.insert(m_rows.begin() + first, static_cast<std::size_t>(last - first + 1), Row());
            measure(first, last);
        });
        connect(model, &QAbstractItemModel::rowsRemoved, this, [this](const QModelIndex&, int first, int last) {
            m_rows.erase(m_rows.begin() + first, m_rows.begin() + last + 1);
            measure(0, -1);
        });
        connect(model, &QAbstractItemModel::dataChanged, this,
            [this](const QModelIndex& first, const QModelIndex& last) { measure(first.row(), last.row()); });
        connect(model, &QAbstractItemModel::modelReset, this, &TurnRuler::reset);
    }
    reset();
    emit modelChanged();
}

void TurnRuler::reset()
{
    m_rows.assign(m_model ? static_cast<std::size_t>(m_model->rowCount()) : 0, Row());
    measure(0, static_cast<int>(m_rows.size()) - 1);
}

void TurnRuler::measure(int first, int last)
{
    for (int i = first; i <= last; ++i) {
        const QModelIndex index = m_model->index(i, 0);
        const QString text = index.data(m_textRole).toString();
        const QString kind = index.data(m_kindRole).toString();
        Row& row = m_rows[static_cast<std::size_t>(i)];
        row.own = kind == QLatin1String("messageHead") && index.data(m_roleRole).toString() == QLatin1String("user");
        row.lines = 1.5f + static_cast<float>(text.size()) / kCharactersPerLine
            + (kind == QLatin1String("code") ? static_cast<float>(text.count(u'\n')) : 0.0f);
    }
    m_total = 0.0;
    for (const Row& row : m_rows)
        m_total += static_cast<double>(row.lines);
    update();
}

double TurnRuler::offsetOf(double row) const
{
    const int whole = std::clamp(static_cast<int>(row), 0, static_cast<int>(m_rows.size()));
    double offset = 0.0;
    for (int i = 0; i < whole; ++i)
        offset += static_cast<double>(m_rows[static_cast<std::size_t>(i)].lines);
    if (whole < static_cast<int>(m_rows.size()))
        offset += (row - whole) * static_cast<double>(m_rows[static_cast<std::size_t>(whole)].lines);
    return offset;
}

void TurnRuler::setFirstVisible(double row)
{
    if (row == m_first)
        return;
    m_first = row;
    emit viewChanged();
    update();
}

void TurnRuler::setLastVisible(double row)
{
    if (row == m_last)
        return;
    m_last = row;
    emit viewChanged();
    update();
}

int TurnRuler::rowAt(double y) const
{
    double left = height() > 0 ? std::clamp(y / height(), 0.0, 1.0) * m_total : 0.0;
    for (std::size_t i = 0; i < m_rows.size(); ++i) {
        left -= static_cast<double>(m_rows[i].lines);
        if (left < 0)
            return static_cast<int>(i);
    }
    return static_cast<int>(m_rows.size()) - 1;
}

void TurnRuler::paint(QPainter* painter)
{
    if (m_total <= 0.0)
        return;
    const double scale = height() / m_total;
    double offset = 0.0;
    int turn = 0;
    for (const Row& row : m_rows) {
        if (row.own) {
            const double length = turn++ % 10 == 0 ? 9 : 5; // a longer one each tenth
            painter->fillRect(QRectF(width() - 3 - length, std::round(offset * scale), length, 1), m_markColor);
        }
        offset += static_cast<double>(row.lines);
    }
    const double top = offsetOf(m_first) * scale;
    const double size = std::max(12.0, offsetOf(m_last) * scale - top);
    if (size >= height() - 1)
        return; // all is in view
    const QRectF view(1.75, std::min(top, height() - size) + 0.75, width() - 3.5, size - 1.5);
    QColor fill = m_viewColor;
    fill.setAlphaF(0.1f);
    painter->setRenderHint(QPainter::Antialiasing);
    painter->setPen(QPen(m_viewColor, 1.5));
    painter->setBrush(fill);
    painter->drawRoundedRect(view, 2, 2);
}

} // namespace puna::ui
