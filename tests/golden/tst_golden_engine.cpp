// Engine's greedy answers against Transformers': the part that every run checks.
#include "tests/golden/answers.h"
#include "tests/support/compare.h"

#include <QTest>

using namespace puna::test;

class tst_golden_engine : public QObject {
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
        const auto failures = differingAnswers(static_cast<puna::DeviceKind>(device), margin, {0, 6, 7, 8});
        QVERIFY2(failures.empty(), failures.empty() ? "" : failures.front().c_str());
    }
};

QTEST_GUILESS_MAIN(tst_golden_engine)
#include "tst_golden_engine.moc"
