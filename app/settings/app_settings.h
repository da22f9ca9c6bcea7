// AppSettings: what this program remembers about itself, in settings.json of the XDG config folder.
//
// Every value is typed and range-checked when read; what is missing or out of range is the default, and a file that
// is not JSON is kept beside as settings.json.bad. Written 300 ms after a change, by rename.
#pragma once

#include <QJsonObject>
#include <QObject>
#include <QQmlEngine>
#include <QRect>
#include <QTimer>

namespace puna::app {

class AppSettings : public QObject {
    Q_OBJECT
    QML_ELEMENT
    QML_SINGLETON
    Q_PROPERTY(int windowX READ windowX WRITE setWindowX NOTIFY windowChanged FINAL) // -1: the desktop chooses
    Q_PROPERTY(int windowY READ windowY WRITE setWindowY NOTIFY windowChanged FINAL)
    Q_PROPERTY(int windowWidth READ windowWidth WRITE setWindowWidth NOTIFY windowChanged FINAL) // 480 ... 16384
    Q_PROPERTY(int windowHeight READ windowHeight WRITE setWindowHeight NOTIFY windowChanged FINAL) // 400 ... 16384
    Q_PROPERTY(bool windowMaximized READ windowMaximized WRITE setWindowMaximized NOTIFY windowChanged FINAL)
    Q_PROPERTY(bool sidebarVisible READ sidebarVisible WRITE setSidebarVisible NOTIFY sidebarVisibleChanged FINAL)
    Q_PROPERTY(int textPercent READ textPercent WRITE setTextPercent NOTIFY textPercentChanged FINAL) // 80 ... 200
    Q_PROPERTY(int sidebarWidth READ sidebarWidth WRITE setSidebarWidth NOTIFY sidebarWidthChanged FINAL) // 160 ... 600

public:
    explicit AppSettings(const QString& file, QObject* parent = nullptr);
    ~AppSettings() override;

    void provide(QQmlEngine& engine); // must outlive the engine
    static AppSettings* create(QQmlEngine* engine, QJSEngine* scriptEngine);

    int windowX() const { return m_windowX; }
    int windowY() const { return m_windowY; }
    int windowWidth() const { return m_windowWidth; }
    int windowHeight() const { return m_windowHeight; }
    bool windowMaximized() const { return m_windowMaximized; }
    bool sidebarVisible() const { return m_sidebarVisible; }
    int sidebarWidth() const { return m_sidebarWidth; }
    int textPercent() const { return m_textPercent; }
    void setWindowX(int x);
    void setWindowY(int y);
    void setWindowWidth(int width);
    void setWindowHeight(int height);
    void setWindowMaximized(bool maximized);
    void setSidebarVisible(bool visible);
    void setSidebarWidth(int width);
    void setTextPercent(int percent);

    void save();

signals:
    void windowChanged();
    void sidebarVisibleChanged();
    void sidebarWidthChanged();
    void textPercentChanged();

private:
    void read();
    template <class T> void change(T& value, T to, void (AppSettings::*changed)());

    QString m_file;
    QJsonObject m_read; // as read, so that values of other versions are kept
    QTimer m_saveTimer;
    int m_windowX = -1;
    int m_windowY = -1;
    int m_windowWidth = 1100;
    int m_windowHeight = 760;
    bool m_windowMaximized = false;
    bool m_sidebarVisible = true;
    int m_sidebarWidth = 260;
    int m_textPercent = 100;
};

} // namespace puna::app
