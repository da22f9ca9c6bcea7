// The colour roles of the window, derived from four colours of the desktop's palette.
//
// mix() moves a colour towards another in sRGB; ensure() moves one towards black or white in steps of 1/40 until it
// reads on all its grounds (WCAG 2 contrast: 4.5 for text, 3 for shapes). Every step is rounded to 8 bits, so the
// result is the same everywhere. Dark means that the text is lighter than the window. Pure functions.
#pragma once

#include <QColor>

namespace puna::ui {

struct ThemeColors {
    QColor window, base, text, accent; // the desktop's
    QColor plate, own, hover, press, textMuted; // grounds of code and own messages; quiet text
    QColor line, edge; // hairline; border of a control
    QColor accentInk, onAccent, accentTint, selected; // focus, main button; chosen row
    QColor good, caution, error, cautionTint, errorTint; // always together with a shape or word
    QColor mark; // found text
    QColor weights, kv, work, other, otherGround; // memory
    QColor synKeyword, synName, synString, synNumber, synComment;
    bool dark = false;
};

QColor mix(const QColor& from, const QColor& to, double share);
double contrast(const QColor& a, const QColor& b); // 1 ... 21
ThemeColors deriveColors(const QColor& window, const QColor& base, const QColor& text, const QColor& accent);

} // namespace puna::ui
