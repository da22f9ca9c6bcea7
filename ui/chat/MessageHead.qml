// Who wrote a message, when, which of its versions is shown; what can be done with it, on hover and focus.
import QtQuick
import Puna.Ui

Item {
    id: root

    required property string who
    required property string time
    required property int versionIndex
    required property int versionCount
    required property bool own
    property bool busy: false // nothing may be changed now
    property bool showActions: false

    signal copyRequested
    signal againRequested
    signal editRequested
    signal versionRequested(int delta)

    implicitHeight: Theme.control

    PlainText {
        id: name

        anchors.verticalCenter: parent.verticalCenter
        width: Math.min(implicitWidth, parent.width - actions.width - when.implicitWidth - 16)
        text: root.who
        font: Theme.bold
        elide: Text.ElideRight
    }
    PlainText {
        id: when

        anchors.left: name.right
        anchors.leftMargin: 8
        anchors.baseline: name.baseline
        text: root.time
        font: Theme.small
        color: Theme.textMuted
    }
    Row {
        id: actions

        anchors.right: parent.right
        anchors.rightMargin: -8
        height: parent.height

        IconButton {
            visible: root.versionCount > 1
            enabled: !root.busy && root.versionIndex > 1
            width: 24
            iconName: "left"
            text: qsTr("Previous version")
            key: qsTr("Alt+Left")
            onClicked: root.versionRequested(-1)
        }
        PlainText {
            visible: root.versionCount > 1
            width: Math.max(26, implicitWidth)
            height: parent.height
            horizontalAlignment: Text.AlignHCenter
            verticalAlignment: Text.AlignVCenter
            text: qsTr("%1 / %2").arg(root.versionIndex).arg(root.versionCount)
            font: Theme.small
        }
        IconButton {
            visible: root.versionCount > 1
            enabled: !root.busy && root.versionIndex < root.versionCount
            width: 24
            iconName: "right"
            text: qsTr("Next version")
            key: qsTr("Alt+Right")
            onClicked: root.versionRequested(1)
        }
        Item {
            width: 8
            height: 1
        }
        IconButton {
            opacity: root.showActions || visualFocus ? 1 : 0
            iconName: "copy"
            text: qsTr("Copy message")
            key: qsTr("Ctrl+C")
            onClicked: root.copyRequested()
        }
        IconButton {
            visible: !root.own
            enabled: !root.busy
            opacity: root.showActions || visualFocus ? 1 : 0
            iconName: "redo"
            text: qsTr("Answer again, keeping this version")
            key: qsTr("Ctrl+R")
            onClicked: root.againRequested()
        }
        IconButton {
            visible: root.own
            enabled: !root.busy
            opacity: root.showActions || visualFocus ? 1 : 0
            iconName: "edit"
            text: qsTr("Edit, keeping this version")
            onClicked: root.editRequested()
        }
    }
}
