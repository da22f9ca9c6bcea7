// Desktop: what the window asks of the desktop around it: the clipboard, links, files, the computer's memory.
//
// Links come from text that a model wrote. The only schemes handed on are http, https and mailto, and only from
// openLink(), which a person's click on a dialog naming the host calls. Nothing here fetches anything.
#pragma once

#include <QObject>
#include <QQmlEngine>
#include <QString>
#include <QTimer>
#include <QUrl>

namespace puna::ui {

class Desktop : public QObject {
    Q_OBJECT
    QML_ELEMENT
    QML_SINGLETON
    Q_PROPERTY(bool watchMemory READ watchMemory WRITE setWatchMemory NOTIFY watchMemoryChanged FINAL)
    // GiB; 0 until watched. ours: resident, mapped weights included; others: in use by other programs.
    Q_PROPERTY(double memoryTotal READ memoryTotal NOTIFY memoryChanged FINAL)
    Q_PROPERTY(double memoryOurs READ memoryOurs NOTIFY memoryChanged FINAL)
    Q_PROPERTY(double memoryOthers READ memoryOthers NOTIFY memoryChanged FINAL)

public:
    explicit Desktop(QObject* parent = nullptr);

    Q_INVOKABLE void copyText(const QString& text) const; // exactly these characters
    Q_INVOKABLE bool saveText(const QUrl& file, const QString& text) const; // by rename; false: could not be written
    Q_INVOKABLE QString linkHost(const QString& link) const; // what a click would contact; empty: is not opened
    Q_INVOKABLE bool openLink(const QString& link) const;
    Q_INVOKABLE QUrl homeFolder() const;
    Q_INVOKABLE bool isLocal(const QUrl& url) const { return url.isLocalFile(); }

    bool watchMemory() const { return m_timer.isActive(); }
    void setWatchMemory(bool watch);
    double memoryTotal() const { return m_total; }
    double memoryOurs() const { return m_ours; }
    double memoryOthers() const { return m_others; }

signals:
    void watchMemoryChanged();
    void memoryChanged();

private:
    void readMemory();

    QTimer m_timer;
    double m_total = 0.0;
    double m_ours = 0.0;
    double m_others = 0.0;
};

} // namespace puna::ui
