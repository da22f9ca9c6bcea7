// What has just happened, with a way back; gone after eight seconds unless hovered or focused. One at a time.
import QtQuick
import Puna.Ui

Rectangle {
    id: root

    property string text
    property string actionText
    property real timeLeft: 0 // of its time, 1 ... 0
    readonly property bool open: timeLeft > 0
    readonly property bool held: hover.hovered || action.activeFocus || close.activeFocus

    signal accepted

    function show(message: string, button: string): void {
        text = message;
        actionText = button;
        timeLeft = 1;
        countdown.restart();
    }

    function hide(): void {
        countdown.stop();
        timeLeft = 0;
    }

    visible: open
    implicitWidth: row.width + 24
    implicitHeight: Theme.control + 16
    radius: 6
    color: Theme.window
    border.color: Theme.edge
    Accessible.role: Accessible.Notification
    Accessible.name: text

    HoverHandler {
        id: hover
    }
    NumberAnimation {
        id: countdown

        target: root
        property: "timeLeft"
        from: 1
        to: 0
        duration: 8000
        paused: running && root.held
    }
    Row {
        id: row

        x: 16
        anchors.verticalCenter: parent.verticalCenter
        spacing: 12

        PlainText {
            anchors.verticalCenter: parent.verticalCenter
            width: Math.min(implicitWidth, 26 * Theme.em)
            text: root.text
            elide: Text.ElideMiddle
        }
        PushButton {
            id: action

            visible: root.actionText.length > 0
            text: root.actionText
            onClicked: {
                root.hide();
                root.accepted();
            }
        }
        IconButton {
            id: close

            iconName: "cross"
            text: qsTr("Close")
            onClicked: root.hide()
        }
    }
    Rectangle {
        x: 1
        y: root.height - height - 1
        width: (root.width - 2) * root.timeLeft
        height: 2
        color: Theme.accentInk
    }
}
