// Four floats at once, on any processor and without flags of its own.
#pragma once

#include <cstdint>

namespace paceline {

constexpr int WIDTH = 4;

#if defined(__GNUC__) || defined(__clang__)

typedef float Vec __attribute__((vector_size(16)));
typedef std::int32_t Mask __attribute__((vector_size(16)));  // 0 or -1

inline Vec pick(Mask mask, Vec a, Vec b) { return mask ? a : b; }

#else

template <class T>
struct Four {
    T v[WIDTH];
    T& operator[](int i) { return v[i]; }
    T operator[](int i) const { return v[i]; }
};
using Vec = Four<float>;
using Mask = Four<std::int32_t>;

template <class To, class F>
To each_of_four(F&& at) {
    return {at(0), at(1), at(2), at(3)};
}
#define PACELINE_FOUR(TO, FROM, OP, EXPRESSION)                      \
    inline TO operator OP(const FROM& a, const FROM& b) {            \
        return each_of_four<TO>([&](int i) { return EXPRESSION; });  \
    }
PACELINE_FOUR(Vec, Vec, +, a[i] + b[i])
PACELINE_FOUR(Vec, Vec, -, a[i] - b[i])
PACELINE_FOUR(Vec, Vec, *, a[i] * b[i])
PACELINE_FOUR(Vec, Vec, /, a[i] / b[i])
PACELINE_FOUR(Mask, Vec, <, -std::int32_t(a[i] < b[i]))
PACELINE_FOUR(Mask, Vec, >, -std::int32_t(a[i] > b[i]))
PACELINE_FOUR(Mask, Vec, !=, -std::int32_t(a[i] != b[i]))
PACELINE_FOUR(Mask, Mask, &, a[i] & b[i])
PACELINE_FOUR(Mask, Mask, |, a[i] | b[i])
#undef PACELINE_FOUR

inline Vec pick(const Mask& mask, const Vec& a, const Vec& b) {
    return each_of_four<Vec>([&](int i) { return mask[i] ? a[i] : b[i]; });
}

#endif

inline Vec all(float x) { return Vec{x, x, x, x}; }
inline Vec smaller(Vec a, Vec b) { return pick(a < b, a, b); }
inline Vec larger(Vec a, Vec b) { return pick(a > b, a, b); }
inline Vec clamp(Vec x, Vec low, Vec high) { return smaller(larger(x, low), high); }
inline Vec absolute(Vec x) { return larger(x, all(0) - x); }
inline Vec ratio(Vec a, Vec b) { return pick(b != all(0), a / b, all(0)); }  // 0 where b is
inline bool any(Mask m) { return m[0] | m[1] | m[2] | m[3]; }

// The nearest integer, the even one on a tie, for |x| < 2^22.
inline Vec rounded(Vec x) {
    const Vec shift = all(0x1.8p23f);
    return (x + shift) - shift;
}

}  // namespace paceline
