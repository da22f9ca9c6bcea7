// The ring around what has the keyboard's focus: 2 px, 1 px off its parent.
import QtQuick
import Puna.Ui

Rectangle {
    anchors.fill: parent
    anchors.margins: -3
    color: "transparent"
    border.width: 2
    border.color: Theme.accentInk
    radius: 6
}
