// Rows of x as int8 codes with a scale for every 32 of them. Included by each instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "layout.h"

namespace paceline {
namespace PACELINE_ISA {

// 32 values to codes round(x * 127 / max|x|), scale max|x| / 127. `round_codes(x, factor, codes,
// shifts)` is the instruction set's own: codes round(x * factor), nearest and ties to even, and the
// shifts of layout.h; it returns the sum of the codes.
inline void quantise_group(const float* x, std::int8_t* codes, float* scale, float* sum,
                           std::int16_t* shifts) {
    std::uint32_t bits[GROUP], most = 0;
    std::memcpy(bits, x, sizeof bits);
    for (int i = 0; i < GROUP; ++i) {
        std::uint32_t magnitude = bits[i] & 0x7fffffffu;  // compares like the float, NaN on top
        most = magnitude > most ? magnitude : most;
    }
    float top;
    std::memcpy(&top, &most, sizeof top);
    if (most >= 0x7f800000u) {  // NaN or an infinity: the row's results are to be NaN
        std::memset(codes, 0, GROUP);
        std::memset(shifts, 0, 4 * sizeof *shifts);
        *scale = *sum = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    const bool some = top > 1e-36f;  // below that 127 / top is no number
    const int total = round_codes(x, some ? 127.0f / top : 0.0f, codes, shifts);
    *scale = some ? top / 127.0f : 0.0f;
    *sum = *scale * float(total);
}

inline void quantise(const float* x, int cols, std::uint8_t* tile, int R, int r) {
    int groups = (cols + GROUP - 1) / GROUP;
    for (int g = 0; g < groups; ++g) {
        std::uint8_t* at = tile + std::int64_t(g) * R * ROW_BYTES;
        auto* floats = reinterpret_cast<float*>(at + R * GROUP);
        const float* from = x + g * GROUP;
        float padded[GROUP];
        if (int left = cols - g * GROUP; left < GROUP) {
            std::memset(padded, 0, sizeof padded);
            std::memcpy(padded, from, left * sizeof(float));
            from = padded;
        }
        quantise_group(from, reinterpret_cast<std::int8_t*>(at + r * GROUP), floats + r,
                       floats + R + r, reinterpret_cast<std::int16_t*>(floats + 2 * R + 2 * r));
    }
}

}  // namespace PACELINE_ISA
}  // namespace paceline
