// A card in the page: what happened, in one sentence; buttons under it, best first; a cross where it can be put away.
import QtQuick
import Puna.Ui

Rectangle {
    id: root

    property string text
    property string detail
    property bool caution: false // else an error
    property bool closable: false
    default property alias buttons: row.data

    signal closed

    implicitHeight: column.implicitHeight + 8 + (row.visible ? 10 : 8)
    radius: 4
    color: caution ? Theme.cautionTint : Theme.errorTint
    border.color: Theme.line
    Accessible.role: Accessible.AlertMessage
    Accessible.name: text

    Icon {
        id: mark

        x: 12
        y: 9
        width: Math.round(1.2 * Theme.em)
        height: width
        name: "warn"
        color: root.caution ? Theme.caution : Theme.error
    }
    Column {
        id: column

        x: mark.x + mark.width + 8
        y: 8
        width: root.width - x - (root.closable ? close.width + 8 : 12)
        spacing: 8

        PlainText {
            width: parent.width
            visible: text.length > 0
            text: root.text
            wrapMode: Text.Wrap
        }
        PlainText {
            width: parent.width
            visible: text.length > 0
            text: root.detail
            color: Theme.textMuted
            wrapMode: Text.WrapAnywhere
        }
        Flow {
            id: row

            width: parent.width
            spacing: 8
            visible: children.length > 0
        }
    }
    IconButton {
        id: close

        anchors.right: parent.right
        anchors.rightMargin: 2
        y: 2
        visible: root.closable
        iconName: "cross"
        text: qsTr("Close")
        onClicked: root.closed()
    }
}
