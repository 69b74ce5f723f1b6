// Attention of one row's queries over one key/value head. Included by each instruction set.
//
// A score is one dot product in a fixed order, a softmax sums from the first key that its query
// sees, and values are added key by key from there: a query's result is the same to the bit
// whatever else is asked in the same call, and wherever the keys lie that it sees. Blocks only
// decide what is in the processor's cache.
#pragma once

#include <cstdint>
#include <limits>

#include "floats.h"
#include "isa.h"

namespace paceline {
namespace PACELINE_ISA {

// One call's scores: a row of `stride` for each query head of each position, column 0 being
// position `base`; the last column holds 1 / (the sum of the weights).
struct Scores {
    explicit Scores(const Attend& a)
        : base(first_seen(a, a.first)),
          end(a.end),
          stride(std::int64_t(end) - base + LANES),
          data(a.scores) {}

    static int first_seen(const Attend& a, int position) {
        return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
    }
    static int position(const Attend& a, int t) {
        return a.nodes ? int(a.nodes[t].position) : a.first + t;
    }
    float* row(int query) const { return data + query * stride; }
    float& inverse(int query) const { return row(query)[stride - 1]; }

    int base, end;
    std::int64_t stride;
    float* data;
};

// out[q][k] = query q . key k, for Q queries and 4 keys.
template <int Q>
PACELINE_INLINE void score(const float* const* query, const float* const* key, int dim,
                           float* const* out) {
    Floats acc[Q][4];
    for (int q = 0; q < Q; ++q)
        for (int k = 0; k < 4; ++k) acc[q][k] = all(0.0f);
    for (int i = 0; i < dim; i += LANES) {
        Floats x[Q];
        for (int q = 0; q < Q; ++q) x[q] = load(query[q] + i);
        for (int k = 0; k < 4; ++k) {
            const Floats y = load(key[k] + i);
            for (int q = 0; q < Q; ++q) acc[q][k] = madd(x[q], y, acc[q][k]);
        }
    }
    for (int q = 0; q < Q; ++q) sums(acc[q], out[q]);
}

// How many of `left` queries go together: 3 keep the multipliers busy, and 2 + 2 beat 3 + 1.
inline int together(int left) { return left == 4 ? 2 : left < 3 ? left : 3; }

// Scores of the 4 keys of positions from s on, for queries t..end-1.
PACELINE_INLINE void score_keys(const Attend& a, const Scores& scores, const float* const* key,
                                int s, int t, int end) {
    const int queries = end * a.group;
    int head = 0;
    for (int j = t * a.group, n; j < queries; j += n) {
        n = together(queries - j);
        const float* query[3];
        float* out[3];
        for (int q = 0; q < n; ++q) {
            query[q] = a.query + t * a.query_stride + std::int64_t(head) * a.dim;
            out[q] = scores.row(j + q) + (s - scores.base);
            if (++head == a.group) head = 0, ++t;
        }
        if (n == 3)
            score<3>(query, key, a.dim, out);
        else if (n == 2)
            score<2>(query, key, a.dim, out);
        else
            score<1>(query, key, a.dim, out);
    }
}

inline void score_all(const Attend& a, const Scores& scores) {
    for (int s = scores.base; s < a.shared; s += 4) {
        const float* key[4];
        for (int k = 0; k < 4; ++k) {
            const int last = a.shared - 1;  // twice rather than beyond the end
            key[k] = a.keys + std::int64_t(s + k < last ? s + k : last) * a.dim;
        }
        // Queries at a position before s see none of these keys.
        score_keys(a, scores, key, s, s > a.first ? s - a.first : 0, a.count);
    }
}

// The first position that a query sees of those that it has for itself.
inline int first_own(const Attend& a, int position) {
    const int from = Scores::first_seen(a, position);
    return from > a.shared ? from : a.shared;
}

inline void score_own(const Attend& a, const Scores& scores) {
    for (int t = 0; t < a.count; ++t) {
        const int last = Scores::position(a, t);
        for (int s = first_own(a, last); s <= last; s += 4) {
            const float* key[4];
            for (int k = 0; k < 4; ++k) {
                const int position = s + k < last ? s + k : last;
                key[k] = a.keys + a.nodes[t].own[position - a.shared] * a.dim;
            }
            score_keys(a, scores, key, s, t, t + 1);
        }
    }
}

// A query's scores in columns from..to-1 become e^(score - the largest); the next 7 become 0.
inline void soften(float* row, int from, int to, float* inverse) {
    constexpr float INFINITE = std::numeric_limits<float>::infinity();
    for (int k = 0; k < LANES - 1; ++k) row[to + k] = -INFINITE;
    Floats most = all(-INFINITE);
    for (int i = from; i < to; i += LANES) {
        const Floats v = load(row + i);
        most = select(v > most, v, most);
    }
    float top = -INFINITE;
    for (int k = 0; k < LANES; ++k)
        if (most[k] > top) top = most[k];
    Floats total = all(0.0f);
    for (int i = from; i < to; i += LANES) {
        const Floats e = exp(load(row + i) - all(top));
        store(row + i, e);
        total = total + e;
    }
    *inverse = 1.0f / sum(total);
}

// out[q][0 .. 8 D) += weight[q][s] * value s, for Q queries and values 0..count-1 in turn.
template <int Q, int D>
PACELINE_INLINE void weigh(const float* const* weight, const float* value, int dim, int count,
                           float* const* out, int column) {
    Floats acc[Q][D];
    for (int q = 0; q < Q; ++q)
        for (int d = 0; d < D; ++d) acc[q][d] = load(out[q] + column + d * LANES);
    for (int s = 0; s < count; ++s) {
        Floats v[D];
        for (int d = 0; d < D; ++d) v[d] = load(value + std::int64_t(s) * dim + column + d * LANES);
        for (int q = 0; q < Q; ++q) {
            const Floats w = all(weight[q][s]);
            for (int d = 0; d < D; ++d) acc[q][d] = madd(w, v[d], acc[q][d]);
        }
    }
    for (int q = 0; q < Q; ++q)
        for (int d = 0; d < D; ++d) store(out[q] + column + d * LANES, acc[q][d]);
}

template <int Q>
void weigh_columns(const float* const* weight, const float* value, int dim, int count,
                   float* const* out) {
    int column = 0;
    for (; column + 4 * LANES <= dim; column += 4 * LANES)
        weigh<Q, 4>(weight, value, dim, count, out, column);
    for (; column < dim; column += LANES) weigh<Q, 1>(weight, value, dim, count, out, column);
}

// Adds to what the heads of query t give the values of `count` positions from s on.
PACELINE_INLINE void weigh_values(const Attend& a, const Scores& scores, int t, int s, int count,
                                  const float* value) {
    for (int h = 0, n; h < a.group; h += n) {
        n = together(a.group - h);
        const float* weight[3];
        float* out[3];
        for (int q = 0; q < n; ++q) {
            weight[q] = scores.row(t * a.group + h + q) + (s - scores.base);
            out[q] = a.out + t * a.out_stride + std::int64_t(h + q) * a.dim;
        }
        if (n == 3)
            weigh_columns<3>(weight, value, a.dim, count, out);
        else if (n == 2)
            weigh_columns<2>(weight, value, a.dim, count, out);
        else
            weigh_columns<1>(weight, value, a.dim, count, out);
    }
}

inline void weigh_all(const Attend& a, const Scores& scores) {
    constexpr int BLOCK = 32;  // values that stay in the nearest cache for all queries
    for (int block = scores.base; block < a.shared; block += BLOCK) {
        const int end = block + BLOCK < a.shared ? block + BLOCK : a.shared;
        for (int t = 0; t < a.count; ++t) {
            const int position = Scores::position(a, t), from = Scores::first_seen(a, position);
            const int s = from > block ? from : block;
            const int last = position < end - 1 ? position : end - 1;
            if (s > last) continue;
            weigh_values(a, scores, t, s, last - s + 1, a.values + std::int64_t(s) * a.dim);
        }
    }
}

inline void weigh_own(const Attend& a, const Scores& scores) {
    for (int t = 0; t < a.count; ++t) {
        const int last = Scores::position(a, t);
        for (int s = first_own(a, last); s <= last; ++s)
            weigh_values(a, scores, t, s, 1, a.values + a.nodes[t].own[s - a.shared] * a.dim);
    }
}

inline void attend(const Attend& a) {
    const Scores scores(a);
    score_all(a, scores);
    if (a.nodes) score_own(a, scores);
    for (int t = 0; t < a.count; ++t) {
        const int position = Scores::position(a, t);
        const int from = Scores::first_seen(a, position) - scores.base;
        for (int h = 0; h < a.group; ++h) {
            const int query = t * a.group + h;
            soften(scores.row(query), from, position + 1 - scores.base, &scores.inverse(query));
            float* out = a.out + t * a.out_stride + std::int64_t(h) * a.dim;
            for (int i = 0; i < a.dim; i += LANES) store(out + i, all(0.0f));
        }
    }
    weigh_all(a, scores);
    if (a.nodes) weigh_own(a, scores);
    for (int t = 0; t < a.count; ++t) {
        for (int h = 0; h < a.group; ++h) {
            float* out = a.out + t * a.out_stride + std::int64_t(h) * a.dim;
            const Floats inverse = all(scores.inverse(t * a.group + h));
            for (int i = 0; i < a.dim; i += LANES) store(out + i, load(out + i) * inverse);
        }
    }
}

}  // namespace PACELINE_ISA
}  // namespace paceline
