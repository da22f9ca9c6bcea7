// A tooltip: what a control does, and its key.
import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.ToolTip {
    id: root

    property string key

    x: parent ? Math.round((parent.width - implicitWidth) / 2) : 0
    y: parent ? parent.height + 4 : 0
    implicitWidth: contentItem.implicitWidth + leftPadding + rightPadding
    implicitHeight: contentItem.implicitHeight + topPadding + bottomPadding
    margins: 4
    horizontalPadding: 8
    verticalPadding: 3
    delay: 700
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutsideParent

    contentItem: Row {
        spacing: 12

        PlainText {
            width: Math.min(implicitWidth, 28 * Theme.em)
            text: root.text
            wrapMode: Text.Wrap
        }
        PlainText {
            visible: text.length > 0
            text: root.key
            color: Theme.textMuted
        }
    }

    background: Rectangle {
        color: Theme.window
        border.color: Theme.edge
        radius: 4
    }
}
