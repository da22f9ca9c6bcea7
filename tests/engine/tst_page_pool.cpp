// Pages of the KV cache: none lost, none held twice, and what a new sequence takes over from an old one.

#include "engine/kv/page_pool.h"

#include <QTest>

#include <numeric>
#include <random>
#include <set>

using namespace puna;

namespace {

std::vector<TokenId> text(int length, TokenId first = 0)
{
    std::vector<TokenId> tokens(static_cast<std::size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

// A finished sequence of so many tokens.
void finish(PagePool& pool, const std::vector<TokenId>& tokens)
{
    BlockTable table;
    QVERIFY(pool.grow(table, static_cast<std::int64_t>(tokens.size())));
    pool.retain(table, tokens);
    QVERIFY(table.pages.empty());
}

} // namespace

class TestPagePool : public QObject {
    Q_OBJECT

private slots:
    void growsInWholePages();
    void growingFailsWithoutSideEffects();
    void aFollowUpTakesPagesOver();
    void aRegeneratedAnswerTakesThePromptOver();
    void aShortCommonBeginningIsCopied();
    void copiesNothingWhereThereIsNoRoom();
    void theLongestUnusedIsGivenUpFirst();
    void reservedPagesThatStayedEmptyComeBack();
    void pageEdges_data();
    void pageEdges();
    void noPageIsLostOrSharedInRandomUse();
};

void TestPagePool::growsInWholePages()
{
    PagePool pool(4);
    BlockTable table;
    QVERIFY(pool.grow(table, 1));
    QCOMPARE(table.pages.size(), std::size_t {1});
    QVERIFY(pool.grow(table, 256));
    QCOMPARE(table.pages.size(), std::size_t {1});
    QVERIFY(pool.grow(table, 257));
    QCOMPARE(table.pages.size(), std::size_t {2});
    QVERIFY(pool.grow(table, 5)); // never shrinks
    QCOMPARE(table.pages.size(), std::size_t {2});
    QCOMPARE(pool.freePages(), std::int64_t {2});
    pool.release(table);
    QCOMPARE(pool.freePages(), std::int64_t {4});
}

void TestPagePool::growingFailsWithoutSideEffects()
{
    PagePool pool(3);
    finish(pool, text(100));
    BlockTable a;
    QVERIFY(pool.grow(a, 256));
    BlockTable b;
    QVERIFY(!pool.grow(b, 3 * 256));
    QVERIFY(b.pages.empty());
    QCOMPARE(pool.retainedPages(), std::int64_t {1}); // kept, since giving it up would not have been enough
    QVERIFY(pool.grow(b, 2 * 256));
    QCOMPARE(pool.retainedPages(), std::int64_t {0});
}

void TestPagePool::aFollowUpTakesPagesOver()
{
    PagePool pool(8);
    finish(pool, text(600));
    const auto reused = pool.reuse(text(900));
    QCOMPARE(reused.tokens, std::int64_t {600});
    QCOMPARE(reused.table.pages.size(), std::size_t {3});
    QVERIFY(reused.copies.empty());
    QCOMPARE(pool.retainedPages(), std::int64_t {0});
}

void TestPagePool::aRegeneratedAnswerTakesThePromptOver()
{
    PagePool pool(8);
    finish(pool, text(600));
    const auto reused = pool.reuse(text(400));
    QCOMPARE(reused.tokens, std::int64_t {400});
    QCOMPARE(reused.table.pages.size(), std::size_t {2});
    QCOMPARE(pool.freePages(), std::int64_t {6});
}

void TestPagePool::aShortCommonBeginningIsCopied()
{
    PagePool pool(16);
    const std::vector<TokenId> old = text(2000);
    finish(pool, old);
    std::vector<TokenId> other = text(900);
    for (std::size_t i = 300; i < other.size(); ++i)
        other[i] = -1;
    const auto reused = pool.reuse(other);
    QCOMPARE(reused.tokens, std::int64_t {300});
    QCOMPARE(reused.copies.size(), std::size_t {2});
    QCOMPARE(reused.copies[0].tokens, 256);
    QCOMPARE(reused.copies[1].tokens, 44);
    QCOMPARE(reused.copies[0].to, reused.table.pages[0]);
    QVERIFY(reused.copies[0].from != reused.copies[0].to);
    // The old conversation goes on as if nothing had happened.
    const auto again = pool.reuse(text(2100));
    QCOMPARE(again.tokens, std::int64_t {2000});
    QVERIFY(again.copies.empty());
}

void TestPagePool::copiesNothingWhereThereIsNoRoom()
{
    PagePool pool(8);
    finish(pool, text(2000)); // all pages
    std::vector<TokenId> other = text(300);
    other.push_back(-1);
    const auto reused = pool.reuse(other);
    QCOMPARE(reused.tokens, std::int64_t {0});
    QVERIFY(reused.table.pages.empty());
    QCOMPARE(pool.retainedPages(), std::int64_t {8});
}

void TestPagePool::theLongestUnusedIsGivenUpFirst()
{
    PagePool pool(3);
    finish(pool, text(100, 1000));
    finish(pool, text(100, 2000));
    finish(pool, text(100, 3000));
    auto used = pool.reuse(text(100, 1000)); // and finished once more
    pool.retain(used.table, text(100, 1000));
    BlockTable table;
    QVERIFY(pool.grow(table, 256));
    QCOMPARE(pool.reuse(text(100, 2000)).tokens, std::int64_t {0});
    QCOMPARE(pool.reuse(text(100, 1000)).tokens, std::int64_t {100});
    QCOMPARE(pool.reuse(text(100, 3000)).tokens, std::int64_t {100});
}

void TestPagePool::reservedPagesThatStayedEmptyComeBack()
{
    PagePool pool(8);
    BlockTable table;
    QVERIFY(pool.grow(table, 2000));
    pool.retain(table, text(10));
    QCOMPARE(pool.freePages(), std::int64_t {7});
    QVERIFY(pool.grow(table, 256));
    pool.retain(table, {}); // stopped before anything was computed
    QCOMPARE(pool.freePages(), std::int64_t {7});
}

void TestPagePool::pageEdges_data()
{
    QTest::addColumn<int>("old_length");
    QTest::addColumn<int>("new_length");
    for (const int a : {1, 255, 256, 257, 511, 512, 513})
        for (const int b : {1, 255, 256, 257, 511, 512, 513})
            QTest::addRow("%d then %d", a, b) << a << b;
}

void TestPagePool::pageEdges()
{
    QFETCH(int, old_length);
    QFETCH(int, new_length);
    PagePool pool(8);
    finish(pool, text(old_length));
    auto reused = pool.reuse(text(new_length));
    QCOMPARE(reused.tokens, std::int64_t {std::min(old_length, new_length)});
    QVERIFY(reused.table.capacity() >= reused.tokens);
    pool.release(reused.table);
    QCOMPARE(pool.freePages() + pool.retainedPages(), std::int64_t {8});
}

void TestPagePool::noPageIsLostOrSharedInRandomUse()
{
    constexpr int kPages = 24;
    std::mt19937 random(7);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    PagePool pool(kPages);
    struct Running {
        BlockTable table;
        std::vector<TokenId> tokens;
    };
    std::vector<Running> running;
    for (int i = 0; i < 20000; ++i) {
        const int what = below(4);
        if (what == 0 && running.size() < 4) {
            std::vector<TokenId> tokens = text(1 + below(1500), below(3) * 10000);
            auto reused = pool.reuse(tokens);
            QVERIFY(reused.tokens <= static_cast<std::int64_t>(tokens.size()));
            if (pool.grow(reused.table, static_cast<std::int64_t>(tokens.size())))
                running.push_back({std::move(reused.table), std::move(tokens)});
            else
                pool.release(reused.table);
        } else if (!running.empty()) {
            Running& one = running[static_cast<std::size_t>(below(static_cast<int>(running.size())))];
            if (what == 1) {
                if (pool.grow(one.table, static_cast<std::int64_t>(one.tokens.size()) + 100))
                    one.tokens.resize(one.tokens.size() + 100, 5);
            } else {
                if (what == 2)
                    pool.release(one.table);
                else
                    pool.retain(one.table, one.tokens);
                std::swap(one, running.back());
                running.pop_back();
            }
        }
        std::set<PageId> held;
        std::int64_t count = 0;
        for (const Running& one : running) {
            held.insert(one.table.pages.begin(), one.table.pages.end());
            count += static_cast<std::int64_t>(one.table.pages.size());
        }
        QCOMPARE(static_cast<std::int64_t>(held.size()), count);
        QCOMPARE(pool.freePages() + pool.retainedPages() + count, std::int64_t {kPages});
    }
    for (Running& one : running)
        pool.release(one.table);
    pool.forgetRetained();
    QCOMPARE(pool.freePages(), std::int64_t {kPages});
}

QTEST_GUILESS_MAIN(TestPagePool)
#include "tst_page_pool.moc"
