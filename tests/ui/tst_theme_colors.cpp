// The colour roles against the design's figures (computed by its own script, in Python), and the contrast rules over
// palettes and accents that no desktop has yet.
#include "ui/theme_colors.h"

#include <QTest>

#include <array>
#include <utility>
#include <vector>

using namespace puna::ui;

namespace {

struct Palette {
    const char *name, *window, *base, *text, *accent;
};

constexpr std::array kPalettes {
    Palette {"breeze light", "#eff0f1", "#ffffff", "#232629", "#3daee9"},
    Palette {"breeze dark", "#202326", "#141618", "#fcfcfc", "#3daee9"},
    Palette {"adwaita light, orange", "#fafafb", "#ffffff", "#333338", "#ed5b00"},
    Palette {"adwaita dark, green", "#222226", "#1d1d20", "#ffffff", "#3a944a"},
    Palette {"fusion light", "#efefef", "#ffffff", "#000000", "#308cc6"},
    Palette {"fusion dark", "#323232", "#242424", "#ffffff", "#308cc6"},
};

ThemeColors derive(const Palette& palette, const char* accent = nullptr)
{
    return deriveColors(
        QColor(palette.window), QColor(palette.base), QColor(palette.text), QColor(accent ? accent : palette.accent));
}

} // namespace

class TestThemeColors : public QObject {
    Q_OBJECT

private slots:
    void colorsAreTheDesigns_data()
    {
        QTest::addColumn<int>("palette");
        QTest::addColumn<QStringList>("expected");
        // plate own accentTint hover press textMuted line edge accentInk onAccent selected caution error good
        // cautionTint errorTint weights kv other otherGround synKeyword synNumber
        const auto row = [](int palette, const char* colors) {
            QTest::newRow(kPalettes[static_cast<std::size_t>(palette)].name)
                << palette << QString::fromLatin1(colors).split(u' ');
        };
        row(0,
            "#f7f7f8 #f0f0f0 #e4f4fc #e1e2e3 #d4d6d7 #606365 #d2d4d5 #858688 #287197 #ffffff #c8e1ef #8a5200 #b3261e "
            "#2b6a45 #f3eee6 #f9eeed #3c5763 #7d99a3 #8b8f92 #e5e6e7 #6b3fa0 #9c4600");
        row(1,
            "#1c1e20 #242628 #1c3442 #2f3235 #3d3f42 #babbbc #3f4144 #747577 #3daee9 #141618 #284759 #f0b35a #ff8f84 "
            "#7cc596 #332c21 #352727 #6c8f9f #4f6f7b #6f7477 #2b2e31 #c6a5f0 #f0b080");
        row(2,
            "#f8f8f8 #f1f1f1 #fce8db #ececed #e0e0e2 #69696c #dedee0 #8b8b8e #b84700 #ffffff #f7d7c4 #8a5200 #b3261e "
            "#2b6a45 #f3eee6 #f9eeed #3c5763 #7d99a3 #8b8f92 #f0f0f1 #6b3fa0 #9c4600");
        row(3,
            "#252528 #2d2d30 #233528 #313135 #3f3f42 #bdbdbe #414144 #767678 #58a465 #1d1d20 #28402f #f0b35a #ff8f84 "
            "#7cc596 #3b3228 #3d2d2e #6c8f9f #4f6f7b #6f7477 #2d2d31 #c6a5f0 #f0b080");
        row(4,
            "#f6f6f6 #ededed #e2eff7 #dedede #d0d0d0 #484848 #cecece #858585 #26709e #ffffff #c5d9e6 #8a5200 #b3261e "
            "#2b6a45 #f3eee6 #f9eeed #3c5763 #7d99a3 #8b8f92 #e3e3e3 #6b3fa0 #9c4600");
        row(5,
            "#2c2c2c #333333 #263944 #404040 #4d4d4d #c2c2c2 #4f4f4f #808080 #59a3d1 #242424 #314958 #f0b35a #ff8f84 "
            "#7cc596 #41382c #433331 #7f9eac #4f6f7b #6f7477 #3c3c3c #c6a5f0 #f0b080");
    }

    void colorsAreTheDesigns()
    {
        QFETCH(int, palette);
        QFETCH(QStringList, expected);
        const ThemeColors c = derive(kPalettes[static_cast<std::size_t>(palette)]);
        const std::vector<QColor> found {c.plate, c.own, c.accentTint, c.hover, c.press, c.textMuted, c.line, c.edge,
            c.accentInk, c.onAccent, c.selected, c.caution, c.error, c.good, c.cautionTint, c.errorTint, c.weights,
            c.kv, c.other, c.otherGround, c.synKeyword, c.synNumber};
        QStringList names;
        for (const QColor& color : found)
            names.append(color.name());
        QCOMPARE(names, expected);
        QCOMPARE(c.dark, palette % 2 == 1);
    }

    void textReadsOnEveryGroundWhateverTheAccent()
    {
        constexpr std::array kAccents {"#3daee9", "#3584e4", "#308cc6", "#2190a4", "#3a944a", "#c88800", "#ed5b00",
            "#e62d42", "#d56199", "#9141ac", "#6f8396", "#e95420", "#92b372", "#ffff00", "#000000", "#ffffff",
            "#808080"};
        for (const Palette& palette : kPalettes)
            for (const char* accent : kAccents) {
                const ThemeColors c = derive(palette, accent);
                const std::vector<std::pair<QColor, QColor>> texts {{c.text, c.window}, {c.text, c.base},
                    {c.text, c.plate}, {c.text, c.own}, {c.text, c.selected}, {c.text, c.hover}, {c.text, c.accentTint},
                    {c.text, c.cautionTint}, {c.text, c.errorTint}, {c.textMuted, c.window}, {c.textMuted, c.base},
                    {c.textMuted, c.hover}, {c.accentInk, c.window}, {c.accentInk, c.base}, {c.onAccent, c.accentInk},
                    {c.caution, c.base}, {c.error, c.base}, {c.good, c.window}, {c.synComment, c.plate}};
                for (const auto& [ink, ground] : texts)
                    QVERIFY2(contrast(ink, ground) >= 4.495,
                        qPrintable(
                            QStringLiteral("%1 %2: %3 on %4")
                                .arg(QLatin1String(palette.name), QLatin1String(accent), ink.name(), ground.name())));
                QVERIFY(contrast(c.edge, c.base) >= 2.995);
            }
    }
};

QTEST_GUILESS_MAIN(TestThemeColors)
#include "tst_theme_colors.moc"
