// Asks before a link out of an answer is given to the browser, naming where it leads.
import QtQuick
import Puna.Ui

Sheet {
    id: root

    property string link
    readonly property string host: Desktop.linkHost(link)

    function ask(target: string): void {
        link = target;
        open();
    }

    title: host.length > 0 ? qsTr("Open %1?").arg(host) : qsTr("This link is not opened")

    PlainText {
        width: parent.width
        text: root.link
        wrapMode: Text.WrapAnywhere
        maximumLineCount: 12
        elide: Text.ElideRight
    }
    PlainText {
        width: parent.width
        text: root.host.length > 0 ? qsTr("The model wrote this link. Your browser or mail program would open it.") : qsTr("Only web and mail addresses are handed on.")
        color: Theme.textMuted
        wrapMode: Text.Wrap
    }
    Row {
        spacing: 8
        topPadding: 4
        bottomPadding: 8

        PushButton {
            visible: root.host.length > 0
            main: true
            text: qsTr("Open")
            onClicked: {
                Desktop.openLink(root.link);
                root.close();
            }
        }
        PushButton {
            text: qsTr("Copy link")
            onClicked: {
                Desktop.copyText(root.link);
                root.close();
            }
        }
    }
}
