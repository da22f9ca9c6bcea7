import QtQuick
import QtTest
import Puna.Test
import Puna.Ui

Item {
    width: 300
    height: 400

    ListModel {
        id: chats

        ListElement {
            title: "Trip to Porto"
            updated: "14:32"
            group: "Today"
            busy: true
            current: true
        }
        ListElement {
            title: "SQL <b>window</b> functions"
            updated: "13:05"
            group: "Today"
            busy: false
            current: false
        }
        ListElement {
            title: "Boiler manual"
            updated: "Mon"
            group: "This week"
            busy: false
            current: false
        }
    }
    ConversationList {
        id: list

        anchors.fill: parent
        model: chats
    }
    SignalSpy {
        id: opened

        target: list
        signalName: "opened"
    }
    SignalSpy {
        id: renamed

        target: list
        signalName: "renamed"
    }
    SignalSpy {
        id: deleted

        target: list
        signalName: "deleted"
    }

    TestCase {
        name: "ConversationList"
        when: windowShown

        function init() {
            Probe.takeWarnings();
            opened.clear();
            renamed.clear();
            deleted.clear();
            list.editRow(-1);
        }

        function cleanup() {
            compare(Probe.takeWarnings(), []);
        }

        function row(index) {
            for (let i = 0; i < list.children.length; ++i) {
                if (list.children[i].itemAtIndex !== undefined)
                    return list.children[i].itemAtIndex(index);
            }
            return null;
        }

        function test_groupsAndTitlesArePlainText() {
            const texts = Probe.texts(list);
            verify(texts.includes("Today"));
            verify(texts.includes("This week"));
            verify(texts.includes("SQL <b>window</b> functions"));
            compare(texts.split("Today").length, 2, "a group is named once");
        }

        function test_clickOpens() {
            mouseClick(row(2), 40, row(2).height - 10);
            compare(opened.count, 1);
            compare(opened.signalArguments[0][0], 2);
        }

        function test_rightClickOpensTheMenuAndNothingElse() {
            mouseClick(row(1), 40, row(1).height - 10, Qt.RightButton);
            tryVerify(() => Probe.texts(list.Window.window.contentItem).includes("Rename"));
            compare(opened.count, 0);
            keyClick(Qt.Key_Escape);
        }

        function test_headOfAGroupOpensNothing() {
            mouseClick(row(2), 40, 6);
            compare(opened.count, 0);
        }

        function test_keysOpenAndDelete() {
            list.focusList();
            keyClick(Qt.Key_Home);
            keyClick(Qt.Key_Down);
            keyClick(Qt.Key_Return);
            verify(opened.count >= 1);
            keyClick(Qt.Key_Delete);
            compare(deleted.count, 1);
        }

        function test_renameInPlace() {
            list.focusList();
            list.editRow(1);
            tryVerify(() => row(1).editing);
            keyClick(Qt.Key_A, Qt.ControlModifier);
            keyClick(Qt.Key_X);
            keyClick(Qt.Key_Return);
            compare(renamed.count, 1);
            compare(renamed.signalArguments[0][0], 1);
            compare(renamed.signalArguments[0][1], "x");
            verify(!row(1).editing);
            keyClick(Qt.Key_F2);
            verify(list.editingRow >= 0, "the list has the keyboard again");
            keyClick(Qt.Key_Escape);
        }

        function test_escapeLeavesTheTitle() {
            list.editRow(1);
            keyClick(Qt.Key_X);
            keyClick(Qt.Key_Escape);
            compare(renamed.count, 0);
            verify(!row(1).editing);
        }

        function test_doubleClickRenames() {
            mouseDoubleClickSequence(row(0), 40, row(0).height - 10);
            compare(list.editingRow, 0);
            keyClick(Qt.Key_Escape);
        }

        function test_everythingWithFocusHasAName() {
            verify(Probe.focusable(list) >= 1);
            compare(Probe.unnamed(list), []);
        }
    }
}
