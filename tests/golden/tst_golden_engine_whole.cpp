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
        QTest::newRow("reference") << static_cast<int>(puna::DeviceKind::reference) << kReferenceBounds.margin;
        QTest::newRow("cpu") << static_cast<int>(puna::DeviceKind::cpu) << kCpuBounds.margin;
    }

    void answersAreTheReferences()
    {
        QFETCH(int, device);
        QFETCH(double, margin);
        const auto failures = differingAnswers(static_cast<puna::DeviceKind>(device), margin, {});
        QVERIFY2(failures.empty(), failures.empty() ? "" : failures.front().c_str());
    }
};

QTEST_GUILESS_MAIN(tst_golden_engine_whole)
#include "tst_golden_engine_whole.moc"
