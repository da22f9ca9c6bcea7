// Colours and measures follow the application's palette and the size of text.
#include "ui/theme.h"

#include <QGuiApplication>
#include <QPalette>
#include <QSignalSpy>
#include <QTest>

#include <cmath>

using puna::ui::Theme;

class TestTheme : public QObject {
    Q_OBJECT

private slots:
    void init() { QGuiApplication::setPalette(QPalette()); }

    void aPaletteOfTheDesktopIsFollowed()
    {
        Theme theme;
        QVERIFY(!theme.isDark());
        QSignalSpy changed(&theme, &Theme::colorsChanged);
        QPalette palette;
        palette.setColor(QPalette::Window, QColor(0x202326u));
        palette.setColor(QPalette::Base, QColor(0x141618u));
        palette.setColor(QPalette::WindowText, QColor(0xfcfcfcu));
        QGuiApplication::setPalette(palette);
        QTRY_VERIFY(theme.isDark());
        QCOMPARE(theme.baseColor(), QColor(0x141618u));
        QVERIFY(changed.count() >= 1);
    }

    void measuresGrowWithTheText()
    {
        Theme theme;
        const int row = theme.control();
        const double size = theme.body().pointSizeF();
        theme.setTextScale(2.0);
        QVERIFY(std::abs(theme.control() - 2 * row) <= 1);
        QVERIFY(std::abs(theme.body().pointSizeF() - 2 * size) < 0.01);
        theme.setTextScale(100.0);
        QCOMPARE(theme.textScale(), 2.0);
    }
};

QTEST_MAIN(TestTheme)
#include "tst_theme.moc"
