// Database and Statement: SQLite's C API with owners and Results.
//
// Opened in WAL mode with synchronous=FULL (a commit that returned survives a power cut; measured 0.2 ms) and a busy
// timeout. One thread uses one Database. Errors are sentences with SQLite's own words in them.
#pragma once

#include "engine/base/result.h"

#include <QByteArray>
#include <QString>

#include <memory>
#include <utility>

struct sqlite3;
struct sqlite3_stmt;

namespace puna::app {

class Statement {
public:
    void bind(int index, qint64 value);
    void bind(int index, int value) { bind(index, static_cast<qint64>(value)); }
    void bind(int index, double value);
    void bind(int index, const QString& value);
    void bindNull(int index);

    Result<bool> step(); // true: there is a row

    qint64 integer(int column) const; // 0 for NULL
    double real(int column) const;
    QString text(int column) const; // invalid UTF-8 becomes U+FFFD
    bool isNull(int column) const;

private:
    friend class Database;
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };
    explicit Statement(sqlite3_stmt* statement)
        : m_statement(statement)
    {
    }

    std::unique_ptr<sqlite3_stmt, Finalize> m_statement;
};

enum class OpenMode { ReadWrite, ReadOnly };

class Database {
public:
    // ":memory:" for one that lives as long as the object. Nothing is written before the first statement that writes.
    static Result<Database> open(const QString& path, OpenMode mode = OpenMode::ReadWrite);

    Result<void> useWal(); // and the other settings of the one writer
    Result<void> exec(const char* sql); // any number of statements
    Result<Statement> prepare(const char* sql);

    // Binds the arguments in order; query() leaves the statement before its first row.
    template <class... Args> Result<Statement> query(const char* sql, const Args&... args)
    {
        Statement statement = TRY(prepare(sql));
        int index = 0;
        (statement.bind(++index, args), ...);
        return statement;
    }
    template <class... Args> Result<void> run(const char* sql, const Args&... args)
    {
        Statement statement = TRY(query(sql, args...));
        while (TRY(statement.step())) { }
        return {};
    }
    template <class... Args> Result<qint64> integer(const char* sql, const Args&... args) // of the first row, or 0
    {
        Statement statement = TRY(query(sql, args...));
        return TRY(statement.step()) ? statement.integer(0) : qint64(0);
    }

    qint64 lastInsertId() const;
    int changes() const;

    // All of work or nothing. work returns a Result.
    template <class Work> auto transaction(Work work) -> decltype(work())
    {
        TRY(exec("BEGIN IMMEDIATE"));
        auto result = work();
        if (result)
            if (auto committed = exec("COMMIT"); !committed)
                result = std::move(committed).error();
        if (!result)
            (void)exec("ROLLBACK"); // fails where SQLite has rolled back already
        return result;
    }

    Result<QString> quickCheck(); // "ok", or what is wrong
    Result<void> copyTo(const QString& path); // a consistent copy, with the backup API
    void keepFileAsItIs(); // no checkpoint when closing

private:
    struct Close {
        void operator()(sqlite3* database) const;
    };
    explicit Database(sqlite3* database)
        : m_database(database)
    {
    }

    std::unique_ptr<sqlite3, Close> m_database;
};

// The chats of a data folder, whatever state its file is in.
struct OpenedDatabase {
    Database database;
    QString notice; // a sentence for the person where something was repaired; else empty
};

// Opens (or makes) puna.db in the folder and brings it to the present schema. After an unclean exit it is checked;
// a damaged file is moved aside and what can be read of it is carried over, with the count in the notice. A file of a
// newer Puna is refused and left as it is.
Result<OpenedDatabase> openChats(const QString& folder);

} // namespace puna::app
