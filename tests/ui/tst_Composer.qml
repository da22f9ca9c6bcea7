import QtQuick
import QtTest
import Puna.Test
import Puna.Ui

Item {
    width: 600
    height: 500

    Composer {
        id: composer

        width: 500
        maximumHeight: 160
    }
    SignalSpy {
        id: sent

        target: composer
        signalName: "sendRequested"
    }
    SignalSpy {
        id: stopped

        target: composer
        signalName: "stopRequested"
    }
    SignalSpy {
        id: editLast

        target: composer
        signalName: "editLastRequested"
    }

    TestCase {
        name: "Composer"
        when: windowShown

        function init() {
            Probe.takeWarnings();
            composer.text = "";
            composer.busy = false;
            composer.canSend = true;
            composer.queued = "";
            composer.editing = false;
            sent.clear();
            stopped.clear();
            editLast.clear();
            composer.focusText();
        }

        function cleanup() {
            compare(Probe.takeWarnings(), []);
        }

        function button(name) {
            return findChildByText(composer, name);
        }

        function findChildByText(item, name) {
            for (let i = 0; i < item.children.length; ++i) {
                const child = item.children[i];
                if (child.text === name && child.clicked !== undefined)
                    return child;
                const found = findChildByText(child, name);
                if (found)
                    return found;
            }
            return null;
        }

        function test_enterSends() {
            keyClick(Qt.Key_H);
            keyClick(Qt.Key_I);
            keyClick(Qt.Key_Return);
            compare(sent.count, 1);
            compare(sent.signalArguments[0][0], "hi");
            compare(composer.text, "hi", "its owner takes the text away");
        }

        function test_shiftEnterBeginsALine() {
            keyClick(Qt.Key_H);
            keyClick(Qt.Key_Return, Qt.ShiftModifier);
            keyClick(Qt.Key_I);
            compare(sent.count, 0);
            compare(composer.text, "h\ni");
        }

        function test_blankTextIsNotSent() {
            keyClick(Qt.Key_Space);
            keyClick(Qt.Key_Return);
            compare(sent.count, 0);
        }

        function test_textBeingComposedIsNotSent() {
            keyClick(Qt.Key_A);
            Probe.compose("に");
            keyClick(Qt.Key_Return);
            compare(sent.count, 0);
            Probe.compose("", "日");
            compare(composer.text, "a日");
            keyClick(Qt.Key_Return);
            compare(sent.count, 1);
            compare(sent.signalArguments[0][0], "a日");
        }

        function test_nothingIsSentWithoutAModel() {
            composer.canSend = false;
            composer.text = "hello";
            keyClick(Qt.Key_Return);
            compare(sent.count, 0);
            compare(composer.text, "hello");
            verify(!button("Send").enabled);
        }

        function test_sendBecomesQueueAndStopStandsLeftOfIt() {
            composer.text = "next";
            verify(button("Send"));
            composer.busy = true;
            const queue = button("Queue"), stop = button("Stop");
            verify(queue && stop);
            tryVerify(() => queue.visible && stop.visible);
            tryVerify(() => stop.mapToItem(composer, 0, 0).x + stop.width <= queue.mapToItem(composer, 0, 0).x);
            mouseClick(queue);
            compare(sent.count, 1);
            mouseClick(stop);
            compare(stopped.count, 1);
        }

        function test_growsUpToItsMaximum() {
            const one = composer.implicitHeight;
            composer.text = "1\n2\n3";
            tryVerify(() => composer.implicitHeight > one);
            composer.text = "x\n".repeat(60);
            tryVerify(() => composer.implicitHeight === 160 + 8);
        }

        function test_upInAnEmptyMessageEditsTheLast() {
            keyClick(Qt.Key_Up);
            compare(editLast.count, 1);
            composer.text = "a";
            keyClick(Qt.Key_Up);
            compare(editLast.count, 1);
        }

        function test_queuedMessageShowsAbove() {
            const one = composer.implicitHeight;
            composer.queued = "And on <b>SQLite</b>?";
            tryVerify(() => composer.implicitHeight > one);
            verify(Probe.texts(composer).includes("And on <b>SQLite</b>?"));
        }

        function test_everythingWithFocusHasAName() {
            composer.busy = true;
            composer.queued = "next";
            composer.text = "text";
            verify(Probe.focusable(composer) >= 3);
            compare(Probe.unnamed(composer), []);
        }
    }
}
