// A button that is only an icon; its name and key show as a tooltip.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.AbstractButton {
    id: root

    property string iconName
    property string key
    property bool quiet: false // without its tooltip

    implicitWidth: Theme.control
    implicitHeight: Theme.control
    focusPolicy: Qt.StrongFocus
    Accessible.role: Accessible.Button
    Accessible.name: text

    Tip {
        visible: (root.hovered || root.visualFocus) && !root.quiet
        text: root.text
        key: root.key
    }

    contentItem: Item {
        Icon {
            anchors.centerIn: parent
            width: Math.round(1.2 * Theme.em)
            height: width
            name: root.iconName
            color: root.enabled ? Theme.text : Theme.line
        }
    }

    background: Rectangle {
        radius: 4
        color: root.down ? Theme.press : root.hovered && root.enabled ? Theme.hover : "transparent"

        FocusRing {
            visible: root.visualFocus
        }
    }
}
