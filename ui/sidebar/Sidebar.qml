// The left pane: new chat, the chats by date, and what the computer has.
import QtQuick
import Puna.App
import Puna.Ui

Rectangle {
    id: root

    signal hideRequested
    signal chatOpened
    signal chatDeleted(string title)

    readonly property ConversationListModel conversations: ChatController.conversations

    function focusFilter(): void {
        filter.forceActiveFocus(Qt.ShortcutFocusReason);
        filter.selectAll();
    }

    function focusList(): void {
        list.focusList();
    }

    function renameCurrent(): void {
        list.editRow(conversations.currentRow());
    }

    color: Theme.window

    Item {
        id: top

        width: parent.width
        height: 2 * Theme.control + 24

        PushButton {
            id: newChat

            x: 8
            y: 8
            width: parent.width - 20 - hide.width
            leading: true
            iconName: "plus"
            text: qsTr("New chat")
            onClicked: {
                ChatController.newChat();
                root.chatOpened();
            }

            Tip {
                visible: newChat.hovered
                text: newChat.text
                key: "Ctrl+N"
            }
        }
        IconButton {
            id: hide

            anchors.right: parent.right
            anchors.rightMargin: 8
            y: 8
            iconName: "panel"
            text: qsTr("Hide the list of chats")
            key: "F9"
            onClicked: root.hideRequested()
        }
        FieldBox {
            id: filter

            x: 8
            y: Theme.control + 16
            width: parent.width - 16
            iconName: "search"
            key: "Ctrl+K"
            placeholderText: qsTr("Find chat")
            onTextChanged: root.conversations.filter = text
            Keys.onEscapePressed: text = ""
            Keys.onDownPressed: list.focusList()
            onAccepted: {
                if (root.conversations.count > 0 && text.length > 0) {
                    ChatController.openChat(root.conversations.idAt(0));
                    text = "";
                    root.chatOpened();
                }
            }
        }
    }
    ConversationList {
        id: list

        anchors.top: top.bottom
        anchors.bottom: foot.top
        x: 4
        width: parent.width - 8
        model: root.conversations
        filtered: filter.text.length > 0
        onOpened: row => {
            ChatController.openChat(root.conversations.idAt(row));
            root.chatOpened();
        }
        onRenamed: (row, title) => ChatController.renameChat(root.conversations.idAt(row), title)
        onDeleted: row => {
            const id = root.conversations.idAt(row);
            const title = root.conversations.titleOf(id);
            ChatController.deleteChat(id);
            root.chatDeleted(title);
        }
    }
    Item {
        id: foot

        anchors.bottom: parent.bottom
        width: parent.width
        height: memory.height + 18 + bar.height + 6

        Rectangle {
            width: parent.width
            height: 1
            color: Theme.line
        }
        Item {
            id: memory

            x: 16
            y: 8
            width: parent.width - 28
            height: memoryTitle.implicitHeight

            PlainText {
                id: memoryTitle

                text: qsTr("Memory")
                font: Theme.smallBold
            }
            PlainText {
                anchors.left: memoryTitle.right
                anchors.leftMargin: 8
                anchors.right: memoryText.left
                anchors.rightMargin: 8
                text: ChatController.library.deviceText
                font: Theme.small
                color: Theme.textMuted
                elide: Text.ElideRight
            }
            PlainText {
                id: memoryText

                anchors.right: parent.right
                text: qsTr("%1 / %2 GiB").arg((Desktop.memoryOurs + Desktop.memoryOthers).toFixed(1)).arg(Desktop.memoryTotal.toFixed(1))
                font: Theme.small
            }
        }
        MemoryBar {
            id: bar

            x: 16
            width: parent.width - 28
            anchors.top: memory.bottom
            anchors.topMargin: 6
            total: Desktop.memoryTotal
            ours: Desktop.memoryOurs
            others: Desktop.memoryOthers
        }
    }
    Rectangle {
        anchors.right: parent.right
        width: 1
        height: parent.height
        color: Theme.line
    }
}
