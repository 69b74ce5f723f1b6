// 256-bit vectors: what multiply.h and activations.h ask of an x86 processor besides Dot. Included
// before them by each instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace paceline {
namespace PACELINE_ISA {

// A sum made now, in a register. Compilers know that integers may be added in any order and keep
// many products waiting for it, in memory.
inline __m256i keep(__m256i sum) {
#if defined(__GNUC__) || defined(__clang__)
    asm("" : "+x"(sum));
#endif
    return sum;
}

// The V of multiply.h, but for its Dots.
struct Vectors {
    static constexpr bool UNROLL = true;
    using Int = __m256i;
    using Float = __m256;

    static Int load(const std::uint8_t* at) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    }
    static Int low(Int v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
    static Int high(Int v) {
        return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    }
    // low four bits with bits 2s and 2s + 1 of `two` above them
    template <int s>
    static Int six(Int low, Int two) {
        const Int mask = _mm256_set1_epi8(0x30);
        Int high = s < 2 ? _mm256_slli_epi16(two, s < 2 ? 4 - 2 * s : 0) : _mm256_srli_epi16(two, s < 2 ? 0 : 2 * s - 4);
        return _mm256_or_si256(low, _mm256_and_si256(high, mask));
    }
    static Int broadcast(const std::uint8_t* four) {
        std::int32_t value;
        std::memcpy(&value, four, 4);
        return _mm256_set1_epi32(value);
    }
    static void prefetch(const std::uint8_t* at) {
        // A block is read front to back, faster than the processor guesses across small pages.
        _mm_prefetch(reinterpret_cast<const char*>(at + 1024), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(at + 1088), _MM_HINT_T0);
    }
    static Float zero() { return _mm256_setzero_ps(); }
    static Float all(float value) { return _mm256_set1_ps(value); }
    static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    static Float fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
    static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
    static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
    static void store(float* to, Float v) { _mm256_storeu_ps(to, v); }
    static Float halves(const std::uint8_t* at) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    }
    static Float bytes(const std::uint8_t* at) {
        return _mm256_cvtepi32_ps(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
    }
    // 8 bytes, each as a pair of equal 16-bit numbers
    static Int scales(const std::uint8_t* at) {
        return _mm256_shuffle_epi8(eight(at), _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1,
                                                    4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1));
    }
    static Int signed_scales(const std::uint8_t* at) {
        const Int high = _mm256_shuffle_epi8(eight(at), _mm256_setr_epi8(-1, 0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3,
                                                    -1, 4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7));
        return _mm256_srai_epi16(high, 8);
    }
    static Int eight(const std::uint8_t* at) {
        std::int64_t value;
        std::memcpy(&value, at, 8);
        return _mm256_set1_epi64x(value);
    }
};

// See `quantise_group`.
inline int round_codes(const float* x, float factor, std::int8_t* codes, std::int16_t* shifts) {
    const __m256 f = _mm256_set1_ps(factor);
    __m256i whole[4];
    for (int i = 0; i < 4; ++i)
        whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), f));
    // Packing goes by halves of vectors; the permutation puts inputs 4j .. 4j + 3 into word j.
    const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]),
                                             _mm256_packs_epi32(whole[2], whole[3]));
    const __m256i all = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), all);
    // Sums of neighbours, then of the four words of either half.
    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), all);
    sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32(sums, 0xb1));
    const __m256i shift = _mm256_mullo_epi16(sums, _mm256_set1_epi16(-32));
    const __m256i total = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
    const std::int32_t parts[2] = {_mm256_extract_epi32(shift, 0), _mm256_extract_epi32(shift, 4)};
    std::memcpy(shifts, parts, sizeof parts);
    return _mm256_extract_epi32(total, 0) + _mm256_extract_epi32(total, 4);
}

}  // namespace PACELINE_ISA
}  // namespace paceline
