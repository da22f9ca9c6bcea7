// Where a message is written. Never disabled: while an answer is under way, Send becomes Queue.
//
// Enter sends, Shift+Enter begins a line; text that an input method is still composing is never sent. Knows nothing of
// chats: its owner gives the state and takes the signals.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

Item {
    id: root

    property alias text: area.text
    property alias cursorPosition: area.cursorPosition
    property string placeholder: qsTr("Write a message")
    property bool busy: false // an answer is under way
    property bool canSend: true
    property string queued // what is sent next
    property bool editing: false // an earlier message
    property real maximumHeight: 320
    readonly property bool hasText: area.text.trim().length > 0

    signal sendRequested(string text)
    signal stopRequested
    signal editLastRequested
    signal editCancelled
    signal queuedEditRequested
    signal queuedRemoveRequested

    function submit(): void {
        if (hasText && canSend)
            sendRequested(area.text);
    }

    function focusText(): void {
        area.forceActiveFocus(Qt.OtherFocusReason);
    }

    implicitHeight: above.height + frame.height

    Column {
        id: above

        width: parent.width

        QueuedRow {
            width: parent.width
            visible: root.queued.length > 0
            label: qsTr("Queued")
            text: root.queued
            onEditRequested: root.queuedEditRequested()
            onRemoveRequested: root.queuedRemoveRequested()
        }
        QueuedRow {
            width: parent.width
            visible: root.editing
            label: qsTr("Editing")
            text: qsTr("The earlier version of this message and its answers are kept.")
            editable: false
            onRemoveRequested: root.editCancelled()
        }
    }
    Rectangle {
        id: frame

        anchors.top: above.bottom
        width: parent.width
        height: Math.min(Math.max(Theme.control, area.implicitHeight), Math.max(3 * Theme.control, root.maximumHeight)) + 8
        radius: 4
        color: Theme.base
        border.width: area.activeFocus ? 2 : 1
        border.color: area.activeFocus ? Theme.accentInk : Theme.edge

        Flickable {
            id: flick

            anchors.left: parent.left
            anchors.leftMargin: 8
            anchors.right: buttons.left
            anchors.rightMargin: 8
            anchors.top: parent.top
            anchors.bottom: parent.bottom
            anchors.margins: 4
            clip: true
            boundsBehavior: Flickable.StopAtBounds
            contentHeight: area.implicitHeight

            T.TextArea.flickable: T.TextArea {
                id: area

                implicitHeight: contentHeight + topPadding + bottomPadding
                topPadding: Math.max(4, Math.round((Theme.control - Theme.bodyLine) / 2) + 1)
                bottomPadding: topPadding
                leftPadding: 4
                rightPadding: 4
                textFormat: TextEdit.PlainText
                wrapMode: TextEdit.Wrap
                font: Theme.body
                color: Theme.text
                selectionColor: Theme.selected
                selectedTextColor: Theme.text
                selectByMouse: true
                Accessible.role: Accessible.EditableText
                Accessible.name: root.placeholder
                Accessible.multiLine: true

                Keys.onPressed: event => {
                    const enter = event.key === Qt.Key_Return || event.key === Qt.Key_Enter;
                    if (enter && !(event.modifiers & (Qt.ShiftModifier | Qt.AltModifier | Qt.MetaModifier))) {
                        if (area.inputMethodComposing)
                            Qt.inputMethod.commit();
                        else
                            root.submit();
                        event.accepted = true;
                    } else if (event.key === Qt.Key_Up && area.length === 0 && !area.inputMethodComposing) {
                        root.editLastRequested();
                        event.accepted = true;
                    } else if (event.key === Qt.Key_Escape && root.editing) {
                        root.editCancelled();
                        event.accepted = true;
                    }
                }

                PlainText {
                    x: area.leftPadding
                    y: area.topPadding
                    visible: area.length === 0 && area.preeditText.length === 0
                    text: root.placeholder
                    color: Theme.textMuted
                    Accessible.ignored: true
                }
            }
            T.ScrollBar.vertical: ThinScrollBar {}
        }
        Row {
            id: buttons

            anchors.right: parent.right
            anchors.bottom: parent.bottom
            anchors.margins: 4
            spacing: 4

            PushButton {
                visible: root.busy
                iconName: "stop"
                text: qsTr("Stop")
                key: qsTr("Esc")
                onClicked: root.stopRequested()
            }
            PushButton {
                main: enabled
                enabled: root.hasText && root.canSend
                iconName: root.busy ? "queue" : "send"
                text: root.busy ? qsTr("Queue") : qsTr("Send")
                onClicked: root.submit()
            }
        }
    }
}
