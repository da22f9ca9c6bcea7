#include "app/chat/block_model.h"

#include <QDateTime>
#include <QLocale>

#include <algorithm>
#include <cmath>

namespace puna::app {

namespace {

QString kindName(BlockKind kind)
{
    switch (kind) {
    case BlockKind::MessageHead:
        return QStringLiteral("messageHead");
    case BlockKind::Text:
        return QStringLiteral("text");
    case BlockKind::Code:
        return QStringLiteral("code");
    case BlockKind::Heading:
        return QStringLiteral("heading");
    case BlockKind::ListItem:
        return QStringLiteral("listItem");
    case BlockKind::Quote:
        return QStringLiteral("quote");
    case BlockKind::Table:
        return QStringLiteral("table");
    case BlockKind::Rule:
        return QStringLiteral("rule");
    case BlockKind::Thinking:
        return QStringLiteral("thinking");
    case BlockKind::Status:
        return QStringLiteral("status");
    case BlockKind::Error:
        break;
    }
    return QStringLiteral("error");
}

QVariantList toVariant(const std::vector<Span>& spans)
{
    QVariantList list;
    for (const Span& span : spans)
        list.append(QVariantMap {{QStringLiteral("start"), span.start}, {QStringLiteral("length"), span.length},
            {QStringLiteral("bold"), span.bold}, {QStringLiteral("italic"), span.italic},
            {QStringLiteral("strike"), span.strike}, {QStringLiteral("code"), span.code},
            {QStringLiteral("link"), span.link}});
    return list;
}

QString timeText(qint64 ms)
{
    const QDateTime time = QDateTime::fromMSecsSinceEpoch(ms);
    return time.date() == QDate::currentDate() ? QLocale().toString(time.time(), QLocale::ShortFormat)
                                               : QLocale().toString(time, QLocale::ShortFormat);
}

Message withoutText(const Message& message)
{
    Message head = message;
    head.text.clear();
    return head;
}

} // namespace

BlockModel::BlockModel(QObject* parent)
    : QAbstractListModel(parent)
{
}

QString BlockModel::statusText(const Message& message)
{
    if (message.role != MessageRole::Assistant)
        return {};
    const Statistics& statistics = message.statistics;
    QStringList parts;
    if (message.state == MessageState::Stopped)
        parts.append(tr("Stopped"));
    if (message.state == MessageState::Interrupted)
        parts.append(tr("Interrupted before it was complete"));
    const double rate = statistics.decodeTokensPerSecond();
    if (statistics.tokens > 1 && rate > 0)
        parts.append(tr("%1 t/s").arg(rate < 10 ? QString::number(rate, 'f', 1) : QString::number(std::round(rate))));
    if (statistics.tokens > 0) {
        parts.append(statistics.tokens == 1 ? tr("1 token") : tr("%1 tokens").arg(statistics.tokens));
        parts.append(tr("%1 s to first token").arg(statistics.first_token_s, 0, 'f', 1));
    }
    return parts.join(QStringLiteral(" · "));
}

int BlockModel::rowCount(const QModelIndex& parent) const
{
    return parent.isValid() ? 0 : count();
}

QString BlockModel::lastCode() const
{
    const auto last =
        std::find_if(m_rows.rbegin(), m_rows.rend(), [](const Row& row) { return row.block.kind == BlockKind::Code; });
    return last != m_rows.rend() ? last->block.text : QString();
}

QHash<int, QByteArray> BlockModel::roleNames() const
{
    return {{KindRole, "kind"}, {KindValueRole, "kindValue"}, {TextRole, "text"}, {SpansRole, "spans"},
        {LanguageRole, "language"}, {LevelRole, "level"}, {MarkerRole, "marker"}, {ColumnsRole, "columns"},
        {CellsRole, "cells"}, {MessageIdRole, "messageId"}, {RoleRole, "role"}, {AuthorRole, "author"},
        {TimeRole, "time"}, {VersionIndexRole, "versionIndex"}, {VersionCountRole, "versionCount"},
        {StreamingRole, "streaming"}, {StatusTextRole, "statusText"}, {MessageStateRole, "messageState"}};
}

const BlockModel::Part& BlockModel::partAt(int row) const
{
    const auto after = std::upper_bound(
        m_parts.begin(), m_parts.end(), row, [](int wanted, const Part& part) { return wanted < part.firstRow; });
    return *std::prev(after);
}

QVariant BlockModel::data(const QModelIndex& index, int role) const
{
    if (!checkIndex(index, CheckIndexOption::IndexIsValid | CheckIndexOption::ParentIsInvalid))
        return {};
    const Row& row = m_rows[static_cast<std::size_t>(index.row())];
    const Part& part = partAt(index.row());
    switch (role) {
    case KindRole:
        return kindName(row.block.kind);
    case KindValueRole:
        return static_cast<int>(row.block.kind);
    case Qt::DisplayRole:
    case TextRole:
        return row.block.text;
    case SpansRole:
        return toVariant(row.block.spans);
    case LanguageRole:
        return row.block.language;
    case LevelRole:
        return row.block.level;
    case MarkerRole:
        return row.block.marker;
    case ColumnsRole:
        return row.block.columns;
    case CellsRole:
        return row.block.cells;
    case MessageIdRole:
        return row.messageId;
    case RoleRole:
        return roleName(part.head.role);
    case AuthorRole:
        return part.head.author;
    case TimeRole:
        return timeText(part.head.createdMs);
    case VersionIndexRole:
        return part.shown.versionIndex;
    case VersionCountRole:
        return part.shown.versionCount;
    case StreamingRole:
        return row.streaming;
    case StatusTextRole:
        return part.shown.writing ? QString() : statusText(part.head);
    case MessageStateRole:
        return part.shown.writing ? QStringLiteral("writing") : stateName(part.head.state);
    default:
        return {};
    }
}

// The rows that follow the head: blocks, then status and error.
std::vector<BlockModel::Row> BlockModel::rowsOf(Part& part, const Message& message) const
{
    std::vector<Row> rows;
    const auto add = [&](Block block, bool streaming = false) {
        rows.push_back({std::move(block), message.id, streaming});
    };
    add({.kind = BlockKind::MessageHead});
    if (message.role == MessageRole::Assistant) {
        part.stream = MarkdownStream();
        part.stream.append(message.text);
        for (const Block& block : part.stream.blocks())
            add(block);
        if (part.shown.writing && rows.size() > 1)
            rows.back().streaming = true;
    } else if (!message.text.isEmpty()) {
        add({.kind = BlockKind::Text, .text = message.text});
    }
    if (!part.shown.writing) {
        if (const QString status = statusText(message); !status.isEmpty())
            add({.kind = BlockKind::Status, .text = status});
        if (!message.error.isEmpty())
            add({.kind = BlockKind::Error, .text = message.error});
    }
    return rows;
}

void BlockModel::showPath(const std::vector<Shown>& path)
{
    std::size_t common = 0;
    while (common < path.size() && common < m_parts.size() && path[common].message->id == m_parts[common].head.id)
        ++common;
    if (common < m_parts.size()) {
        const int first = m_parts[common].firstRow;
        beginRemoveRows({}, first, count() - 1);
        m_rows.resize(static_cast<std::size_t>(first));
        m_parts.resize(common);
        endRemoveRows();
    }
    if (common < path.size()) {
        std::vector<Part> parts;
        std::vector<Row> rows;
        for (std::size_t i = common; i < path.size(); ++i) {
            Part part {path[i], withoutText(*path[i].message), count() + static_cast<int>(rows.size()), 0, {}};
            part.shown.message = nullptr; // is not ours to keep
            std::vector<Row> more = rowsOf(part, *path[i].message);
            part.rows = static_cast<int>(more.size());
            std::move(more.begin(), more.end(), std::back_inserter(rows));
            parts.push_back(std::move(part));
        }
        beginInsertRows({}, count(), count() + static_cast<int>(rows.size()) - 1);
        std::move(rows.begin(), rows.end(), std::back_inserter(m_rows));
        std::move(parts.begin(), parts.end(), std::back_inserter(m_parts));
        endInsertRows();
    }
    for (std::size_t i = 0; i < common; ++i) { // a new sibling changes the counts of the old ones
        Shown& shown = m_parts[i].shown;
        if (shown.versionIndex == path[i].versionIndex && shown.versionCount == path[i].versionCount)
            continue;
        shown.versionIndex = path[i].versionIndex;
        shown.versionCount = path[i].versionCount;
        emit dataChanged(index(m_parts[i].firstRow), index(m_parts[i].firstRow + m_parts[i].rows - 1),
            {VersionIndexRole, VersionCountRole});
    }
    emit countChanged();
}

BlockModel::Part* BlockModel::partOf(qint64 messageId)
{
    const auto part = std::find_if(m_parts.rbegin(), m_parts.rend(),
        [messageId](const Part& candidate) { return candidate.head.id == messageId; });
    return part == m_parts.rend() ? nullptr : &*part;
}

// Makes `rows` the part's rows from `from` (counted in the part) on, touching only what differs.
void BlockModel::replaceTail(Part& part, int from, std::vector<Row> rows)
{
    const int first = part.firstRow + from;
    const int old = part.rows - from;
    const int now = static_cast<int>(rows.size());
    const int kept = std::min(old, now);
    for (int i = 0; i < kept; ++i) {
        Row& row = m_rows[static_cast<std::size_t>(first + i)];
        Row& next = rows[static_cast<std::size_t>(i)];
        QList<int> roles;
        if (row.block.kind != next.block.kind)
            roles << KindRole << KindValueRole;
        if (row.block.text != next.block.text)
            roles << TextRole;
        if (row.block.spans != next.block.spans)
            roles << SpansRole;
        if (row.block.language != next.block.language)
            roles << LanguageRole;
        if (row.block.level != next.block.level)
            roles << LevelRole;
        if (row.block.marker != next.block.marker)
            roles << MarkerRole;
        if (row.block.columns != next.block.columns)
            roles << ColumnsRole;
        if (row.block.cells != next.block.cells)
            roles << CellsRole;
        if (row.streaming != next.streaming)
            roles << StreamingRole;
        if (roles.isEmpty())
            continue;
        row = std::move(next);
        emit dataChanged(index(first + i), index(first + i), roles);
    }
    if (now == old)
        return;
    const int change = now - old;
    const auto shift = [&] {
        part.rows += change;
        for (Part* later = &part + 1; later != m_parts.data() + m_parts.size(); ++later)
            later->firstRow += change;
    };
    if (change < 0) {
        beginRemoveRows({}, first + now, first + old - 1);
        m_rows.erase(m_rows.begin() + first + now, m_rows.begin() + first + old);
        shift();
        endRemoveRows();
    } else {
        beginInsertRows({}, first + old, first + now - 1);
        m_rows.insert(m_rows.begin() + first + old, std::make_move_iterator(rows.begin() + kept),
            std::make_move_iterator(rows.end()));
        shift();
        endInsertRows();
    }
    emit countChanged();
}

void BlockModel::appendText(qint64 messageId, const QString& text)
{
    Part* part = partOf(messageId);
    if (!part || !part->shown.writing)
        return;
    std::size_t changed = part->stream.append(text);
    if (changed > 0)
        --changed; // its row may have been the open one
    const std::vector<Block>& blocks = part->stream.blocks();
    std::vector<Row> rows;
    for (std::size_t i = changed; i < blocks.size(); ++i)
        rows.push_back({blocks[i], messageId, i + 1 == blocks.size()});
    replaceTail(*part, static_cast<int>(changed) + 1, std::move(rows));
}

void BlockModel::finish(const Shown& shown)
{
    Part* part = partOf(shown.message->id);
    if (!part)
        return;
    part->shown = shown;
    part->shown.message = nullptr;
    part->head = withoutText(*shown.message);
    std::vector<Row> rows = rowsOf(*part, *shown.message);
    replaceTail(*part, 0, std::move(rows));
    emit dataChanged(index(part->firstRow), index(part->firstRow + part->rows - 1),
        {AuthorRole, TimeRole, StatusTextRole, MessageStateRole, VersionIndexRole, VersionCountRole});
}

} // namespace puna::app
