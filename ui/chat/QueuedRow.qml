// A line above the composer: a queued message, or which message is being edited.
import QtQuick
import Puna.Ui

Item {
    id: root

    required property string label
    required property string text
    property bool editable: true

    signal editRequested
    signal removeRequested

    implicitHeight: Theme.control + 10

    Rectangle {
        width: parent.width
        height: Theme.control + 2
        radius: 4
        color: Theme.base
        border.color: Theme.line

        PlainText {
            id: title

            x: 12
            anchors.verticalCenter: parent.verticalCenter
            text: root.label
            font: Theme.small
            color: Theme.textMuted
        }
        PlainText {
            anchors.left: title.right
            anchors.leftMargin: 12
            anchors.right: actions.left
            anchors.verticalCenter: parent.verticalCenter
            text: root.text
            elide: Text.ElideRight
            maximumLineCount: 1
            wrapMode: Text.WrapAnywhere
        }
        Row {
            id: actions

            anchors.right: parent.right
            anchors.verticalCenter: parent.verticalCenter

            IconButton {
                visible: root.editable
                iconName: "edit"
                text: qsTr("Edit")
                onClicked: root.editRequested()
            }
            IconButton {
                iconName: "cross"
                text: root.editable ? qsTr("Remove") : qsTr("Cancel")
                onClicked: root.removeRequested()
            }
        }
    }
}
