// The log: puna.log in the state folder, rotated at 1 MiB, three old ones kept. Times, sizes, paths and errors only;
// never a word of a chat, a title or a file's contents. Qt's own messages go there too, and warnings to stderr.
#pragma once

#include <QString>

namespace puna::app {

void startLog(const QString& folder); // without it, the log goes to stderr

} // namespace puna::app
