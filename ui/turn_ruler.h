// TurnRuler: the scale beside a conversation, its scroll bar: a dash per own message, a frame for what is in view.
//
// Positions are estimates from the amount of text in each row, so the scale is steady while the list measures its rows
// as they come into view; dashes, frame and dragging share the one estimate. Cost: one number a row, updated with the
// row; a repaint adds them up.
#pragma once

#include <QAbstractItemModel>
#include <QColor>
#include <QPointer>
#include <QQmlEngine>
#include <QQuickPaintedItem>

#include <vector>

namespace puna::ui {

class TurnRuler : public QQuickPaintedItem {
    Q_OBJECT
    QML_ELEMENT
    // With the roles "kind", "role" and "text" of BlockModel.
    Q_PROPERTY(QAbstractItemModel* model READ model WRITE setModel NOTIFY modelChanged FINAL)
    // The rows in view, with fractions: 3.5 is the middle of row 3.
    Q_PROPERTY(double firstVisible READ firstVisible WRITE setFirstVisible NOTIFY viewChanged FINAL)
    Q_PROPERTY(double lastVisible READ lastVisible WRITE setLastVisible NOTIFY viewChanged FINAL)
    Q_PROPERTY(QColor markColor MEMBER m_markColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor viewColor MEMBER m_viewColor NOTIFY colorsChanged FINAL)

public:
    explicit TurnRuler(QQuickItem* parent = nullptr);

    QAbstractItemModel* model() const { return m_model; }
    void setModel(QAbstractItemModel* model);
    double firstVisible() const { return m_first; }
    void setFirstVisible(double row);
    double lastVisible() const { return m_last; }
    void setLastVisible(double row);

    // The row at a height of this item.
    Q_INVOKABLE int rowAt(double y) const;

    void paint(QPainter* painter) override;

signals:
    void modelChanged();
    void viewChanged();
    void colorsChanged();

private:
    void measure(int first, int last);
    void reset();
    double offsetOf(double row) const; // in units of m_rows

    struct Row {
        float lines = 1;
        bool own = false; // the head of an own message
    };

    QPointer<QAbstractItemModel> m_model;
    int m_kindRole = -1;
    int m_roleRole = -1;
    int m_textRole = -1;
    std::vector<Row> m_rows;
    double m_total = 0.0;
    double m_first = 0.0;
    double m_last = 0.0;
    QColor m_markColor = Qt::gray;
    QColor m_viewColor = Qt::gray;
};

} // namespace puna::ui
