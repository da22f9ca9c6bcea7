// A button with words: plain, main (one in a pane, at most) or flat; an icon before and a key after the words.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.Button {
    id: root

    property string iconName
    property bool main: false
    property string key
    property bool small: false
    property bool leading: false // the words begin at the left
    readonly property color ink: !enabled ? Theme.textMuted : main ? Theme.onAccent : Theme.text

    implicitWidth: row.implicitWidth + leftPadding + rightPadding
    implicitHeight: Theme.control
    leftPadding: small ? 10 : 12
    rightPadding: leftPadding
    font: small ? Theme.small : main && enabled ? Theme.bold : Theme.body
    focusPolicy: Qt.StrongFocus
    Accessible.role: Accessible.Button
    Accessible.name: text

    contentItem: Item {
        implicitWidth: row.implicitWidth
        implicitHeight: row.implicitHeight

        Row {
            id: row

            x: root.leading ? 0 : Math.round((parent.width - width) / 2)
            anchors.verticalCenter: parent.verticalCenter
            spacing: root.small ? 6 : 8

            Icon {
                anchors.verticalCenter: parent.verticalCenter
                visible: root.iconName.length > 0
                width: Math.round(1.2 * Theme.em)
                height: width
                name: root.iconName
                color: root.ink
            }
            PlainText {
                anchors.verticalCenter: parent.verticalCenter
                visible: text.length > 0
                text: root.text
                font: root.font
                color: root.ink
            }
            PlainText {
                anchors.verticalCenter: parent.verticalCenter
                visible: root.key.length > 0
                text: root.key
                font: Theme.small
                color: Theme.textMuted
            }
        }
    }

    background: Rectangle {
        radius: 4
        color: {
            if (!root.enabled)
                return "transparent";
            if (root.main)
                return root.down ? Qt.darker(Theme.accentInk, 1.1) : Theme.accentInk;
            if (root.down)
                return Theme.press;
            return root.hovered ? Theme.hover : root.flat ? "transparent" : Theme.base;
        }
        border.width: root.flat ? 0 : 1
        border.color: !root.enabled ? Theme.line : root.main ? Theme.accentInk : Theme.edge

        FocusRing {
            visible: root.visualFocus
        }
    }
}
