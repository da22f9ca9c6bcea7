import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.MenuItem {
    id: root

    property string key

    implicitWidth: label.implicitWidth + (keyLabel.visible ? keyLabel.implicitWidth + 24 : 0) + 24
    implicitHeight: visible ? Theme.control : 0
    leftPadding: 12
    rightPadding: 12
    Accessible.name: text

    contentItem: Item {
        PlainText {
            id: label

            anchors.verticalCenter: parent.verticalCenter
            text: root.text
            color: root.enabled ? Theme.text : Theme.textMuted
        }
        PlainText {
            id: keyLabel

            anchors.verticalCenter: parent.verticalCenter
            anchors.right: parent.right
            visible: text.length > 0
            text: root.key
            font: Theme.small
            color: Theme.textMuted
        }
    }

    background: Rectangle {
        radius: 4
        color: root.highlighted ? Theme.hover : "transparent"
    }
}
