// A table: the head in bold over a line, rows between hairlines, columns of figures to the right.
pragma ComponentBehavior: Bound
import QtQuick
import QtQuick.Layouts
import Puna.Ui

GridLayout {
    id: root

    required property var cells // row by row, the head first
    required property int columnCount

    function isFigures(column: int): bool {
        if (column === 0)
            return false;
        for (let i = columnCount + column; i < cells.length; i += columnCount) {
            if (cells[i].length > 0 && !/^[-−+~<>]?[\d.,\s]*\d[\d.,]*\s*[%\w°€$]{0,4}$/.test(cells[i]))
                return false;
        }
        return cells.length > columnCount;
    }

    columns: Math.max(1, columnCount)
    columnSpacing: 0
    rowSpacing: 0
    Accessible.role: Accessible.Table
    Accessible.name: qsTr("Table")

    Repeater {
        model: root.cells

        Item {
            id: cell

            required property int index
            required property string modelData
            readonly property int column: root.columnCount > 0 ? index % root.columnCount : 0
            readonly property bool head: index < root.columnCount

            Layout.fillWidth: true
            Layout.fillHeight: true
            implicitWidth: label.implicitWidth + 24
            implicitHeight: label.implicitHeight + 6

            PlainText {
                id: label

                x: cell.column === 0 ? 0 : 12
                y: 3
                width: parent.width - x - (cell.column === root.columnCount - 1 ? 0 : 12)
                text: cell.modelData
                font: cell.head ? Theme.bold : Theme.body
                lineHeight: Theme.bodyLine
                lineHeightMode: Text.FixedHeight
                horizontalAlignment: root.isFigures(cell.column) ? Text.AlignRight : Text.AlignLeft
                wrapMode: Text.Wrap
            }
            Rectangle {
                anchors.bottom: parent.bottom
                width: parent.width
                height: 1
                color: cell.head ? Theme.edge : Theme.line
            }
        }
    }
}
