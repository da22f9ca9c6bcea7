// The models that have been added, to choose from; adding more; and where the chosen one runs, and why there.
pragma ComponentBehavior: Bound
import QtQuick
import QtQuick.Templates as T
import Puna.App
import Puna.Ui

T.Popup {
    id: root

    required property ModelLibrary library

    signal addFolderRequested
    signal addFileRequested

    width: Math.min(32 * Theme.em, parent ? parent.width - 16 : 400)
    implicitHeight: contentItem.implicitHeight + 2 * padding
    padding: 4
    margins: 8
    focus: true
    modal: false
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutside
    onAboutToShow: {
        library.refresh();
        list.currentIndex = Math.max(0, library.models.currentRow());
        list.forceActiveFocus(Qt.PopupFocusReason);
    }

    contentItem: Column {
        PlainText {
            visible: list.count === 0
            padding: 12
            text: qsTr("No model has been added yet.")
            color: Theme.textMuted
        }
        ListView {
            id: list

            width: parent.width
            height: Math.min(contentHeight, 9 * 3.9 * Theme.em)
            clip: true
            boundsBehavior: Flickable.StopAtBounds
            activeFocusOnTab: true
            model: root.library.models
            Accessible.role: Accessible.List
            Accessible.name: qsTr("Models")

            function choose(row: int): void {
                const id = root.library.models.idAt(row);
                if (id !== 0) {
                    root.library.load(id);
                    root.close();
                }
            }

            Keys.onReturnPressed: choose(currentIndex)
            Keys.onEnterPressed: choose(currentIndex)
            Keys.onDeletePressed: root.library.forget(root.library.models.idAt(currentIndex))

            delegate: ModelDelegate {
                width: ListView.view.width
                keyboardFocus: ListView.isCurrentItem && ListView.view.activeFocus
                loaded: current && root.library.state !== ModelLibrary.NotLoaded && root.library.state !== ModelLibrary.Failed
                onClicked: list.choose(index)
                onForgetRequested: root.library.forget(root.library.models.idAt(index))
            }

            T.ScrollBar.vertical: ThinScrollBar {}
        }
        Rectangle {
            width: parent.width
            height: 1
            color: Theme.line
        }
        Item {
            width: parent.width
            height: Theme.control + 16

            Row {
                x: 8
                anchors.verticalCenter: parent.verticalCenter
                spacing: 8

                PushButton {
                    iconName: "folder"
                    text: qsTr("Add folder…")
                    onClicked: {
                        root.close();
                        root.addFolderRequested();
                    }
                }
                PushButton {
                    iconName: "file"
                    text: qsTr("Add file…")
                    onClicked: {
                        root.close();
                        root.addFileRequested();
                    }
                }
            }
            PushButton {
                anchors.right: parent.right
                anchors.rightMargin: 8
                anchors.verticalCenter: parent.verticalCenter
                visible: root.library.state === ModelLibrary.Ready || root.library.state === ModelLibrary.Busy
                flat: true
                text: qsTr("Unload")
                onClicked: {
                    root.library.unload();
                    root.close();
                }
            }
        }
        Column {
            x: 12
            width: parent.width - 24
            visible: root.library.deviceText.length > 0
            spacing: 2
            bottomPadding: 8

            PlainText {
                width: parent.width
                text: qsTr("Runs on: %1").arg(root.library.deviceText)
                font: Theme.smallBold
                wrapMode: Text.Wrap
            }
            PlainText {
                width: parent.width
                text: root.library.deviceDetail
                font: Theme.small
                color: Theme.textMuted
                wrapMode: Text.Wrap
            }
        }
    }

    background: Rectangle {
        color: Theme.window
        border.color: Theme.edge
        radius: 6
    }
}
