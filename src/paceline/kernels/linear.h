// Matrices that share an input, and that input: what a decoder multiplies.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "isa.h"
#include "layout.h"

namespace paceline {

// Rows of fp32 that are made again and again.
class Rows {
public:
    Rows() = default;
    explicit Rows(int cols) : stride(cols) {}
    // Room for `rows` rows; new room is zero, and what was there is lost. Throws std::bad_alloc.
    void reserve(int rows);
    float* row(int r) const { return reinterpret_cast<float*>(data_.data()) + r * stride; }

    std::int64_t stride = 0;

private:
    Buffer data_;
};

// What a Linear multiplies: rows of fp32 and the codes of each, padded with zeros up to a multiple
// of SUPER columns. Whoever fills a row writes its first `cols` floats and never more.
class Input {
public:
    Input() = default;
    explicit Input(int cols);
    void reserve(int rows);
    float* row(int r) const { return values_.row(r); }
    std::int64_t stride() const { return values_.stride; }
    int cols() const { return cols_; }
    // The codes of columns from..to-1 of row r, one of `rows`; both are multiples of GROUP.
    void encode(const Isa& isa, int rows, int r, int from, int to) const;
    // The codes of the tile that begins with row `first`.
    std::uint8_t* tile(int first) const { return codes_.data() + first * row_bytes(); }

private:
    std::int64_t row_bytes() const { return values_.stride / GROUP * ROW_BYTES; }

    int cols_ = 0;
    Rows values_;
    Buffer codes_;
};

// y = x * (matrices, one below the other) + bias; each matrix may be of a kind of its own.
class Linear {
public:
    // Blocks of one matrix that one thread multiplies at a time, small enough for its cache.
    struct Chunk {
        const Matrix* matrix;
        int block, blocks;    // the first and how many
        int column, columns;  // the outputs that they give
    };
    static constexpr int CHUNK_COLUMNS = 1024;  // of one chunk, at most

    // `bias` [rows()] or empty. Throws std::invalid_argument where the parts do not fit together.
    Linear(std::vector<std::shared_ptr<const Matrix>> matrices, std::vector<float> bias);

    int rows() const { return rows_; }
    int cols() const { return matrices_.front()->cols; }
    std::size_t bytes() const { return bytes_; }  // of weights, which every product reads
    // How many columns of its input must be there as codes: all, up to the end of the last unit of
    // every matrix that multiplies codes; 0 where none does.
    int coded() const { return coded_; }
    const std::vector<Chunk>& chunks() const { return chunks_; }

    // The outputs of a chunk for tile `tile` of an input of `rows` rows, row r of the tile at
    // out + r * stride. The input has codes of coded() columns.
    void multiply(const Isa& isa, const Chunk& chunk, const Input& x, int rows, int tile,
                  float* out, std::int64_t stride) const;

private:
    std::vector<std::shared_ptr<const Matrix>> matrices_;
    std::vector<float> bias_;
    std::vector<Chunk> chunks_;
    std::size_t bytes_ = 0;
    int rows_ = 0, coded_ = 0;
};

}  // namespace paceline
