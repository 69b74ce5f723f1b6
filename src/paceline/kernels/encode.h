// Weights into the layout (layout.h) and back: a GGUF file's bytes without loss, floats rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "layout.h"

namespace paceline {

// The kind that holds every value of a GGUF tensor type, by its number in the file; none for the
// types that no kind holds.
std::optional<Kind> kind_of(int ggml_type);

// How the file stores one of the types that kind_of knows: `bytes` for `inputs` values of a row.
struct FileBlock {
    int inputs, bytes;
};
FileBlock file_block(int ggml_type);

// Block `block` of m out of the file's rows, which lie `row_bytes` apart from `raw` on. Row i of m
// is the file's row order[i], or i where there is no order. m is of kind_of(ggml_type), its cols a
// multiple of the file block's inputs, and zero so far.
void transcode(int ggml_type, const std::uint8_t* raw, std::size_t row_bytes,
               const std::int32_t* order, Matrix& m, int block);

// Block `block` of m out of its (up to 8) rows of m.cols floats, one after the other. m's kind is:
//   Q4_1  the fp16 s and m of each group that a search finds to have the least squared error,
//         codes 0..15; weights beyond +-65504 count as that
//   Q8_0  the same for s, codes -127..127, every weight within half a step
//   FP16  the nearest, saturated at +-65504
// A NaN makes NaN of its group (Q4_1, Q8_0) or of itself alone (FP16). The same floats give the
// same bytes.
void quantise(const float* rows, Matrix& m, int block);

// Row `row` of m as m.cols floats, by layout.h's formulas, each operation rounded to fp32.
void decode(const Matrix& m, int row, float* out);

}  // namespace paceline
