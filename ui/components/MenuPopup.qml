import QtQuick
import QtQuick.Templates as T
import Puna.Ui

T.Menu {
    id: root

    margins: 8
    padding: 4
    overlap: 1
    implicitWidth: Math.max(180, contentItem.implicitWidth + 2 * padding)
    implicitHeight: contentItem.implicitHeight + 2 * padding

    delegate: MenuEntry {}

    contentItem: ListView {
        readonly property real widest: {
            let width = 0;
            for (let i = 0; i < root.count; ++i)
                width = Math.max(width, root.itemAt(i).implicitWidth);
            return width;
        }

        implicitWidth: widest
        implicitHeight: contentHeight
        model: root.contentModel
        interactive: false
        currentIndex: root.currentIndex
    }

    background: Rectangle {
        color: Theme.window
        border.color: Theme.edge
        radius: 6
    }
}
