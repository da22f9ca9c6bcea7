// ModelListModel: the rows of the library, the one used last first.
#pragma once

#include "app/storage/conversation_store.h"

#include <QAbstractListModel>
#include <QQmlEngine>

#include <vector>

namespace puna::app {

class ModelListModel : public QAbstractListModel {
    Q_OBJECT
    QML_ELEMENT
    QML_UNCREATABLE("Made by ModelLibrary")

public:
    enum Role {
        IdRole = Qt::UserRole + 1, // "id", qint64
        NameRole, // "name"
        FormatRole, // "format": "EXL2", "GGUF Q4_1"
        BpwRole, // "bpw": bits per weight, a number; 0: not known
        SizeTextRole, // "sizeText": "1.2 GiB"
        PathRole, // "path"
        StateRole, // "state": "ok", "missing", "refused"
        ProblemRole, // "problem": one sentence; empty when ok
        CurrentRole, // "current": chosen
        ContextRole, // "contextTokens": the model's own limit
    };

    explicit ModelListModel(QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QHash<int, QByteArray> roleNames() const override;
    Q_INVOKABLE int rowOf(qint64 id) const; // -1: none
    Q_INVOKABLE int currentRow() const { return rowOf(m_currentId); }
    Q_INVOKABLE qint64 idAt(int row) const; // 0: no such row

    void setModels(std::vector<ModelRecord> models);
    void put(const ModelRecord& model); // adds at the front or changes
    void remove(qint64 id);
    void setProblem(qint64 id, const QString& state, const QString& problem);
    void setCurrentId(qint64 id);
    const ModelRecord* find(qint64 id) const;
    const ModelRecord* findPath(const QString& path) const;
    std::vector<ModelRecord> records() const;

private:
    struct Row {
        ModelRecord record;
        QString state = QStringLiteral("ok");
        QString problem;
    };

    std::vector<Row> m_rows;
    qint64 m_currentId = 0;
};

QString sizeText(qint64 bytes); // "101 MiB"

} // namespace puna::app
