// A block of code: its language and what can be done with it above, the code below. What is copied or saved is
// exactly what the model wrote.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

Rectangle {
    id: root

    required property string text
    property string language
    property bool streaming: false
    property bool wrapped: false
    readonly property bool narrow: width < 560

    signal copyRequested
    signal saveRequested

    implicitHeight: bar.height + code.height + 2
    radius: 4
    color: Theme.plate
    border.color: Theme.line

    Item {
        id: bar

        x: 1
        y: 1
        width: parent.width - 2
        height: Theme.control

        PlainText {
            x: 12
            anchors.verticalCenter: parent.verticalCenter
            width: parent.width - actions.width - 24
            text: root.language.length > 0 ? root.language : qsTr("code")
            font: Theme.small
            color: Theme.textMuted
            elide: Text.ElideRight
        }
        Row {
            id: actions

            anchors.right: parent.right
            height: parent.height

            CodeAction {
                compact: root.narrow
                iconName: "wrap"
                text: qsTr("Wrap")
                checked: root.wrapped
                onClicked: root.wrapped = !root.wrapped
            }
            CodeAction {
                compact: root.narrow
                iconName: "save"
                text: qsTr("Save")
                onClicked: root.saveRequested()
            }
            CodeAction {
                compact: root.narrow
                iconName: "copy"
                text: qsTr("Copy")
                onClicked: root.copyRequested()
            }
        }
        Rectangle {
            anchors.bottom: parent.bottom
            width: parent.width
            height: 1
            color: Theme.line
        }
    }
    Flickable {
        id: code

        x: 1
        y: bar.height
        width: parent.width - 2
        height: edit.implicitHeight + 16 + (contentWidth > width ? 6 : 0)
        clip: true
        interactive: contentWidth > width
        flickableDirection: Flickable.HorizontalFlick
        boundsBehavior: Flickable.StopAtBounds
        contentWidth: root.wrapped ? width : Math.max(width, edit.implicitWidth + 24)

        TextEdit {
            id: edit

            x: 12
            y: 8
            width: code.contentWidth - 24
            readOnly: true
            selectByMouse: true
            textFormat: TextEdit.PlainText
            wrapMode: root.wrapped ? TextEdit.WrapAnywhere : TextEdit.NoWrap
            font: Theme.code
            color: Theme.text
            selectionColor: Theme.selected
            selectedTextColor: Theme.text
            activeFocusOnTab: false
            Accessible.role: Accessible.StaticText
            Accessible.name: root.language.length > 0 ? qsTr("Code in %1").arg(root.language) : qsTr("Code")
            Accessible.description: root.text
        }
        BlockText {
            document: edit.textDocument
            text: root.text
            lineHeight: Theme.codeLine
        }
        CodeSyntax {
            document: edit.textDocument
            language: root.language
            keyword: Theme.synKeyword
            name: Theme.synName
            string: Theme.synString
            number: Theme.synNumber
            comment: Theme.synComment
        }
        T.ScrollBar.horizontal: ThinScrollBar {}
    }
}
