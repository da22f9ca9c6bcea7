// A row of the list of chats: title, a square while an answer is being written, when it was last changed.
pragma ComponentBehavior: Bound
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.ItemDelegate {
    id: root

    required property int index
    required property string title
    required property string updated
    required property bool busy
    required property bool current
    property bool editing: false
    property bool keyboardFocus: false

    signal renamed(string title)
    signal editCancelled
    signal editRequested
    signal menuRequested(real x, real y)

    implicitHeight: Theme.control
    focusPolicy: Qt.NoFocus
    Accessible.role: Accessible.ListItem
    Accessible.name: title
    Accessible.description: busy ? qsTr("writing an answer") : updated
    Accessible.selected: current
    Accessible.onPressAction: clicked()
    onDoubleClicked: editRequested()

    contentItem: Item {
        PlainText {
            anchors.left: parent.left
            anchors.leftMargin: 12
            anchors.right: live.visible ? live.left : when.left
            anchors.rightMargin: 8
            anchors.verticalCenter: parent.verticalCenter
            visible: !root.editing
            text: root.title
            elide: Text.ElideRight
        }
        Rectangle {
            id: live

            anchors.right: when.left
            anchors.rightMargin: 8
            anchors.verticalCenter: parent.verticalCenter
            visible: root.busy && !root.editing
            width: 8
            height: 8
            radius: 1
            color: Theme.accentInk
        }
        PlainText {
            id: when

            anchors.right: parent.right
            anchors.rightMargin: 12
            anchors.verticalCenter: parent.verticalCenter
            visible: !root.editing
            text: root.updated
            font: Theme.small
            color: root.current ? Theme.text : Theme.textMuted
        }
        Loader {
            anchors.fill: parent
            active: root.editing
            sourceComponent: FieldBox {
                placeholderText: qsTr("Title")
                leftPadding: 11
                Component.onCompleted: {
                    text = root.title;
                    selectAll();
                    forceActiveFocus();
                }
                Keys.onEscapePressed: root.editCancelled()
                onAccepted: text.trim().length > 0 ? root.renamed(text.trim()) : root.editCancelled()
                onActiveFocusChanged: {
                    if (!activeFocus && root.editing)
                        root.editCancelled();
                }
            }
        }
    }

    background: Rectangle {
        radius: 4
        color: root.current ? Theme.selected : root.hovered ? Theme.hover : "transparent"

        FocusRing {
            anchors.margins: 0
            visible: root.keyboardFocus && !root.editing
            radius: 4
        }
    }

    TapHandler {
        acceptedButtons: Qt.RightButton
        onTapped: point => root.menuRequested(point.position.x, point.position.y)
    }
}
