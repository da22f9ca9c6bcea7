// Memory as one strip: ours from the left, other programs hatched from the right, free between.
import QtQuick
import Puna.Ui

Rectangle {
    id: root

    required property real total // GiB
    required property real ours
    required property real others

    implicitHeight: 10
    radius: 2
    color: Theme.base
    border.color: Theme.edge
    Accessible.role: Accessible.Indicator
    Accessible.name: qsTr("Memory")
    Accessible.description: qsTr("%1 GiB used by Puna, %2 GiB by other programs, of %3 GiB").arg(ours.toFixed(1)).arg(others.toFixed(1)).arg(total.toFixed(1))

    Rectangle {
        x: 1
        y: 1
        height: root.height - 2
        width: root.total > 0 ? Math.max(1, (root.width - 2) * root.ours / root.total) : 0
        color: Theme.weights
    }
    Hatch {
        anchors.right: parent.right
        anchors.margins: 1
        y: 1
        height: root.height - 2
        width: root.total > 0 ? (root.width - 2) * root.others / root.total : 0
        color: Theme.other
        ground: Theme.otherGround
    }
}
