// Selectable text of an answer: plain characters with emphasis laid over them, frames behind inline code.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

Item {
    id: root

    required property string text
    property var spans: []
    property alias font: edit.font
    property alias color: edit.color
    property int lineHeight: Theme.bodyLine
    property bool streaming: false // shows where the next word will come

    signal linkActivated(string link)

    implicitHeight: edit.implicitHeight

    Repeater {
        model: filler.codeRects

        Rectangle {
            required property rect modelData

            x: modelData.x
            y: modelData.y
            width: modelData.width
            height: modelData.height
            radius: 2
            color: Theme.plate
            border.color: Theme.line
        }
    }
    TextEdit {
        id: edit

        width: parent.width
        readOnly: true
        selectByMouse: true
        textFormat: TextEdit.PlainText
        wrapMode: TextEdit.Wrap
        font: Theme.body
        color: Theme.text
        selectionColor: Theme.selected
        selectedTextColor: Theme.text
        activeFocusOnTab: false
        Accessible.role: Accessible.StaticText
        Accessible.name: root.text

        HoverHandler {
            id: hover

            readonly property string link: filler.spans.length > 0 && hovered ? filler.linkAt(edit.positionAt(point.position.x, point.position.y)) : ""

            cursorShape: link.length > 0 ? Qt.PointingHandCursor : Qt.IBeamCursor
        }
        TapHandler {
            enabled: hover.link.length > 0 && !root.streaming
            onTapped: root.linkActivated(hover.link)
        }
    }
    BlockText {
        id: filler

        document: edit.textDocument
        text: root.text
        spans: root.spans
        lineHeight: root.lineHeight
        codeFont: Theme.code
        linkColor: Theme.accentInk
    }
    Rectangle {
        readonly property rect end: root.streaming && edit.width > 0 ? edit.positionToRectangle(edit.length) : Qt.rect(0, 0, 0, 0)

        visible: root.streaming
        x: end.x + 2
        y: end.y + (end.height - height) / 2
        width: Math.round(0.52 * Theme.em)
        height: Math.round(1.05 * Theme.em)
        radius: 1
        color: Theme.accentInk
    }
}
