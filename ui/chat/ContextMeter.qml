// How much of the model's context this chat fills: a bar with a tick each quarter and one in amber at 85 %.
import QtQuick
import Puna.Ui

Row {
    id: root

    required property int used // tokens
    required property int total
    property bool compact: false
    readonly property real share: total > 0 ? used / total : 0
    readonly property color ink: share > 1 ? Theme.error : share >= 0.85 ? Theme.caution : Theme.textMuted

    function figure(tokens: int): string {
        if (tokens < 1000)
            return tokens.toString();
        return qsTr("%1k").arg(tokens % 1024 === 0 ? tokens / 1024 : (tokens / 1000).toFixed(1));
    }

    spacing: 8
    Accessible.role: Accessible.Indicator
    Accessible.name: qsTr("Context")
    Accessible.description: label.text

    PlainText {
        anchors.verticalCenter: parent.verticalCenter
        visible: !root.compact
        text: qsTr("Context")
        font: Theme.small
        color: root.ink
    }
    Item {
        anchors.verticalCenter: parent.verticalCenter
        width: root.compact ? 112 : 168
        height: 16

        Rectangle {
            y: 3
            width: parent.width
            height: 6
            radius: 1
            color: Theme.base
            border.color: Theme.edge

            Rectangle {
                x: 1
                y: 1
                width: (parent.width - 2) * Math.min(1, root.share)
                height: 4
                color: Theme.weights
            }
        }
        Repeater {
            model: 5

            Rectangle {
                required property int index

                x: Math.min(parent.width - 1, Math.round(parent.width * index / 4))
                y: 10
                width: 1
                height: 3
                color: Theme.edge
            }
        }
        Rectangle {
            x: parent.width * 0.85
            y: 10
            width: 1.5
            height: 5
            color: Theme.caution
        }
    }
    PlainText {
        id: label

        anchors.verticalCenter: parent.verticalCenter
        text: {
            const figures = qsTr("%1 of %2").arg(root.figure(root.used)).arg(root.figure(root.total));
            if (root.share > 1)
                return qsTr("%1, too long").arg(figures);
            return root.share >= 0.85 ? qsTr("%1, nearly full").arg(figures) : figures;
        }
        font: Theme.small
        color: root.ink
    }
}
