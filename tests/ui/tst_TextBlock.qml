import QtQuick
import QtTest
import Puna.Test
import Puna.Ui

Item {
    width: 600
    height: 300

    TextBlock {
        id: block

        width: 500
        text: ""
    }

    TestCase {
        name: "TextBlock"
        when: windowShown

        function init() {
            Probe.takeWarnings();
            block.spans = [];
            block.text = "";
        }

        function cleanup() {
            compare(Probe.takeWarnings(), []);
        }

        function edit() {
            for (let i = 0; i < block.children.length; ++i) {
                if (block.children[i].selectedText !== undefined)
                    return block.children[i];
            }
            return null;
        }

        function test_selectionStaysWhileTextStreamsIn() {
            block.text = "The first words";
            const e = edit();
            e.select(4, 9);
            compare(e.selectedText, "first");
            for (let i = 0; i < 50; ++i)
                block.text += " and more";
            compare(e.selectedText, "first");
            compare(e.text, block.text);
            const last = block.text.length;
            block.spans = [{start: last - 4, length: 4, bold: true, italic: false, strike: false, code: false, link: ""}];
            compare(e.selectedText, "first");
        }

        function test_spansChangeTheLooksAndNotTheText() {
            block.text = "a <b>bold</b> word & code";
            const before = edit().implicitHeight;
            block.spans = [{start: 2, length: 7, bold: true, italic: true, strike: false, code: false, link: ""}, {start: 21, length: 4, bold: false, italic: false, strike: false, code: true, link: ""}];
            compare(edit().text, "a <b>bold</b> word & code");
            compare(edit().implicitHeight, before);
        }

        function test_spansBeyondTheTextAreHarmless() {
            block.text = "short";
            block.spans = [{start: 3, length: 1000, bold: false, italic: false, strike: false, code: true, link: "x"}, {start: -5, length: 2, bold: true, italic: false, strike: false, code: true, link: ""}, {start: 900, length: 2, bold: true, italic: false, strike: false, code: true, link: ""}];
            wait(20);
            compare(edit().text, "short");
            block.text = "x";
            wait(20);
        }

        function test_textThatIsReplacedIsReplaced() {
            block.text = "one";
            block.text = "two";
            compare(edit().text, "two");
            block.text = "";
            compare(edit().text, "");
        }

        function test_linesAreAsHighAsTheThemeSays() {
            block.text = "one\ntwo\nthree";
            tryCompare(block, "implicitHeight", 3 * Theme.bodyLine);
        }
    }
}
