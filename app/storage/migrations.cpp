#include "app/storage/migrations.h"

#include <string>

namespace puna::app {

namespace {

constexpr qint64 kApplicationId = 0x50554e41; // "PUNA"

// Times are milliseconds since 1970, UTC. An answer's text is messages.text followed by its message_parts in order of
// id; the parts are folded into the row when the answer is complete, or at the next start.
constexpr const char* kSteps[] = {
    R"sql(
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    deleted_ms INTEGER,                -- NULL: not in the trash
    head_id INTEGER,                   -- last message of the branch that is shown
    draft TEXT NOT NULL DEFAULT '',
    queued TEXT NOT NULL DEFAULT ''    -- to be sent when the answer under way is complete
) STRICT;
CREATE INDEX conversations_by_update ON conversations (updated_ms);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent_id INTEGER REFERENCES messages (id) ON DELETE CASCADE, -- NULL: the first of its conversation
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    state TEXT NOT NULL CHECK (state IN ('done', 'interrupted', 'stopped', 'failed')),
    author TEXT NOT NULL DEFAULT '',   -- the model that answered
    created_ms INTEGER NOT NULL,
    text TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    reused_tokens INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    prefill_s REAL NOT NULL DEFAULT 0,
    decode_s REAL NOT NULL DEFAULT 0,
    first_token_s REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX messages_by_conversation ON messages (conversation_id);
CREATE INDEX messages_by_parent ON messages (parent_id);
CREATE TABLE message_parts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX parts_by_message ON message_parts (message_id);
CREATE TABLE models (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    format TEXT NOT NULL,
    bpw REAL NOT NULL,
    weight_bytes INTEGER NOT NULL,
    max_context INTEGER NOT NULL,
    added_ms INTEGER NOT NULL,
    used_ms INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE state (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
PRAGMA application_id = 0x50554e41;
)sql",
};

} // namespace

std::span<const char* const> migrations()
{
    return kSteps;
}

Result<qint64> schemaVersion(Database& database)
{
    const qint64 version = TRY(database.integer("PRAGMA user_version"));
    const qint64 application = TRY(database.integer("PRAGMA application_id"));
    const qint64 tables = TRY(database.integer("SELECT count(*) FROM sqlite_schema"));
    if (application != kApplicationId && (version != 0 || tables != 0))
        return Error {ErrorCode::unsupported,
            "The file puna.db in the data folder is another program's database; move it away, or choose "
            "another folder with --data."};
    return version;
}

Result<void> migrate(Database& database, std::span<const char* const> steps)
{
    const auto latest = static_cast<qint64>(steps.size());
    if (TRY(schemaVersion(database)) >= latest)
        return {};
    return database.transaction([&]() -> Result<void> {
        for (qint64 version = TRY(schemaVersion(database)); version < latest; ++version) {
            TRY(database.exec(steps[static_cast<std::size_t>(version)]));
            TRY(database.exec(("PRAGMA user_version = " + std::to_string(version + 1)).c_str()));
        }
        return {};
    });
}

} // namespace puna::app
