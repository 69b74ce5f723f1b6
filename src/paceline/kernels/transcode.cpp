// A GGUF file's blocks into units. A file's block has the scales and codes of one output; a unit
// has those of 8 side by side. So each output's share is first put into a unit's order, and then
// the 8 of them are interleaved, word by word.
#include <cstring>

#include "encode.h"
#include "half.h"

namespace paceline {

namespace {

// The type's number in a file.
enum Type {
    F16_ = 1,
    Q4_0_ = 2,
    Q4_1_ = 3,
    Q5_0_ = 6,
    Q5_1_ = 7,
    Q8_0_ = 8,
    Q4_K_ = 12,
    Q5_K_ = 13,
    Q6_K_ = 14,
};

// What one output contributes to a unit.
struct Share {
    std::uint16_t half[2];          // s and m, or d and e
    std::uint8_t small[16];         // a super-block's integer scales
    alignas(16) std::uint8_t codes[SUPER];  // in the layout's order, but for six still as bytes
};

// bits[0..3], a bit for each of 32 inputs, as bytes that are 16 or 0.
void fifth_bits(const std::uint8_t* bits, std::uint8_t* out) {
    for (int b = 0; b < 4; ++b) {
        // Eight copies, of which byte i keeps bit i; adding 127 carries what is left to bit 7.
        const std::uint64_t kept = bits[b] * 0x0101010101010101u & 0x8040201008040201u;
        const std::uint64_t fifth = (kept + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
        std::memcpy(out + 8 * b, &fifth, 8);
    }
}

// The types of 32 inputs hold inputs i and 16 + i in a byte, as the layout's nibbles do.
void nibbles_to_bytes(const std::uint8_t* in, const std::uint8_t* high, std::uint8_t* out) {
    for (int i = 0; i < 16; ++i) {
        out[i] = std::uint8_t((in[i] & 15) | high[i]);
        out[16 + i] = std::uint8_t(in[i] >> 4 | high[16 + i]);
    }
}

void q4_0(const std::uint8_t* in, Share& out) {
    out.half[0] = load_half(in);
    std::memcpy(out.codes, in + 2, 16);
}

void q4_1(const std::uint8_t* in, Share& out) {
    out.half[0] = load_half(in);
    out.half[1] = load_half(in + 2);
    std::memcpy(out.codes, in + 4, 16);
}

void q5_0(const std::uint8_t* in, Share& out) {
    std::uint8_t high[GROUP];
    out.half[0] = load_half(in);
    fifth_bits(in + 2, high);
    nibbles_to_bytes(in + 6, high, out.codes);
}

void q5_1(const std::uint8_t* in, Share& out) {
    std::uint8_t high[GROUP];
    out.half[0] = load_half(in);
    out.half[1] = load_half(in + 2);
    fifth_bits(in + 4, high);
    nibbles_to_bytes(in + 8, high, out.codes);
}

void q8_0(const std::uint8_t* in, Share& out) {
    out.half[0] = load_half(in);
    std::memcpy(out.codes, in + 2, GROUP);
}

// d, e and the 12 bytes that hold 8 pairs of 6-bit scales: the first four pairs in the low bits of
// bytes 0..3 and 4..7; of the others, the low four bits in bytes 8..11 and the high two above the
// first four's.
void k_scales(const std::uint8_t* in, Share& out) {
    out.half[0] = load_half(in);
    out.half[1] = load_half(in + 2);
    const std::uint8_t* a = in + 4;
    const std::uint8_t* b = in + 8;
    const std::uint8_t* both = in + 12;
    for (int g = 0; g < 4; ++g) {
        out.small[2 * g] = a[g] & 63;
        out.small[2 * g + 1] = b[g] & 63;
        out.small[8 + 2 * g] = std::uint8_t((both[g] & 15) | (a[g] >> 6) << 4);
        out.small[9 + 2 * g] = std::uint8_t(both[g] >> 4 | (b[g] >> 6) << 4);
    }
}

// 32 bytes of the file hold one group in their low nibbles and the next in their high ones.
void q4_k(const std::uint8_t* in, Share& out) {
    k_scales(in, out);
    for (int pair = 0; pair < 4; ++pair) {
        const std::uint8_t* low = in + 16 + 32 * pair;
        const std::uint8_t* high = low + 16;
        std::uint8_t* codes = out.codes + 32 * pair;
        for (int i = 0; i < 16; ++i) {
            codes[i] = std::uint8_t((low[i] & 15) | (high[i] & 15) << 4);
            codes[16 + i] = std::uint8_t(low[i] >> 4 | (high[i] & 0xf0));
        }
    }
}

// The same, and bit g of 32 more bytes is the fifth of group g's codes.
void q5_k(const std::uint8_t* in, Share& out) {
    k_scales(in, out);
    const std::uint8_t* fifth = in + 16;
    for (int g = 0; g < 8; ++g) {
        const std::uint8_t* four = in + 48 + 32 * (g / 2);
        const int shift = g % 2 * 4;
        for (int i = 0; i < GROUP; ++i) {
            out.codes[32 * g + i] =
                std::uint8_t((four[i] >> shift & 15) | (fifth[i] >> g & 1) << 4);
        }
    }
}

// Each half of 128 inputs: 64 bytes with the low four bits, the second 64 inputs in the high
// nibbles, and 32 bytes with two bits each of four groups.
void q6_k(const std::uint8_t* in, Share& out) {
    out.half[0] = load_half(in + 208);
    std::memcpy(out.small, in + 192, 16);
    for (int g = 0; g < 8; ++g) {
        const std::uint8_t* four = in + 64 * (g / 4) + 32 * (g % 2);
        const std::uint8_t* two = in + 128 + 32 * (g / 4);
        const int shift = g % 4 / 2 * 4;
        const int two_shift = g % 4 * 2;
        for (int i = 0; i < GROUP; ++i) {
            out.codes[32 * g + i] =
                std::uint8_t((four[i] >> shift & 15) | (two[i] >> two_shift & 3) << 4);
        }
    }
}

// A group's codes 0..63 from bytes to the layout's six bits; `out` may begin before `in`.
void pack_six(const std::uint8_t* in, std::uint8_t* out) {
    std::uint32_t word[8], packed[6] = {};
    std::memcpy(word, in, sizeof word);
    for (int j = 0; j < 4; ++j) {
        packed[j] = (word[2 * j] & 0x0f0f0f0fu) | (word[2 * j + 1] & 0x0f0f0f0fu) << 4;
    }
    for (int s = 0; s < 4; ++s) {
        packed[4] |= (word[s] >> 4 & 0x03030303u) << 2 * s;
        packed[5] |= (word[4 + s] >> 4 & 0x03030303u) << 2 * s;
    }
    std::memcpy(out, packed, sizeof packed);
}

// Where a row's bytes begin; none for a row past the end.
struct Rows {
    const std::uint8_t* at[LANES] = {};

    Rows(const std::uint8_t* raw, std::size_t row_bytes, const std::int32_t* order,
         const Matrix& m, int block) {
        for (int o = 0; o < LANES; ++o) {
            const int row = block * LANES + o;
            if (row < m.rows) at[o] = raw + row_bytes * std::size_t(order ? order[row] : row);
        }
    }
};

template <int words>
void interleave(const Share* shares, std::uint8_t* out) {
    for (int w = 0; w < words; ++w) {
        for (int o = 0; o < LANES; ++o) {
            std::memcpy(out + 4 * (w * LANES + o), shares[o].codes + 4 * w, 4);
        }
    }
}

template <Kind kind, int file_bytes, void share_of(const std::uint8_t*, Share&)>
void units(const Rows& rows, Matrix& m, int block) {
    constexpr int halves = kind.scales == Scales::pair || kind.scales == Scales::super32 ? 2 : 1;
    constexpr int small = (kind.scale_bytes() - halves * 2 * LANES) / LANES;
    constexpr int code_bytes = kind.unit_bytes() - kind.scale_bytes();
    Share shares[LANES] = {};
    std::uint8_t* out = m.block(block);
    for (int u = 0; u < m.units; ++u, out += kind.unit_bytes()) {
        for (int o = 0; o < LANES; ++o) {
            if (!rows.at[o]) continue;
            share_of(rows.at[o] + std::size_t(u) * file_bytes, shares[o]);
            if constexpr (kind.codes == Codes::six) {
                std::uint8_t* codes = shares[o].codes;
                for (int g = 0; g < kind.span() / GROUP; ++g) {
                    pack_six(codes + 32 * g, codes + 24 * g);
                }
            }
        }
        std::uint8_t* at = out;
        for (int h = 0; h < halves; ++h) {
            for (int o = 0; o < LANES; ++o, at += 2) store_half(at, shares[o].half[h]);
        }
        for (int a = 0; a < small; ++a) {
            for (int o = 0; o < LANES; ++o) *at++ = shares[o].small[a];
        }
        interleave<code_bytes / (4 * LANES)>(shares, at);
    }
}

void halves(const Rows& rows, Matrix& m, int block) {
    std::uint8_t* out = m.block(block);
    for (int i = 0; i < m.cols; ++i) {
        for (int o = 0; o < LANES; ++o, out += 2) {
            if (rows.at[o]) std::memcpy(out, rows.at[o] + 2 * std::size_t(i), 2);
        }
    }
}

}  // namespace

std::optional<Kind> kind_of(int ggml_type) {
    switch (ggml_type) {
        case F16_: return FP16;
        case Q4_0_: return Q4_0;
        case Q4_1_: return Q4_1;
        case Q5_0_: return Q5_0;
        case Q5_1_: return Q5_1;
        case Q8_0_: return Q8_0;
        case Q4_K_: return Q4_K;
        case Q5_K_: return Q5_K;
        case Q6_K_: return Q6_K;
        default: return std::nullopt;
    }
}

FileBlock file_block(int ggml_type) {
    switch (ggml_type) {
        case Q4_0_: return {32, 18};
        case Q4_1_: return {32, 20};
        case Q5_0_: return {32, 22};
        case Q5_1_: return {32, 24};
        case Q8_0_: return {32, 34};
        case Q4_K_: return {256, 144};
        case Q5_K_: return {256, 176};
        case Q6_K_: return {256, 210};
        default: return {1, 2};
    }
}

void transcode(int ggml_type, const std::uint8_t* raw, std::size_t row_bytes,
               const std::int32_t* order, Matrix& m, int block) {
    const Rows rows(raw, row_bytes, order, m, block);
    switch (ggml_type) {
        case F16_: return halves(rows, m, block);
        case Q4_0_: return units<Q4_0, 18, q4_0>(rows, m, block);
        case Q4_1_: return units<Q4_1, 20, q4_1>(rows, m, block);
        case Q5_0_: return units<Q5_0, 22, q5_0>(rows, m, block);
        case Q5_1_: return units<Q5_1, 24, q5_1>(rows, m, block);
        case Q8_0_: return units<Q8_0, 34, q8_0>(rows, m, block);
        case Q4_K_: return units<Q4_K, 144, q4_k>(rows, m, block);
        case Q5_K_: return units<Q5_K, 176, q5_k>(rows, m, block);
        case Q6_K_: return units<Q6_K, 210, q6_k>(rows, m, block);
        default: return;
    }
}

}  // namespace paceline
