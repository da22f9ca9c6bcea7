import QtQuick
import QtTest
import Puna.App
import Puna.Test
import Puna.Ui

Item {
    id: root

    Component {
        id: main

        Main {}
    }

    TestCase {
        name: "Main"
        when: windowShown

        function cleanup() {
            compare(Probe.takeWarnings(), []);
        }

        function open() {
            Probe.takeWarnings();
            const window = main.createObject(null);
            verify(window);
            tryVerify(() => window.active || window.visible);
            wait(50);
            return window;
        }

        function test_opensWithoutAWarning() {
            const window = open();
            const texts = Probe.texts(window.contentItem);
            verify(texts.includes("No model yet"), texts);
            verify(texts.includes("No chats yet."), texts);
            window.destroy();
            wait(0);
        }

        function test_everythingWithFocusHasAName() {
            const window = open();
            verify(Probe.focusable(window.contentItem) >= 8);
            compare(Probe.unnamed(window.contentItem), []);
            window.destroy();
            wait(0);
        }

        function test_aRefusedImportIsACardWithItsSentence() {
            const window = open();
            ChatController.importPaths(["file:///nowhere/at/all.gguf"]);
            tryVerify(() => Probe.texts(window.contentItem).includes("/nowhere/at/all.gguf"), 5000);
            window.destroy();
            wait(0);
        }

        function test_aDropShowsWhatItWillDoAndImports() {
            const window = open();
            verify(Probe.dragOver(window, ["file:///nowhere/dropped"]));
            tryVerify(() => Probe.texts(window.contentItem).includes("Drop to add model"));
            Probe.dropThere(window);
            tryVerify(() => !Probe.texts(window.contentItem).includes("Drop to add model"));
            tryVerify(() => Probe.texts(window.contentItem).includes("/nowhere/dropped"), 5000);
            verify(Probe.dragOver(window, ["https://example.org/model.gguf"]));
            tryVerify(() => Probe.texts(window.contentItem).includes("Only folders and files on this computer"));
            Probe.dropThere(window);
            window.destroy();
            wait(0);
        }

        function test_narrowWindowPutsTheChatsOverThePage() {
            const window = open();
            window.width = 480;
            wait(30);
            verify(!window.sidebarShown);
            verify(!Probe.texts(window.contentItem).includes("No chats yet."));
            window.toggleSidebar();
            wait(30);
            verify(Probe.texts(window.contentItem).includes("No chats yet."));
            window.width = 1000;
            wait(30);
            verify(window.sidebarShown);
            window.destroy();
            wait(0);
        }

        function test_textSizeScalesTheWindow() {
            const window = open();
            const row = Theme.control;
            AppSettings.textPercent = 150;
            wait(30);
            verify(Math.abs(Theme.control - row * 1.5) <= 1);
            AppSettings.textPercent = 100;
            window.destroy();
            wait(0);
        }
    }
}
