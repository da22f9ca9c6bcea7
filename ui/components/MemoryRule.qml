// The computer's memory as a slide rule: a bar with what other programs use hatched at its end, graduated in GiB.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

Item {
    id: root

    required property real total // GiB
    required property real others
    readonly property int step: total <= 10 ? 1 : total <= 40 ? 4 : total <= 80 ? 8 : total <= 320 ? 32 : 128

    implicitHeight: 40 + 8 + Math.round(1.2 * Theme.em) + 2

    Rectangle {
        id: bar

        width: parent.width
        height: 40
        radius: 2
        color: Theme.base
        border.color: Theme.edge

        Hatch {
            anchors.right: parent.right
            anchors.margins: 1
            y: 1
            width: root.total > 0 ? (bar.width - 2) * root.others / root.total : 0
            height: bar.height - 2
            color: Theme.other
            ground: Theme.otherGround

            Rectangle {
                width: 1
                height: parent.height
                color: Theme.edge
            }
        }
    }
    Repeater {
        model: root.total > 0 ? Math.floor(root.total * 4 / root.step) + 1 : 0

        Item {
            id: tick

            required property int index
            readonly property real gib: index * root.step / 4
            readonly property bool large: index % 4 === 0

            x: Math.min(root.width - 1, Math.round(root.width * gib / root.total))
            y: bar.height

            Rectangle {
                width: 1
                height: tick.large ? 8 : 4
                color: tick.large ? Theme.text : Theme.edge
            }
            PlainText {
                x: tick.index === 0 ? 0 : tick.x + width / 2 > root.width ? -width : -width / 2
                y: 9
                visible: tick.large
                text: tick.gib.toFixed(0)
                font: Theme.small
                color: Theme.textMuted
            }
        }
    }
}
