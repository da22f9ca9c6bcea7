// The bodies of kernels.h, written on a few types that the including file defines in its anonymous namespace:
//     F        16 floats          I         16 int32          C         64 bytes, codes
//     X        four signed bytes for every output            Dot<b>   int32 sums of products of b-bit codes and X
// and the constants kRowTile, kStripes (1 or 2), kScoreTiles and kValueChunks, which keep a kernel's accumulators in
// registers.

#define PUNA_INLINE inline __attribute__((always_inline))

template <int N, class Body> PUNA_INLINE void unroll(Body&& body)
{
    [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline))
    {
        (body(std::integral_constant<int, i> {}), ...);
    }
    (std::make_integer_sequence<int, N> {});
}

// --- codes -----------------------------------------------------------------------------------------------------

// Code vector v of a block of `Bits`-bit weights.
template <int Bits, int v> PUNA_INLINE C codeVector(const std::byte* block)
{
    constexpr int kVector = 64;
    if constexpr (Bits == 8) {
        return loadCodes(block + v * kVector);
    } else if constexpr (Bits == 2 || Bits == 3) {
        const C low = maskCodes<0x03>(shiftCodes<2 * (v % 4)>(loadCodes(block + v / 4 * kVector)));
        if constexpr (Bits == 2)
            return low;
        else
            return orMasked<0x04>(low, shiftCodes<v - 2>(loadCodes(block + 2 * kVector)));
    } else {
        const C low = maskCodes<0x0f>(shiftCodes<4 * (v % 2)>(loadCodes(block + v / 2 * kVector)));
        if constexpr (Bits == 4)
            return low;
        else if constexpr (Bits == 5)
            return orMasked<0x10>(low, shiftCodes<v - 4>(loadCodes(block + 4 * kVector)));
        else
            return orMasked<0x30>(low, shiftCodes<2 * (v % 4) - 4>(loadCodes(block + (4 + v / 4) * kVector)));
    }
}

struct Place {
    const std::byte* codes;
    const std::uint16_t* scales;
    const std::uint16_t* offsets;
    std::int64_t stride; // bytes from a stripe to the next
    const std::int8_t* x;
    const float* x_scales;
    const std::int32_t* x_sums;
    const float* x_scaled_sums;
};

PUNA_INLINE const std::uint16_t* nextStripe(const std::uint16_t* p, std::int64_t bytes)
{
    return reinterpret_cast<const std::uint16_t*>(reinterpret_cast<const std::byte*>(p) + bytes);
}

// Adds a run to the totals of S stripes and T rows. One: groups of one block. A value of x, once in a register, meets
// all stripes: the processor measured broadcasts half as many as it multiplies.
template <int Bits, Offset kOffset, bool One, int S, int T>
__attribute__((noinline)) void addRun(const Place& at, int groups, int blocks_per_group, F (&totals)[S][T])
{
    const std::byte* codes = at.codes;
    const std::int8_t* x = at.x;
    const float* x_scales = at.x_scales;
    const std::int32_t* x_sums = at.x_sums;
    const float* x_scaled_sums = at.x_scaled_sums;
    const std::int64_t stride = at.stride;
    F total[S][T];
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < T; ++t)
            total[s][t] = totals[s][t];
    for (int g = 0; g < groups; ++g) {
        F group[S][T];
        float offset_sum[T];
        for (int t = 0; t < T; ++t) {
            for (int s = 0; s < S; ++s)
                group[s][t] = zeroF();
            offset_sum[t] = 0.0f;
        }
        const int n = One ? 1 : blocks_per_group;
        for (int b = 0; b < n; ++b) {
            Dot<Bits> high[S][T], low[S][T];
            for (int s = 0; s < S; ++s) {
                for (int t = 0; t < T; ++t) {
                    high[s][t].clear();
                    low[s][t].clear();
                }
                for (int line = 0; line < Bits; ++line)
                    prefetch(codes + s * stride + kPrefetch + line * 64);
            }
            unroll<8>([&](auto v) __attribute__((always_inline)) {
                C c[S];
                unroll<S>([&](auto s)
                        __attribute__((always_inline)) { c[s] = codeVector<Bits, v>(codes + s * stride); });
                unroll<T>([&](auto t) __attribute__((always_inline)) {
                    const X high_x = loadX(x + t * kBlock + 4 * v), low_x = loadX(x + (T + t) * kBlock + 4 * v);
                    unroll<S>([&](auto s) __attribute__((always_inline)) {
                        high[s][t].template add<v>(c[s], high_x);
                        low[s][t].template add<v>(c[s], low_x);
                    });
                });
            });
            unroll<T>([&](auto t) __attribute__((always_inline)) {
                unroll<S>([&](auto s) __attribute__((always_inline)) {
                    I sum = addI(shiftLeftI<8>(high[s][t].sum()), low[s][t].sum());
                    if constexpr (kOffset == Offset::middle)
                        sum = addI(sum, shiftRightI<8 - Bits>(setI(x_sums[t])));
                    if constexpr (One)
                        group[s][t] = mul(toFloat(sum), set(x_scales[t]));
                    else
                        group[s][t] = fma(toFloat(sum), set(x_scales[t]), group[s][t]);
                });
                if constexpr (kOffset != Offset::middle)
                    offset_sum[t] += x_scaled_sums[t];
            });
            codes += Bits * 64;
            x += 2 * T * kBlock;
            x_scales += T;
            x_sums += T;
            x_scaled_sums += T;
        }
        for (int s = 0; s < S; ++s) {
            const F scale = loadHalf(nextStripe(at.scales + g * kStripe, s * stride));
            for (int t = 0; t < T; ++t)
                total[s][t] = fma(group[s][t], scale, total[s][t]);
            if constexpr (kOffset != Offset::middle) {
                const std::uint16_t* offsets = nextStripe(at.offsets + g * kStripe, s * stride);
                const F minimum =
                    kOffset == Offset::minimum ? loadHalf(offsets) : mul(scale, loadNegatedInt16(offsets));
                for (int t = 0; t < T; ++t)
                    total[s][t] = fma(minimum, set(offset_sum[t]), total[s][t]);
            }
        }
    }
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < T; ++t)
            totals[s][t] = total[s][t];
}

template <int Bits, int S, int T>
PUNA_INLINE void addRunOf(Offset offset, const Place& at, int groups, int blocks_per_group, F (&totals)[S][T])
{
    if constexpr (Bits == 4)
        if (offset == Offset::minimum)
            return addRun<Bits, Offset::minimum, true, S, T>(at, groups, 1, totals);
    if constexpr (Bits != 5 && Bits != 6)
        if (offset == Offset::zero)
            return addRun<Bits, Offset::zero, false, S, T>(at, groups, blocks_per_group, totals);
    if (blocks_per_group == 1)
        return addRun<Bits, Offset::middle, true, S, T>(at, groups, 1, totals);
    addRun<Bits, Offset::middle, false, S, T>(at, groups, blocks_per_group, totals);
}

// out [S][rows of the input][16]
template <int S, int T>
void codesTile(const PackedLinear& weights, const std::byte* stripe, const Input& input, std::int64_t first, float* out)
{
    F totals[S][T];
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < T; ++t)
            totals[s][t] = zeroF();
    for (const Run& run : weights.runs) {
        const std::int64_t block = first * input.blocks + std::int64_t {run.first_block} * T;
        const Place at {.codes = stripe + run.codes,
            .scales = reinterpret_cast<const std::uint16_t*>(stripe + weights.scales) + run.first_group * kStripe,
            .offsets = reinterpret_cast<const std::uint16_t*>(stripe + weights.offsets) + run.first_group * kStripe,
            .stride = weights.stripe_bytes,
            .x = input.codes + 2 * block * kBlock,
            .x_scales = input.scales + block,
            .x_sums = input.sums + block,
            .x_scaled_sums = input.scaled_sums + block};
        switch (run.bits) {
        case 2:
            addRunOf<2, S, T>(weights.offset, at, run.groups, run.blocks_per_group, totals);
            break;
        case 3:
            addRunOf<3, S, T>(weights.offset, at, run.groups, run.blocks_per_group, totals);
            break;
        case 4:
            addRunOf<4, S, T>(weights.offset, at, run.groups, run.blocks_per_group, totals);
            break;
        case 5:
            addRunOf<5, S, T>(weights.offset, at, run.groups, run.blocks_per_group, totals);
            break;
        case 6:
            addRunOf<6, S, T>(weights.offset, at, run.groups, run.blocks_per_group, totals);
            break;
        default:
            addRunOf<8, S, T>(weights.offset, at, run.groups, run.blocks_per_group, totals);
            break;
        }
    }
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < T; ++t)
            store(out + (s * input.rows + first + t) * kStripe, totals[s][t]);
}

// --- dense -----------------------------------------------------------------------------------------------------

template <WeightKind kKind> PUNA_INLINE F loadWeights(const std::byte* stripe, std::int64_t k)
{
    if constexpr (kKind == WeightKind::f16)
        return loadHalf(reinterpret_cast<const std::uint16_t*>(stripe) + k * kStripe);
    else if constexpr (kKind == WeightKind::bf16)
        return loadBf16(reinterpret_cast<const std::uint16_t*>(stripe) + k * kStripe);
    else
        return load(reinterpret_cast<const float*>(stripe) + k * kStripe);
}

// Even and odd inputs are summed apart, so that one row alone keeps two chains of additions per stripe busy.
template <WeightKind kKind, int S, int T>
void denseTile(const PackedLinear& weights, const std::byte* stripe, const Input& input, std::int64_t first, float* out)
{
    const std::int64_t features = weights.in_features;
    const float* x = input.values + first * features;
    F sum[2][S][T];
    for (int i = 0; i < 2; ++i)
        for (int s = 0; s < S; ++s)
            for (int t = 0; t < T; ++t)
                sum[i][s][t] = zeroF();
    const auto addOne = [&](auto odd, std::int64_t k) __attribute__((always_inline))
    {
        F w[S];
        for (int s = 0; s < S; ++s)
            w[s] = loadWeights<kKind>(stripe + s * weights.stripe_bytes, k);
        for (int t = 0; t < T; ++t) {
            const F value = set(x[t]);
            for (int s = 0; s < S; ++s)
                sum[odd][s][t] = fma(w[s], value, sum[odd][s][t]);
        }
        x += T;
    };
    std::int64_t k = 0;
    for (; k + 1 < features; k += 2) {
        addOne(std::integral_constant<int, 0> {}, k);
        addOne(std::integral_constant<int, 1> {}, k + 1);
    }
    if (k < features)
        addOne(std::integral_constant<int, 0> {}, k);
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < T; ++t)
            store(out + (s * input.rows + first + t) * kStripe, add(sum[0][s][t], sum[1][s][t]));
}

template <int S, int T>
PUNA_INLINE void matmulTile(
    const PackedLinear& weights, const std::byte* stripe, const Input& input, std::int64_t first, float* out)
{
    switch (weights.kind) {
    case WeightKind::codes:
        return codesTile<S, T>(weights, stripe, input, first, out);
    case WeightKind::f16:
        return denseTile<WeightKind::f16, S, T>(weights, stripe, input, first, out);
    case WeightKind::bf16:
        return denseTile<WeightKind::bf16, S, T>(weights, stripe, input, first, out);
    case WeightKind::f32:
        return denseTile<WeightKind::f32, S, T>(weights, stripe, input, first, out);
    }
}

template <int S>
PUNA_INLINE void matmulStripes(const PackedLinear& weights, const std::byte* stripe, const Input& input, float* out)
{
    for (std::int64_t first = 0; first < input.rows;) {
        const RowTile tile = rowTile(first, input.rows, kRowTile);
        if constexpr (kRowTile >= 4)
            if (tile.rows == 4)
                matmulTile<S, 4>(weights, stripe, input, first, out);
        if constexpr (kRowTile >= 2)
            if (tile.rows == 2)
                matmulTile<S, 2>(weights, stripe, input, first, out);
        if (tile.rows == 1)
            matmulTile<S, 1>(weights, stripe, input, first, out);
        first += tile.rows;
    }
}

void matmul(const PackedLinear& weights, std::int64_t first, std::int64_t count, const Input& input, float* out)
{
    for (std::int64_t i = 0; i < count;) {
        const std::byte* stripe = weights.stripe(first + i);
        float* to = out + i * input.rows * kStripe;
        if (kStripes == 1 || i + 1 == count) {
            matmulStripes<1>(weights, stripe, input, to);
            i += 1;
        } else {
            matmulStripes<kStripes>(weights, stripe, input, to);
            i += kStripes;
        }
    }
}

// --- activations -----------------------------------------------------------------------------------------------

PUNA_INLINE const float* gathered(const float* x, const std::int32_t* gather, std::int64_t n, float* scratch)
{
    if (!gather)
        return x;
    for (std::int64_t i = 0; i < n; ++i)
        scratch[i] = gather[i] < 0 ? 0.0f : x[gather[i]];
    return scratch;
}

// Each 32 values become whole multiples -32,512 ... 32,512 of a scale, written as 256 high + low with signed bytes.
// What is not a number, or infinite, makes the scale so, and the matmul's outputs too.
void quantise(const float* x, const std::int32_t* gather, std::int64_t row, const Input& input, float* scratch)
{
    constexpr float kMost = 127.0f * 256.0f;
    const float* values = gathered(x, gather, input.blocks * kBlock, scratch);
    const RowTile tile = tileOfRow(row, input.rows, kRowTile);
    std::int64_t place = tile.first * input.blocks + (row - tile.first);
    std::int8_t* codes = input.codes + (2 * tile.first * input.blocks + (row - tile.first)) * kBlock;
    for (std::int64_t b = 0; b < input.blocks; ++b, place += tile.rows, codes += 2 * tile.rows * kBlock) {
        const F v0 = load(values + b * kBlock), v1 = load(values + b * kBlock + 16);
        const float largest = largestMagnitude(v0, v1);
        const bool nothing = largest < 1e-30f;
        const F factor = set(nothing ? 0.0f : kMost / largest);
        const I q0 = round(mul(v0, factor)), q1 = round(mul(v1, factor));
        const I high0 = shiftRightI<8>(addI(q0, setI(128))), high1 = shiftRightI<8>(addI(q1, setI(128)));
        storeBytes(codes, high0, high1);
        storeBytes(codes + tile.rows * kBlock, subI(q0, shiftLeftI<8>(high0)), subI(q1, shiftLeftI<8>(high1)));
        const int sum = sumOf(addI(q0, q1));
        const float scale = nothing ? 0.0f : largest * (1.0f / kMost);
        input.scales[place] = scale;
        input.sums[place] = -128 * sum;
        input.scaled_sums[place] = scale * static_cast<float>(sum);
    }
}

float norm(const float* x, const float* weight, float eps, std::int64_t n, float* out)
{
    F squares = zeroF();
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const F v = load(x + i);
        squares = fma(v, v, squares);
    }
    float sum = sumOf(squares);
    for (; i < n; ++i)
        sum += x[i] * x[i];
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (i = 0; i + 16 <= n; i += 16)
        store(out + i, mul(mul(load(x + i), set(factor)), load(weight + i)));
    for (; i < n; ++i)
        out[i] = x[i] * factor * weight[i];
    return sum;
}

// exp for x <= 88; below -87 it is as small as at -87. 2^n e^r with |r| <= ln(2) / 2 and a polynomial for e^r whose
// relative error is below 2^-23.
PUNA_INLINE F exponential(F x)
{
    x = largerOf(set(-87.0f), smallerOf(set(88.0f), x)); // in this order a NaN stays one
    const I n = round(mul(x, set(1.44269504f)));
    const F r = fma(toFloat(n), set(1.90465429995776e-9f), fma(toFloat(n), set(-0.693147182464599609375f), x));
    F p = fma(r, set(1.0f / 720.0f), set(1.0f / 120.0f));
    p = fma(p, r, set(1.0f / 24.0f));
    p = fma(p, r, set(1.0f / 6.0f));
    p = fma(p, r, set(0.5f));
    p = fma(p, r, set(1.0f));
    p = fma(p, r, set(1.0f));
    return timesPowerOfTwo(p, n);
}

void siluTimes(const float* gate, const float* up, std::int64_t n, float* out)
{
    for (std::int64_t i = 0; i < n; i += 16) {
        const F g = load(gate + i);
        const F denominator = add(set(1.0f), exponential(sub(zeroF(), g)));
        store(out + i, mul(div(g, denominator), load(up + i)));
    }
}

void toHalf(const float* x, std::int64_t n, std::uint16_t* out)
{
    for (std::int64_t i = 0; i < n; i += 16)
        storeHalf(out + i, load(x + i));
}

// --- attention -------------------------------------------------------------------------------------------------

template <int N, int Tiles>
PUNA_INLINE void scoreTiles(const float* const* query, const std::uint16_t* k, int head_dim, float* scores)
{
    F sum[N][Tiles];
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < Tiles; ++j)
            sum[i][j] = zeroF();
    for (int d = 0; d < head_dim; ++d) {
        F key[Tiles];
        for (int j = 0; j < Tiles; ++j)
            key[j] = loadHalf(k + (j * head_dim + d) * kKeyTile);
        for (int i = 0; i < N; ++i) {
            const F q = set(query[i][d]);
            for (int j = 0; j < Tiles; ++j)
                sum[i][j] = fma(q, key[j], sum[i][j]);
        }
    }
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < Tiles; ++j)
            store(scores + i * kKeySplit + j * kKeyTile, sum[i][j]);
}

template <int N, int Chunks>
PUNA_INLINE void weighValues(
    const float* weights, const std::uint16_t* v, int stride, int keys, int chunk, float* const* out)
{
    F sum[N][Chunks];
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < Chunks; ++j)
            sum[i][j] = zeroF();
    v += chunk * 16;
    for (int key = 0; key < keys; ++key, v += stride) {
        F value[Chunks];
        for (int j = 0; j < Chunks; ++j)
            value[j] = loadHalf(v + j * 16);
        for (int i = 0; i < N; ++i) {
            const F p = set(weights[i * kKeySplit + key]);
            for (int j = 0; j < Chunks; ++j)
                sum[i][j] = fma(p, value[j], sum[i][j]);
        }
    }
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < Chunks; ++j)
            store(out[i] + 2 + (chunk + j) * 16, sum[i][j]);
}

// Scores become exponentials of their distance to the largest; beyond `keys` they become 0.
PUNA_INLINE void softmax(float* scores, int keys, int padded, float* out)
{
    const F lowest = set(-std::numeric_limits<float>::infinity());
    F largest = lowest;
    for (int i = 0; i < keys; i += 16)
        largest = largerOf(largest, firstLanes(load(scores + i), keys - i, lowest));
    const float top = largestOf(largest);
    F sum = zeroF();
    for (int i = 0; i < padded; i += 16) {
        const F p = firstLanes(exponential(sub(load(scores + i), set(top))), keys - i, zeroF());
        store(scores + i, p);
        sum = add(sum, p);
    }
    out[0] = top;
    out[1] = sumOf(sum);
}

template <int N> void attendQueries(const Attend& a, int first)
{
    const float* const* query = a.query + first;
    float* const* out = a.out + first;
    float* scores = a.scores + first * kKeySplit;
    int keys = 0;
    for (int i = 0; i < N; ++i)
        keys = a.keys[first + i] > keys ? a.keys[first + i] : keys;
    const int tiles = (keys + kKeyTile - 1) / kKeyTile;
    int tile = 0;
    for (; tile + kScoreTiles <= tiles; tile += kScoreTiles)
        scoreTiles<N, kScoreTiles>(query, a.k + tile * kKeyTile * a.head_dim, a.head_dim, scores + tile * kKeyTile);
    for (; tile < tiles; ++tile)
        scoreTiles<N, 1>(query, a.k + tile * kKeyTile * a.head_dim, a.head_dim, scores + tile * kKeyTile);
    for (int i = 0; i < N; ++i)
        softmax(scores + i * kKeySplit, a.keys[first + i], tiles * kKeyTile, out[i]);
    const int chunks = a.value_stride / 16;
    int chunk = 0;
    for (; chunk + kValueChunks <= chunks; chunk += kValueChunks)
        weighValues<N, kValueChunks>(scores, a.v, a.value_stride, keys, chunk, out);
    for (; chunk < chunks; ++chunk)
        weighValues<N, 1>(scores, a.v, a.value_stride, keys, chunk, out);
}

void attend(const Attend& a)
{
    for (int first = 0; first < a.queries;) {
        const int n = a.queries - first < 4 ? a.queries - first : 4;
        switch (n) {
        case 4:
            attendQueries<4>(a, first);
            break;
        case 3:
            attendQueries<3>(a, first);
            break;
        case 2:
            attendQueries<2>(a, first);
            break;
        default:
            attendQueries<1>(a, first);
            break;
        }
        first += n;
    }
}

void merge(float* into, const float* from, int value_stride)
{
    if (from[1] == 0.0f)
        return;
    if (into[1] == 0.0f) {
        for (int i = 0; i < 2 + value_stride; ++i)
            into[i] = from[i];
        return;
    }
    const float top = into[0] > from[0] ? into[0] : from[0];
    const F a = exponential(set(into[0] - top)), b = exponential(set(from[0] - top));
    into[0] = top;
    into[1] = firstLane(fma(a, set(into[1]), mul(b, set(from[1]))));
    for (int i = 2; i < 2 + value_stride; i += 16)
        store(into + i, fma(a, load(into + i), mul(b, load(from + i))));
}

std::uint64_t readAll(const std::byte* data, std::int64_t bytes)
{
    C sum[4] = {loadCodes(data), loadCodes(data), loadCodes(data), loadCodes(data)};
    for (std::int64_t i = 0; i + 256 <= bytes; i += 256) {
        prefetch(data + i + kPrefetch);
        for (int j = 0; j < 4; ++j)
            sum[j] = xorCodes(sum[j], loadCodes(data + i + j * 64));
    }
    return foldCodes(xorCodes(xorCodes(sum[0], sum[1]), xorCodes(sum[2], sum[3])));
}

constexpr Kernels kTable {.level = kLevel,
    .row_tile = kRowTile,
    .matmul = matmul,
    .quantise = quantise,
    .norm = norm,
    .siluTimes = siluTimes,
    .attend = attend,
    .merge = merge,
    .toHalf = toHalf,
    .readAll = readAll};

#undef PUNA_INLINE
