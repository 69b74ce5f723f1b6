// How weights and activations lie in memory. docs/kernels.md has the picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#if defined(__GNUC__) || defined(__clang__)
#define PACELINE_INLINE inline __attribute__((always_inline))
#define PACELINE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define PACELINE_INLINE inline
#define PACELINE_INLINE_LAMBDA
#endif

namespace paceline {

constexpr int LANES = 8;    // outputs that one vector holds: a block
constexpr int GROUP = 32;   // inputs that share a scale
constexpr int SUPER = 256;  // inputs of a K-quant's super-block
constexpr int TILE = 8;     // rows of x that are multiplied together, at most

// How a group's codes are stored: 8 outputs x 32 inputs.
//   nibble       4 vectors of 32 bytes; byte 4o + i of vector j holds the code of output o for
//                input 4j + i in its low half and for input 16 + 4j + i in its high half
//   six          codes 0..63. Their low four bits: 4 vectors; byte 4o + i of vector j holds output
//                o's input 8j + i and, in its high half, input 8j + 4 + i. Then their high two bits:
//                2 vectors; bits 2s and 2s + 1 of byte 4o + i of vector q are input 16q + 4s + i's
//   signed_byte  8 vectors of 32 bytes; byte 4o + i of vector j is output o, input 4j + i: int8
//   half         32 vectors of 8 fp16, one an input; no scales
enum class Codes : std::uint8_t { nibble, six, signed_byte, half };

// What stands before a unit's codes, each entry for 8 outputs side by side (fp16 unless it says
// otherwise), and what value a code c stands for.
//   pair     s, m                       s * c + m
//   offset   s                          s * (c - offset)
//   super32  d, e, 8 x (u8 a, u8 b)     (d * a) * c - (e * b), a and b by groups of 32
//   super16  d, 16 x (s8 a)             (d * a) * (c - offset), a by groups of 16
//   none     nothing                    c
enum class Scales : std::uint8_t { pair, offset, super32, super16, none };

// One weight format. Its unit is `span` inputs of a block of 8 outputs: scales, then codes.
struct Kind {
    Codes codes;
    Scales scales;
    int offset = 0;

    constexpr int span() const {
        return scales == Scales::super32 || scales == Scales::super16 ? SUPER : GROUP;
    }
    constexpr int group_code_bytes() const {
        switch (codes) {
            case Codes::nibble: return 128;
            case Codes::six: return 192;
            case Codes::signed_byte: return 256;
            default: return 512;
        }
    }
    constexpr int scale_bytes() const {
        switch (scales) {
            case Scales::pair: return 32;
            case Scales::offset: return 16;
            case Scales::super32: return 32 + 128;
            case Scales::super16: return 16 + 128;
            default: return 0;
        }
    }
    constexpr int unit_bytes() const { return scale_bytes() + span() / GROUP * group_code_bytes(); }
    constexpr bool operator==(const Kind&) const = default;
};

// The kind that holds every value of a GGUF tensor type (its number in the file), or of a format
// of ours, without loss.
constexpr Kind Q4_0{Codes::nibble, Scales::offset, 8};
constexpr Kind Q4_1{Codes::nibble, Scales::pair};  // also `int4`
constexpr Kind Q4_K{Codes::nibble, Scales::super32};
constexpr Kind Q5_0{Codes::six, Scales::offset, 16};
constexpr Kind Q5_1{Codes::six, Scales::pair};
constexpr Kind Q5_K{Codes::six, Scales::super32};
constexpr Kind Q6_K{Codes::six, Scales::super16, 32};
constexpr Kind Q8_0{Codes::signed_byte, Scales::offset};  // also `int8`
constexpr Kind FP16{Codes::half, Scales::none};

// Memory of its own, zeroed, aligned for vectors and on large pages where the system has them.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t bytes);  // throws std::bad_alloc
    // Memory that is somewhere already, as long as its owner lives: in a file, say.
    Buffer(std::shared_ptr<std::uint8_t> data, std::size_t bytes)
        : data_(std::move(data)), size_(bytes), borrowed_(true) {}
    std::uint8_t* data() const { return data_.get(); }
    std::size_t size() const { return size_; }
    bool borrowed() const { return borrowed_; }  // another's, not to be written to

private:
    std::shared_ptr<std::uint8_t> data_;
    std::size_t size_ = 0;
    bool borrowed_ = false;
};

// A weight [rows, cols]: blocks of 8 rows, each `units` units long. Rows and columns that fill the
// last block and unit up are zero.
struct Matrix {
    Matrix(Kind kind, int rows, int cols);               // zeros
    Matrix(Kind kind, int rows, int cols, Buffer data);  // std::invalid_argument: another size

    int blocks() const { return (rows + LANES - 1) / LANES; }
    std::size_t block_bytes() const { return std::size_t(units) * kind.unit_bytes(); }
    std::uint8_t* block(int b) const { return data.data() + b * block_bytes(); }
    int groups() const { return units * (kind.span() / GROUP); }

    Kind kind;
    int rows, cols, units;
    Buffer data;
};

// Rows of x as codes, in tiles of up to TILE rows. A tile of R rows holds, for each group of 32
// inputs: R x 32 int8 codes; R fp32 scales; R fp32 sums (scale * sum of the codes); R x 4 int16,
// the shifts: -32 times the sum of each half's codes of inputs 4j and 4j + 1, and of 4j + 2 and
// 4j + 3 (`super16` begins with them, see avx2.cpp). That is 48 bytes a row, so a tile begins at
// 48 * groups * (its first row).
constexpr int ROW_BYTES = 48;

inline int tile_count(int rows) { return (rows + TILE - 1) / TILE; }
inline int tile_start(int rows, int tile) {
    return int(std::int64_t(rows) * tile / tile_count(rows));
}

}  // namespace paceline
