// The window: the list of chats, the open chat, and everything that concerns the whole of it: drops, keys, dialogs.
import QtQuick
import QtQuick.Controls
import QtQuick.Dialogs
import Puna.App
import Puna.Ui

ApplicationWindow {
    id: root

    readonly property ChatSession session: ChatController.session
    readonly property bool narrow: width < 720
    property bool sidebarOver: false // in a narrow window, over the chat
    readonly property bool sidebarShown: narrow ? sidebarOver : AppSettings.sidebarVisible
    readonly property bool popupOpen: chooser.opened || shortcuts.opened || linkSheet.opened
    readonly property bool editingField: (activeFocusItem as FieldBox) !== null

    function toggleSidebar(): void {
        if (narrow)
            sidebarOver = !sidebarOver;
        else
            AppSettings.sidebarVisible = !AppSettings.sidebarVisible;
    }

    function openChat(step: int): void {
        const list = ChatController.conversations;
        const row = list.currentRow() + step;
        if (row >= 0 && row < list.count)
            ChatController.openChat(list.idAt(row));
    }

    function deleteChat(): void {
        const title = session.title;
        ChatController.deleteOpenChat();
        said(title);
    }

    function said(title: string): void {
        toast.show(qsTr("“%1” deleted").arg(title), qsTr("Undo"));
    }

    function addFolder(): void {
        folderDialog.open();
    }

    function addFile(): void {
        fileDialog.open();
    }

    function raiseWindow(): void {
        if (visibility === Window.Minimized)
            showNormal();
        raise();
        requestActivate();
    }

    title: session && session.title.length > 0 ? qsTr("%1 – Puna").arg(session.title) : qsTr("Puna")
    visible: true
    minimumWidth: 480
    minimumHeight: 400
    color: Theme.window
    font: Theme.body
    onNarrowChanged: sidebarOver = false

    Component.onCompleted: {
        width = AppSettings.windowWidth;
        height = AppSettings.windowHeight;
        if (AppSettings.windowX >= 0 && AppSettings.windowX < Screen.desktopAvailableWidth - 100 && AppSettings.windowY >= 0 && AppSettings.windowY < Screen.desktopAvailableHeight - 100) {
            x = AppSettings.windowX;
            y = AppSettings.windowY;
        }
        if (AppSettings.windowMaximized)
            showMaximized();
        page.focusComposer();
    }
    onClosing: {
        AppSettings.windowMaximized = visibility === Window.Maximized;
        if (visibility === Window.Windowed) {
            AppSettings.windowX = x;
            AppSettings.windowY = y;
            AppSettings.windowWidth = width;
            AppSettings.windowHeight = height;
        }
    }

    Binding {
        target: Theme
        property: "textScale"
        value: AppSettings.textPercent / 100
    }
    Binding {
        target: Desktop
        property: "watchMemory"
        value: root.visibility !== Window.Hidden && root.visibility !== Window.Minimized
    }
    Item {
        id: stage

        anchors.fill: parent

        ChatHeader {
            id: header

            anchors.left: side.visible && !root.narrow ? side.right : parent.left
            anchors.right: parent.right
            sidebarShown: root.sidebarShown && !root.narrow
            narrow: root.width < 640
            chooserOpen: chooser.visible
            onSidebarRequested: root.toggleSidebar()
            onChooserRequested: chooser.opened ? chooser.close() : chooser.open()
            onShortcutsRequested: shortcuts.open()
            onDeleteRequested: root.deleteChat()
            onCopyAnswerRequested: root.session.copyText(root.session.lastMessageId("assistant"))
        }
        ChatPage {
            id: page

            anchors.left: header.left
            anchors.right: header.right
            anchors.top: header.bottom
            anchors.bottom: parent.bottom
            focus: true
            narrow: root.width < 640
            onAddFolderRequested: root.addFolder()
            onAddFileRequested: root.addFile()
            onLinkActivated: link => linkSheet.ask(link)
            onCodeSaveRequested: (text, language) => {
                saveDialog.code = text;
                saveDialog.open();
            }

            Toast {
                id: toast

                anchors.horizontalCenter: parent.horizontalCenter
                y: parent.height - height - page.footHeight - 12
                z: 2
                onAccepted: ChatController.undoDelete()
            }
        }
        MouseArea {
            anchors.fill: parent
            visible: root.narrow && root.sidebarOver
            onPressed: root.sidebarOver = false
        }
        Sidebar {
            id: side

            width: root.narrow ? Math.min(Math.max(AppSettings.sidebarWidth, 264), root.width - 64) : AppSettings.sidebarWidth
            height: parent.height
            visible: root.sidebarShown
            onHideRequested: root.toggleSidebar()
            onChatOpened: {
                root.sidebarOver = false;
                page.focusComposer();
            }
            onChatDeleted: title => root.said(title)

            MouseArea {
                anchors.right: parent.right
                anchors.rightMargin: -3
                width: 6
                height: parent.height
                visible: !root.narrow
                cursorShape: Qt.SplitHCursor
                preventStealing: true
                onPositionChanged: mouse => {
                    if (pressed)
                        AppSettings.sidebarWidth = Math.max(200, Math.min(root.width / 2, mapToItem(stage, mouse.x, 0).x));
                }
            }
        }
        DropArea {
            id: drop

            property bool usable: false

            anchors.fill: parent
            onEntered: drag => {
                usable = drag.hasUrls && drag.urls.some(url => Desktop.isLocal(url));
                drag.accepted = drag.hasUrls;
            }
            onDropped: event => {
                page.clearRefusals();
                ChatController.importPaths(event.urls);
                event.accepted = true;
            }
        }
        DropOverlay {
            anchors.fill: parent
            visible: drop.containsDrag
            usable: drop.usable
        }
    }
    ModelChooser {
        id: chooser

        library: ChatController.library
        x: Math.max(8, root.width - width - 48)
        y: header.height - 4
        onAddFolderRequested: root.addFolder()
        onAddFileRequested: root.addFile()
        onClosed: page.focusComposer()
    }
    ShortcutSheet {
        id: shortcuts

        parent: stage
    }
    LinkSheet {
        id: linkSheet

        parent: stage
    }
    FolderDialog {
        id: folderDialog

        title: qsTr("Add a model folder")
        currentFolder: Desktop.homeFolder()
        onAccepted: {
            page.clearRefusals();
            ChatController.importPaths([selectedFolder]);
        }
    }
    FileDialog {
        id: fileDialog

        title: qsTr("Add a model file")
        currentFolder: Desktop.homeFolder()
        fileMode: FileDialog.OpenFiles
        nameFilters: [qsTr("Models (*.gguf *.safetensors config.json)"), qsTr("All files (*)")]
        onAccepted: {
            page.clearRefusals();
            ChatController.importPaths(selectedFiles);
        }
    }
    FileDialog {
        id: saveDialog

        property string code

        title: qsTr("Save the code")
        currentFolder: Desktop.homeFolder()
        fileMode: FileDialog.SaveFile
        onAccepted: {
            if (!Desktop.saveText(selectedFile, code))
                page.refuse("" + selectedFile, qsTr("The file could not be written. Choose another folder."));
        }
    }
    Connections {
        target: ChatController.library

        function onImported(names: list<string>): void {
            toast.show(names.length === 1 ? qsTr("%1 added").arg(names[0]) : qsTr("%n models added", "", names.length), "");
        }
        function onRefused(path: string, sentence: string): void {
            page.refuse(path, sentence);
        }
    }

    Shortcut {
        sequences: ["Ctrl+N"]
        onActivated: {
            ChatController.newChat();
            page.focusComposer();
        }
    }
    Shortcut {
        sequence: "Ctrl+K"
        onActivated: {
            if (!root.sidebarShown)
                root.toggleSidebar();
            side.focusFilter();
        }
    }
    Shortcut {
        sequence: "Ctrl+L"
        onActivated: chooser.opened ? chooser.close() : chooser.open()
    }
    Shortcut {
        sequences: ["Ctrl+O"]
        onActivated: root.addFolder()
    }
    Shortcut {
        sequences: ["Ctrl+PgDown", "Ctrl+Tab"]
        onActivated: root.openChat(1)
    }
    Shortcut {
        sequences: ["Ctrl+PgUp", "Ctrl+Shift+Tab"]
        onActivated: root.openChat(-1)
    }
    Shortcut {
        sequence: "F2"
        enabled: !root.editingField
        onActivated: header.edit()
    }
    Shortcut {
        sequence: "Ctrl+Z"
        enabled: ChatController.canUndoDelete && !root.editingField && !(root.activeFocusItem instanceof TextEdit)
        onActivated: {
            toast.hide();
            ChatController.undoDelete();
        }
    }
    Shortcut {
        sequence: "Esc"
        enabled: root.session !== null && root.session.busy && !root.popupOpen && !root.editingField && page.editedId === 0
        onActivated: root.session.stop()
    }
    Shortcut {
        sequence: "Ctrl+R"
        onActivated: page.again()
    }
    Shortcut {
        sequence: "Ctrl+J"
        onActivated: page.toMessage(1)
    }
    Shortcut {
        sequence: "Ctrl+Shift+J"
        onActivated: page.toMessage(-1)
    }
    Shortcut {
        sequence: "Ctrl+Shift+C"
        onActivated: root.session.copyText(root.session.lastMessageId("assistant"))
    }
    Shortcut {
        sequence: "Ctrl+Shift+K"
        onActivated: page.copyLastCode()
    }
    Shortcut {
        sequences: ["F1", "Ctrl+?"]
        onActivated: shortcuts.open()
    }
    Shortcut {
        sequence: "F6"
        onActivated: {
            if (root.activeFocusItem instanceof TextEdit)
                page.focusMessages();
            else if (side.visible && !side.activeFocus)
                side.focusList();
            else
                page.focusComposer();
        }
    }
    Shortcut {
        sequence: "F9"
        onActivated: root.toggleSidebar()
    }
    Shortcut {
        sequence: "F11"
        onActivated: root.visibility === Window.FullScreen ? root.showNormal() : root.showFullScreen()
    }
    Shortcut {
        sequences: ["Ctrl++", "Ctrl+="]
        onActivated: AppSettings.textPercent += 10
    }
    Shortcut {
        sequences: ["Ctrl+-"]
        onActivated: AppSettings.textPercent -= 10
    }
    Shortcut {
        sequence: "Ctrl+0"
        onActivated: AppSettings.textPercent = 100
    }
    Shortcut {
        sequences: ["Ctrl+Q", "Ctrl+W"]
        onActivated: root.close()
    }
}
