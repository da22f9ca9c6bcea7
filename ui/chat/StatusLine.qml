// The quiet line under an answer: speed, tokens, time to the first token. Parts are set apart by hairlines.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

Row {
    id: root

    required property string text // parts between middle dots
    property string lead // in the text's own colour, first
    readonly property list<string> parts: text.length > 0 ? text.split(" · ") : []

    spacing: 9
    height: Math.round(1.8 * Theme.em)
    Accessible.role: Accessible.StaticText
    Accessible.name: lead.length > 0 ? lead + ", " + text : text

    PlainText {
        anchors.verticalCenter: parent.verticalCenter
        visible: text.length > 0
        text: root.lead
        font: Theme.small
    }
    Repeater {
        model: root.parts

        Row {
            id: part

            required property int index
            required property string modelData

            height: root.height
            spacing: 9

            Rectangle {
                anchors.verticalCenter: parent.verticalCenter
                visible: part.index > 0 || root.lead.length > 0
                width: 1
                height: 10
                color: Theme.edge
            }
            PlainText {
                anchors.verticalCenter: parent.verticalCenter
                text: part.modelData
                font: Theme.small
                color: Theme.textMuted
            }
        }
    }
}
