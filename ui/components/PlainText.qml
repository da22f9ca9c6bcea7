// Every text of the window that is not edited: never markup.
import QtQuick
import Puna.Ui

Text {
    textFormat: Text.PlainText
    color: Theme.text
    font: Theme.body
}
