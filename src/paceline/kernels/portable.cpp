// Plain C++ that compilers turn into what vectors they know: other processors, and the reference.
#define PACELINE_ISA portable

#include <cstdint>

namespace paceline {
namespace PACELINE_ISA {

// See activations.h.
inline int round_codes(const float* x, float factor, std::int8_t* codes, std::int16_t* shifts) {
    constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest, ties to even
    int sums[2][2] = {};
    for (int i = 0; i < 32; ++i) {
        const float scaled = x[i] * factor;
        codes[i] = std::int8_t((scaled + ROUND) - ROUND);
    }
    for (int i = 0; i < 32; ++i) sums[i / 16][i / 2 % 2] += codes[i];
    for (int i = 0; i < 4; ++i) shifts[i] = std::int16_t(-32 * sums[i / 2][i % 2]);
    return sums[0][0] + sums[0][1] + sums[1][0] + sums[1][1];
}

}  // namespace PACELINE_ISA
}  // namespace paceline

#include "activations.h"
#include "half.h"
#include "isa.h"
#include "multiply.h"
#include "ops.h"

namespace paceline {
namespace PACELINE_ISA {

template <Codes C>
struct Dots;
struct ShiftedDots;

struct V {
    static constexpr bool UNROLL = false;
    struct Int {
        std::uint8_t v[32];
    };
    struct Float {
        float v[LANES];
    };
    struct Whole {
        std::int32_t v[LANES];
    };
    template <Codes C>
    using Dot = Dots<C>;
    using ShiftedDot = ShiftedDots;

    template <class F>
    static Float make(F&& at) {
        Float y;
        for (int i = 0; i < LANES; ++i) y.v[i] = at(i);
        return y;
    }
    template <class F>
    static Whole make_whole(F&& at) {
        Whole y;
        for (int i = 0; i < LANES; ++i) y.v[i] = at(i);
        return y;
    }
    static Int load(const std::uint8_t* at) {
        Int y;
        std::memcpy(y.v, at, sizeof y.v);
        return y;
    }
    static Int low(const Int& x) {
        Int y;
        for (int i = 0; i < 32; ++i) y.v[i] = x.v[i] & 15;
        return y;
    }
    static Int high(const Int& x) {
        Int y;
        for (int i = 0; i < 32; ++i) y.v[i] = x.v[i] >> 4;
        return y;
    }
    template <int s>
    static Int six(const Int& low, const Int& two) {
        Int y;
        for (int i = 0; i < 32; ++i) y.v[i] = low.v[i] | ((two.v[i] >> 2 * s & 3) << 4);
        return y;
    }
    static Int broadcast(const std::uint8_t* four) {
        Int y;
        for (int i = 0; i < 32; ++i) y.v[i] = four[i & 3];
        return y;
    }
    static void prefetch(const std::uint8_t*) {}
    static Float zero() { return all(0.0f); }
    static Float all(float value) {
        return make([&](int) { return value; });
    }
    static Float mul(const Float& a, const Float& b) {
        return make([&](int i) { return a.v[i] * b.v[i]; });
    }
    static Float fma(const Float& a, const Float& b, const Float& c) {
        return make([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
    }
    static Float fnma(const Float& a, const Float& b, const Float& c) {
        return make([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
    }
    static void store(float* to, const Float& x) { std::memcpy(to, x.v, sizeof x.v); }
    static Float halves(const std::uint8_t* at) {
        std::uint16_t bits[LANES];
        std::memcpy(bits, at, sizeof bits);
        return make([&](int i) { return half_to_float(bits[i]); });
    }
    static Float bytes(const std::uint8_t* at) {
        return make([&](int i) { return float(at[i]); });
    }
    static Whole scales(const std::uint8_t* at) {
        return make_whole([&](int i) { return int(at[i]); });
    }
    static Whole signed_scales(const std::uint8_t* at) {
        return make_whole([&](int i) { return int(std::int8_t(at[i])); });
    }
    static Whole add(const Whole& a, const Whole& b) {
        return make_whole([&](int i) { return a.v[i] + b.v[i]; });
    }
    static Float to_float(const Whole& a) {
        return make([&](int i) { return float(a.v[i]); });
    }
};

template <Codes C>
struct Dots {
    V::Whole sum = {};

    void add(const V::Int& w0, const V::Int& w1, const V::Int& x0, const V::Int& x1) {
        for (int o = 0; o < LANES; ++o)
            for (int i = 4 * o; i < 4 * o + 4; ++i)
                sum.v[o] += code(w0.v[i]) * std::int8_t(x0.v[i]) +
                            code(w1.v[i]) * std::int8_t(x1.v[i]);
    }
    static int code(std::uint8_t byte) {
        return C == Codes::signed_byte ? int(std::int8_t(byte)) : int(byte);
    }
    V::Float total() const { return V::to_float(sum); }
    V::Whole scaled(const V::Whole& scale) const {
        return V::make_whole([&](int i) { return sum.v[i] * scale.v[i]; });
    }
};

struct ShiftedDots : Dots<Codes::six> {
    void start(const std::uint8_t* shift) {
        std::int16_t parts[2];
        std::memcpy(parts, shift, sizeof parts);
        sum = V::make_whole([&](int) { return int(parts[0]) + parts[1]; });
    }
};

}  // namespace PACELINE_ISA

extern const Isa PORTABLE;
const Isa PORTABLE{"portable",
                   portable::quantise,
                   portable::multiply<portable::V>,
                   portable::multiply_half<portable::V>,
                   portable::rms_norm,
                   portable::silu,
                   portable::gelu,
                   portable::add,
                   portable::rotate,
                   portable::attend,
                   portable::largest};

}  // namespace paceline
