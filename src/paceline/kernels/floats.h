// Eight floats at once, and exp of them. Included by each instruction set.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "layout.h"
#if defined(PACELINE_FMA)
#include <immintrin.h>
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector leaves a function here: all are inlined
#endif

namespace paceline {
namespace PACELINE_ISA {

#if defined(__GNUC__) || defined(__clang__)

typedef float Floats __attribute__((vector_size(32)));
typedef std::int32_t Ints __attribute__((vector_size(32)));

PACELINE_INLINE Floats all(float x) { return Floats{x, x, x, x, x, x, x, x}; }
PACELINE_INLINE Floats select(const Ints& mask, const Floats& a, const Floats& b) {
    return mask ? a : b;
}

#else

template <class T>
struct Eight {
    T v[LANES];
    template <class F>
    static Eight make(F&& at) {
        Eight y;
        for (int i = 0; i < LANES; ++i) y.v[i] = T(at(i));
        return y;
    }
    T operator[](int i) const { return v[i]; }
};
using Floats = Eight<float>;
using Ints = Eight<std::int32_t>;

inline Floats all(float x) {
    return Floats::make([&](int) { return x; });
}
inline Floats select(const Ints& mask, const Floats& a, const Floats& b) {
    return Floats::make([&](int i) { return mask.v[i] ? a.v[i] : b.v[i]; });
}
#define PACELINE_LANES(TYPE, IN, OP)                                      \
    inline TYPE operator OP(const IN& a, const IN& b) {                   \
        return TYPE::make([&](int i) { return a.v[i] OP b.v[i]; });       \
    }                                                                     \
    inline TYPE operator OP(const IN& a, decltype(a.v[0] + a.v[0]) b) {   \
        return TYPE::make([&](int i) { return a.v[i] OP b; });            \
    }
PACELINE_LANES(Floats, Floats, +)
PACELINE_LANES(Floats, Floats, -)
PACELINE_LANES(Floats, Floats, *)
PACELINE_LANES(Floats, Floats, /)
PACELINE_LANES(Ints, Floats, <)
PACELINE_LANES(Ints, Floats, >)
PACELINE_LANES(Ints, Floats, !=)
PACELINE_LANES(Ints, Ints, +)
PACELINE_LANES(Ints, Ints, <<)
PACELINE_LANES(Ints, Ints, |)
#undef PACELINE_LANES

#endif

PACELINE_INLINE Floats load(const float* x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}
PACELINE_INLINE void store(float* x, const Floats& v) { std::memcpy(x, &v, sizeof v); }

// The same for the first n of eight; the others are 0, and are not written.
PACELINE_INLINE Floats load(const float* x, int n) {
    if (n >= LANES) return load(x);
    float v[LANES] = {};
    for (int i = 0; i < n; ++i) v[i] = x[i];
    return load(v);
}
PACELINE_INLINE void store(float* x, const Floats& v, int n) {
    if (n >= LANES) return store(x, v);
    float lanes[LANES];
    store(lanes, v);
    for (int i = 0; i < n; ++i) x[i] = lanes[i];
}

// a * b + c, rounded once where that is one instruction.
PACELINE_INLINE Floats madd(const Floats& a, const Floats& b, const Floats& c) {
#if defined(PACELINE_FMA)
    return Floats(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#else
    return a * b + c;
#endif
}

PACELINE_INLINE float sum(const Floats& v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The sums of four vectors, each as `sum` adds it.
PACELINE_INLINE void sums(const Floats* v, float* out) {
#if defined(__GNUC__) || defined(__clang__)
#define PACELINE_PICK(a, b, i, j, k, l) \
    __builtin_shufflevector(a, b, i, j, k, l, i + 4, j + 4, k + 4, l + 4)
    // Lane by lane [a0 b0 a1 b1] + [a2 b2 a3 b3], in either half of the vector.
    Floats ab = PACELINE_PICK(v[0], v[1], 0, 8, 1, 9) + PACELINE_PICK(v[0], v[1], 2, 10, 3, 11);
    Floats cd = PACELINE_PICK(v[2], v[3], 0, 8, 1, 9) + PACELINE_PICK(v[2], v[3], 2, 10, 3, 11);
    Floats s = PACELINE_PICK(ab, cd, 0, 1, 8, 9) + PACELINE_PICK(ab, cd, 2, 3, 10, 11);
#undef PACELINE_PICK
    typedef float Four __attribute__((vector_size(16)));
    const Four four = Four(__builtin_shufflevector(s, s, 0, 1, 2, 3)) +
                      Four(__builtin_shufflevector(s, s, 4, 5, 6, 7));
    std::memcpy(out, &four, sizeof four);
#else
    for (int i = 0; i < 4; ++i) {
        const Floats& x = v[i];
        out[i] = ((x[0] + x[2]) + (x[1] + x[3])) + ((x[4] + x[6]) + (x[5] + x[7]));
    }
#endif
}

// e^x within 2 units in the last place, for x up to 88 (beyond: e^88); 0 below -87; NaN stays.
PACELINE_INLINE Floats exp(const Floats& x) {
    const Floats low = all(-87.0f), high = all(88.0f);
    Floats c = select(x < low, low, x);
    c = select(c > high, high, c);
    // x = n ln 2 + r; adding 1.5 * 2^23 rounds to the integer n and leaves it in the low bits
    const Floats shifted = madd(c, all(1.44269504f), all(12582912.0f));
    const Floats n = shifted - all(12582912.0f);
    // ln 2 in two parts, the first of 9 bits: n times it is exact
    Floats r = madd(n, all(-0.693359375f), c);
    r = madd(n, all(2.12194440e-4f), r);
    // (e^r - 1 - r) / r^2, interpolated at Chebyshev nodes of [-ln 2 / 2, ln 2 / 2]
    Floats p = all(1.9891e-4f);
    p = madd(p, r, all(1.3933658e-3f));
    p = madd(p, r, all(8.3333109e-3f));
    p = madd(p, r, all(4.1666465e-2f));
    p = madd(p, r, all(1.6666667e-1f));
    p = madd(p, r, all(0.5f));
    p = madd(p, r * r, r) + all(1.0f);
    const Ints exponent = (std::bit_cast<Ints>(shifted) << 23) + 0x3f800000;
    return select(x < low, all(0.0f), p * std::bit_cast<Floats>(exponent));
}

}  // namespace PACELINE_ISA
}  // namespace paceline
