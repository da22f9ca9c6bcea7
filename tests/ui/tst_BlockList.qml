import QtQuick
import QtTest
import Puna.Test
import Puna.Ui

Item {
    width: 700
    height: 400

    BlockList {
        id: list

        anchors.fill: parent
        model: Probe.blocks
    }
    SignalSpy {
        id: copied

        target: list
        signalName: "codeCopyRequested"
    }

    TestCase {
        name: "BlockList"
        when: windowShown

        function init() {
            Probe.clear();
            list.busy = false;
            copied.clear();
            list.toEnd();
            wait(0);
            Probe.takeWarnings();
        }

        function cleanup() {
            compare(Probe.takeWarnings(), []);
        }

        function settle() {
            wait(30);
            waitForRendering(list, 200);
        }

        function test_followsAnAnswerFromTheEnd() {
            Probe.addTurns(12);
            settle();
            list.toEnd();
            settle();
            verify(list.atEnd);
            Probe.beginAnswer();
            for (let i = 0; i < 40; ++i) {
                Probe.stream("A line of the answer that is long enough to fill a good part of the width. ");
                if (i % 5 === 4)
                    Probe.stream("\n\n");
                wait(1);
            }
            settle();
            verify(list.atEnd);
            verify(list.following);
        }

        function test_doesNotMoveForWhoHasScrolledUp() {
            Probe.addTurns(12);
            settle();
            list.toEnd();
            settle();
            Probe.beginAnswer();
            Probe.stream("Begin.\n\n");
            settle();
            mouseWheel(list, 300, 200, 0, 600);
            tryVerify(() => !list.following);
            settle();
            tryVerify(() => !findView(list).moving); // the wheel's own movement ends
            const y = list.contentY;
            for (let i = 0; i < 40; ++i) {
                Probe.stream("More of the answer, far below what is in view.\n\n");
                wait(1);
                compare(list.contentY, y);
            }
            verify(!list.following);
            list.toEnd();
            settle();
            verify(list.atEnd);
        }

        function test_textOfAModelIsNeverMarkup() {
            Probe.addAnswer("# A <img src='file:///etc/passwd'> title\n\nsome <b>bold</b> & **strong**\n\n| a<br>b |\n|---|\n| <i>c</i> |");
            settle();
            const texts = Probe.texts(list);
            verify(texts.includes("A <img src='file:///etc/passwd'> title"), texts);
            verify(texts.includes("some <b>bold</b> & strong"), texts);
            verify(texts.includes("<i>c</i>"), texts);
        }

        function test_everyKindOfBlockHasItsHeight() {
            Probe.addAnswer("text\n\n## heading\n\n1. one\n\n> quote\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\nend");
            settle();
            const view = findView(list);
            compare(view.count, 9);
            let y = -1;
            for (let i = 0; i < view.count; ++i) {
                const item = view.itemAtIndex(i);
                verify(item.height >= 9, item.kind + " has a height of " + item.height);
                verify(item.y > y);
                y = item.y;
            }
        }

        function findView(item) {
            for (let i = 0; i < item.children.length; ++i) {
                if (item.children[i].itemAtIndex !== undefined)
                    return item.children[i];
            }
            return null;
        }

        function test_aTableThatBeginsAsTextGetsItsHeight() {
            Probe.beginAnswer();
            const text = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n";
            for (let i = 0; i < text.length; ++i) {
                Probe.stream(text[i]);
                wait(0);
            }
            settle();
            const table = findView(list).itemAtIndex(1);
            compare(table.kind, "table");
            verify(table.height > 3 * Theme.bodyLine, "height " + table.height);
        }

        function test_codeIsCopiedToTheByte() {
            const code = "a\t<b>&amp;\n  \n\nlast  \n";
            Probe.addAnswer("```html\n" + code + "```");
            settle();
            const block = findView(list).itemAtIndex(1);
            compare(block.kind, "code");
            block.codeCopyRequested();
            compare(copied.signalArguments[0][0], block.text);
            Desktop.copyText(block.text);
            compare(Probe.clipboard(), block.text);
            compare(block.text.replace(/\s+$/, ""), code.replace(/\s+$/, ""));
            verify(block.text.startsWith("a\t<b>&amp;\n  \n\nlast  "));
        }

        function test_keysGoFromMessageToMessage() {
            Probe.addTurns(4);
            settle();
            list.toMessage(-1);
            list.toMessage(-1);
            const view = findView(list);
            compare(view.itemAtIndex(view.currentIndex).kind, "messageHead");
            verify(view.activeFocus);
        }

        function test_everythingWithFocusHasAName() {
            Probe.addTurns(2);
            settle();
            verify(Probe.focusable(list) > 4);
            compare(Probe.unnamed(list), []);
        }
    }
}
