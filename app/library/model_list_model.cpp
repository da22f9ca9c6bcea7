#include "app/library/model_list_model.h"

#include <QLocale>

#include <algorithm>
#include <cmath>

namespace puna::app {

QString sizeText(qint64 bytes)
{
    const double mib = static_cast<double>(bytes) / (1024.0 * 1024.0);
    if (mib < 1024.0)
        return QStringLiteral("%1 MiB").arg(QLocale().toString(mib, 'f', mib < 10.0 ? 1 : 0));
    return QStringLiteral("%1 GiB").arg(QLocale().toString(mib / 1024.0, 'f', 1));
}

ModelListModel::ModelListModel(QObject* parent)
    : QAbstractListModel(parent)
{
}

int ModelListModel::rowCount(const QModelIndex& parent) const
{
    return parent.isValid() ? 0 : static_cast<int>(m_rows.size());
}

QHash<int, QByteArray> ModelListModel::roleNames() const
{
    return {{IdRole, "id"}, {NameRole, "name"}, {FormatRole, "format"}, {BpwRole, "bpw"}, {SizeTextRole, "sizeText"},
        {PathRole, "path"}, {StateRole, "state"}, {ProblemRole, "problem"}, {CurrentRole, "current"},
        {ContextRole, "contextTokens"}};
}

QVariant ModelListModel::data(const QModelIndex& index, int role) const
{
    if (!checkIndex(index, CheckIndexOption::IndexIsValid | CheckIndexOption::ParentIsInvalid))
        return {};
    const Row& row = m_rows[static_cast<std::size_t>(index.row())];
    switch (role) {
    case IdRole:
        return row.record.id;
    case Qt::DisplayRole:
    case NameRole:
        return row.record.name;
    case FormatRole:
        return row.record.format;
    case BpwRole:
        return row.record.bpw;
    case SizeTextRole:
        return sizeText(row.record.weightBytes);
    case PathRole:
        return row.record.path;
    case StateRole:
        return row.state;
    case ProblemRole:
        return row.problem;
    case CurrentRole:
        return row.record.id == m_currentId;
    case ContextRole:
        return row.record.maxContext;
    default:
        return {};
    }
}

int ModelListModel::rowOf(qint64 id) const
{
    const auto row =
        std::find_if(m_rows.begin(), m_rows.end(), [id](const Row& candidate) { return candidate.record.id == id; });
    return row == m_rows.end() ? -1 : static_cast<int>(row - m_rows.begin());
}

qint64 ModelListModel::idAt(int row) const
{
    return row >= 0 && row < rowCount() ? m_rows[static_cast<std::size_t>(row)].record.id : 0;
}

void ModelListModel::setModels(std::vector<ModelRecord> models)
{
    beginResetModel();
    m_rows.clear();
    for (ModelRecord& model : models)
        m_rows.push_back({std::move(model), QStringLiteral("ok"), {}});
    endResetModel();
}

void ModelListModel::put(const ModelRecord& model)
{
    if (const int row = rowOf(model.id); row >= 0) {
        m_rows[static_cast<std::size_t>(row)] = {model, QStringLiteral("ok"), {}};
        emit dataChanged(index(row), index(row));
        return;
    }
    beginInsertRows({}, 0, 0);
    m_rows.insert(m_rows.begin(), {model, QStringLiteral("ok"), {}});
    endInsertRows();
}

void ModelListModel::remove(qint64 id)
{
    if (const int row = rowOf(id); row >= 0) {
        beginRemoveRows({}, row, row);
        m_rows.erase(m_rows.begin() + row);
        endRemoveRows();
    }
}

void ModelListModel::setProblem(qint64 id, const QString& state, const QString& problem)
{
    const int at = rowOf(id);
    if (at < 0)
        return;
    Row& row = m_rows[static_cast<std::size_t>(at)];
    if (row.state == state && row.problem == problem)
        return;
    row.state = state;
    row.problem = problem;
    emit dataChanged(index(at), index(at), {StateRole, ProblemRole});
}

void ModelListModel::setCurrentId(qint64 id)
{
    if (id == m_currentId)
        return;
    const qint64 old = std::exchange(m_currentId, id);
    for (const qint64 changed : {old, id})
        if (const int row = rowOf(changed); row >= 0)
            emit dataChanged(index(row), index(row), {CurrentRole});
}

const ModelRecord* ModelListModel::find(qint64 id) const
{
    const int row = rowOf(id);
    return row < 0 ? nullptr : &m_rows[static_cast<std::size_t>(row)].record;
}

const ModelRecord* ModelListModel::findPath(const QString& path) const
{
    const auto row = std::find_if(
        m_rows.begin(), m_rows.end(), [&path](const Row& candidate) { return candidate.record.path == path; });
    return row == m_rows.end() ? nullptr : &row->record;
}

std::vector<ModelRecord> ModelListModel::records() const
{
    std::vector<ModelRecord> records;
    for (const Row& row : m_rows)
        records.push_back(row.record);
    return records;
}

} // namespace puna::app
