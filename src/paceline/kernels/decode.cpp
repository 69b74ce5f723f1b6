#include <cstring>

#include "encode.h"
#include "half.h"

namespace paceline {

namespace {

// The codes of output `o` for a group's inputs.
void unpack(Codes codes, const std::uint8_t* at, int o, std::int8_t* out) {
    at += 4 * o;
    const bool six = codes == Codes::six;
    if (!six && codes != Codes::nibble) {
        for (int j = 0; j < 8; ++j) std::memcpy(out + 4 * j, at + 32 * j, 4);
        return;
    }
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 4; ++i) {
            const std::uint8_t both = at[32 * j + i];
            out[six ? 8 * j + i : 4 * j + i] = std::int8_t(both & 15);
            out[six ? 8 * j + 4 + i : 16 + 4 * j + i] = std::int8_t(both >> 4);
        }
    }
    for (int k = 0; six && k < GROUP; ++k) {
        const std::uint8_t high = at[128 + 32 * (k / 16) + k % 4] >> (k % 16 / 4 * 2);
        out[k] = std::int8_t(out[k] | (high & 3) << 4);
    }
}

// Output `o` of eight fp16 side by side.
float half_at(const std::uint8_t* eight, int o) { return half_to_float(load_half(eight + 2 * o)); }

// The values of output `o` for group `g` of a unit, [GROUP].
void group_values(const Kind& kind, const std::uint8_t* unit, int g, int o, float* out) {
    const std::uint8_t* codes_at = unit + kind.scale_bytes() + g * kind.group_code_bytes();
    if (kind.codes == Codes::half) {
        for (int i = 0; i < GROUP; ++i) out[i] = half_at(codes_at + i * 2 * LANES, o);
        return;
    }
    std::int8_t codes[GROUP];
    unpack(kind.codes, codes_at, o, codes);
    const std::uint8_t* small = unit + 2 * LANES;  // behind d of a super-block
    const float s = half_at(unit, o);
    switch (kind.scales) {
        case Scales::pair: {
            const float m = half_at(unit + 2 * LANES, o);
            for (int i = 0; i < GROUP; ++i) out[i] = s * float(codes[i]) + m;
            break;
        }
        case Scales::offset:
            for (int i = 0; i < GROUP; ++i) out[i] = s * float(codes[i] - kind.offset);
            break;
        case Scales::super32: {
            const std::uint8_t* ab = small + 2 * LANES + g * 2 * LANES;
            const float a = s * float(ab[o]);
            const float b = half_at(small, o) * float(ab[LANES + o]);
            for (int i = 0; i < GROUP; ++i) out[i] = a * float(codes[i]) - b;
            break;
        }
        case Scales::super16:
            for (int i = 0; i < GROUP; ++i) {
                const std::uint8_t a = small[(2 * g + i / 16) * LANES + o];
                out[i] = s * float(std::int8_t(a)) * float(codes[i] - kind.offset);
            }
            break;
        case Scales::none: break;
    }
}

}  // namespace

void decode(const Matrix& m, int row, float* out) {
    const std::uint8_t* block = m.block(row / LANES);
    const int groups_per_unit = m.kind.span() / GROUP;
    float values[GROUP];
    for (int group = 0; group * GROUP < m.cols; ++group) {
        const std::uint8_t* unit =
            block + std::size_t(group / groups_per_unit) * m.kind.unit_bytes();
        group_values(m.kind, unit, group % groups_per_unit, row % LANES, values);
        const int count = m.cols - group * GROUP < GROUP ? m.cols - group * GROUP : GROUP;
        std::memcpy(out + group * GROUP, values, count * sizeof(float));
    }
}

}  // namespace paceline
