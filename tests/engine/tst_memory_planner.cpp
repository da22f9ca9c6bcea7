// What a model will take, as closed forms; and refusals with the figures in them.

#include "engine/memory/memory_planner.h"

#include <QTest>

#include <algorithm>

using namespace puna;
using namespace puna::literals;

namespace {

ModelConfig config()
{
    ModelConfig c;
    c.n_layers = 30;
    c.hidden_size = 576;
    c.intermediate_size = 1536;
    c.n_heads = 9;
    c.n_kv_heads = 3;
    c.head_dim = 64;
    c.vocab_size = 49152;
    c.max_context = 8192;
    return c;
}

constexpr std::int64_t kPageBytes = 256 * 30 * 2 * 3 * 64 * 2; // keys and values as halves

ModelWeights weights(Bytes size)
{
    ModelWeights w;
    w.bytes = size.count;
    return w;
}

bool names(const Error& error, std::initializer_list<const char*> parts)
{
    return std::all_of(
        parts.begin(), parts.end(), [&](const char* part) { return error.message.find(part) != std::string::npos; });
}

} // namespace

class TestMemoryPlanner : public QObject {
    Q_OBJECT

private slots:
    void everySequenceGetsItsContextWhereThereIsRoom()
    {
        const auto needs = planMemory(config(), weights(98_MiB), DeviceKind::cpu, {}, 64_GiB);
        QVERIFY(needs);
        QCOMPARE(needs->plan.max_context, std::int64_t {8192});
        QCOMPARE(needs->plan.kv_pages, std::int64_t {4 * 32});
        QCOMPARE(needs->kv.count, 4 * 32 * kPageBytes);
        QCOMPARE(needs->weights, 98_MiB);
        QVERIFY(needs->plan.max_rows >= needs->plan.max_sequences);
    }

    void theReferenceKeepsFloats()
    {
        const auto needs = planMemory(config(), weights(98_MiB), DeviceKind::reference, {}, {});
        QVERIFY(needs);
        QCOMPARE(needs->kv.count, 4 * 32 * kPageBytes * 2);
    }

    void fewerPagesWhereThereIsLittle()
    {
        const auto needs = planMemory(config(), weights(98_MiB), DeviceKind::cpu, {}, 700_MiB);
        QVERIFY(needs);
        QVERIFY(needs->plan.kv_pages >= 32 && needs->plan.kv_pages < 128);
        QVERIFY(needs->total().count <= (700_MiB).count * 7 / 8);
    }

    void oneContextAtLeastOrARefusal()
    {
        const auto needs = planMemory(config(), weights(98_MiB), DeviceKind::cpu, {}, 250_MiB);
        QVERIFY(!needs);
        QCOMPARE(needs.error().code, ErrorCode::memory);
        QVERIFY2(names(needs.error(), {"98 MiB", "180 MiB", "250 MiB", "8192"}), needs.error().message.c_str());
        LoadOptions options;
        options.context = 1000;
        const auto shorter = planMemory(config(), weights(98_MiB), DeviceKind::cpu, options, 250_MiB);
        QVERIFY(shorter);
        QVERIFY(shorter->plan.kv_pages >= 4);
        QVERIFY(shorter->total() <= 250_MiB);
    }

    void optionsOutOfRangeAreNamed()
    {
        LoadOptions options;
        options.context = 8193;
        QVERIFY(names(planMemory(config(), {}, DeviceKind::cpu, options, {}).error(), {"8193", "8192"}));
        options = {};
        options.max_sequences = 257;
        QVERIFY(names(planMemory(config(), {}, DeviceKind::cpu, options, {}).error(), {"257", "256"}));
        options = {};
        options.threads = -1;
        QVERIFY(names(planMemory(config(), {}, DeviceKind::cpu, options, {}).error(), {"-1"}));
    }

    void absurdContextsDoNotOverflow()
    {
        ModelConfig c = config();
        c.n_layers = 4096;
        c.n_kv_heads = 4096;
        c.head_dim = 256;
        c.max_context = 1 << 30;
        LoadOptions options;
        options.context = 1 << 30;
        options.max_sequences = 256;
        const auto needs = planMemory(c, weights(98_MiB), DeviceKind::reference, options, {});
        QVERIFY(!needs);
        QCOMPARE(needs.error().code, ErrorCode::memory);
    }
};

QTEST_GUILESS_MAIN(TestMemoryPlanner)
#include "tst_memory_planner.moc"
