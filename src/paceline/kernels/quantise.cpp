// Floats into a block of 8 outputs. Four outputs share a vector, an input at a time, so that each
// group's sums are a lane's and nothing is added across lanes.
#include <cstring>
#include <limits>

#include "encode.h"
#include "four.h"
#include "half.h"

namespace paceline {

namespace {

constexpr float NaN = std::numeric_limits<float>::quiet_NaN();

inline Vec halved(Vec x) {  // to values that fp16 holds
    for (int o = 0; o < WIDTH; ++o) x[o] = round_to_half(x[o]);
    return x;
}

// Group `group` of four outputs: `size` inputs, what is not finite made so.
struct Weights {
    int size;
    Vec x[GROUP] = {};
    Mask nan = {};

    Weights(const float* rows, int count, int cols, int group, float limit)
        : size(cols - group * GROUP < GROUP ? cols - group * GROUP : GROUP) {
        for (int o = 0; o < count && o < WIDTH; ++o) {
            const float* row = rows + std::size_t(o) * cols + group * GROUP;
            for (int i = 0; i < size; ++i) x[i][o] = row[i];
        }
        for (int i = 0; i < size; ++i) {
            const Mask bad = x[i] != x[i];
            nan = nan | bad;
            x[i] = clamp(pick(bad, all(0), x[i]), all(-limit), all(limit));
        }
    }
};

// ---- int4: s * code + m, code 0..15 ----

struct Line {
    Vec s, m;
};

inline Vec code4(Vec x, Vec m, Vec inverse) {
    return rounded(clamp((x - m) * inverse, all(0), all(15)));
}

// The squared error of a line, and the sums that fit the next line to its codes.
struct Errors {
    Vec squared, code, code_code, error, code_error;
};

Errors errors(const Weights& w, const Line& line) {
    const Vec zero = all(0), inverse = ratio(all(1), line.s);
    Errors sum{zero, zero, zero, zero, zero};
    for (int i = 0; i < w.size; ++i) {
        const Vec c = code4(w.x[i], line.m, inverse);
        const Vec e = w.x[i] - (line.s * c + line.m);
        sum.squared = sum.squared + e * e;
        sum.code = sum.code + c;
        sum.code_code = sum.code_code + c * c;
        sum.error = sum.error + e;
        sum.code_error = sum.code_error + c * e;
    }
    return sum;
}

// The line with the least squared error for the codes of `line`, up to the rounding of s and, s
// being rounded, of m.
Line refit(const Line& line, const Errors& sum, int size) {
    const Vec n = all(float(size));
    const Vec step = ratio(n * sum.code_error - sum.code * sum.error,
                           n * sum.code_code - sum.code * sum.code);
    const Vec s = halved(line.s + step);
    return {s, halved(line.m + (sum.error - (s - line.s) * sum.code) / n)};
}

// Where the codes begin and end, in parts of the group's range inside it: the set of nine that did
// best on groups of normal, Laplace and Student-t weights. Beyond the range (below 0) the first or
// last code is left unused.
constexpr float STARTS[][2] = {
    {0.025f, 0.025f}, {-0.0125f, 0.025f}, {0.025f, -0.0125f}, {-0.05f, 0.0125f}, {0.0125f, 0},
    {0, 0.0125f},     {0, -0.05f},        {0.0125f, 0.0375f}, {0.0375f, 0.0125f},
};

// The best line, not yet rounded, for the codes of one of STARTS. The codes that correlate best
// with the weights have it, and correlation is cheaper than each line's error.
Line best_start(const Weights& w, Vec low, Vec range, const Line& otherwise) {
    const Vec n = all(float(w.size));
    Vec y[GROUP], sum_y = all(0), best = all(0);
    for (int i = 0; i < w.size; ++i) {
        y[i] = w.x[i] - low;  // so that little cancels in the sums
        sum_y = sum_y + y[i];
    }
    Line line = otherwise;
    for (const auto& [first, last] : STARTS) {
        const Vec m = all(first) * range;
        const Vec inverse = ratio(all(15), range * all(1 - first - last));
        Vec code = all(0), code_code = all(0), code_y = all(0);
        for (int i = 0; i < w.size; ++i) {
            const Vec c = code4(y[i], m, inverse);
            code = code + c;
            code_code = code_code + c * c;
            code_y = code_y + c * y[i];
        }
        const Vec covariance = n * code_y - code * sum_y;
        const Vec slope = ratio(covariance, n * code_code - code * code);
        const Vec score = covariance * slope;
        const Mask better = score > best;
        best = pick(better, score, best);
        line.s = pick(better, slope, line.s);
        line.m = pick(better, low + (sum_y - slope * code) / n, line.m);
    }
    return line;
}

// Whether the weights of any output lie on `steps` equal steps, ends included.
bool on_steps(const Weights& w, Vec low, Vec range, float steps) {
    const Vec inverse = ratio(all(steps), range);
    Mask on = {-1, -1, -1, -1};
    for (int i = 0; i < w.size && any(on); ++i) {
        const Vec at = (w.x[i] - low) * inverse;
        on = on & (absolute(at - rounded(at)) < all(0x1p-10f));
    }
    return any(on);
}

Line search4(const Weights& w) {
    Vec low = w.x[0], high = w.x[0];
    for (int i = 1; i < w.size; ++i) {
        low = smaller(low, w.x[i]);
        high = larger(high, w.x[i]);
    }
    const Vec range = high - low, first = halved(low);
    // Round to nearest. Where all are equal, s is what m's rounding left.
    Line best{halved(pick(range > all(0), range / all(15), low - first)), first};
    Errors sum = errors(w, best);
    Vec least = sum.squared;
    const auto consider = [&](const Line& line) {
        sum = errors(w, line);
        const Mask better = sum.squared < least;
        least = pick(better, sum.squared, least);
        best.s = pick(better, line.s, best.s);
        best.m = pick(better, line.m, best.m);
    };
    Line line = best_start(w, low, range, best);
    line = {halved(line.s), halved(line.m)};
    for (int i = 0; i < 2; ++i) {
        consider(line);
        line = refit(line, sum, w.size);
    }
    consider(line);
    // Weights of two or three values (ternary ones; zeros and an outlier) can be exact.
    for (const float steps : {1.0f, 2.0f}) {
        if (on_steps(w, low, range, steps)) consider({halved(range / all(steps)), first});
    }
    return best;
}

void put4(const Weights& w, std::uint8_t* unit, int o0) {
    const Line line = search4(w);
    const Vec inverse = ratio(all(1), line.s);
    std::uint8_t* codes = unit + Q4_1.scale_bytes() + 4 * o0;
    for (int o = 0; o < WIDTH; ++o) {
        const int at = 2 * (o0 + o);
        store_half(unit + at, float_to_half(w.nan[o] ? NaN : line.s[o]));
        store_half(unit + 2 * LANES + at, float_to_half(w.nan[o] ? NaN : line.m[o]));
    }
    for (int i = 0; i < w.size; ++i) {
        const Vec c = code4(w.x[i], line.m, inverse);
        std::uint8_t* at = codes + 32 * (i % 16 / 4) + i % 4;
        for (int o = 0; o < WIDTH; ++o) at[4 * o] |= std::uint8_t(int(c[o]) << (i / 16 * 4));
    }
}

// ---- int8: s * code, code -127..127 ----

inline Vec code8(Vec x, Vec inverse) {
    return rounded(clamp(x * inverse, all(-127), all(127)));
}

// The largest weight's codes that are tried. A smaller one has larger steps, yet may suit the
// others better; 64 has the outlier among small integers exact.
constexpr float PEAKS[] = {127, 126, 125, 124, 123, 122, 121, 120, 64};

Vec search8(const Weights& w) {
    Vec peak = all(0);
    for (int i = 0; i < w.size; ++i) peak = larger(peak, absolute(w.x[i]));
    Vec best = all(0), least = all(0);
    for (const float code : PEAKS) {
        Vec s = halved(peak / all(code));
        // Half a step from all: where fp16 is coarse, its next value may be needed.
        for (int o = 0; o < WIDTH; ++o) {
            if (127.5f * s[o] < peak[o]) s[o] = half_to_float(float_to_half(s[o]) + 1);
        }
        const Vec inverse = ratio(all(1), s);
        Vec squared = all(0);
        for (int i = 0; i < w.size; ++i) {
            const Vec e = w.x[i] - s * code8(w.x[i], inverse);
            squared = squared + e * e;
        }
        const Mask better = code == PEAKS[0] ? Mask{-1, -1, -1, -1} : squared < least;
        least = pick(better, squared, least);
        best = pick(better, s, best);
    }
    return best;
}

void put8(const Weights& w, std::uint8_t* unit, int o0) {
    const Vec s = search8(w), inverse = ratio(all(1), s);
    std::uint8_t* codes = unit + Q8_0.scale_bytes() + 4 * o0;
    for (int o = 0; o < WIDTH; ++o) {
        store_half(unit + 2 * (o0 + o), float_to_half(w.nan[o] ? NaN : s[o]));
    }
    for (int i = 0; i < w.size; ++i) {
        const Vec c = code8(w.x[i], inverse);
        for (int o = 0; o < WIDTH; ++o) {
            codes[32 * (i / 4) + 4 * o + i % 4] = std::uint8_t(std::int8_t(int(c[o])));
        }
    }
}

void put_halves(const float* rows, int count, int cols, std::uint8_t* block) {
    for (int i = 0; i < cols; ++i, block += 2 * LANES) {
        for (int o = 0; o < count; ++o) {
            const float x = rows[std::size_t(o) * cols + i];
            store_half(block + 2 * o, float_to_half_saturated(x));
        }
    }
}

}  // namespace

void quantise(const float* rows, Matrix& m, int block) {
    const int first = block * LANES;
    const int count = m.rows - first < LANES ? m.rows - first : LANES;
    std::uint8_t* out = m.block(block);
    std::memset(out, 0, m.block_bytes());
    if (m.kind == FP16) return put_halves(rows, count, m.cols, out);
    const bool four = m.kind == Q4_1;
    const float limit = four ? HALF_MAX : 127 * HALF_MAX;
    for (int g = 0; g < m.units; ++g, out += m.kind.unit_bytes()) {
        for (int o = 0; o < count; o += WIDTH) {
            const Weights w(rows + std::size_t(o) * m.cols, count - o, m.cols, g, limit);
            four ? put4(w, out, o) : put8(w, out, o);
        }
    }
}

}  // namespace paceline
