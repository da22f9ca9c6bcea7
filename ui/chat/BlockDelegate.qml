// One row of the conversation: the head of a message, a block of its text, or what is said under it.
pragma ComponentBehavior: Bound
import QtQuick
import Puna.Ui

Item {
    id: root

    required property int index
    required property string kind
    required property string text
    required property var spans
    required property string language
    required property int level
    required property string marker
    required property int columns
    required property var cells
    required property double messageId
    required property string role
    required property string author
    required property string time
    required property int versionIndex
    required property int versionCount
    required property bool streaming
    required property string statusText
    required property string messageState

    property real column: 0 // width of the text
    property real columnX: 0
    property bool busy: false
    property bool current: false // has the keyboard
    readonly property bool own: role === "user"
    readonly property bool plate: own && kind !== "messageHead" && kind !== "error"
    readonly property string before: ListView.previousSection // kind of the row above
    readonly property string after: ListView.nextSection

    readonly property real above: {
        if (kind === "messageHead")
            return index === 0 ? 8 : 12;
        if (plate)
            return before === "messageHead" ? 8 : 4;
        if (before === "messageHead" || kind === "status")
            return kind === "status" ? 4 : 0;
        if (kind === "heading")
            return 16;
        return kind === "listItem" && before === "listItem" ? 3 : 8;
    }
    readonly property real below: {
        if (plate)
            return after === "messageHead" || after === "error" || after === "" ? 8 : 4;
        return 0;
    }

    signal copyRequested
    signal againRequested
    signal editRequested
    signal versionRequested(int delta)
    signal codeCopyRequested
    signal codeSaveRequested
    signal linkActivated(string link)
    signal menuRequested(real x, real y)

    height: above + slot.height + below
    Accessible.role: Accessible.ListItem
    Accessible.name: {
        switch (kind) {
        case "messageHead":
            return own ? qsTr("Your message, %1").arg(time) : qsTr("Answer from %1, %2").arg(author).arg(time);
        case "code":
            return language.length > 0 ? qsTr("Code in %1").arg(language) : qsTr("Code");
        case "status":
            return statusText;
        case "table":
            return qsTr("Table");
        default:
            return text.length > 0 ? text : qsTr("Line");
        }
    }

    Rectangle {
        x: root.columnX
        y: root.before === "messageHead" ? 0 : -4
        width: root.column
        height: root.height - y
        visible: root.plate
        radius: 4
        color: Theme.own
    }
    FocusRing {
        anchors.fill: slot
        anchors.margins: -4
        visible: root.current
    }
    HoverHandler {
        id: hover
    }
    TapHandler {
        acceptedButtons: Qt.RightButton
        onTapped: point => root.menuRequested(point.position.x, point.position.y)
    }
    Item {
        id: slot

        readonly property real inset: root.plate ? 12 : 0
        property Item shown: null

        x: root.columnX + inset
        y: root.above
        width: root.column - 2 * inset
        height: shown ? shown.height : 0

        // One of what this kind of row needs. (A Loader does not make bound components in Qt 6.4; a Repeater does.)
        Repeater {
            model: 1
            onItemAdded: (index, item) => slot.shown = item
            delegate: {
                switch (root.kind) {
                case "messageHead":
                    return head;
                case "code":
                    return code;
                case "heading":
                    return heading;
                case "listItem":
                    return item;
                case "quote":
                    return quote;
                case "table":
                    return table;
                case "rule":
                    return line;
                case "thinking":
                    return thinking;
                case "status":
                    return status;
                case "error":
                    return failure;
                default:
                    return paragraph;
                }
            }
        }
    }
    Component {
        id: head

        MessageHead {
            width: slot.width
            who: root.own ? qsTr("You") : root.author.length > 0 ? root.author : qsTr("Answer")
            time: root.time
            own: root.own
            versionIndex: root.versionIndex
            versionCount: root.versionCount
            busy: root.busy
            showActions: hover.hovered || root.current
            onCopyRequested: root.copyRequested()
            onAgainRequested: root.againRequested()
            onEditRequested: root.editRequested()
            onVersionRequested: delta => root.versionRequested(delta)
        }
    }
    Component {
        id: paragraph

        TextBlock {
            width: slot.width
            text: root.text
            spans: root.spans
            streaming: root.streaming
            onLinkActivated: link => root.linkActivated(link)
        }
    }
    Component {
        id: heading

        TextBlock {
            width: slot.width
            text: root.text
            spans: root.spans
            streaming: root.streaming
            font: root.level <= 1 ? Theme.heading1 : root.level === 2 ? Theme.heading2 : Theme.bold
            lineHeight: Math.round(1.4 * Theme.em * (root.level <= 1 ? 1.3 : root.level === 2 ? 1.2 : 1))
            onLinkActivated: link => root.linkActivated(link)
        }
    }
    Component {
        id: item

        Item {
            width: slot.width
            implicitHeight: itemText.implicitHeight

            PlainText {
                id: bullet

                x: Math.max(1, root.level) * indent.advance - implicitWidth - 6
                y: Math.round(0.8 * Theme.bodyLine - baselineOffset)
                text: root.marker
                color: Theme.textMuted
            }
            QtObject {
                id: indent

                readonly property real advance: Math.round(1.65 * Theme.em)
            }
            TextBlock {
                id: itemText

                x: Math.max(1, root.level) * indent.advance
                width: parent.width - x
                text: root.text
                spans: root.spans
                streaming: root.streaming
                onLinkActivated: link => root.linkActivated(link)
            }
        }
    }
    Component {
        id: quote

        Item {
            width: slot.width
            implicitHeight: quoteText.implicitHeight

            Rectangle {
                y: root.before === "quote" ? -8 : 0
                width: 1
                height: parent.height - y
                color: Theme.edge
            }
            TextBlock {
                id: quoteText

                x: 12 * Math.max(1, root.level)
                width: parent.width - x
                text: root.text
                spans: root.spans
                streaming: root.streaming
                color: Theme.textMuted
                onLinkActivated: link => root.linkActivated(link)
            }
        }
    }
    Component {
        id: code

        CodeBlock {
            width: slot.width
            text: root.text
            language: root.language
            streaming: root.streaming
            onCopyRequested: root.codeCopyRequested()
            onSaveRequested: root.codeSaveRequested()
        }
    }
    Component {
        id: table

        TableBlock {
            width: slot.width
            cells: root.cells
            columnCount: root.columns
        }
    }
    Component {
        id: line

        Item {
            width: slot.width
            implicitHeight: 9

            Rectangle {
                y: 4
                width: parent.width
                height: 1
                color: Theme.line
            }
        }
    }
    Component {
        id: thinking

        ThinkingBlock {
            width: slot.width
            text: root.text
            spans: root.spans
            streaming: root.streaming
        }
    }
    Component {
        id: status

        StatusLine {
            width: slot.width
            text: root.statusText.length > 0 ? root.statusText : root.text
        }
    }
    Component {
        id: failure

        Card {
            width: slot.width
            text: root.text

            PushButton {
                visible: !root.own
                enabled: !root.busy
                text: qsTr("Answer again")
                onClicked: root.againRequested()
            }
        }
    }
}
