// All keys on one page (F1).
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

Sheet {
    id: root

    title: qsTr("Keyboard shortcuts")

    Repeater {
        model: [
            [qsTr("Enter, Shift+Enter"), qsTr("Send; begin a new line")],
            [qsTr("Esc"), qsTr("Close what is open, else stop the answer")],
            [qsTr("Up, in an empty message"), qsTr("Edit the last own message")],
            [qsTr("Ctrl+R"), qsTr("Answer again, keeping the old answer")],
            [qsTr("Alt+Left, Alt+Right"), qsTr("Previous, next version of the chosen message")],
            [qsTr("Ctrl+J, Ctrl+Shift+J"), qsTr("Next, previous message")],
            [qsTr("Ctrl+Shift+C"), qsTr("Copy the last answer")],
            [qsTr("Ctrl+Shift+K"), qsTr("Copy the last block of code")],
            [qsTr("Ctrl+N"), qsTr("New chat")],
            [qsTr("Ctrl+K"), qsTr("Find a chat")],
            [qsTr("Ctrl+PgUp, Ctrl+PgDn"), qsTr("Previous, next chat")],
            [qsTr("F2"), qsTr("Rename the chat")],
            [qsTr("Del, Ctrl+Z"), qsTr("Delete the chosen chat; bring it back")],
            [qsTr("Ctrl+L"), qsTr("Choose the model")],
            [qsTr("Ctrl+O"), qsTr("Add a model folder")],
            [qsTr("Ctrl++, Ctrl+-, Ctrl+0"), qsTr("Larger, smaller, normal text")],
            [qsTr("F6"), qsTr("Next part of the window")],
            [qsTr("F9, F11"), qsTr("Show or hide the chats; full screen")],
            [qsTr("Ctrl+Q"), qsTr("Quit")]
        ]

        Row {
            required property var modelData

            PlainText {
                width: 13 * Theme.em
                text: parent.modelData[0]
                color: Theme.textMuted
            }
            PlainText {
                width: root.width - 48 - 13 * Theme.em
                text: parent.modelData[1]
                wrapMode: Text.Wrap
            }
        }
    }
}
