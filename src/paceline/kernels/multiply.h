// Products of a block of 8 outputs with a tile of R rows. Included by each instruction set, which
// defines a class V of vector operations (see vectors_x86.h).
//
// Codes are multiplied and added as integers over a group, which is exact; then, group by group,
//     acc = acc + (dot * scale of x) * scale of w;   acc = acc + (sum of x) * (minimum of w)
// in float32. Neither depends on R, so a row's result does not either.
#pragma once

#include <cstdint>
#include <utility>

#include "layout.h"

namespace paceline {
namespace PACELINE_ISA {

// f(0), f(1), .. f(N - 1), written out: a loop over an array of vectors would keep it in memory.
template <int N, class F>
PACELINE_INLINE void repeat(F&& f) {
    [&]<int... I>(std::integer_sequence<int, I...>) PACELINE_INLINE_LAMBDA {
        (f(std::integral_constant<int, I>{}), ...);
    }(std::make_integer_sequence<int, N>{});
}

// The same for the rows of a tile; an instruction set without vectors of its own keeps the loop.
template <class V, int R, class F>
PACELINE_INLINE void each(F&& f) {
    if constexpr (V::UNROLL)
        repeat<R>(f);
    else
        for (int r = 0; r < R; ++r) f(r);
}

// The j-th pair of code vectors of a group (j = 0..3) and the inputs that they belong to.
template <class V, Codes C>
struct Pair {
    static constexpr int first(int j) { return C == Codes::nibble ? 4 * j : 8 * j; }
    static constexpr int second(int j) { return C == Codes::nibble ? 16 + 4 * j : 8 * j + 4; }

    template <int j>
    PACELINE_INLINE Pair(const std::uint8_t* codes, std::integral_constant<int, j>) {
        if constexpr (C == Codes::nibble) {
            auto both = V::load(codes + 32 * j);
            a = V::low(both);
            b = V::high(both);
        } else if constexpr (C == Codes::six) {
            auto both = V::load(codes + 32 * j);
            auto high = V::load(codes + 128 + 32 * (j / 2));
            a = V::template six<j % 2 * 2>(V::low(both), high);
            b = V::template six<j % 2 * 2 + 1>(V::high(both), high);
        } else {
            a = V::load(codes + 64 * j);
            b = V::load(codes + 64 * j + 32);
        }
    }

    typename V::Int a, b;
};

// What x holds of one group, for the R rows of a tile.
template <class V, int R>
struct Inputs {
    explicit Inputs(const std::uint8_t* at)
        : codes(at), floats(reinterpret_cast<const float*>(at + R * GROUP)) {}

    typename V::Int four(int r, int k) const { return V::broadcast(codes + r * GROUP + k); }
    typename V::Float scale(int r) const { return V::all(floats[r]); }
    typename V::Float sum(int r) const { return V::all(floats[R + r]); }
    const std::uint8_t* shift(int r, int half) const {
        return codes + R * (GROUP + 8) + 8 * r + 4 * half;
    }

    const std::uint8_t* codes;
    const float* floats;
};

// The products of vectors first..last-1 (in pairs) of a group's codes with all rows.
template <class V, Codes C, int FIRST, int LAST, int R, class Dot>
PACELINE_INLINE void multiply_codes(const std::uint8_t* codes, const Inputs<V, R>& x, Dot* dot) {
    repeat<LAST - FIRST>([&](auto i) PACELINE_INLINE_LAMBDA {
        constexpr int j = FIRST + i;
        const Pair<V, C> pair(codes, std::integral_constant<int, j>{});
        each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA {
            dot[r].add(pair.a, pair.b, x.four(r, pair.first(j)), x.four(r, pair.second(j)));
        });
    });
}

// One unit of 32 inputs with scales of its own.
template <class V, Codes C, Scales S, int R>
PACELINE_INLINE void multiply_group(const std::uint8_t* at, const std::uint8_t* tile, int offset,
                                    typename V::Float* acc) {
    const Inputs<V, R> x(tile);
    const auto scale = V::halves(at);
    typename V::template Dot<C> dot[R];
    multiply_codes<V, C, 0, 4, R>(at + Kind{C, S}.scale_bytes(), x, dot);
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA {
        acc[r] = V::fma(V::mul(dot[r].total(), x.scale(r)), scale, acc[r]);
    });
    if (S == Scales::pair || offset) {
        const auto least = S == Scales::pair ? V::halves(at + 16)
                                             : V::mul(scale, V::all(float(-offset)));
        each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA {
            acc[r] = V::fma(x.sum(r), least, acc[r]);
        });
    }
}

// A unit of 256 inputs: its small integer scales are multiplied as integers.
template <class V, Codes C, Scales S, int R>
PACELINE_INLINE void multiply_super(const std::uint8_t* at, const std::uint8_t* tile,
                                    typename V::Float* acc) {
    constexpr Kind KIND{C, S};
    typename V::Float scaled[R], least[R];
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { scaled[r] = least[r] = V::zero(); });
    const std::uint8_t* codes = at + KIND.scale_bytes();
    for (int g = 0; g < SUPER / GROUP; ++g) {
        const Inputs<V, R> x(tile);
        V::prefetch(codes);
        if constexpr (S == Scales::super16) {
            typename V::ShiftedDot first[R], second[R];
            each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { first[r].start(x.shift(r, 0)); });
            multiply_codes<V, C, 0, 2, R>(codes, x, first);
            const auto a = V::signed_scales(at + 16 + 16 * g);
            decltype(first[0].scaled(a)) part[R];
            each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { part[r] = first[r].scaled(a); });
            each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { second[r].start(x.shift(r, 1)); });
            multiply_codes<V, C, 2, 4, R>(codes, x, second);
            const auto b = V::signed_scales(at + 24 + 16 * g);
            each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA {
                const auto both = V::to_float(V::add(part[r], second[r].scaled(b)));
                scaled[r] = V::fma(both, x.scale(r), scaled[r]);
            });
        } else {
            typename V::template Dot<C> dot[R];
            multiply_codes<V, C, 0, 4, R>(codes, x, dot);
            const auto a = V::scales(at + 32 + 16 * g);
            const auto b = V::bytes(at + 40 + 16 * g);
            each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA {
                scaled[r] = V::fma(V::to_float(dot[r].scaled(a)), x.scale(r), scaled[r]);
                least[r] = V::fma(x.sum(r), b, least[r]);
            });
        }
        codes += KIND.group_code_bytes();
        tile += R * ROW_BYTES;
    }
    const auto d = V::halves(at);
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { acc[r] = V::fma(scaled[r], d, acc[r]); });
    if constexpr (S == Scales::super32) {
        const auto e = V::halves(at + 16);
        each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { acc[r] = V::fnma(least[r], e, acc[r]); });
    }
}

template <class V, Codes C, Scales S, int R>
void multiply_tile(const Matrix& w, int block, const std::uint8_t* tile, float* out,
                   std::int64_t stride) {
    constexpr Kind KIND{C, S};
    typename V::Float acc[R];
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { acc[r] = V::zero(); });
    const std::uint8_t* at = w.block(block);
    for (int u = 0; u < w.units; ++u) {
        if constexpr (KIND.span() == SUPER) {
            multiply_super<V, C, S, R>(at, tile, acc);
        } else {
            V::prefetch(at);
            multiply_group<V, C, S, R>(at, tile, w.kind.offset, acc);
        }
        at += KIND.unit_bytes();
        tile += KIND.span() / GROUP * R * ROW_BYTES;
    }
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { V::store(out + r * stride, acc[r]); });
}

template <class V, int R>
void multiply_half_tile(const Matrix& w, int block, const float* x, std::int64_t x_stride,
                        float* out, std::int64_t stride) {
    typename V::Float acc[R];
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { acc[r] = V::zero(); });
    const std::uint8_t* at = w.block(block);
    for (int k = 0; k < w.units * GROUP; ++k, at += 2 * LANES) {
        if (k % 4 == 0) V::prefetch(at);
        const auto weight = V::halves(at);
        each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA {
            acc[r] = V::fma(weight, V::all(x[r * x_stride + k]), acc[r]);
        });
    }
    each<V, R>([&](auto r) PACELINE_INLINE_LAMBDA { V::store(out + r * stride, acc[r]); });
}

// Calls run(constant R) for R = 1 .. TILE.
template <class F>
void with_rows(int R, F&& run) {
    static_assert(TILE == 8);
    switch (R) {
        case 1: return run(std::integral_constant<int, 1>{});
        case 2: return run(std::integral_constant<int, 2>{});
        case 3: return run(std::integral_constant<int, 3>{});
        case 4: return run(std::integral_constant<int, 4>{});
        case 5: return run(std::integral_constant<int, 5>{});
        case 6: return run(std::integral_constant<int, 6>{});
        case 7: return run(std::integral_constant<int, 7>{});
        default: return run(std::integral_constant<int, 8>{});
    }
}

template <class V>
void multiply(const Matrix& w, int block, const std::uint8_t* tile, int R, float* out,
              std::int64_t stride) {
    with_rows(R, [&](auto rows) {
        constexpr int N = rows;
        switch (w.kind.codes) {
            case Codes::nibble:
                switch (w.kind.scales) {
                    case Scales::pair:
                        return multiply_tile<V, Codes::nibble, Scales::pair, N>(w, block, tile, out, stride);
                    case Scales::super32:
                        return multiply_tile<V, Codes::nibble, Scales::super32, N>(w, block, tile, out, stride);
                    default:
                        return multiply_tile<V, Codes::nibble, Scales::offset, N>(w, block, tile, out, stride);
                }
            case Codes::six:
                switch (w.kind.scales) {
                    case Scales::pair:
                        return multiply_tile<V, Codes::six, Scales::pair, N>(w, block, tile, out, stride);
                    case Scales::super32:
                        return multiply_tile<V, Codes::six, Scales::super32, N>(w, block, tile, out, stride);
                    case Scales::super16:
                        return multiply_tile<V, Codes::six, Scales::super16, N>(w, block, tile, out, stride);
                    default:
                        return multiply_tile<V, Codes::six, Scales::offset, N>(w, block, tile, out, stride);
                }
            default:
                return multiply_tile<V, Codes::signed_byte, Scales::offset, N>(w, block, tile, out, stride);
        }
    });
}

template <class V>
void multiply_half(const Matrix& w, int block, const float* x, std::int64_t x_stride, int R,
                   float* out, std::int64_t stride) {
    with_rows(R, [&](auto rows) {
        multiply_half_tile<V, rows>(w, block, x, x_stride, out, stride);
    });
}

}  // namespace PACELINE_ISA
}  // namespace paceline
