// A one-line text field; an icon before and a key after the text.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.TextField {
    id: root

    property string iconName
    property string key

    implicitWidth: 12 * Theme.em
    implicitHeight: Theme.control
    leftPadding: iconName.length > 0 ? 16 + icon.width : 8
    rightPadding: 8 + (hint.visible ? hint.width + 8 : 0)
    verticalAlignment: TextInput.AlignVCenter
    font: Theme.body
    color: Theme.text
    placeholderTextColor: Theme.textMuted
    selectionColor: Theme.selected
    selectedTextColor: Theme.text
    selectByMouse: true
    Accessible.role: Accessible.EditableText
    Accessible.name: placeholderText

    PlainText {
        anchors.fill: parent
        anchors.leftMargin: root.leftPadding
        anchors.rightMargin: root.rightPadding
        verticalAlignment: Text.AlignVCenter
        visible: root.length === 0 && root.preeditText.length === 0
        text: root.placeholderText
        color: Theme.textMuted
        elide: Text.ElideRight
        Accessible.ignored: true
    }
    Icon {
        id: icon

        anchors.verticalCenter: parent.verticalCenter
        x: 8
        width: Math.round(1.2 * Theme.em)
        height: width
        visible: root.iconName.length > 0
        name: root.iconName
        color: Theme.textMuted
    }
    PlainText {
        id: hint

        anchors.verticalCenter: parent.verticalCenter
        anchors.right: parent.right
        anchors.rightMargin: 8
        visible: root.key.length > 0 && root.length === 0
        text: root.key
        font: Theme.small
        color: Theme.textMuted
        Accessible.ignored: true
    }

    background: Rectangle {
        color: Theme.base
        border.width: root.activeFocus ? 2 : 1
        border.color: root.activeFocus ? Theme.accentInk : Theme.edge
        radius: 4
    }
}
