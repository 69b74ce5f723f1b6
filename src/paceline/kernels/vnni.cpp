// AVX2 with the dot product of AVX-512 VNNI, on 256-bit vectors: server processors since 2019.
#define PACELINE_ISA vnni
#define PACELINE_FMA 1

#include "vectors_x86.h"

// these need it
#include "activations.h"
#include "isa.h"
#include "multiply.h"
#include "ops.h"

namespace paceline {
namespace PACELINE_ISA {

// sum + the products of four neighbouring unsigned and signed bytes
inline __m256i dot4(__m256i sum, __m256i w, __m256i x) {
#ifdef PACELINE_EMULATE_VNNI
    // For tests on machines without it. No pair of products here overflows 16 bits.
    return _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
#else
    return _mm256_dpbusd_epi32(sum, w, x);
#endif
}

template <Codes C>
struct Dots {
    __m256i sum = _mm256_setzero_si256();

    void add(__m256i w0, __m256i w1, __m256i x0, __m256i x1) {
        if constexpr (C == Codes::signed_byte) {  // |w| * (x with w's sign)
            x0 = _mm256_sign_epi8(x0, w0);
            x1 = _mm256_sign_epi8(x1, w1);
            w0 = _mm256_abs_epi8(w0);
            w1 = _mm256_abs_epi8(w1);
        }
        sum = keep(dot4(dot4(sum, w0, x0), w1, x1));
    }
    __m256 total() const { return _mm256_cvtepi32_ps(sum); }
    __m256i scaled(__m256i scale) const {
        return _mm256_mullo_epi32(sum, _mm256_srai_epi32(scale, 16));
    }
};

struct ShiftedDots : Dots<Codes::six> {
    void start(const std::uint8_t* shift) {
        sum = _mm256_madd_epi16(Vectors::broadcast(shift), _mm256_set1_epi16(1));
    }
};

struct V : Vectors {
    template <Codes C>
    using Dot = Dots<C>;
    using ShiftedDot = ShiftedDots;
};

}  // namespace PACELINE_ISA

extern const Isa VNNI;
const Isa VNNI{"vnni",
               vnni::quantise,
               vnni::multiply<vnni::V>,
               vnni::multiply_half<vnni::V>,
               vnni::rms_norm,
               vnni::silu,
               vnni::gelu,
               vnni::add,
               vnni::rotate,
               vnni::attend,
               vnni::largest};

}  // namespace paceline
