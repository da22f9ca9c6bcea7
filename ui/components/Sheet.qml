// A small page over the window with a title and a cross; Esc closes it.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.Popup {
    id: root

    required property string title
    default property alias content: body.data

    x: parent ? Math.round((parent.width - width) / 2) : 0
    y: parent ? Math.round((parent.height - height) / 2) : 0
    width: Math.min(36 * Theme.em, parent ? parent.width - 32 : 480)
    height: Math.min(head.height + body.implicitHeight + 16, parent ? parent.height - 32 : 600)
    modal: true
    focus: true
    padding: 0
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutside

    contentItem: FocusScope {
        focus: true
        Accessible.role: Accessible.Dialog
        Accessible.name: root.title

        Item {
            id: head

            width: parent.width
            height: Theme.bar

            PlainText {
                x: 24
                anchors.verticalCenter: parent.verticalCenter
                text: root.title
                font: Theme.bold
            }
            IconButton {
                anchors.right: parent.right
                anchors.rightMargin: 8
                anchors.verticalCenter: parent.verticalCenter
                iconName: "cross"
                text: qsTr("Close")
                onClicked: root.close()
            }
        }
        Flickable {
            anchors.top: head.bottom
            anchors.bottom: parent.bottom
            anchors.bottomMargin: 8
            x: 24
            width: parent.width - 48
            contentHeight: body.implicitHeight
            boundsBehavior: Flickable.StopAtBounds
            clip: true

            T.ScrollBar.vertical: ThinScrollBar {}

            Column {
                id: body

                width: parent.width
                spacing: 8
            }
        }
    }

    background: Rectangle {
        color: Theme.window
        border.color: Theme.edge
        radius: 6
    }
}
