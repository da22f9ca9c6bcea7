// ConversationListModel: the sidebar. Stored conversations outside the trash, the one changed last first.
//
// The filter shows titles that contain its text, in any case of letters. Changes of one row are moves and
// dataChanged of its roles; only a new filter or the first load resets the model.
#pragma once

#include "app/storage/conversation_store.h"

#include <QAbstractListModel>
#include <QDateTime>
#include <QQmlEngine>
#include <QSet>
#include <QTimer>

#include <vector>

namespace puna::app {

class ConversationListModel : public QAbstractListModel {
    Q_OBJECT
    QML_ELEMENT
    QML_UNCREATABLE("Made by ChatController")
    Q_PROPERTY(QString filter READ filter WRITE setFilter NOTIFY filterChanged FINAL)
    Q_PROPERTY(int count READ count NOTIFY countChanged FINAL) // rows shown
    Q_PROPERTY(int totalCount READ totalCount NOTIFY countChanged FINAL) // without the filter
    Q_PROPERTY(qint64 currentId READ currentId NOTIFY currentIdChanged FINAL) // 0: the open chat is not stored yet

public:
    enum Role {
        IdRole = Qt::UserRole + 1, // "id", qint64
        TitleRole, // "title"
        UpdatedRole, // "updated": 14:05, Mon, 3 May ...
        GroupRole, // "group": Today, Yesterday, This week, March, 2025
        BusyRole, // "busy": an answer is being written
        CurrentRole, // "current": the open chat
    };

    explicit ConversationListModel(QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QHash<int, QByteArray> roleNames() const override;

    QString filter() const { return m_filter; }
    void setFilter(const QString& filter);
    int count() const { return static_cast<int>(m_shown.size()); }
    int totalCount() const { return static_cast<int>(m_all.size()); }
    qint64 currentId() const { return m_currentId; }
    Q_INVOKABLE int rowOf(qint64 id) const; // -1: not shown
    Q_INVOKABLE int currentRow() const { return rowOf(m_currentId); }
    Q_INVOKABLE qint64 idAt(int row) const; // 0: no such row
    Q_INVOKABLE QString titleOf(qint64 id) const;

    // For the controller.
    void setConversations(std::vector<ConversationSummary> conversations);
    void put(const ConversationSummary& conversation); // adds or changes
    void setTitle(qint64 id, const QString& title);
    void touch(qint64 id, qint64 updatedMs);
    void remove(qint64 id);
    void setBusy(qint64 id, bool busy);
    void setCurrentId(qint64 id);

    static QString groupOf(const QDateTime& updated, const QDateTime& now);
    static QString updatedText(const QDateTime& updated, const QDateTime& now);

signals:
    void filterChanged();
    void countChanged();
    void currentIdChanged();

private:
    bool matches(const ConversationSummary& conversation) const;
    void rowChanged(qint64 id, const QList<int>& roles);
    void watchMidnight();

    std::vector<ConversationSummary> m_all; // latest change first
    std::vector<ConversationSummary> m_shown; // those of m_all that match the filter, in the same order
    QString m_filter;
    QSet<qint64> m_busy;
    qint64 m_currentId = 0;
    QTimer m_midnight; // the groups change with the date
};

} // namespace puna::app
