#include "engine/text/bpe.h"

#include "engine/text/byte_level.h"
#include "engine/text/unicode.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <memory>
#include <optional>
#include <utility>

namespace puna {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81"; // U+2581, SentencePiece's space
constexpr std::size_t kShortSymbols = 40; // up to here a rescan for every merge, beyond it a heap
constexpr std::uint64_t kEmptyKey = ~0ull;

constexpr std::uint64_t pairKey(TokenId left, TokenId right)
{
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

constexpr std::uint64_t pairHash(std::uint64_t key)
{
    key *= 0x9E3779B97F4A7C15u;
    return key ^ key >> 29;
}

// One cache line per piece; a newer piece replaces an older one in its slot.
struct alignas(64) CacheSlot {
    static constexpr std::size_t kKey = 30, kIds = 8;
    std::uint8_t length; // 0: empty
    std::uint8_t count;
    char key[kKey];
    TokenId ids[kIds];
};
static_assert(sizeof(CacheSlot) == 64);
constexpr std::size_t kCacheSlots = 32768;

struct PieceCache {
    std::uint64_t owner = 0;
    std::vector<CacheSlot> slots;
};

struct Scratch {
    std::vector<std::uint32_t> ranks;
    struct Symbol {
        TokenId id; // kNoToken: merged into the one before
        std::uint32_t previous, next;
    };
    std::vector<Symbol> symbols;
    struct Entry {
        std::uint64_t order; // rank << 32 | position
        TokenId left, right, result;
        bool operator<(const Entry& other) const { return order > other.order; } // std heaps keep the largest on top
    };
    std::vector<Entry> heap;
};

thread_local PieceCache t_cache;
thread_local Scratch t_scratch;

} // namespace

Bpe::Bpe(Vocabulary vocabulary, std::vector<Merge> merges, Options options)
    : m_vocabulary(std::move(vocabulary))
    , m_options(options)
{
    static std::atomic<std::uint64_t> next {1};
    m_identity = next.fetch_add(1, std::memory_order_relaxed);

    const std::size_t slots = std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 16));
    m_merges.assign(slots, {kEmptyKey, 0, kNoToken});
    m_merge_shift = 64 - std::countr_zero(slots);
    for (const Merge& merge : merges) {
        const std::uint64_t key = pairKey(merge.left, merge.right);
        std::size_t at = pairHash(key) >> m_merge_shift;
        while (m_merges[at].key != kEmptyKey && m_merges[at].key != key)
            at = (at + 1) & (slots - 1);
        m_merges[at] = {key, merge.rank, merge.result};
    }

    m_byte_tokens.fill(kNoToken);
    m_first.fill(kNoToken);
    for (unsigned b = 0; b < 256; ++b) {
        constexpr const char* kHex = "0123456789ABCDEF";
        const char name[] = {'<', '0', 'x', kHex[b >> 4], kHex[b & 15], '>'};
        m_byte_tokens[b] = m_vocabulary.find({name, 6});
        const char byte = static_cast<char>(b);
        if (m_options.byte_level) {
            std::string spelling;
            appendStandIns(spelling, {&byte, 1});
            m_first[b] = m_vocabulary.find(spelling);
        } else if (b < 128)
            m_first[b] = m_vocabulary.find({&byte, 1});
    }
    if (m_options.byte_level) {
        m_bytes.ends.reserve(static_cast<std::size_t>(m_vocabulary.idEnd()));
        for (TokenId id = 0; id < m_vocabulary.idEnd(); ++id) {
            const std::string_view text = m_vocabulary.text(id);
            if (!appendStandInBytes(m_bytes.arena, text))
                m_bytes.arena += text;
            m_bytes.ends.push_back(m_bytes.arena.size());
        }
    } else
        findCuts(merges);
}

// Without a pre-tokenizer a piece is a whole text. No merge crosses a place before a mark if no result of a merge has
// the character before it followed by a mark; the mark is a token, so that no run of unknowns crosses either.
void Bpe::findCuts(const std::vector<Merge>& merges)
{
    if (m_options.ignore_merges || m_vocabulary.find(kMark) == kNoToken)
        return;
    m_cuts = true;
    for (const Merge& merge : merges) {
        const std::string_view text = m_vocabulary.text(merge.result);
        for (std::size_t at = text.find(kMark, 1); at != std::string_view::npos; at = text.find(kMark, at + 1))
            m_before_mark.push_back(unicode::decodeLast(text.substr(0, at)).c);
    }
    std::sort(m_before_mark.begin(), m_before_mark.end());
    m_before_mark.erase(std::unique(m_before_mark.begin(), m_before_mark.end()), m_before_mark.end());
}

bool Bpe::mayCut(std::string_view text, std::size_t at) const
{
    return !std::binary_search(m_before_mark.begin(), m_before_mark.end(), unicode::decodeLast(text.substr(0, at)).c);
}

const Bpe::MergeSlot* Bpe::findMerge(TokenId left, TokenId right) const
{
    const std::uint64_t key = pairKey(left, right);
    const std::size_t mask = m_merges.size() - 1;
    for (std::size_t at = pairHash(key) >> m_merge_shift;; at = (at + 1) & mask) {
        const MergeSlot& slot = m_merges[at];
        if (slot.key == key)
            return &slot;
        if (slot.key == kEmptyKey)
            return nullptr;
    }
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const
{
    if (!m_cuts) {
        encodeCached(piece, out);
        return;
    }
    std::size_t from = 0;
    for (std::size_t at = piece.find(kMark, 1); at != std::string_view::npos; at = piece.find(kMark, at + 1))
        if (mayCut(piece, at)) {
            encodeCached(piece.substr(from, at - from), out);
            from = at;
        }
    encodeCached(piece.substr(from), out);
}

void Bpe::encodeCached(std::string_view piece, std::vector<TokenId>& out) const
{
    if (piece.empty())
        return;
    if (piece.size() > CacheSlot::kKey) {
        encodeUncached(piece, out);
        return;
    }
    PieceCache& cache = t_cache;
    if (cache.owner != m_identity) {
        cache.slots.assign(kCacheSlots, CacheSlot {});
        cache.owner = m_identity;
    }
    CacheSlot& slot = cache.slots[hashBytes(piece) & (kCacheSlots - 1)];
    if (slot.length == piece.size() && std::memcmp(slot.key, piece.data(), piece.size()) == 0) {
        out.insert(out.end(), slot.ids, slot.ids + slot.count);
        return;
    }
    const std::size_t before = out.size();
    encodeUncached(piece, out);
    const std::size_t count = out.size() - before;
    if (count > CacheSlot::kIds)
        return;
    slot.length = static_cast<std::uint8_t>(piece.size());
    slot.count = static_cast<std::uint8_t>(count);
    std::memcpy(slot.key, piece.data(), piece.size());
    std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), slot.ids);
}

void Bpe::encodeUncached(std::string_view piece, std::vector<TokenId>& out) const
{
    if (m_options.ignore_merges) {
        TokenId whole;
        if (m_options.byte_level) {
            std::string spelling;
            appendStandIns(spelling, piece);
            whole = m_vocabulary.find(spelling);
        } else
            whole = m_vocabulary.find(piece);
        if (whole != kNoToken) {
            out.push_back(whole);
            return;
        }
    }
    const std::size_t from = out.size();
    symbols(piece, out);
    const std::size_t n = out.size() - from;
    if (n <= 1)
        return;
    if (n <= kShortSymbols)
        mergeShort(out, from);
    else
        mergeLong(out, from);
}

void Bpe::symbols(std::string_view piece, std::vector<TokenId>& out) const
{
    bool unknown = false; // one is waiting; like the core, it is put down before the next known character only
    const auto add = [&](TokenId id, std::string_view character) {
        if (id != kNoToken) {
            if (std::exchange(unknown, false))
                out.push_back(m_options.unk);
            out.push_back(id);
            return;
        }
        if (m_options.byte_fallback) {
            const auto token = [this](char b) { return m_byte_tokens[static_cast<unsigned char>(b)]; };
            if (std::all_of(character.begin(), character.end(), [&](char b) { return token(b) != kNoToken; })) {
                for (const char b : character)
                    out.push_back(token(b));
                return;
            }
        }
        if (m_options.unk == kNoToken)
            return;
        if (unknown && !m_options.fuse_unk)
            out.push_back(m_options.unk);
        unknown = true;
    };
    if (m_options.byte_level) {
        for (const char b : piece) {
            const TokenId id = m_first[static_cast<unsigned char>(b)];
            if (id != kNoToken && !unknown) {
                out.push_back(id);
                continue;
            }
            std::string spelling;
            appendStandIns(spelling, {&b, 1});
            add(id, spelling);
        }
    } else {
        for (std::size_t at = 0; at < piece.size();) {
            const auto b = static_cast<unsigned char>(piece[at]);
            const std::size_t length = b < 0x80 ? 1 : unicode::decode(piece.data() + at).length;
            const std::string_view character = piece.substr(at, length);
            add(b < 0x80 ? m_first[b] : m_vocabulary.find(character), character);
            at += length;
        }
    }
    if (unknown)
        out.push_back(m_options.unk);
}

// ids[from ...], ranks[i] of the pair that starts at i.
void Bpe::mergeShort(std::vector<TokenId>& ids, std::size_t from) const
{
    constexpr std::uint32_t kNone = 0xFFFFFFFF;
    TokenId* const s = ids.data() + from;
    std::size_t n = ids.size() - from;
    std::array<std::uint32_t, kShortSymbols> ranks;
    std::array<TokenId, kShortSymbols> results;
    const auto look = [&](std::size_t i) {
        const MergeSlot* merge = i + 1 < n ? findMerge(s[i], s[i + 1]) : nullptr;
        ranks[i] = merge ? merge->rank : kNone;
        results[i] = merge ? merge->result : kNoToken;
    };
    for (std::size_t i = 0; i < n; ++i)
        look(i);
    for (;;) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < n; ++i)
            if (ranks[i] < ranks[best])
                best = i;
        if (results[best] == kNoToken)
            break;
        s[best] = results[best];
        for (std::size_t i = best + 1; i + 1 < n; ++i) {
            s[i] = s[i + 1];
            ranks[i] = ranks[i + 1];
            results[i] = results[i + 1];
        }
        --n;
        look(best);
        if (best > 0)
            look(best - 1);
    }
    ids.resize(from + n);
}

void Bpe::mergeLong(std::vector<TokenId>& ids, std::size_t from) const
{
    constexpr std::uint32_t kEnd = 0xFFFFFFFF;
    Scratch& scratch = t_scratch;
    const std::size_t n = ids.size() - from;
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    symbols.resize(n);
    heap.clear();
    const auto candidate = [&](std::size_t at) -> std::optional<Scratch::Entry> {
        const auto& symbol = symbols[at];
        if (symbol.next == kEnd)
            return std::nullopt;
        const TokenId right = symbols[symbol.next].id;
        const MergeSlot* merge = findMerge(symbol.id, right);
        if (!merge)
            return std::nullopt;
        return Scratch::Entry {static_cast<std::uint64_t>(merge->rank) << 32 | at, symbol.id, right, merge->result};
    };
    for (std::size_t i = 0; i < n; ++i)
        symbols[i] = {ids[from + i], i ? static_cast<std::uint32_t>(i - 1) : kEnd,
            i + 1 < n ? static_cast<std::uint32_t>(i + 1) : kEnd};
    for (std::size_t i = 0; i + 1 < n; ++i)
        if (const auto entry = candidate(i))
            heap.push_back(*entry);
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end());
        const Scratch::Entry top = heap.back();
        heap.pop_back();
        const auto at = static_cast<std::uint32_t>(top.order);
        auto& symbol = symbols[at];
        if (symbol.id != top.left || symbol.next == kEnd || symbols[symbol.next].id != top.right)
            continue; // stale
        auto& gone = symbols[symbol.next];
        symbol.id = top.result;
        symbol.next = gone.next;
        gone.id = kNoToken;
        if (symbol.next != kEnd)
            symbols[symbol.next].previous = at;
        for (const std::uint32_t near : {symbol.previous, at}) {
            if (near == kEnd)
                continue;
            if (const auto entry = candidate(near)) {
                heap.push_back(*entry);
                std::push_heap(heap.begin(), heap.end());
            }
        }
    }
    std::size_t end = from;
    for (std::uint32_t at = 0; at != kEnd; at = symbols[at].next)
        ids[end++] = symbols[at].id;
    ids.resize(end);
}

} // namespace puna
