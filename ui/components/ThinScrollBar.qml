import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.ScrollBar {
    id: root

    implicitWidth: 8
    implicitHeight: 8
    padding: 2
    minimumSize: 0.08
    visible: policy === T.ScrollBar.AlwaysOn || (policy === T.ScrollBar.AsNeeded && size < 1.0)
    Accessible.ignored: true

    contentItem: Rectangle {
        implicitWidth: 4
        implicitHeight: 4
        radius: 2
        color: root.pressed ? Theme.text : Theme.edge
        opacity: root.pressed || root.hovered ? 1.0 : 0.75
    }
}
