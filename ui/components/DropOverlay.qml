// What a drop on the window would do, over all of it.
import QtQuick
import Puna.Ui

Rectangle {
    id: root

    property bool usable: true

    color: usable ? Theme.accentTint : Theme.window
    border.width: 2
    border.color: usable ? Theme.accentInk : Theme.edge
    radius: 6

    Column {
        anchors.centerIn: parent
        spacing: 4

        PlainText {
            anchors.horizontalCenter: parent.horizontalCenter
            text: root.usable ? qsTr("Drop to add model") : qsTr("Only folders and files on this computer can be added")
            font: Theme.heading2
        }
        PlainText {
            anchors.horizontalCenter: parent.horizontalCenter
            visible: root.usable
            text: qsTr("Nothing is copied")
        }
    }
}
