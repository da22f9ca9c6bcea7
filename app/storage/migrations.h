// The schema, as numbered steps from an empty file. A released step never changes; a change is a new step.
//
// All steps that a file lacks run in one transaction, so a process killed inside one leaves the old schema.
#pragma once

#include "app/storage/database.h"

#include <span>

namespace puna::app {

std::span<const char* const> migrations(); // step i leads from schema i to i + 1

inline int latestSchema()
{
    return static_cast<int>(migrations().size());
}

Result<qint64> schemaVersion(Database& database); // 0: empty. A file of another program's is an error.
Result<void> migrate(Database& database, std::span<const char* const> steps = migrations());

} // namespace puna::app
