#include "app/system/app_paths.h"

#include <QDir>
#include <QFileInfo>

#include <sys/stat.h>

namespace puna::app {

namespace {

QString xdgFolder(const char* variable, const QString& fallback)
{
    const QString value = qEnvironmentVariable(variable);
    const QString base = QDir::isAbsolutePath(value) ? value : QDir::homePath() + QLatin1Char('/') + fallback;
    return base + QStringLiteral("/puna");
}

Result<void> makeFolder(const QString& path)
{
    if (!QDir().mkpath(path) || !QFileInfo(path).isDir())
        return Error {ErrorCode::io,
            "The folder " + path.toStdString()
                + " could not be made; give another one with --data, or make room for it."};
    if (QFileInfo(path).ownerId() == static_cast<uint>(::geteuid()))
        QFile::setPermissions(path, QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    return {};
}

} // namespace

Result<AppPaths> AppPaths::prepare(const QString& dataFolder)
{
    ::umask(077);
    const QString given = dataFolder.isEmpty() ? qEnvironmentVariable("PUNA_DATA_DIR") : dataFolder;
    AppPaths paths;
    if (given.isEmpty()) {
        paths.data = xdgFolder("XDG_DATA_HOME", QStringLiteral(".local/share"));
        paths.config = xdgFolder("XDG_CONFIG_HOME", QStringLiteral(".config"));
        paths.state = xdgFolder("XDG_STATE_HOME", QStringLiteral(".local/state"));
    } else {
        paths.data = paths.config = paths.state = QDir(given).absolutePath();
    }
    for (const QString& folder : {paths.data, paths.config, paths.state})
        TRY(makeFolder(folder));
    return paths;
}

} // namespace puna::app
