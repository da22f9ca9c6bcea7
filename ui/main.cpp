// puna: the window. Everything it does is in app/ and engine/; here the parts are put together.
#include "app/chat/chat_controller.h"
#include "app/chat/script_runner.h"
#include "app/settings/app_settings.h"
#include "app/system/app_paths.h"
#include "app/system/log.h"
#include "app/system/quit_on_signal.h"
#include "app/system/single_instance.h"
#include "ui/network_refusal.h"
#include "ui/theme.h"

#include <QCommandLineParser>
#include <QDir>
#include <QFileInfo>
#include <QGuiApplication>
#include <QIcon>
#include <QLocale>
#include <QQmlApplicationEngine>
#include <QQuickStyle>
#include <QQuickWindow>
#include <QtQml/qqmlextensionplugin.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

Q_IMPORT_QML_PLUGIN(Puna_AppPlugin)
Q_IMPORT_QML_PLUGIN(Puna_UiPlugin)

namespace {

using puna::ui::Theme;

struct Options {
    QString dataFolder;
    QString script;
    QStringList importPaths; // absolute
    Theme::Scheme scheme = Theme::Scheme::System;
};

void print(std::FILE* stream, const QString& text)
{
    std::fputs(qPrintable(text), stream);
    std::fputc('\n', stream);
}

// Absent where the program has nothing more to do; exitCode says how it ended. Needs no display.
std::optional<Options> readOptions(const QStringList& arguments, int& exitCode)
{
    QCommandLineParser parser;
    parser.setApplicationDescription(
        QStringLiteral("Puna: chat with language models that run on this computer.\n\n"
                       "Environment: PUNA_DATA_DIR is used as --data where that is not given."));
    const QCommandLineOption data(
        QStringLiteral("data"), QStringLiteral("Keep chats and settings in FOLDER."), QStringLiteral("FOLDER"));
    const QCommandLineOption import(QStringLiteral("import"),
        QStringLiteral("Add the model at PATH, as if it had been dropped on the window."), QStringLiteral("PATH"));
    const QCommandLineOption script(QStringLiteral("script"),
        QStringLiteral("Run the commands in FILE (send TEXT, regenerate, stop SECONDS, "
                       "new, quit) and print what happens, for tests."),
        QStringLiteral("FILE"));
    const QCommandLineOption scheme(QStringLiteral("color-scheme"),
        QStringLiteral("light or dark, instead of what the desktop says."), QStringLiteral("SCHEME"));
    const QCommandLineOption help({QStringLiteral("h"), QStringLiteral("help")}, QStringLiteral("Show this and end."));
    const QCommandLineOption version(
        {QStringLiteral("v"), QStringLiteral("version")}, QStringLiteral("Show the version and end."));
    parser.addOptions({data, import, script, scheme, help, version});
    parser.addPositionalArgument(
        QStringLiteral("PATH"), QStringLiteral("More models to add."), QStringLiteral("[PATH ...]"));

    exitCode = 2;
    if (!parser.parse(arguments)) {
        print(stderr, QStringLiteral("puna: %1 Try puna --help.").arg(parser.errorText()));
        return {};
    }
    exitCode = 0;
    if (parser.isSet(help)) {
        print(stdout, parser.helpText().replace(QLatin1String("<executable_name>"), QLatin1String("puna")));
        return {};
    }
    if (parser.isSet(version)) {
        print(stdout, QStringLiteral("puna " PUNA_VERSION));
        return {};
    }
    Options options;
    options.dataFolder = parser.value(data);
    options.script = parser.value(script);
    for (const QString& path : parser.values(import) + parser.positionalArguments())
        options.importPaths.append(QFileInfo(path).absoluteFilePath());
    const QString wanted = parser.value(scheme);
    if (wanted == QLatin1String("light"))
        options.scheme = Theme::Scheme::Light;
    else if (wanted == QLatin1String("dark"))
        options.scheme = Theme::Scheme::Dark;
    else if (!wanted.isEmpty()) {
        print(stderr, QStringLiteral("puna: --color-scheme is light or dark, not '%1'.").arg(wanted));
        exitCode = 2;
        return {};
    }
    return options;
}

constexpr auto kTerminalHint = "The same chat in the terminal: puna-engine run MODEL --chat -i";

void endWithoutDisplay(QtMsgType type, const QMessageLogContext&, const QString& message)
{
    if (type != QtFatalMsg) {
        print(stderr, message);
        return;
    }
    print(stderr, QStringLiteral("puna: the display could not be reached. %1").arg(QLatin1String(kTerminalHint)));
    std::_Exit(1);
}

bool hasDisplay()
{
    return !qEnvironmentVariableIsEmpty("DISPLAY") || !qEnvironmentVariableIsEmpty("WAYLAND_DISPLAY")
        || !qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM");
}

QList<QUrl> urlsOf(const QStringList& paths)
{
    QList<QUrl> urls;
    for (const QString& path : paths)
        urls.append(QUrl::fromLocalFile(path));
    return urls;
}

} // namespace

int main(int argc, char** argv)
{
    QStringList arguments;
    for (int i = 0; i < argc; ++i)
        arguments.append(QString::fromLocal8Bit(argv[i]));
    int exitCode = 0;
    const std::optional<Options> options = readOptions(arguments, exitCode);
    if (!options)
        return exitCode;
    if (!hasDisplay()) {
        if (options->script.isEmpty()) {
            print(stderr,
                QStringLiteral("puna: there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set). %1")
                    .arg(QLatin1String(kTerminalHint)));
            return 1;
        }
        qputenv("QT_QPA_PLATFORM", "offscreen");
    }

    // Only our own options reach this point, so Qt is given none. Where it cannot reach the display it ends the
    // process.
    int qtArgc = 1;
    const QtMessageHandler usual = qInstallMessageHandler(endWithoutDisplay);
    QGuiApplication application(qtArgc, argv);
    qInstallMessageHandler(usual);
    QGuiApplication::setApplicationName(QStringLiteral("puna"));
    QGuiApplication::setApplicationDisplayName(QStringLiteral("Puna"));
    QGuiApplication::setApplicationVersion(QStringLiteral(PUNA_VERSION));
    QGuiApplication::setDesktopFileName(QStringLiteral("puna"));
    QGuiApplication::setWindowIcon(QIcon(QStringLiteral(":/puna/icons/puna.svg")));

    if (QLocale::system().language() == QLocale::C) // has no dates and times for people
        QLocale::setDefault(QLocale(QLocale::English, QLocale::UnitedKingdom));

    const auto paths = puna::app::AppPaths::prepare(options->dataFolder);
    if (!paths) {
        print(stderr, QStringLiteral("puna: %1").arg(QString::fromStdString(paths.error().message)));
        return 1;
    }
    puna::app::SingleInstance instance(paths->data);
    switch (instance.start(options->importPaths)) {
    case puna::app::SingleInstance::Role::First:
        break;
    case puna::app::SingleInstance::Role::Handed:
        return 0;
    case puna::app::SingleInstance::Role::Unreachable:
        print(stderr,
            QStringLiteral("puna: another Puna has the chats in %1 open and does not answer. End it first.")
                .arg(QDir::toNativeSeparators(paths->data)));
        return 1;
    case puna::app::SingleInstance::Role::NoLock:
        print(stderr, QStringLiteral("puna: %1").arg(instance.problem()));
        return 1;
    }
    puna::app::startLog(paths->state);
    const puna::app::QuitOnSignal quitOnSignal;

    puna::app::AppSettings settings(paths->settingsFile());
    puna::app::ChatController controller(paths->data);
    std::unique_ptr<puna::app::ScriptRunner> script;
    if (!options->script.isEmpty()) {
        script = std::make_unique<puna::app::ScriptRunner>(controller, options->script);
        if (!script->problem().isEmpty()) {
            print(stderr, QStringLiteral("puna: %1").arg(script->problem()));
            return 2;
        }
        QObject::connect(script.get(), &puna::app::ScriptRunner::finished, &application,
            [](int code) { QCoreApplication::exit(code); });
    }

    QQuickStyle::setStyle(QStringLiteral("Fusion")); // of what is not ours: the fall-back file dialogs
    Theme::forceScheme(options->scheme);
    puna::ui::NetworkRefusal refusal;
    QQmlApplicationEngine engine;
    engine.setNetworkAccessManagerFactory(&refusal);
    engine.addImportPath(QStringLiteral("qrc:/qt/qml"));
    settings.provide(engine);
    controller.provide(engine);
    engine.load(QUrl(QStringLiteral("qrc:/qt/qml/Puna/Ui/Main.qml")));
    if (engine.rootObjects().isEmpty()) {
        print(stderr,
            QStringLiteral("puna: the window could not be made; see the messages above. A QML module of Qt "
                           "may be missing (Debian: qml6-module-qtquick-controls, -templates, -layouts, "
                           "-dialogs)."));
        return 1;
    }
    auto* window = qobject_cast<QQuickWindow*>(engine.rootObjects().constFirst());
    QObject::connect(
        &instance, &puna::app::SingleInstance::raised, window, [window, &controller](const QStringList& importPaths) {
            QMetaObject::invokeMethod(window, "raiseWindow");
            if (!importPaths.isEmpty())
                controller.importPaths(urlsOf(importPaths));
        });
    if (!options->importPaths.isEmpty())
        QObject::connect(&controller, &puna::app::ChatController::ready, window,
            [&] { controller.importPaths(urlsOf(options->importPaths)); });
    return QGuiApplication::exec();
}
