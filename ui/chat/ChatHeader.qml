// The bar over a conversation: its title (a click or F2 renames), the model, and what else can be done.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.App
import Puna.Ui

Rectangle {
    id: root

    property bool sidebarShown: true
    property bool narrow: false
    property bool editing: false
    readonly property ChatSession session: ChatController.session
    readonly property bool stored: session !== null && session.saved
    property bool chooserOpen: false

    signal sidebarRequested
    signal chooserRequested
    signal shortcutsRequested
    signal deleteRequested
    signal copyAnswerRequested

    function edit(): void {
        if (stored)
            editing = true;
    }

    implicitHeight: Theme.bar
    color: Theme.window
    onSessionChanged: editing = false

    IconButton {
        id: panel

        x: 4
        anchors.verticalCenter: parent.verticalCenter
        visible: !root.sidebarShown
        iconName: "panel"
        text: qsTr("Show the list of chats")
        key: "F9"
        onClicked: root.sidebarRequested()
    }
    Item {
        id: titleArea

        anchors.left: panel.visible ? panel.right : parent.left
        anchors.leftMargin: panel.visible ? 4 : 16
        anchors.right: chip.left
        anchors.rightMargin: 8
        height: parent.height - 1

        PlainText {
            id: title

            anchors.verticalCenter: parent.verticalCenter
            width: Math.min(implicitWidth, parent.width)
            visible: !root.editing
            text: root.session && root.session.title.length > 0 ? root.session.title : qsTr("New chat")
            font: Theme.bold
            elide: Text.ElideRight
            Accessible.role: Accessible.Heading
            Accessible.name: text

            TapHandler {
                onTapped: root.edit()
            }
            HoverHandler {
                cursorShape: root.stored ? Qt.IBeamCursor : Qt.ArrowCursor
            }
        }
        Repeater {
            model: root.editing ? 1 : 0

            FieldBox {
                anchors.verticalCenter: parent.verticalCenter
                x: -8
                width: Math.min(titleArea.width + 8, 32 * Theme.em)
                placeholderText: qsTr("Title")
                font: Theme.bold
                Component.onCompleted: {
                    text = root.session.title;
                    selectAll();
                    forceActiveFocus();
                }
                Keys.onEscapePressed: root.editing = false
                onAccepted: {
                    if (text.trim().length > 0)
                        ChatController.renameOpenChat(text.trim());
                    root.editing = false;
                }
                onActiveFocusChanged: {
                    if (!activeFocus)
                        root.editing = false;
                }
            }
        }
    }
    ModelChip {
        id: chip

        anchors.right: more.left
        anchors.rightMargin: 8
        anchors.verticalCenter: parent.verticalCenter
        library: ChatController.library
        compact: root.narrow
        nameMaximum: Math.max(3 * Theme.em, Math.min(18 * Theme.em, root.width * 0.6 - 13 * Theme.em))
        open: root.chooserOpen
        onClicked: root.chooserRequested()
    }
    IconButton {
        id: more

        anchors.right: parent.right
        anchors.rightMargin: root.narrow ? 4 : 8
        anchors.verticalCenter: parent.verticalCenter
        iconName: "more"
        quiet: menu.visible
        text: qsTr("More")
        onClicked: menu.popup(more, more.width - menu.implicitWidth, more.height)
    }
    Rectangle {
        y: parent.height - 1
        width: parent.width
        height: 1
        color: Theme.line
    }
    MenuPopup {
        id: menu

        MenuEntry {
            enabled: root.stored
            text: qsTr("Rename chat")
            key: "F2"
            onTriggered: root.edit()
        }
        MenuEntry {
            enabled: root.stored
            text: qsTr("Delete chat")
            onTriggered: root.deleteRequested()
        }
        MenuEntry {
            enabled: root.session && !root.session.empty
            text: qsTr("Copy last answer")
            key: qsTr("Ctrl+Shift+C")
            onTriggered: root.copyAnswerRequested()
        }
        MenuEntry {
            text: qsTr("Keyboard shortcuts")
            key: "F1"
            onTriggered: root.shortcutsRequested()
        }
    }
}
