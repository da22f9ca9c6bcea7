// Where this program keeps its files, by the XDG rules, readable by this user only.
#pragma once

#include "engine/base/result.h"

#include <QString>

namespace puna::app {

struct AppPaths {
    QString data; // chats: $XDG_DATA_HOME/puna, or as given by --data or PUNA_DATA_DIR
    QString config; // settings.json: $XDG_CONFIG_HOME/puna; in the data folder where that was given
    QString state; // puna.log: $XDG_STATE_HOME/puna; likewise

    QString settingsFile() const { return config + QStringLiteral("/settings.json"); }

    // Makes the folders (0700) and lets the process create files as 0600 from now on. dataFolder: empty for the
    // default.
    static Result<AppPaths> prepare(const QString& dataFolder = {});
};

} // namespace puna::app
