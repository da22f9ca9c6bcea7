// What the model thought before it answered, folded away.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

Item {
    id: root

    required property string text
    property var spans: []
    property bool streaming: false
    property bool open: false

    implicitHeight: fold.height + (open ? thought.height + 4 : 0)
    clip: true

    T.AbstractButton {
        id: fold

        x: -2
        width: row.implicitWidth + 4
        height: Theme.control
        text: root.streaming ? qsTr("Thinking") : qsTr("Thought")
        focusPolicy: Qt.StrongFocus
        Accessible.role: Accessible.Button
        Accessible.name: text
        Accessible.checkable: true
        Accessible.checked: root.open
        onClicked: root.open = !root.open

        contentItem: Item {
            Row {
                id: row

                anchors.verticalCenter: parent.verticalCenter
                spacing: 6

                Icon {
                    anchors.verticalCenter: parent.verticalCenter
                    width: Math.round(1.2 * Theme.em)
                    height: width
                    name: root.open ? "down" : "right"
                    color: Theme.textMuted
                }
                PlainText {
                    anchors.verticalCenter: parent.verticalCenter
                    text: fold.text
                    color: fold.hovered ? Theme.text : Theme.textMuted
                }
            }
        }
        background: Item {
            FocusRing {
                anchors.margins: 0
                visible: fold.visualFocus
            }
        }
    }
    TextBlock {
        id: thought

        y: fold.height
        width: parent.width
        visible: root.open
        text: root.text
        spans: root.spans
        streaming: root.streaming && root.open
        color: Theme.textMuted
    }
    Behavior on implicitHeight {
        enabled: !root.streaming
        NumberAnimation {
            duration: Theme.fold
            easing.type: Easing.OutCubic
        }
    }
}
