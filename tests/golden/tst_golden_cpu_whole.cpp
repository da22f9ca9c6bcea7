// The fast CPU executor against Transformers in float32: everything; minutes.
#include "engine/cpu/cpu_executor.h"
#include "tests/support/compare.h"

#include <QTest>

using namespace puna::test;

class tst_golden_cpu_whole : public QObject {
    Q_OBJECT

private slots:
    void initTestCase()
    {
        for (const GoldenModel& model : goldenModels())
            if (model.available())
                return;
        QSKIP("neither reference models nor golden data are here");
    }

    void logitsAndAnswersAreTheReferences_data()
    {
        QTest::addColumn<QString>("name");
        for (const GoldenModel& model : goldenModels())
            QTest::newRow(model.name.c_str()) << QString::fromStdString(model.name);
    }

    void logitsAndAnswersAreTheReferences()
    {
        QFETCH(QString, name);
        const GoldenModel* model = goldenModel(name.toStdString());
        if (!model->available())
            QSKIP("the reference model is not here");
        const Comparison found = compareWithGolden(*model, puna::loadCpuExecutor, kCpuBounds, GoldenExtent::whole);
        qInfo("%s", found.summary.c_str());
        QVERIFY2(found.failures.empty(), found.failureText().c_str());
    }
};

QTEST_GUILESS_MAIN(tst_golden_cpu_whole)
#include "tst_golden_cpu_whole.moc"
