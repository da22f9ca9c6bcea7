// The model and its state, in two cells; opens the chooser. While a model loads, a cross cancels.
import QtQuick
import QtQuick.Templates as T
import Puna.App
import Puna.Ui

T.AbstractButton {
    id: root

    required property ModelLibrary library
    property bool compact: false
    property real nameMaximum: 18 * Theme.em
    property bool open: false // its chooser
    readonly property bool loading: library.state === ModelLibrary.Loading
    readonly property string quiet: library.deviceText === "CPU" ? qsTr("CPU") : library.bpwText

    implicitWidth: cells.implicitWidth
    implicitHeight: Theme.control
    focusPolicy: Qt.StrongFocus
    text: qsTr("Model")
    Accessible.role: Accessible.ButtonMenu
    Accessible.name: qsTr("Model: %1, %2").arg(library.chosen ? library.currentName : qsTr("none")).arg(library.stateText)
    Accessible.description: library.deviceText

    contentItem: Item {
        implicitWidth: cells.implicitWidth

        Row {
            id: cells

            height: parent.height

            Item {
                width: name.width + (quietText.visible ? quietText.width + 8 : 0) + (root.compact ? 16 : 20)
                height: parent.height

                PlainText {
                    id: name

                    x: root.compact ? 8 : 10
                    anchors.verticalCenter: parent.verticalCenter
                    width: Math.min(implicitWidth, root.nameMaximum)
                    text: root.library.chosen ? root.library.currentName : qsTr("No model")
                    color: root.library.chosen ? Theme.text : Theme.textMuted
                    elide: Text.ElideRight
                }
                PlainText {
                    id: quietText

                    anchors.left: name.right
                    anchors.leftMargin: 8
                    anchors.verticalCenter: parent.verticalCenter
                    visible: root.library.chosen && text.length > 0
                    text: root.quiet
                    color: Theme.textMuted
                }
            }
            Rectangle {
                y: 1
                width: 1
                height: parent.height - 2
                color: Theme.line
            }
            Item {
                width: state.width + (root.compact ? 16 : 20)
                height: parent.height

                Row {
                    id: state

                    x: root.compact ? 8 : 10
                    anchors.verticalCenter: parent.verticalCenter
                    spacing: 8

                    StateMark {
                        anchors.verticalCenter: parent.verticalCenter
                        visible: !root.loading
                        kind: {
                            switch (root.library.state) {
                            case ModelLibrary.Ready:
                                return StateMark.Dot;
                            case ModelLibrary.Busy:
                                return StateMark.Square;
                            case ModelLibrary.Failed:
                                return StateMark.Triangle;
                            default:
                                return StateMark.Ring;
                            }
                        }
                    }
                    Rectangle {
                        anchors.verticalCenter: parent.verticalCenter
                        visible: root.loading
                        width: 40
                        height: 4
                        color: Theme.line

                        Rectangle {
                            width: parent.width * root.library.loadProgress
                            height: parent.height
                            color: Theme.accentInk
                        }
                    }
                    PlainText {
                        anchors.verticalCenter: parent.verticalCenter
                        text: root.library.stateText
                    }
                    Icon {
                        anchors.verticalCenter: parent.verticalCenter
                        visible: !root.loading
                        width: Math.round(1.2 * Theme.em)
                        height: width
                        name: "down"
                        color: Theme.textMuted
                    }
                }
            }
            Rectangle {
                y: 1
                visible: root.loading
                width: 1
                height: parent.height - 2
                color: Theme.line
            }
            IconButton {
                visible: root.loading
                iconName: "cross"
                text: qsTr("Cancel loading")
                onClicked: root.library.cancelLoad()
            }
        }
    }

    background: Rectangle {
        radius: 4
        color: root.down ? Theme.press : root.hovered ? Theme.hover : Theme.base
        border.color: Theme.edge

        FocusRing {
            visible: root.visualFocus
        }
    }

    Tip {
        visible: root.hovered && !root.down && !root.open
        text: qsTr("Choose the model")
        key: "Ctrl+L"
    }
}
