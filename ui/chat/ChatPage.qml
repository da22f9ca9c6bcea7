// The open chat: its messages or what to do first, cards for what went wrong, and the composer.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.App
import Puna.Ui

FocusScope {
    id: root

    readonly property ChatSession session: ChatController.session
    readonly property ModelLibrary library: ChatController.library
    property double editedId: 0 // the message that the composer edits; 0: none
    property bool narrow: false
    readonly property real footHeight: foot.height + (notices.height > 0 ? notices.height + 8 : 0)

    signal addFolderRequested
    signal addFileRequested
    signal linkActivated(string link)
    signal codeSaveRequested(string text, string language)

    function focusComposer(): void {
        composer.focusText();
    }

    function focusMessages(): void {
        list.focusList();
    }

    function toMessage(step: int): void {
        list.toMessage(step);
    }

    function refuse(path: string, sentence: string): void {
        refusals.insert(0, {
            path: path,
            sentence: sentence
        });
        if (refusals.count > 3)
            refusals.remove(3, refusals.count - 3);
    }

    function clearRefusals(): void {
        refusals.clear();
    }

    function edit(messageId: double): void {
        if (messageId === 0 || session.busy)
            return;
        editedId = messageId;
        composer.text = session.messageText(messageId);
        composer.cursorPosition = composer.text.length;
        composer.focusText();
    }

    function endEdit(): void {
        editedId = 0;
        composer.text = session.draft;
        composer.focusText();
    }

    function again(): void {
        const id = session.lastMessageId("assistant");
        if (id !== 0 && !session.busy) {
            session.regenerate(id);
            list.toEnd();
        }
    }

    function copyLastCode(): void {
        const code = session.blocks.lastCode();
        if (code.length > 0)
            Desktop.copyText(code);
    }

    function send(text: string): void {
        if (editedId !== 0) {
            const id = editedId;
            editedId = 0;
            session.editAndResend(id, text);
            composer.text = session.draft;
        } else if (!session.send(text)) {
            return;
        }
        list.toEnd();
    }

    onSessionChanged: {
        editedId = 0;
        composer.text = session ? session.draft : "";
    }

    ListModel {
        id: refusals
    }
    Rectangle {
        width: parent.width
        anchors.top: parent.top
        anchors.bottom: foot.top
        color: Theme.base

        BlockList {
            id: list

            anchors.fill: parent
            anchors.bottomMargin: notices.height > 0 ? notices.height + 16 : 0
            visible: root.session !== null && !root.session.empty
            model: root.session ? root.session.blocks : null
            busy: root.session !== null && root.session.busy
            live: {
                if (!root.session)
                    return "";
                switch (root.session.state) {
                case ChatSession.Waiting:
                    return qsTr("Waiting");
                case ChatSession.LoadingModel:
                    return qsTr("Waiting for the model");
                case ChatSession.ReadingPrompt:
                    return qsTr("Reading the prompt, %1 %").arg(Math.floor(100 * root.session.progress));
                case ChatSession.Writing:
                    return qsTr("Writing");
                default:
                    return "";
                }
            }
            onCopyRequested: messageId => root.session.copyText(messageId)
            onAgainRequested: messageId => {
                root.session.regenerate(messageId);
                toEnd();
            }
            onEditRequested: messageId => root.edit(messageId)
            onVersionRequested: (messageId, delta) => root.session.selectVersion(messageId, delta)
            onCodeCopyRequested: text => Desktop.copyText(text)
            onCodeSaveRequested: (text, language) => root.codeSaveRequested(text, language)
            onLinkActivated: link => root.linkActivated(link)
        }
        EmptyState {
            anchors.fill: parent
            anchors.bottomMargin: list.anchors.bottomMargin
            clip: true
            visible: root.session !== null && root.session.empty && !root.session.loading
            hasModels: root.library.count > 0
            importing: root.library.importing
            onAddFolderRequested: root.addFolderRequested()
            onAddFileRequested: root.addFileRequested()
        }
        Column {
            id: notices

            x: list.columnX
            anchors.bottom: parent.bottom
            anchors.bottomMargin: 8
            width: list.column
            spacing: 8

            Repeater {
                model: refusals

                Card {
                    required property int index
                    required property string path
                    required property string sentence

                    width: notices.width
                    text: sentence
                    detail: sentence.includes(path) ? "" : path
                    closable: true
                    onClosed: refusals.remove(index)
                }
            }
            Card {
                width: parent.width
                visible: text.length > 0
                text: ChatController.startupProblem
            }
            Card {
                width: parent.width
                visible: text.length > 0
                text: ChatController.storageProblem
            }
            Card {
                width: parent.width
                visible: root.library.state === ModelLibrary.Failed
                text: root.library.problem

                PushButton {
                    text: qsTr("Load again")
                    onClicked: root.library.loadChosen()
                }
            }
            Card {
                width: parent.width
                visible: text.length > 0
                text: root.session ? root.session.error : ""
                closable: true
                onClosed: root.session.dismissError()
            }
            Card {
                width: parent.width
                visible: text.length > 0
                caution: true
                text: root.session ? root.session.note : ""
                closable: true
                onClosed: root.session.dismissNote()
            }
        }
    }
    Rectangle {
        id: foot

        anchors.bottom: parent.bottom
        width: parent.width
        height: 10 + composer.height + 2 + line.height + 6
        color: Theme.window

        Rectangle {
            width: parent.width
            height: 1
            color: Theme.line
        }
        Composer {
            id: composer

            x: list.columnX
            y: 10
            width: list.column
            focus: true
            maximumHeight: Math.round(root.height * 0.4)
            busy: root.session !== null && root.session.busy
            canSend: root.session !== null && root.session.canSend
            queued: root.session ? root.session.queued : ""
            editing: root.editedId !== 0
            onTextChanged: {
                if (root.session && root.editedId === 0)
                    root.session.draft = text;
            }
            onSendRequested: text => root.send(text)
            onStopRequested: root.session.stop()
            onEditLastRequested: root.edit(root.session.lastMessageId("user"))
            onEditCancelled: root.endEdit()
            onQueuedEditRequested: root.session.editQueued()
            onQueuedRemoveRequested: root.session.removeQueued()
        }
        Item {
            id: line

            x: list.columnX
            anchors.top: composer.bottom
            anchors.topMargin: 2
            width: list.column
            height: Theme.control

            ContextMeter {
                anchors.verticalCenter: parent.verticalCenter
                visible: root.session !== null && total > 0
                compact: root.narrow
                used: root.session ? root.session.contextUsed : 0
                total: root.session ? root.session.contextTotal : 0
            }
            PlainText {
                anchors.verticalCenter: parent.verticalCenter
                width: parent.width
                visible: root.session === null || root.session.contextTotal === 0
                text: root.library.count === 0 ? qsTr("A message can be sent as soon as a model has been added; what you write is kept.") : root.library.state === ModelLibrary.Loading ? qsTr("A message sent now is answered when the model is ready.") : ""
                font: Theme.small
                color: Theme.textMuted
                elide: Text.ElideRight
            }
        }
    }
    Connections {
        target: root.session

        function onDraftChanged(): void {
            if (root.editedId === 0 && composer.text !== root.session.draft)
                composer.text = root.session.draft;
        }
    }
}
