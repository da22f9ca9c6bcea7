#include "app/chat/conversation_list_model.h"

#include <QLocale>

#include <algorithm>

namespace puna::app {

namespace {

auto findId(std::vector<ConversationSummary>& rows, qint64 id)
{
    return std::find_if(rows.begin(), rows.end(), [id](const ConversationSummary& row) { return row.id == id; });
}

bool before(const ConversationSummary& a, const ConversationSummary& b)
{
    return a.updatedMs != b.updatedMs ? a.updatedMs > b.updatedMs : a.id > b.id;
}

} // namespace

ConversationListModel::ConversationListModel(QObject* parent)
    : QAbstractListModel(parent)
{
    m_midnight.setSingleShot(true);
    connect(&m_midnight, &QTimer::timeout, this, [this] {
        if (count() > 0)
            emit dataChanged(index(0), index(count() - 1), {GroupRole, UpdatedRole});
        watchMidnight();
    });
    watchMidnight();
}

void ConversationListModel::watchMidnight()
{
    const QDateTime now = QDateTime::currentDateTime();
    // At least hourly: the computer may sleep, the zone may change.
    m_midnight.start(
        static_cast<int>(std::clamp<qint64>(now.msecsTo(now.date().addDays(1).startOfDay()) + 1000, 1000, 3'600'000)));
}

QString ConversationListModel::groupOf(const QDateTime& updated, const QDateTime& now)
{
    const QDate day = updated.date();
    const QDate today = now.date();
    if (day >= today)
        return tr("Today");
    if (day == today.addDays(-1))
        return tr("Yesterday");
    if (day > today.addDays(-7))
        return tr("This week");
    if (day.year() == today.year())
        return QLocale().standaloneMonthName(day.month());
    return QString::number(day.year());
}

QString ConversationListModel::updatedText(const QDateTime& updated, const QDateTime& now)
{
    const QDate day = updated.date();
    if (day >= now.date())
        return QLocale().toString(updated.time(), QLocale::ShortFormat);
    if (day > now.date().addDays(-7))
        return QLocale().standaloneDayName(day.dayOfWeek(), QLocale::ShortFormat);
    return QLocale().toString(day, QLocale::ShortFormat);
}

int ConversationListModel::rowCount(const QModelIndex& parent) const
{
    return parent.isValid() ? 0 : count();
}

QHash<int, QByteArray> ConversationListModel::roleNames() const
{
    return {{IdRole, "id"}, {TitleRole, "title"}, {UpdatedRole, "updated"}, {GroupRole, "group"}, {BusyRole, "busy"},
        {CurrentRole, "current"}};
}

QVariant ConversationListModel::data(const QModelIndex& index, int role) const
{
    if (!checkIndex(index, CheckIndexOption::IndexIsValid | CheckIndexOption::ParentIsInvalid))
        return {};
    const ConversationSummary& row = m_shown[static_cast<std::size_t>(index.row())];
    switch (role) {
    case IdRole:
        return row.id;
    case Qt::DisplayRole:
    case TitleRole:
        return row.title;
    case UpdatedRole:
        return updatedText(QDateTime::fromMSecsSinceEpoch(row.updatedMs), QDateTime::currentDateTime());
    case GroupRole:
        return groupOf(QDateTime::fromMSecsSinceEpoch(row.updatedMs), QDateTime::currentDateTime());
    case BusyRole:
        return m_busy.contains(row.id);
    case CurrentRole:
        return row.id == m_currentId;
    default:
        return {};
    }
}

bool ConversationListModel::matches(const ConversationSummary& conversation) const
{
    return m_filter.isEmpty() || conversation.title.contains(m_filter, Qt::CaseInsensitive);
}

void ConversationListModel::setFilter(const QString& filter)
{
    const QString wanted = filter.trimmed();
    if (wanted == m_filter)
        return;
    beginResetModel();
    m_filter = wanted;
    m_shown.clear();
    std::copy_if(m_all.begin(), m_all.end(), std::back_inserter(m_shown),
        [this](const ConversationSummary& row) { return matches(row); });
    endResetModel();
    emit filterChanged();
    emit countChanged();
}

int ConversationListModel::rowOf(qint64 id) const
{
    const auto row = std::find_if(
        m_shown.begin(), m_shown.end(), [id](const ConversationSummary& candidate) { return candidate.id == id; });
    return row == m_shown.end() ? -1 : static_cast<int>(row - m_shown.begin());
}

qint64 ConversationListModel::idAt(int row) const
{
    return row >= 0 && row < count() ? m_shown[static_cast<std::size_t>(row)].id : 0;
}

QString ConversationListModel::titleOf(qint64 id) const
{
    const auto row = std::find_if(
        m_all.begin(), m_all.end(), [id](const ConversationSummary& candidate) { return candidate.id == id; });
    return row == m_all.end() ? QString() : row->title;
}

void ConversationListModel::setConversations(std::vector<ConversationSummary> conversations)
{
    beginResetModel();
    m_all = std::move(conversations);
    std::sort(m_all.begin(), m_all.end(), before);
    m_shown.clear();
    std::copy_if(m_all.begin(), m_all.end(), std::back_inserter(m_shown),
        [this](const ConversationSummary& row) { return matches(row); });
    endResetModel();
    emit countChanged();
}

void ConversationListModel::put(const ConversationSummary& conversation)
{
    const auto insertSorted = [](std::vector<ConversationSummary>& rows, const ConversationSummary& row) {
        rows.insert(std::lower_bound(rows.begin(), rows.end(), row, before), row);
    };
    if (const auto old = findId(m_all, conversation.id); old != m_all.end())
        m_all.erase(old);
    insertSorted(m_all, conversation);

    const int from = rowOf(conversation.id);
    if (!matches(conversation)) {
        if (from >= 0) {
            beginRemoveRows({}, from, from);
            m_shown.erase(m_shown.begin() + from);
            endRemoveRows();
        }
    } else if (from < 0) {
        const auto place = std::lower_bound(m_shown.begin(), m_shown.end(), conversation, before);
        const int row = static_cast<int>(place - m_shown.begin());
        beginInsertRows({}, row, row);
        m_shown.insert(place, conversation);
        endInsertRows();
    } else {
        // Its place among the others, were it taken out.
        const int to = static_cast<int>(std::count_if(m_shown.begin(), m_shown.end(),
            [&](const ConversationSummary& row) { return row.id != conversation.id && before(row, conversation); }));
        if (to != from) {
            beginMoveRows({}, from, from, {}, to > from ? to + 1 : to);
            m_shown.erase(m_shown.begin() + from);
            m_shown.insert(m_shown.begin() + to, conversation);
            endMoveRows();
        } else {
            m_shown[static_cast<std::size_t>(from)] = conversation;
        }
        emit dataChanged(index(to), index(to), {TitleRole, UpdatedRole, GroupRole});
    }
    emit countChanged();
}

void ConversationListModel::setTitle(qint64 id, const QString& title)
{
    if (const auto row = findId(m_all, id); row != m_all.end())
        put({id, title, row->updatedMs});
}

void ConversationListModel::touch(qint64 id, qint64 updatedMs)
{
    if (const auto row = findId(m_all, id); row != m_all.end())
        put({id, row->title, std::max(row->updatedMs, updatedMs)});
}

void ConversationListModel::remove(qint64 id)
{
    if (const auto row = findId(m_all, id); row != m_all.end())
        m_all.erase(row);
    if (const int row = rowOf(id); row >= 0) {
        beginRemoveRows({}, row, row);
        m_shown.erase(m_shown.begin() + row);
        endRemoveRows();
    }
    emit countChanged();
}

void ConversationListModel::rowChanged(qint64 id, const QList<int>& roles)
{
    if (const int row = rowOf(id); row >= 0)
        emit dataChanged(index(row), index(row), roles);
}

void ConversationListModel::setBusy(qint64 id, bool busy)
{
    if (busy == m_busy.contains(id))
        return;
    if (busy)
        m_busy.insert(id);
    else
        m_busy.remove(id);
    rowChanged(id, {BusyRole});
}

void ConversationListModel::setCurrentId(qint64 id)
{
    if (id == m_currentId)
        return;
    const qint64 old = std::exchange(m_currentId, id);
    rowChanged(old, {CurrentRole});
    rowChanged(id, {CurrentRole});
    emit currentIdChanged();
}

} // namespace puna::app
