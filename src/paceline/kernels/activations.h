// Rows of x as int8 codes with a scale for every 32 of them. Included by each instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "layout.h"

namespace paceline {
namespace PACELINE_ISA {

// 32 values to codes round(x * 127 / max|x|), scale max|x| / 127.
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
    bool finite = most < 0x7f800000u;
    bool some = finite && top > 1e-36f;  // below that 127 / top is no number
    float inverse = some ? 127.0f / top : 0.0f;
    constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest, ties to even
    std::int32_t whole[GROUP];
    for (int i = 0; i < GROUP; ++i) {
        float scaled = (finite ? x[i] : 0.0f) * inverse;
        whole[i] = std::int32_t((scaled + ROUND) - ROUND);
    }
    for (int i = 0; i < GROUP; ++i) codes[i] = std::int8_t(whole[i]);
    // What codes offset by 32 add too much: of each half, inputs 4v, 4v + 1 and 4v + 2, 4v + 3.
    std::int32_t parts[2][2] = {};
    for (int i = 0; i < GROUP; ++i) parts[i / 16][i / 2 % 2] += whole[i];
    for (int half = 0; half < 2; ++half)
        for (int lane = 0; lane < 2; ++lane)
            shifts[2 * half + lane] = std::int16_t(-32 * parts[half][lane]);
    float s = !finite ? std::numeric_limits<float>::quiet_NaN() : some ? top / 127.0f : 0.0f;
    *scale = s;
    *sum = s * float(parts[0][0] + parts[0][1] + parts[1][0] + parts[1][1]);
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
