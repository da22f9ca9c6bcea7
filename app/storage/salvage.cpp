#include "app/storage/salvage.h"

#include "app/storage/migrations.h"

#include <QDateTime>
#include <QFile>
#include <QSet>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <vector>

namespace puna::app {

namespace {

constexpr qint64 kMissesMax = 20'000; // single rows asked for behind a page that cannot be read
constexpr qint64 kPageBytes = 4096; // SQLite's default, which all our files have

using Columns = std::vector<std::string>;

struct Value {
    enum { Null, Integer, Real, Text } type = Null;
    qint64 integer = 0;
    double real = 0.0;
    QString text;
};
using Row = std::vector<Value>; // the id first

struct Table {
    const char* name;
    Columns columns; // without the id
    std::string types; // of the columns: i integer, r real, t text
};

std::string list(const Columns& columns)
{
    std::string text = "id";
    for (const std::string& column : columns)
        text += ", " + column;
    return text;
}

Row rowOf(const Statement& statement, const Table& table)
{
    Row row(table.columns.size() + 1);
    row[0] = {Value::Integer, statement.integer(0), 0.0, {}};
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        const int column = static_cast<int>(i) + 1;
        Value& value = row[i + 1];
        if (statement.isNull(column))
            continue;
        if (table.types[i] == 'i')
            value = {Value::Integer, statement.integer(column), 0.0, {}};
        else if (table.types[i] == 'r')
            value = {Value::Real, 0, statement.real(column), {}};
        else
            value = {Value::Text, 0, 0.0, statement.text(column)};
    }
    return row;
}

// Calls take(row) for each row that can be read.
template <class Take> void readRows(Database& damaged, const Table& table, Take take)
{
    const std::string select = "SELECT " + list(table.columns) + " FROM " + table.name;
    const std::string last = std::string("SELECT max(id) FROM ") + table.name;
    Result<qint64> highest = damaged.integer(last.c_str());
    qint64 next = 1;
    qint64 misses = 0;
    while (misses < kMissesMax && (!highest || next <= *highest)) {
        Result<Statement> rows = damaged.query((select + " WHERE id >= ? ORDER BY id").c_str(), next);
        if (!rows)
            return;
        bool complete = false;
        for (;;) {
            Result<bool> more = rows->step();
            if (!more)
                break;
            if (!*more) {
                complete = true;
                break;
            }
            take(rowOf(*rows, table));
            next = std::max(next, rows->integer(0)) + 1;
            misses = 0;
        }
        if (complete)
            return;
        // Behind the damage: row by row until one answers.
        Result<Statement> one = damaged.prepare((select + " WHERE id = ?").c_str());
        for (bool found = false; !found && one && misses < kMissesMax && (!highest || next <= *highest);
             ++next, ++misses) {
            one = damaged.query((select + " WHERE id = ?").c_str(), next);
            if (!one)
                return;
            if (Result<bool> row = one->step(); row && *row) {
                take(rowOf(*one, table));
                found = true;
            }
        }
    }
}

bool insert(Database& fresh, const Table& table, const Row& row)
{
    std::string sql = std::string("INSERT OR IGNORE INTO ") + table.name + " (" + list(table.columns) + ") VALUES (?";
    for (std::size_t i = 0; i < table.columns.size(); ++i)
        sql += ", ?";
    Result<Statement> statement = fresh.prepare((sql + ")").c_str());
    if (!statement)
        return false;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const int index = static_cast<int>(i) + 1;
        switch (row[i].type) {
        case Value::Null:
            statement->bindNull(index);
            break;
        case Value::Integer:
            statement->bind(index, row[i].integer);
            break;
        case Value::Real:
            statement->bind(index, row[i].real);
            break;
        case Value::Text:
            statement->bind(index, row[i].text);
            break;
        }
    }
    return statement->step().has_value() && fresh.changes() == 1;
}

// A copy of the damaged file (and its log) that SQLite can at least begin to read.
Result<Database> openDamaged(const QString& damaged, const QString& work)
{
    const auto copy = [&] {
        for (const QString& suffix : {QString(), QStringLiteral("-wal")}) {
            QFile::remove(work + suffix);
            QFile::copy(damaged + suffix, work + suffix);
        }
        QFile::remove(work + QStringLiteral("-shm"));
    };
    copy();
    {
        Result<Database> database = Database::open(work);
        if (database && database->integer("SELECT count(*) FROM conversations WHERE id = 1"))
            return database;
    }
    // The first page holds the schema: take a fresh file's.
    copy();
    const QString pattern = work + QStringLiteral("-template");
    QFile::remove(pattern);
    {
        Database database = TRY(Database::open(pattern));
        TRY(migrate(database));
    }
    QFile from(pattern);
    QFile to(work);
    if (!from.open(QIODevice::ReadOnly) || !to.open(QIODevice::ReadWrite))
        return Error {ErrorCode::io, "The damaged chat database could not be copied."};
    QByteArray page = from.read(kPageBytes);
    from.remove();
    const auto pages = static_cast<quint32>(to.size() / kPageBytes);
    for (int i = 0; i < 4; ++i)
        page[28 + i] = static_cast<char>(pages >> (8 * (3 - i))); // size of the file, big-endian
    for (int i = 32; i < 40; ++i)
        page[i] = 0; // no free pages: the list may be damaged too
    if (page.size() != kPageBytes || !to.seek(0) || to.write(page) != kPageBytes)
        return Error {ErrorCode::io, "The damaged chat database could not be copied."};
    to.close();
    return Database::open(work);
}

} // namespace

Salvaged salvage(const QString& damaged, Database& fresh)
{
    const Table conversations {
        "conversations",
        {"title", "created_ms", "updated_ms", "deleted_ms", "head_id", "draft", "queued"},
        "tiiiitt",
    };
    const Table messages {
        "messages",
        {"conversation_id", "parent_id", "role", "state", "author", "created_ms", "text", "error", "prompt_tokens",
            "reused_tokens", "tokens", "prefill_s", "decode_s", "first_token_s"},
        "iitttittiiirrr",
    };
    const Table parts {"message_parts", {"message_id", "text"}, "it"};
    const Table models {
        "models",
        {"path", "name", "format", "bpw", "weight_bytes", "max_context", "added_ms", "used_ms"},
        "tttriiii",
    };

    Salvaged result;
    const QString work = damaged + QStringLiteral("-reading");
    {
        Result<Database> opened = openDamaged(damaged, work);
        if (!opened) {
            spdlog::error("salvage: {}", opened.error().message);
            return result;
        }
        const auto copied = fresh.transaction([&]() -> Result<void> {
            TRY(fresh.exec("PRAGMA defer_foreign_keys = ON"));
            readRows(*opened, conversations, [&](const Row& row) { insert(fresh, conversations, row); });
            readRows(*opened, messages, [&](const Row& row) { insert(fresh, messages, row); });
            readRows(*opened, parts, [&](const Row& row) { insert(fresh, parts, row); });
            readRows(*opened, models, [&](const Row& row) { insert(fresh, models, row); });
            // Text without its message, conversations that only their messages tell of, parents that are gone.
            TRY(fresh.exec("DELETE FROM message_parts WHERE message_id NOT IN (SELECT id FROM messages)"));
            TRY(fresh.run("INSERT INTO conversations (id, title, created_ms, updated_ms) "
                          "SELECT conversation_id, ?, min(created_ms), max(created_ms) FROM messages "
                          "WHERE conversation_id NOT IN (SELECT id FROM conversations) GROUP BY conversation_id",
                QStringLiteral("Recovered chat")));
            TRY(fresh.exec("UPDATE messages SET parent_id = (SELECT max(earlier.id) FROM messages AS earlier WHERE "
                           "earlier.conversation_id = messages.conversation_id AND earlier.id < messages.id) "
                           "WHERE parent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM messages AS parent WHERE "
                           "parent.id = messages.parent_id AND parent.conversation_id = messages.conversation_id "
                           "AND parent.id < messages.id)"));
            TRY(fresh.exec("UPDATE conversations SET head_id = (SELECT max(id) FROM messages WHERE conversation_id = "
                           "conversations.id) WHERE head_id IS NULL OR head_id NOT IN "
                           "(SELECT id FROM messages WHERE conversation_id = conversations.id)"));
            result.conversations = TRY(fresh.integer("SELECT count(*) FROM conversations"));
            result.messages = TRY(fresh.integer("SELECT count(*) FROM messages"));
            return {};
        });
        if (!copied) {
            spdlog::error("salvage: {}", copied.error().message);
            result = {};
        }
    }
    for (const char* suffix : {"", "-wal", "-shm"})
        QFile::remove(work + QLatin1String(suffix));
    return result;
}

} // namespace puna::app
