// What can be read of a damaged database, carried into a fresh one.
//
// Table by table in order of rowid; where a page cannot be read, single rows are asked for until one answers again. A
// damaged first page is replaced, on a copy, by that of a fresh file, whose tables begin on the same pages. Messages
// whose parent was lost move to the nearest one that is left; conversations whose row was lost come back with a title
// saying so.
#pragma once

#include "app/storage/database.h"

namespace puna::app {

struct Salvaged {
    qint64 conversations = 0;
    qint64 messages = 0;
};

// damaged: a file that nobody has open; it is not changed. fresh: at the present schema, empty.
Salvaged salvage(const QString& damaged, Database& fresh);

} // namespace puna::app
