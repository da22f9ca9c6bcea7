// A model in the chooser: its name, what it is, and what is wrong with it where it cannot be used.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.ItemDelegate {
    id: root

    required property int index
    required property string name
    required property string format
    required property double bpw
    required property string sizeText
    required property string problem
    required property bool current
    property bool loaded: false
    property bool keyboardFocus: false
    readonly property bool usable: problem.length === 0

    signal forgetRequested

    implicitHeight: facts.implicitHeight + 12
    focusPolicy: Qt.NoFocus
    Accessible.role: Accessible.ListItem
    Accessible.name: name
    Accessible.description: details.text
    Accessible.selected: current
    Accessible.onPressAction: clicked()

    contentItem: Item {
        Icon {
            x: 8
            y: Math.round((title.height - height) / 2) + facts.y
            width: Math.round(1.2 * Theme.em)
            height: width
            visible: root.current
            name: "check"
            color: Theme.text
        }
        Column {
            id: facts

            x: 16 + Math.round(1.2 * Theme.em)
            y: 6
            width: parent.width - x - forget.width - 4

            PlainText {
                id: title

                width: parent.width
                text: root.name
                font: Theme.bold
                color: root.usable ? Theme.text : Theme.textMuted
                elide: Text.ElideRight
            }
            PlainText {
                id: details

                width: parent.width
                text: {
                    if (!root.usable)
                        return root.problem;
                    const parts = [root.format];
                    if (root.bpw > 0)
                        parts.push(qsTr("%1 bits per weight").arg(root.bpw.toFixed(1)));
                    parts.push(root.sizeText);
                    if (root.loaded)
                        parts.push(qsTr("loaded"));
                    return parts.join(", ");
                }
                font: Theme.small
                color: root.usable ? root.current ? Theme.text : Theme.textMuted : Theme.error
                wrapMode: Text.Wrap
            }
        }
        IconButton {
            id: forget

            anchors.right: parent.right
            anchors.verticalCenter: parent.verticalCenter
            focusPolicy: Qt.NoFocus
            opacity: root.hovered || root.keyboardFocus ? 1 : 0
            iconName: "cross"
            text: qsTr("Take off this list; its files stay")
            key: qsTr("Del")
            onClicked: root.forgetRequested()
        }
    }

    background: Rectangle {
        radius: 4
        color: root.current ? Theme.selected : root.hovered ? Theme.hover : "transparent"

        FocusRing {
            anchors.margins: 0
            radius: 4
            visible: root.keyboardFocus
        }
    }
}
