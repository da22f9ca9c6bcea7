// The shape that goes with a model's state: ring, dot, square or triangle = not loaded, ready, busy, failed.
import QtQuick
import Puna.Ui

Item {
    id: root

    enum Kind {
        Ring,
        Dot,
        Square,
        Triangle
    }

    property int kind: StateMark.Ring

    implicitWidth: kind === StateMark.Triangle ? 10 : 8
    implicitHeight: kind === StateMark.Triangle ? 9 : 8

    Rectangle {
        anchors.fill: parent
        visible: root.kind !== StateMark.Triangle
        radius: root.kind === StateMark.Square ? 1 : 4
        color: root.kind === StateMark.Dot ? Theme.good : root.kind === StateMark.Square ? Theme.accentInk : "transparent"
        border.width: root.kind === StateMark.Ring ? 1.5 : 0
        border.color: Theme.edge
    }
    Icon {
        anchors.fill: parent
        visible: root.kind === StateMark.Triangle
        name: "failed"
        color: Theme.error
    }
}
