// BlockModel: the branch of a conversation that is shown, as a list of blocks for a virtualised view.
//
// A row is a block (a paragraph, a code block, a heading ...), not a message, so that long answers scroll and stream
// cheaply: while text arrives only the rows of the open block change, with dataChanged of just the changed roles; rows
// of finished blocks are never touched and the model is never reset. Every message begins with a messageHead row and
// may end with a status and an error row. Text is plain; emphasis is given by spans, never as markup.
#pragma once

#include "app/chat/markdown_parser.h"
#include "app/storage/conversation_store.h"

#include <QAbstractListModel>
#include <QQmlEngine>

#include <vector>

namespace puna::app {

class BlockModel : public QAbstractListModel {
    Q_OBJECT
    QML_ELEMENT
    QML_UNCREATABLE("Made by ChatSession")
    Q_PROPERTY(int count READ count NOTIFY countChanged FINAL)

public:
    // In step with puna::app::BlockKind for the kinds that the parser makes.
    enum Kind { MessageHead, Text, Code, Heading, ListItem, Quote, Table, Rule, Thinking, Status, Error };
    Q_ENUM(Kind)

    enum Role {
        KindRole = Qt::UserRole + 1, // "kind": the name, "messageHead", "text", "code" ...
        KindValueRole, // "kindValue": Kind
        TextRole, // "text": plain text of the block
        SpansRole, // "spans": list of {start, length, bold, italic, strike, code, link}
        LanguageRole, // "language": of a code block, as written; often empty
        LevelRole, // "level": of a heading 1 ... 6; depth of a list item or quote, from 1; else 0
        MarkerRole, // "marker": of a list item, "•" or "2."; empty for its further paragraphs
        ColumnsRole, // "columns": of a table
        CellsRole, // "cells": of a table, row by row, the header first
        MessageIdRole, // "messageId"
        RoleRole, // "role": user, assistant, system
        AuthorRole, // "author": name of the model that answered; empty for the person
        TimeRole, // "time": of the message, for people
        VersionIndexRole, // "versionIndex": from 1
        VersionCountRole, // "versionCount"
        StreamingRole, // "streaming": more text may follow in this block
        StatusTextRole, // "statusText": "38 t/s · 412 tokens · 0.6 s to first token"
        MessageStateRole, // "messageState": done, stopped, interrupted, failed, writing
    };

    struct Shown {
        const Message* message = nullptr;
        int versionIndex = 1;
        int versionCount = 1;
        bool writing = false;
    };

    explicit BlockModel(QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QHash<int, QByteArray> roleNames() const override;
    int count() const { return static_cast<int>(m_rows.size()); }
    Q_INVOKABLE QString lastCode() const; // of the last code block; empty: none

    // Makes the model show this path; rows of the common beginning stay.
    void showPath(const std::vector<Shown>& path);
    // More text of a message that is being written; ignored if it is not shown.
    void appendText(qint64 messageId, const QString& text);
    // The message was completed: its open block closes, status and error rows come.
    void finish(const Shown& shown);

    static QString statusText(const Message& message);

signals:
    void countChanged();

private:
    struct Row {
        Block block;
        qint64 messageId = 0;
        bool streaming = false;
    };
    struct Part { // a message that is shown
        Shown shown;
        Message head; // a copy without its text
        int firstRow = 0;
        int rows = 0;
        MarkdownStream stream;
    };

    std::vector<Row> rowsOf(Part& part, const Message& message) const;
    Part* partOf(qint64 messageId);
    const Part& partAt(int row) const;
    void replaceTail(Part& part, int from, std::vector<Row> rows);

    std::vector<Row> m_rows;
    std::vector<Part> m_parts; // in order; firstRow rises
};

} // namespace puna::app
