// The conversation: blocks in a virtualised list, with the turn ruler for a scroll bar.
//
// While an answer streams in the view follows it only as long as its end was in view; whoever scrolls up stays where
// they are, and a button leads back. Up and Down go from block to block, Ctrl+J from message to message.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

FocusScope {
    id: root

    property alias model: view.model
    property alias count: view.count
    property alias contentY: view.contentY
    // Where the view stands when the end is in view.
    readonly property real endY: Math.max(view.originY, view.originY + view.contentHeight + view.bottomMargin - view.height)
    readonly property bool atEnd: view.contentY >= endY - 2
    property bool following: true
    property bool busy: false
    property string live // what is going on: "Writing", "Reading the prompt, 40 %"
    property string liveDetail
    readonly property bool narrow: width < 560
    readonly property real column: Math.min(Theme.column, view.width - (narrow ? 24 : 56))
    readonly property real columnX: narrow ? 12 : Math.round((view.width - column) / 2)

    signal copyRequested(double messageId)
    signal againRequested(double messageId)
    signal editRequested(double messageId, bool own)
    signal versionRequested(double messageId, int delta)
    signal codeCopyRequested(string text)
    signal codeSaveRequested(string text, string language)
    signal linkActivated(string link)

    function toEnd(): void {
        following = true;
        follow();
    }

    function toStart(): void {
        following = false;
        view.positionViewAtBeginning();
    }

    function scrollBy(pixels: real): void {
        view.contentY = Math.max(view.originY, Math.min(endY, view.contentY + pixels));
        following = atEnd;
    }

    function toMessage(step: int): void {
        let row = view.currentIndex < 0 ? view.indexAt(view.width / 2, view.contentY + 4) : view.currentIndex;
        row = Math.max(0, row) + step;
        while (row >= 0 && row < view.count) {
            view.currentIndex = row;
            if (view.currentItem && (view.currentItem as BlockDelegate).kind === "messageHead")
                break;
            row += step;
        }
        view.forceActiveFocus(Qt.ShortcutFocusReason);
        following = atEnd;
    }

    function focusList(): void {
        if (view.currentIndex < 0)
            view.currentIndex = view.count - 1;
        view.forceActiveFocus(Qt.ShortcutFocusReason);
    }

    function follow(): void {
        if (!following)
            return;
        view.positionViewAtEnd();
        view.contentY = endY;
    }

    Timer {
        id: followTimer

        interval: 0
        onTriggered: root.follow()
    }
    ListView {
        id: view

        function current(): BlockDelegate {
            return currentItem as BlockDelegate;
        }

        anchors.left: parent.left
        anchors.right: ruler.left
        height: parent.height
        focus: true
        activeFocusOnTab: count > 0
        clip: true
        currentIndex: -1
        highlightFollowsCurrentItem: true
        highlightMoveDuration: 0
        highlightResizeDuration: 0
        boundsBehavior: Flickable.StopAtBounds
        reuseItems: true
        cacheBuffer: 1200
        bottomMargin: (root.live.length > 0 ? liveLine.height + 4 : 0) + 12
        // The kind of the rows beside a row decides the space between them.
        section.property: "kind"
        Accessible.role: Accessible.List
        Accessible.name: qsTr("Conversation")

        onContentHeightChanged: followTimer.restart()
        onHeightChanged: followTimer.restart()
        onBottomMarginChanged: followTimer.restart()
        onContentYChanged: {
            if (moving)
                root.following = root.atEnd;
        }
        onMovementEnded: root.following = root.atEnd
        onModelChanged: {
            currentIndex = -1;
            root.following = true;
            followTimer.restart();
        }
        Keys.onPressed: event => {
            const block = view.current();
            const page = view.height - 2 * Theme.bodyLine;
            event.accepted = true;
            if (event.key === Qt.Key_Left && event.modifiers & Qt.AltModifier && block)
                root.versionRequested(block.messageId, -1);
            else if (event.key === Qt.Key_Right && event.modifiers & Qt.AltModifier && block)
                root.versionRequested(block.messageId, 1);
            else if (event.matches(StandardKey.Copy) && block)
                block.kind === "code" ? root.codeCopyRequested(block.text) : root.copyRequested(block.messageId);
            else if (event.key === Qt.Key_PageUp && event.modifiers === Qt.NoModifier)
                root.scrollBy(-page);
            else if (event.key === Qt.Key_PageDown && event.modifiers === Qt.NoModifier)
                root.scrollBy(page);
            else if (event.key === Qt.Key_Home)
                root.toStart();
            else if (event.key === Qt.Key_End)
                root.toEnd();
            else if ((event.key === Qt.Key_Menu || (event.key === Qt.Key_F10 && event.modifiers & Qt.ShiftModifier)) && block)
                menu.openFor(block, block.columnX, block.y - view.contentY + block.above);
            else
                event.accepted = false;
        }

        delegate: BlockDelegate {
            id: block

            width: ListView.view.width
            column: root.column
            columnX: root.columnX
            busy: root.busy
            current: ListView.isCurrentItem && ListView.view.activeFocus
            onCopyRequested: root.copyRequested(messageId)
            onAgainRequested: root.againRequested(messageId)
            onEditRequested: root.editRequested(messageId, own)
            onVersionRequested: delta => root.versionRequested(messageId, delta)
            onCodeCopyRequested: root.codeCopyRequested(text)
            onCodeSaveRequested: root.codeSaveRequested(text, language)
            onLinkActivated: link => root.linkActivated(link)
            onMenuRequested: (x, y) => menu.openFor(block, x, y + block.y - view.contentY)
        }

        // Under the last block, as long as an answer is under way.
        StatusLine {
            id: liveLine

            parent: view.contentItem
            x: root.columnX
            y: view.originY + view.contentHeight + 4
            visible: root.live.length > 0
            lead: root.live
            text: root.liveDetail
        }
    }
    TurnRuler {
        id: ruler

        function go(y: real): void {
            const row = rowAt(y);
            if (row < 0)
                return;
            view.positionViewAtIndex(row, ListView.Center);
            root.following = root.atEnd;
        }

        anchors.right: parent.right
        width: 16
        height: parent.height
        model: view.model
        markColor: Theme.edge
        viewColor: Theme.edge
        firstVisible: {
            const item = view.itemAt(1, view.contentY) as BlockDelegate;
            return item ? item.index + (view.contentY - item.y) / Math.max(1, item.height) : 0;
        }
        lastVisible: {
            const item = view.itemAt(1, view.contentY + view.height - 1) as BlockDelegate;
            return item ? item.index + (view.contentY + view.height - item.y) / Math.max(1, item.height) : view.count;
        }
        z: 1

        Rectangle {
            anchors.fill: parent
            z: -1
            color: Theme.window

            Rectangle {
                width: 1
                height: parent.height
                color: Theme.line
            }
        }
        MouseArea {
            anchors.fill: parent
            onPressed: mouse => ruler.go(mouse.y)
            onPositionChanged: mouse => ruler.go(mouse.y)
        }
    }
    PushButton {
        anchors.horizontalCenter: view.horizontalCenter
        y: root.height - height - 12
        visible: !root.following && view.contentHeight > view.height
        iconName: "down"
        text: root.busy ? qsTr("New text") : qsTr("To the end")
        onClicked: root.toEnd()
    }
    MenuPopup {
        id: menu

        property BlockDelegate block: null

        function openFor(item: BlockDelegate, x: real, y: real): void {
            block = item;
            popup(root, x, y);
        }

        MenuEntry {
            visible: menu.block && menu.block.kind === "code"
            text: qsTr("Copy code")
            onTriggered: root.codeCopyRequested(menu.block.text)
        }
        MenuEntry {
            text: qsTr("Copy message")
            key: qsTr("Ctrl+C")
            onTriggered: root.copyRequested(menu.block.messageId)
        }
        MenuEntry {
            visible: menu.block && !menu.block.own
            enabled: !root.busy
            text: qsTr("Answer again")
            key: qsTr("Ctrl+R")
            onTriggered: root.againRequested(menu.block.messageId)
        }
        MenuEntry {
            visible: menu.block && menu.block.own
            enabled: !root.busy
            text: qsTr("Edit")
            onTriggered: root.editRequested(menu.block.messageId, true)
        }
    }
}
