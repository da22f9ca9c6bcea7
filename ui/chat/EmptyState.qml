// The page before the first message: how to get a model, or, with one, three keys to know.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

Item {
    id: root

    required property bool hasModels
    property bool importing: false
    property string deviceText
    readonly property bool narrow: width < 560
    readonly property real column: Math.min(Theme.column, width - 16 - (narrow ? 24 : 56))

    signal addFolderRequested
    signal addFileRequested

    Column {
        x: root.narrow ? 12 : Math.round((root.width - 16 - root.column) / 2)
        y: root.height > 30 * Theme.em ? 80 : 24
        width: root.column

        PlainText {
            visible: !root.hasModels
            width: parent.width
            text: root.importing ? qsTr("Reading the model …") : qsTr("No model yet")
            font: Theme.heading1
        }
        PlainText {
            visible: !root.hasModels
            width: parent.width
            topPadding: 4
            bottomPadding: 12
            text: qsTr("Drop a model folder or a GGUF file here; nothing is copied. Or")
            wrapMode: Text.Wrap
        }
        Flow {
            visible: !root.hasModels
            width: parent.width
            spacing: 8

            PushButton {
                main: true
                text: qsTr("Choose folder…")
                onClicked: root.addFolderRequested()
            }
            PushButton {
                text: qsTr("Choose file…")
                onClicked: root.addFileRequested()
            }
        }
        Item {
            visible: !root.hasModels
            width: 1
            height: 48
        }
        Rectangle {
            visible: !root.hasModels
            width: parent.width
            height: 1
            color: Theme.line
        }
        Item {
            visible: !root.hasModels
            width: parent.width
            height: title.implicitHeight + 12

            PlainText {
                id: title

                y: 12
                text: qsTr("This computer's memory")
                font: Theme.bold
            }
            PlainText {
                anchors.right: parent.right
                y: 12
                text: qsTr("%1 of %2 GiB free").arg((Desktop.memoryTotal - Desktop.memoryOurs - Desktop.memoryOthers).toFixed(1)).arg(Desktop.memoryTotal.toFixed(1))
            }
        }
        Item {
            visible: !root.hasModels
            width: parent.width
            height: 10 + rule.implicitHeight

            MemoryRule {
                id: rule

                y: 10
                width: parent.width
                total: Desktop.memoryTotal
                others: Desktop.memoryOthers
            }
        }
        PlainText {
            visible: !root.hasModels
            width: parent.width
            topPadding: 4
            text: qsTr("In GiB. Hatched: in use by other programs.")
            font: Theme.small
            color: Theme.textMuted
            wrapMode: Text.Wrap
        }
        Item {
            visible: !root.hasModels
            width: 1
            height: 40
        }
        Rectangle {
            visible: !root.hasModels
            width: parent.width
            height: 1
            color: Theme.line
        }
        Item {
            width: 1
            height: 10
        }
        Repeater {
            model: root.hasModels ? [["Ctrl+N", qsTr("new chat")], ["Ctrl+L", qsTr("choose the model")], ["F1", qsTr("all shortcuts")]] : [["Ctrl+O", qsTr("add a model folder")], ["F9", qsTr("show or hide the chats")], ["F1", qsTr("all shortcuts")]]

            Row {
                id: hint

                required property var modelData

                bottomPadding: 4

                PlainText {
                    width: 8.4 * Theme.em
                    text: hint.modelData[0]
                    color: Theme.textMuted
                }
                PlainText {
                    text: hint.modelData[1]
                    color: Theme.textMuted
                }
            }
        }
    }
}
