// Engine's greedy answers against Transformers': all sixteen conversations; minutes.
#include "tests/golden/answers.h"
#include "tests/support/compare.h"

#include <QTest>

using namespace puna::test;

class tst_golden_engine_whole : public QObject {
    Q_OBJECT

private slots:
    void initTestCase()
    {
        if (!goldenAnswersAvailable())
            QSKIP("the starter model or golden data are not here");
    }

    void answersAreTheReferences_data()
    {
        QTest::addColumn<int>("device");
        QTest::addColumn<double>("margin");
        QTest::addColumn<int>("conversation"); // one per row: Qt Test gives a row five minutes
        for (int i = 0; i < 16; ++i) {
            QTest::addRow("reference %d", i)
                << static_cast<int>(puna::DeviceKind::reference) << kReferenceBounds.margin << i;
            QTest::addRow("cpu %d", i) << static_cast<int>(puna::DeviceKind::cpu) << kCpuBounds.margin << i;
        }
    }

    void answersAreTheReferences()
    {
        QFETCH(int, device);
        QFETCH(double, margin);
        QFETCH(int, conversation);
        const auto failures =
            differingAnswers(static_cast<puna::DeviceKind>(device), margin, {static_cast<std::size_t>(conversation)});
        QVERIFY2(failures.empty(), failures.empty() ? "" : failures.front().c_str());
    }
};

QTEST_GUILESS_MAIN(tst_golden_engine_whole)
#include "tst_golden_engine_whole.moc"
