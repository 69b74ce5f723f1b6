#include "linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace paceline {
namespace {

// A chunk fits the cache of its core beside the inputs; chunks are many enough for the threads to
// end together, and large enough to be worth asking for.
constexpr std::size_t LARGEST = 96 << 10, SMALLEST = 16 << 10;
constexpr int CHUNKS = 32;

int padded(int cols) { return (cols + SUPER - 1) / SUPER * SUPER; }

}  // namespace

void Rows::reserve(int rows) {
    const std::size_t bytes = std::size_t(rows) * stride * sizeof(float);
    if (bytes > data_.size()) data_ = Buffer(bytes);
}

Input::Input(int cols) : cols_(cols), values_(padded(cols)) {}

void Input::reserve(int rows) {
    values_.reserve(rows);
    const std::size_t bytes = std::size_t(rows) * row_bytes();
    if (bytes > codes_.size()) codes_ = Buffer(bytes);
}

void Input::encode(const Isa& isa, int rows, int r, int from, int to) const {
    // Tile t begins at rows * t / count, rounded down; this is the last that begins at r or before.
    const int t = int((std::int64_t(r + 1) * tile_count(rows) - 1) / rows);
    const int first = tile_start(rows, t), size = tile_start(rows, t + 1) - first;
    std::uint8_t* at = tile(first) + std::int64_t(from / GROUP) * size * ROW_BYTES;
    isa.quantise(row(r) + from, to - from, at, size, r - first);
}

Linear::Linear(std::vector<std::shared_ptr<const Matrix>> matrices, std::vector<float> bias)
    : matrices_(std::move(matrices)), bias_(std::move(bias)) {
    if (matrices_.empty()) throw std::invalid_argument("a linear needs a matrix at least");
    for (const auto& m : matrices_) {
        if (!m || m->cols != cols())
            throw std::invalid_argument("the matrices of a linear must have the same columns");
        rows_ += m->rows;
        bytes_ += m->data.size();
        if (m->kind != FP16) coded_ = std::max(coded_, m->groups() * GROUP);
    }
    if (!bias_.empty() && int(bias_.size()) != rows_)
        throw std::invalid_argument("a bias has " + std::to_string(bias_.size()) +
                                    " values where the matrices have " + std::to_string(rows_) +
                                    " rows");
    const std::size_t size = std::clamp(bytes_ / CHUNKS, SMALLEST, LARGEST);
    int column = 0;
    for (const auto& m : matrices_) {
        const int most = std::clamp(int(size / m->block_bytes()), 1, CHUNK_COLUMNS / LANES);
        const int count = (m->blocks() + most - 1) / most;  // evened out: no small one is left over
        for (int i = 0; i < count; ++i) {
            const int begin = int(std::int64_t(m->blocks()) * i / count);
            const int end = int(std::int64_t(m->blocks()) * (i + 1) / count);
            const int columns = std::min(end * LANES, m->rows) - begin * LANES;
            chunks_.push_back({m.get(), begin, end - begin, column, columns});
            column += columns;
        }
    }
}

void Linear::multiply(const Isa& isa, const Chunk& chunk, const Input& x, int rows, int tile,
                      float* out, std::int64_t stride) const {
    const Matrix& m = *chunk.matrix;
    const int first = tile_start(rows, tile), size = tile_start(rows, tile + 1) - first;
    const bool half = m.kind == FP16;
    for (int i = 0; i < chunk.blocks; ++i) {
        float* to = out + i * LANES;
        float edge[TILE * LANES];
        const int width = std::min(chunk.columns - i * LANES, LANES);
        float* where = width == LANES ? to : edge;
        const std::int64_t step = width == LANES ? stride : LANES;
        if (half)
            isa.multiply_half(m, chunk.block + i, x.row(first), x.stride(), size, where, step);
        else
            isa.multiply(m, chunk.block + i, x.tile(first), size, where, step);
        if (width == LANES) continue;
        for (int r = 0; r < size; ++r)
            std::memcpy(to + r * stride, edge + r * LANES, width * sizeof(float));
    }
    if (bias_.empty()) return;
    for (int r = 0; r < size; ++r) isa.add(&bias_[chunk.column], chunk.columns, out + r * stride);
}

}  // namespace paceline
