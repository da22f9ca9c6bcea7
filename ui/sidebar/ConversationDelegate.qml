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
    property string group // begins above this row; empty: the row goes on with the one before
    property bool editing: false
    property bool keyboardFocus: false

    signal renamed(string title)
    signal editCancelled
    signal editRequested
    signal menuRequested(real x, real y)

    implicitHeight: topInset + Theme.control
    topInset: group.length > 0 ? Math.round(1.95 * Theme.em) : 0
    topPadding: topInset
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
        Repeater {
            model: root.editing ? 1 : 0

            FieldBox {
                property bool done: false

                function end(title: string): void {
                    done = true;
                    focus = false; // before it goes, so that the list can have the focus
                    title.length > 0 ? root.renamed(title) : root.editCancelled();
                }

                anchors.fill: parent
                placeholderText: qsTr("Title")
                leftPadding: 11
                Component.onCompleted: {
                    text = root.title;
                    selectAll();
                    forceActiveFocus();
                }
                Keys.onEscapePressed: end("")
                onAccepted: end(text.trim())
                onActiveFocusChanged: {
                    if (!activeFocus && !done && root.editing)
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

    MouseArea { // the head of the group is not part of the row
        width: parent.width
        height: root.topInset
        hoverEnabled: true

        PlainText {
            x: 12
            width: parent.width - 24
            height: parent.height - 4
            verticalAlignment: Text.AlignBottom
            text: root.group
            font: Theme.smallBold
            color: Theme.textMuted
            elide: Text.ElideRight
        }
    }
    MouseArea { // not a TapHandler: with one, a right click is a click of the row, too
        anchors.fill: parent
        anchors.topMargin: root.topInset
        acceptedButtons: Qt.RightButton
        onClicked: mouse => root.menuRequested(mouse.x, mouse.y + root.topInset)
    }
}
