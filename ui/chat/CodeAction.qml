// Wrap, Save or Copy in the head of a code block; only its icon where there is little room.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.AbstractButton {
    id: root

    property string iconName
    property bool compact: false

    implicitWidth: compact ? Theme.control : row.implicitWidth + 20
    implicitHeight: Theme.control - 1
    focusPolicy: Qt.TabFocus
    Accessible.role: Accessible.Button
    Accessible.name: text

    contentItem: Item {
        Row {
            id: row

            anchors.centerIn: parent
            spacing: 6

            Icon {
                anchors.verticalCenter: parent.verticalCenter
                width: Math.round(1.2 * Theme.em)
                height: width
                name: root.iconName
                color: Theme.text
            }
            PlainText {
                anchors.verticalCenter: parent.verticalCenter
                visible: !root.compact
                text: root.text
                font: Theme.small
            }
        }
    }

    background: Rectangle {
        color: root.down || root.checked ? Theme.press : root.hovered ? Theme.hover : "transparent"

        FocusRing {
            anchors.margins: 0
            visible: root.visualFocus
            radius: 4
        }
    }

    Tip {
        visible: root.compact && root.hovered
        text: root.text
    }
}
