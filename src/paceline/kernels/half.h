// fp16 to fp32 and back, exactly, on any machine: no branches that data would mispredict, and no
// subnormal fp32 on the way (a thread may flush those).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace paceline {

constexpr float HALF_MAX = 65504.0f;

// The value of the fp16 `h`; a NaN keeps its bits.
inline float half_to_float(std::uint16_t h) {
    constexpr std::uint32_t rebias = (127u - 15u) << 23;
    const std::uint32_t magnitude = std::uint32_t(h & 0x7fff) << 13;
    const std::uint32_t exponent = magnitude & (0x1fu << 23);
    const std::uint32_t normal = magnitude + rebias;
    const std::uint32_t special = normal + rebias;  // infinity and NaN
    // A subnormal as the mantissa of a number from 2^-14 up, less that 2^-14.
    const float small = std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(small);
    std::uint32_t bits = exponent == 0 ? subnormal : normal;
    bits = exponent == (0x1fu << 23) ? special : bits;
    return std::bit_cast<float>(bits | std::uint32_t(h & 0x8000) << 16);
}

// The fp16 nearest to `x`, the even one on a tie; beyond +-65504 infinity; a NaN stays one.
inline std::uint16_t float_to_half(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // 0.5's last place is that of an fp16 subnormal: the addition rounds to it.
    const float half = std::bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(half) - 0x3f000000u;
    const std::uint32_t odd = magnitude >> 13 & 1;
    const std::uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfff + odd) >> 13;
    std::uint32_t h = magnitude < 0x38800000u ? subnormal : normal;       // 2^-14
    h = magnitude >= 0x477ff000u ? 0x7c00u : h;                           // 65520
    h = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x1ff) : h;  // NaN
    return std::uint16_t(h | (bits >> 16 & 0x8000));
}

// The same, but what is finite or infinite saturates at +-65504.
inline std::uint16_t float_to_half_saturated(float x) {
    x = x > HALF_MAX ? HALF_MAX : x;
    x = x < -HALF_MAX ? -HALF_MAX : x;
    return float_to_half(x);
}

// `x` rounded to a value that fp16 holds, saturated.
inline float round_to_half(float x) { return half_to_float(float_to_half_saturated(x)); }

inline std::uint16_t load_half(const std::uint8_t* at) {
    std::uint16_t h;
    std::memcpy(&h, at, 2);
    return h;
}

inline void store_half(std::uint8_t* at, std::uint16_t h) { std::memcpy(at, &h, 2); }

}  // namespace paceline
