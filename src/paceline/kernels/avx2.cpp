// AVX2, FMA and F16C: x86-64 processors since 2013.
#define PACELINE_ISA avx2
#define PACELINE_FMA 1

#include "vectors_x86.h"

// these need it
#include "activations.h"
#include "isa.h"
#include "multiply.h"
#include "ops.h"

namespace paceline {
namespace PACELINE_ISA {

// Sums of products of codes (0..63 or int8) with int8. `vpmaddubsw` adds pairs of products in 16
// bits, where 2 * 127 * 128 just fits; how many such sums fit there depends on the codes.
template <Codes C>
struct Dots {
    __m256i sum = _mm256_setzero_si256();

    void add(__m256i w0, __m256i w1, __m256i x0, __m256i x1) {
        const __m256i ones = _mm256_set1_epi16(1);
        if constexpr (C == Codes::nibble) {  // 8 * 2 * 127 * 15 < 2^15: a whole group fits
            sum = keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w0, x0)));
            sum = keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w1, x1)));
        } else if constexpr (C == Codes::six) {  // 2 * 2 * 127 * 63 < 2^15: two fit
            __m256i both =
                _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
            sum = keep(_mm256_add_epi32(sum, _mm256_madd_epi16(both, ones)));
        } else {  // |w| * (x with w's sign)
            __m256i a = _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(x0, w0));
            __m256i b = _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(x1, w1));
            sum = keep(_mm256_add_epi32(sum, _mm256_madd_epi16(a, ones)));
            sum = keep(_mm256_add_epi32(sum, _mm256_madd_epi16(b, ones)));
        }
    }

    __m256 total() const {
        if constexpr (C == Codes::nibble) return _mm256_cvtepi32_ps(scaled(_mm256_set1_epi16(1)));
        return _mm256_cvtepi32_ps(sum);
    }
    // times a scale for each output (`Vectors::scales`)
    __m256i scaled(__m256i scale) const {
        if constexpr (C == Codes::nibble) return _mm256_madd_epi16(sum, scale);
        return _mm256_mullo_epi32(sum, _mm256_srai_epi32(scale, 16));
    }
};

// Sums over half a group of (code - 32) * x: with the shift in it from the start, the sum of 8
// products fits 16 bits (8 * 32 * 127 < 2^15), and what overflows on the way comes back.
struct ShiftedDots {
    __m256i sum;

    void start(const std::uint8_t* shift) { sum = Vectors::broadcast(shift); }
    void add(__m256i w0, __m256i w1, __m256i x0, __m256i x1) {
        sum = keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w0, x0)));
        sum = keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w1, x1)));
    }
    __m256i scaled(__m256i scale) const { return _mm256_madd_epi16(sum, scale); }
};

struct V : Vectors {
    template <Codes C>
    using Dot = Dots<C>;
    using ShiftedDot = ShiftedDots;
};

}  // namespace PACELINE_ISA

extern const Isa AVX2;
const Isa AVX2{"avx2",           avx2::quantise,     avx2::multiply<avx2::V>,
               avx2::multiply_half<avx2::V>, avx2::rms_norm, avx2::silu,
               avx2::gelu,       avx2::add,          avx2::rotate,
               avx2::attend,     avx2::largest};

}  // namespace paceline
