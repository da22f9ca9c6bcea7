// Runs the tst_*.qml of this folder with what they need from C++: the program's own controller on a throw-away data
// folder, a conversation to show, an input method's keys, and the warnings that were given.
#include "app/chat/block_model.h"
#include "app/chat/chat_controller.h"
#include "app/settings/app_settings.h"
#include "ui/theme.h"

#include <QAccessible>
#include <QClipboard>
#include <QDropEvent>
#include <QGuiApplication>
#include <QInputMethodEvent>
#include <QMimeData>
#include <QQmlEngine>
#include <QQmlError>
#include <QQuickItem>
#include <QQuickStyle>
#include <QQuickWindow>
#include <QTemporaryDir>
#include <QtQml/qqmlextensionplugin.h>
#include <QtQuickTest>

#include <deque>
#include <memory>

Q_IMPORT_QML_PLUGIN(Puna_AppPlugin)
Q_IMPORT_QML_PLUGIN(Puna_UiPlugin)

namespace {

QStringList g_warnings;
QtMessageHandler g_handler = nullptr;

void keepWarnings(QtMsgType type, const QMessageLogContext& context, const QString& message)
{
    if (type == QtWarningMsg || type == QtCriticalMsg)
        g_warnings.append(message);
    g_handler(type, context, message);
}

} // namespace

class Probe : public QObject {
    Q_OBJECT
    Q_PROPERTY(puna::app::BlockModel* blocks READ blocks CONSTANT FINAL)

public:
    using QObject::QObject;

    puna::app::BlockModel* blocks() { return &m_blocks; }

    Q_INVOKABLE void clear()
    {
        m_messages.clear();
        m_blocks.showPath({});
    }
    // Questions and answers, so many of each.
    Q_INVOKABLE void addTurns(int turns)
    {
        for (int i = 0; i < turns; ++i) {
            add(puna::app::MessageRole::User, QStringLiteral("Question %1").arg(i));
            add(puna::app::MessageRole::Assistant,
                QStringLiteral("Answer %1 with **bold** and `code`.\n\n- one\n- two\n\n```c\nint x;\n```").arg(i));
        }
        show(false);
    }
    Q_INVOKABLE void addAnswer(const QString& text)
    {
        add(puna::app::MessageRole::Assistant, text);
        show(false);
    }
    Q_INVOKABLE void beginAnswer()
    {
        add(puna::app::MessageRole::Assistant, {});
        show(true);
    }
    Q_INVOKABLE void stream(const QString& text) { m_blocks.appendText(m_messages.back().id, text); }

    // Text that an input method is still composing, or has committed, in the item with the focus.
    Q_INVOKABLE void compose(const QString& preedit, const QString& commit = {})
    {
        QInputMethodEvent event(preedit, {});
        event.setCommitString(commit);
        QCoreApplication::sendEvent(QGuiApplication::focusObject(), &event);
    }
    // Files dragged over a window, which may refuse them, and let go there.
    Q_INVOKABLE bool dragOver(QQuickWindow* window, const QList<QUrl>& urls)
    {
        m_dragged.setUrls(urls);
        QDragEnterEvent enter({200, 200}, Qt::CopyAction, &m_dragged, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(window, &enter);
        QDragMoveEvent move({210, 210}, Qt::CopyAction, &m_dragged, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(window, &move);
        return enter.isAccepted();
    }
    Q_INVOKABLE void dropThere(QQuickWindow* window)
    {
        QDropEvent drop({210, 210}, Qt::CopyAction, &m_dragged, Qt::LeftButton, Qt::NoModifier);
        QCoreApplication::sendEvent(window, &drop);
    }
    Q_INVOKABLE QString clipboard() const { return QGuiApplication::clipboard()->text(); }
    Q_INVOKABLE QStringList takeWarnings() { return std::exchange(g_warnings, {}); }

    // What can have the keyboard's focus by Tab, and has no accessible name.
    Q_INVOKABLE QStringList unnamed(QQuickItem* root) const
    {
        QStringList found;
        if (root->activeFocusOnTab() && root->isVisible()) {
            QAccessibleInterface* accessible = QAccessible::queryAccessibleInterface(root);
            if (!accessible || accessible->text(QAccessible::Name).isEmpty())
                found.append(QString::fromLatin1(root->metaObject()->className()));
        }
        for (QQuickItem* child : root->childItems())
            found += unnamed(child);
        return found;
    }
    Q_INVOKABLE int focusable(QQuickItem* root) const
    {
        int count = root->activeFocusOnTab() && root->isVisible() ? 1 : 0;
        for (QQuickItem* child : root->childItems())
            count += focusable(child);
        return count;
    }
    // Every text in view under an item, one a line.
    Q_INVOKABLE QString texts(QQuickItem* root) const
    {
        if (!root || !root->isVisible())
            return {};
        QString all;
        if (root->inherits("QQuickText") || root->inherits("QQuickTextEdit"))
            all = root->property("text").toString() + u'\n';
        for (QQuickItem* child : root->childItems())
            all += texts(child);
        return all;
    }

private:
    void add(puna::app::MessageRole role, const QString& text)
    {
        puna::app::Message message;
        message.id = static_cast<qint64>(m_messages.size()) + 1;
        message.role = role;
        message.text = text;
        message.createdMs = 1'700'000'000'000;
        m_messages.push_back(message);
    }
    void show(bool writing)
    {
        std::vector<puna::app::BlockModel::Shown> path;
        for (const puna::app::Message& message : m_messages)
            path.push_back({&message, 1, 1, writing && &message == &m_messages.back()});
        m_blocks.showPath(path);
    }

    std::deque<puna::app::Message> m_messages;
    puna::app::BlockModel m_blocks;
    QMimeData m_dragged;
};

class Setup : public QObject {
    Q_OBJECT

public slots:
    void applicationAvailable()
    {
        g_handler = qInstallMessageHandler(keepWarnings);
        QQuickStyle::setStyle(QStringLiteral("Fusion"));
        puna::ui::Theme::forceScheme(puna::ui::Theme::Scheme::Light);
    }

    void qmlEngineAvailable(QQmlEngine* engine)
    {
        if (!m_controller) {
            m_controller = std::make_unique<puna::app::ChatController>(m_folder.path());
            m_settings = std::make_unique<puna::app::AppSettings>(m_folder.filePath(QStringLiteral("settings.json")));
        }
        // Quick Test keeps them from the message handler.
        connect(engine, &QQmlEngine::warnings, this, [](const QList<QQmlError>& errors) {
            for (const QQmlError& error : errors)
                g_warnings.append(error.toString());
        });
        engine->addImportPath(QStringLiteral("qrc:/qt/qml"));
        m_settings->provide(*engine);
        m_controller->provide(*engine);
        qmlRegisterSingletonInstance("Puna.Test", 1, 0, "Probe", &m_probe);
    }

    void cleanupTestCase()
    {
        m_controller.reset();
        m_settings.reset();
    }

private:
    QTemporaryDir m_folder;
    std::unique_ptr<puna::app::AppSettings> m_settings;
    std::unique_ptr<puna::app::ChatController> m_controller;
    Probe m_probe;
};

QUICK_TEST_MAIN_WITH_SETUP(ui, Setup)
#include "tst_ui.moc"
