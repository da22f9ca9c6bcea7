// The chats, grouped by date. Rows are opened, renamed in place (F2, double click, menu) and deleted (Del, menu).
pragma ComponentBehavior: Bound
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

Item {
    id: root

    property alias model: view.model
    property bool filtered: false
    property int editingRow: -1

    signal opened(int row)
    signal renamed(int row, string title)
    signal deleted(int row)

    function focusList(): void {
        view.forceActiveFocus(Qt.ShortcutFocusReason);
    }

    function editRow(row: int): void {
        editingRow = row;
        if (row >= 0)
            view.positionViewAtIndex(row, ListView.Contain);
    }

    PlainText {
        x: 12
        y: 12
        width: parent.width - 24
        visible: view.count === 0
        text: root.filtered ? qsTr("No chat has this in its title.") : qsTr("No chats yet.")
        color: Theme.textMuted
        wrapMode: Text.Wrap
    }
    ListView {
        id: view

        anchors.fill: parent
        clip: true
        activeFocusOnTab: true
        keyNavigationEnabled: true
        boundsBehavior: Flickable.StopAtBounds
        reuseItems: true
        Accessible.role: Accessible.List
        Accessible.name: qsTr("Chats")
        Keys.onReturnPressed: root.opened(currentIndex)
        Keys.onEnterPressed: root.opened(currentIndex)
        Keys.onDeletePressed: {
            if (currentIndex >= 0)
                root.deleted(currentIndex);
        }
        Keys.onPressed: event => {
            if (event.key === Qt.Key_F2) {
                root.editRow(currentIndex);
                event.accepted = true;
            } else if (event.key === Qt.Key_Menu || (event.key === Qt.Key_F10 && event.modifiers & Qt.ShiftModifier)) {
                menu.openFor(currentIndex, 24, currentItem ? currentItem.y - contentY + Theme.control : 0);
                event.accepted = true;
            }
        }

        section.property: "group"

        delegate: ConversationDelegate {
            width: ListView.view.width
            editing: root.editingRow === index
            group: ListView.section !== ListView.previousSection ? ListView.section : ""
            keyboardFocus: ListView.isCurrentItem && ListView.view.activeFocus
            onClicked: {
                view.currentIndex = index;
                root.opened(index);
            }
            onEditRequested: root.editRow(index)
            onMenuRequested: (x, y) => menu.openFor(index, x, y + this.y - view.contentY)
            onRenamed: title => {
                root.editingRow = -1;
                root.renamed(index, title);
                view.forceActiveFocus();
            }
            onEditCancelled: {
                root.editingRow = -1;
                view.forceActiveFocus();
            }
        }

        T.ScrollBar.vertical: ThinScrollBar {}
    }
    MenuPopup {
        id: menu

        property int row: -1

        function openFor(index: int, x: real, y: real): void {
            row = index;
            if (index >= 0)
                popup(root, x, y);
        }

        MenuEntry {
            text: qsTr("Rename")
            key: "F2"
            onTriggered: root.editRow(menu.row)
        }
        MenuEntry {
            text: qsTr("Delete")
            key: qsTr("Del")
            onTriggered: root.deleted(menu.row)
        }
    }
}
