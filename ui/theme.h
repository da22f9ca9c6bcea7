// Theme: colours, fonts and measures for QML, following the desktop.
//
// Colours come from the application's palette (theme_colors.h), fonts from the application's font times textScale.
// Light or dark: what the desktop's palette is; where the desktop portal says otherwise over D-Bus
// (org.freedesktop.appearance), what it says, with a palette of our own of that lightness, which is also used where no
// desktop gives one. All measures in pixels at the present font size: rows and controls grow with the text.
#pragma once

#include "ui/theme_colors.h"

#include <QDBusVariant>
#include <QFont>
#include <QObject>
#include <QQmlEngine>

namespace puna::ui {

class Theme : public QObject, public ThemeColors {
    Q_OBJECT
    QML_ELEMENT
    QML_SINGLETON
    Q_PROPERTY(bool dark READ isDark NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor window READ windowColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor base READ baseColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor text READ textColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor textMuted READ textMutedColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor plate READ plateColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor own READ ownColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor hover READ hoverColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor press READ pressColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor line READ lineColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor edge READ edgeColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor accentInk READ accentInkColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor onAccent READ onAccentColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor accentTint READ accentTintColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor selected READ selectedColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor good READ goodColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor caution READ cautionColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor error READ errorColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor cautionTint READ cautionTintColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor errorTint READ errorTintColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor weights READ weightsColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor kv READ kvColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor other READ otherColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor otherGround READ otherGroundColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor synKeyword READ synKeywordColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor synName READ synNameColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor synString READ synStringColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor synNumber READ synNumberColor NOTIFY colorsChanged FINAL)
    Q_PROPERTY(QColor synComment READ synCommentColor NOTIFY colorsChanged FINAL)

    Q_PROPERTY(double textScale READ textScale WRITE setTextScale NOTIFY metricsChanged FINAL) // 0.8 ... 2
    Q_PROPERTY(QFont body READ body NOTIFY metricsChanged FINAL)
    Q_PROPERTY(QFont bold READ bold NOTIFY metricsChanged FINAL) // 600: titles, speakers
    Q_PROPERTY(QFont small READ small NOTIFY metricsChanged FINAL)
    Q_PROPERTY(QFont smallBold READ smallBold NOTIFY metricsChanged FINAL)
    Q_PROPERTY(QFont code READ code NOTIFY metricsChanged FINAL)
    Q_PROPERTY(QFont heading1 READ heading1 NOTIFY metricsChanged FINAL)
    Q_PROPERTY(QFont heading2 READ heading2 NOTIFY metricsChanged FINAL)
    Q_PROPERTY(double em READ em NOTIFY metricsChanged FINAL) // the body font's size in pixels
    Q_PROPERTY(int control READ control NOTIFY metricsChanged FINAL) // height of a button or row: 32
    Q_PROPERTY(int bar READ bar NOTIFY metricsChanged FINAL) // of the header: 48
    Q_PROPERTY(int column READ column NOTIFY metricsChanged FINAL) // width of the text: 48 em
    Q_PROPERTY(int bodyLine READ bodyLine NOTIFY metricsChanged FINAL) // line height of answers
    Q_PROPERTY(int codeLine READ codeLine NOTIFY metricsChanged FINAL)
    Q_PROPERTY(int fold READ fold CONSTANT FINAL) // duration of opening and closing, ms

public:
    enum class Scheme { System, Light, Dark };

    explicit Theme(QObject* parent = nullptr);

    // Before the QML engine is made: instead of what the desktop says.
    static void forceScheme(Scheme scheme);

    bool isDark() const { return dark; }
    QColor windowColor() const { return window; }
    QColor baseColor() const { return base; }
    QColor textColor() const { return text; }
    QColor textMutedColor() const { return textMuted; }
    QColor plateColor() const { return plate; }
    QColor ownColor() const { return own; }
    QColor hoverColor() const { return hover; }
    QColor pressColor() const { return press; }
    QColor lineColor() const { return line; }
    QColor edgeColor() const { return edge; }
    QColor accentInkColor() const { return accentInk; }
    QColor onAccentColor() const { return onAccent; }
    QColor accentTintColor() const { return accentTint; }
    QColor selectedColor() const { return selected; }
    QColor goodColor() const { return good; }
    QColor cautionColor() const { return caution; }
    QColor errorColor() const { return error; }
    QColor cautionTintColor() const { return cautionTint; }
    QColor errorTintColor() const { return errorTint; }
    QColor weightsColor() const { return weights; }
    QColor kvColor() const { return kv; }
    QColor otherColor() const { return other; }
    QColor otherGroundColor() const { return otherGround; }
    QColor synKeywordColor() const { return synKeyword; }
    QColor synNameColor() const { return synName; }
    QColor synStringColor() const { return synString; }
    QColor synNumberColor() const { return synNumber; }
    QColor synCommentColor() const { return synComment; }

    double textScale() const { return m_textScale; }
    void setTextScale(double scale);
    QFont body() const { return scaled(1.0); }
    QFont bold() const { return scaled(1.0, QFont::DemiBold); }
    QFont small() const { return scaled(0.875); }
    QFont smallBold() const { return scaled(0.875, QFont::DemiBold); }
    QFont code() const;
    QFont heading1() const { return scaled(1.3, QFont::DemiBold); }
    QFont heading2() const { return scaled(1.2, QFont::DemiBold); }
    double em() const { return m_em * m_textScale; }
    int control() const { return px(2.4); }
    int bar() const { return px(3.6); }
    int column() const { return px(48.0); }
    int bodyLine() const { return px(1.5); }
    int codeLine() const { return px(0.92 * 1.45); }
    int fold() const { return 120; }

    bool eventFilter(QObject* watched, QEvent* event) override;

signals:
    void colorsChanged();
    void metricsChanged();

private slots:
    void onPortalSetting(const QString& group, const QString& key, const QDBusVariant& value);

private:
    QFont scaled(double factor, int weight = QFont::Normal) const;
    int px(double ems) const;
    void askPortal();
    void applyScheme();
    void update();

    Scheme m_portal = Scheme::System;
    bool m_desktopPalette = true; // the platform gave one; else Qt's fall-back is replaced by ours
    bool m_desktopDark = false;
    bool m_applying = false;
    double m_textScale = 1.0;
    QFont m_font;
    QFont m_fixedFont;
    double m_em = 13.0;
};

} // namespace puna::ui
