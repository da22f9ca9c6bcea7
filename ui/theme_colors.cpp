#include "ui/theme_colors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace puna::ui {
namespace {

// Start values of the colours that never come from the desktop.
struct OwnColors {
    QColor weights, kv, work, other, caution, error, good, mark;
    QColor synKeyword, synString, synNumber, synName, synComment;
};

const OwnColors& ownColors(bool dark)
{
    static const OwnColors kLight {
        0x3c5763u,
        0x7d99a3u,
        0xbccad0u,
        0x8b8f92u,
        0x8a5200u,
        0xb3261eu,
        0x2b6a45u,
        0xffe08au,
        0x6b3fa0u,
        0x2b6a45u,
        0x9c4600u,
        0x1c5c94u,
        0x62676bu,
    };
    static const OwnColors kDark {
        0x64899au,
        0x4f6f7bu,
        0x354c55u,
        0x6f7477u,
        0xf0b35au,
        0xff8f84u,
        0x7cc596u,
        0x6a5206u,
        0xc6a5f0u,
        0x8fcfa5u,
        0xf0b080u,
        0x86bff0u,
        0x9a9fa3u,
    };
    return dark ? kDark : kLight;
}

double luminance(const QColor& color)
{
    const auto linear = [](int value) {
        const double v = value / 255.0;
        return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(color.red()) + 0.7152 * linear(color.green()) + 0.0722 * linear(color.blue());
}

QColor ensure(const QColor& color, std::span<const QColor> grounds, double wanted, const QColor& pole)
{
    for (int step = 0; step <= 40; ++step) {
        const QColor moved = mix(color, pole, step / 40.0);
        if (std::ranges::all_of(grounds, [&](const QColor& ground) { return contrast(moved, ground) >= wanted; }))
            return moved;
    }
    return pole;
}

} // namespace

QColor mix(const QColor& from, const QColor& to, double share)
{
    const auto channel = [share](int a, int b) { return static_cast<int>(std::nearbyint(a + (b - a) * share)); };
    return {channel(from.red(), to.red()), channel(from.green(), to.green()), channel(from.blue(), to.blue())};
}

double contrast(const QColor& a, const QColor& b)
{
    const auto [low, high] = std::minmax({luminance(a), luminance(b)});
    return (high + 0.05) / (low + 0.05);
}

ThemeColors deriveColors(const QColor& window, const QColor& base, const QColor& text, const QColor& accent)
{
    ThemeColors c;
    c.dark = luminance(window) < luminance(text);
    const QColor pole = c.dark ? Qt::white : Qt::black;
    const OwnColors& own = ownColors(c.dark);
    const double strength = c.dark ? 1.0 : 0.0;

    c.window = window;
    c.base = base;
    c.text = text;
    c.accent = accent;
    c.plate = mix(base, text, 0.035);
    c.own = mix(base, text, 0.07);
    c.accentTint = mix(base, accent, std::lerp(0.14, 0.20, strength));
    c.hover = mix(window, text, 0.07);
    c.press = mix(window, text, 0.13);

    const std::array grounds {window, base, c.plate, c.own};
    const std::array quietGrounds {window, base, c.plate, c.own, c.hover, c.accentTint};
    c.textMuted = ensure(mix(text, window, 0.30), quietGrounds, 4.5, pole);
    c.line = mix(text, window, 0.86);
    c.edge = ensure(mix(text, window, 0.62), grounds, 3.0, pole);
    c.accentInk = ensure(accent, grounds, 4.5, pole);
    c.onAccent = base;
    if (contrast(base, c.accentInk) < 4.5) {
        const double white = contrast(Qt::white, c.accentInk), black = contrast(Qt::black, c.accentInk);
        c.onAccent = white >= black ? Qt::white : Qt::black;
    }
    c.selected = mix(window, accent, std::lerp(0.22, 0.26, strength));
    c.caution = ensure(own.caution, grounds, 4.5, pole);
    c.error = ensure(own.error, grounds, 4.5, pole);
    c.good = ensure(own.good, grounds, 4.5, pole);
    c.cautionTint = mix(base, own.caution, std::lerp(0.10, 0.14, strength));
    c.errorTint = mix(base, own.error, std::lerp(0.08, 0.14, strength));

    const std::array code {c.plate};
    c.synKeyword = ensure(own.synKeyword, code, 4.5, pole);
    c.synString = ensure(own.synString, code, 4.5, pole);
    c.synNumber = ensure(own.synNumber, code, 4.5, pole);
    c.synName = ensure(own.synName, code, 4.5, pole);
    c.synComment = ensure(own.synComment, code, 4.5, pole);

    const std::array page {base, window};
    const std::array onlyBase {base};
    c.mark = own.mark;
    c.weights = ensure(own.weights, page, 4.5, pole);
    c.kv = ensure(own.kv, onlyBase, c.dark ? 2.6 : 3.0, pole);
    c.work = own.work;
    c.other = ensure(own.other, onlyBase, 3.0, pole);
    c.otherGround = mix(window, text, 0.05);
    return c;
}

} // namespace puna::ui
