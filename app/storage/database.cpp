#include "app/storage/database.h"

#include "app/storage/migrations.h"
#include "app/storage/salvage.h"

#include <QDateTime>
#include <QFile>
#include <QFileInfo>

#include <spdlog/spdlog.h>
#include <sqlite3.h>

#include <fcntl.h>
#include <unistd.h>

namespace puna::app {

namespace {

constexpr int kBusyTimeoutMs = 5000;
constexpr qint64 kAlwaysCheckedBytes = 64 << 20; // some 60 ms; larger ones after an unclean exit only

Error failure(sqlite3* database, int code)
{
    const int extended = database ? sqlite3_extended_errcode(database) : code;
    const std::string words = database ? sqlite3_errmsg(database) : sqlite3_errstr(code);
    switch (code & 0xff) {
    case SQLITE_FULL:
        return {ErrorCode::io, "The disk is full, so the change could not be saved; free some space."};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return {ErrorCode::format, "The chat database is damaged (" + words + ")."};
    case SQLITE_NOMEM:
        return {ErrorCode::memory, "There was not enough memory for the chat database."};
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
        return {ErrorCode::io, "The chat database cannot be opened for writing (" + words + ")."};
    default:
        return {ErrorCode::io, "The chat database reported: " + words + " (" + std::to_string(extended) + ")."};
    }
}

} // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const
{
    sqlite3_finalize(statement);
}

void Statement::bind(int index, qint64 value)
{
    sqlite3_bind_int64(m_statement.get(), index, value);
}

void Statement::bind(int index, double value)
{
    sqlite3_bind_double(m_statement.get(), index, value);
}

void Statement::bind(int index, const QString& value)
{
    const QByteArray bytes = value.toUtf8();
    sqlite3_bind_text64(m_statement.get(), index, bytes.constData(), static_cast<sqlite3_uint64>(bytes.size()),
        SQLITE_TRANSIENT, SQLITE_UTF8);
}

void Statement::bindNull(int index)
{
    sqlite3_bind_null(m_statement.get(), index);
}

Result<bool> Statement::step()
{
    const int code = sqlite3_step(m_statement.get());
    if (code == SQLITE_ROW)
        return true;
    if (code == SQLITE_DONE)
        return false;
    return failure(sqlite3_db_handle(m_statement.get()), code);
}

qint64 Statement::integer(int column) const
{
    return sqlite3_column_int64(m_statement.get(), column);
}

double Statement::real(int column) const
{
    return sqlite3_column_double(m_statement.get(), column);
}

QString Statement::text(int column) const
{
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(m_statement.get(), column));
    return bytes ? QString::fromUtf8(bytes, sqlite3_column_bytes(m_statement.get(), column)) : QString();
}

bool Statement::isNull(int column) const
{
    return sqlite3_column_type(m_statement.get(), column) == SQLITE_NULL;
}

void Database::Close::operator()(sqlite3* database) const
{
    sqlite3_close_v2(database);
}

Result<Database> Database::open(const QString& path, OpenMode mode)
{
    const int flags = (mode == OpenMode::ReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
        | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(QFile::encodeName(path).constData(), &handle, flags, nullptr);
    Database database(handle);
    if (code != SQLITE_OK)
        return failure(handle, code);
    sqlite3_busy_timeout(handle, kBusyTimeoutMs);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    return database;
}

Result<void> Database::useWal()
{
    return exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                "PRAGMA cell_size_check = ON; PRAGMA secure_delete = FAST");
}

Result<void> Database::exec(const char* sql)
{
    const int code = sqlite3_exec(m_database.get(), sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK)
        return failure(m_database.get(), code);
    return {};
}

Result<Statement> Database::prepare(const char* sql)
{
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v2(m_database.get(), sql, -1, &statement, nullptr);
    if (code != SQLITE_OK)
        return failure(m_database.get(), code);
    return Statement(statement);
}

qint64 Database::lastInsertId() const
{
    return sqlite3_last_insert_rowid(m_database.get());
}

int Database::changes() const
{
    return sqlite3_changes(m_database.get());
}

Result<QString> Database::quickCheck()
{
    Statement statement = TRY(prepare("PRAGMA quick_check(1)"));
    return TRY(statement.step()) ? statement.text(0) : QStringLiteral("nothing");
}

Result<void> Database::copyTo(const QString& path)
{
    Database copy = TRY(open(path));
    sqlite3_backup* backup = sqlite3_backup_init(copy.m_database.get(), "main", m_database.get(), "main");
    if (!backup)
        return failure(copy.m_database.get(), sqlite3_errcode(copy.m_database.get()));
    sqlite3_backup_step(backup, -1);
    const int code = sqlite3_backup_finish(backup);
    if (code != SQLITE_OK)
        return failure(copy.m_database.get(), code);
    return {};
}

void Database::keepFileAsItIs()
{
    sqlite3_db_config(m_database.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

namespace {

bool hasContent(const QString& path)
{
    return QFileInfo(path).size() > 0;
}

// Opens the file and brings it to the present schema; check: look for damage first.
Result<Database> openFile(const QString& path, bool check)
{
    // For its owner only; SQLite gives the files beside it the same permissions.
    if (const int file = ::open(QFile::encodeName(path).constData(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); file >= 0)
        ::close(file);
    Database database = TRY(Database::open(path));
    database.keepFileAsItIs(); // until it is known to be ours
    const qint64 version = TRY(schemaVersion(database));
    if (version > latestSchema())
        return Error {ErrorCode::unsupported,
            "The chats in " + path.toStdString() + " were written by a newer Puna (schema " + std::to_string(version)
                + ", this one reads up to " + std::to_string(latestSchema()) + "); they were left as they are."};
    if (check) {
        const QString found = TRY(database.quickCheck());
        if (found != QLatin1String("ok"))
            return Error {ErrorCode::format, "The chat database is damaged (" + found.toStdString() + ")."};
    }
    TRY(database.useWal());
    if (version > 0 && version < latestSchema()) {
        const QString backup = path + QStringLiteral(".schema%1").arg(version);
        QFile::remove(backup);
        TRY(database.copyTo(backup));
    }
    TRY(migrate(database));
    database = TRY(Database::open(path)); // one that checkpoints when it is closed
    TRY(database.useWal());
    return database;
}

} // namespace

Result<OpenedDatabase> openChats(const QString& folder)
{
    const QString path = folder + QStringLiteral("/puna.db");
    const bool uncleanExit = hasContent(path + QStringLiteral("-wal")); // the last one to close removes it
    const bool check = uncleanExit || QFileInfo(path).size() <= kAlwaysCheckedBytes;
    Result<Database> opened = openFile(path, check);
    if (opened)
        return OpenedDatabase {std::move(opened).value(), {}};
    if (opened.error().code != ErrorCode::format)
        return std::move(opened).error();

    const QString aside = path + QStringLiteral(".damaged-")
        + QDateTime::currentDateTimeUtc().toString(QStringLiteral("yyyyMMdd-HHmmss"));
    spdlog::error("store: {} moving it to {}", opened.error().message, aside.toStdString());
    if (!QFile::rename(path, aside))
        return Error {
            ErrorCode::io, opened.error().message + " It could not be moved aside to " + aside.toStdString() + "."};
    for (const QString& suffix : {QStringLiteral("-wal"), QStringLiteral("-shm")})
        QFile::rename(path + suffix, aside + suffix);
    Database fresh = TRY(openFile(path, false));
    const Salvaged salvaged = salvage(aside, fresh);
    const QString notice =
        QStringLiteral("The chat database was damaged. %1 messages in %2 chats could be read and are here; "
                       "the damaged file was kept as %3.")
            .arg(salvaged.messages)
            .arg(salvaged.conversations)
            .arg(aside);
    return OpenedDatabase {std::move(fresh), notice};
}

} // namespace puna::app
