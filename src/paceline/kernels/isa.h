// What each instruction set implements, and the choice among them at run time.
#pragma once

#include <cstdint>

#include "layout.h"

namespace paceline {

// A token of a tree. It attends to the cache's leading entries, which lie in order, as all of its
// tree do, and to some behind them that each has for itself.
struct Node {
    std::int64_t position;
    const std::int64_t* own;  // of those, in the order of their positions: where they lie
};

// One query head's view of the cache: what attention over one row's one key/value head needs.
struct Attend {
    const float* query;      // [count][group][dim], query_stride floats between positions
    std::int64_t query_stride;
    const float* keys;       // [.., dim]: entry s at keys + s * dim, which is position s in a chain
    const float* values;     // the same for values
    float* out;              // [count][group][dim], out_stride floats between positions
    std::int64_t out_stride;
    float* scores;           // scratch, count * group * (end + LANES) floats
    int dim;                 // a multiple of 8
    int group;               // query heads that share these keys
    int first;               // position of the first query; of a tree's: the lowest
    int end;                 // behind the highest
    int count;               // queries (consecutive positions, if it is a chain)
    const Node* nodes;       // [count], those of a tree; null: a chain
    int shared;              // entries that lie in order: all of a chain's
    int window;              // a query at p sees positions p - window + 1 .. p; 0: all up to p
};

// Every function treats one row alike whatever stands beside it: the same input gives the same
// bits at any place, for any number of rows.
struct Isa {
    const char* name;
    // Codes of one row x [cols] for row r of a tile of R rows (layout.h). A row with a NaN or an
    // infinity gets NaN scales.
    void (*quantise)(const float* x, int cols, std::uint8_t* tile, int R, int r);
    // out[r * stride + o] = row r of the tile times output o of the block, o = 0..7.
    void (*multiply)(const Matrix& w, int block, const std::uint8_t* tile, int R, float* out,
                     std::int64_t stride);
    // The same for kind FP16: x [R] rows of fp32, x_stride floats apart, readable (and zero) up to
    // a multiple of GROUP columns.
    void (*multiply_half)(const Matrix& w, int block, const float* x, std::int64_t x_stride, int R,
                          float* out, std::int64_t stride);
    // y = x * weight / sqrt(mean(x^2) + eps), size values; y may be x.
    void (*rms_norm)(const float* x, const float* weight, float eps, int size, float* y);
    // y = act(gate) * up; y may be gate.
    void (*silu)(const float* gate, const float* up, int size, float* y);
    void (*gelu)(const float* gate, const float* up, int size, float* y);  // tanh approximation
    // y += x
    void (*add)(const float* x, int size, float* y);
    // x[0..dim) rotated in place: x * cos + (second half, first half) * sin; sin carries the sign.
    void (*rotate)(float* x, const float* cos, const float* sin, int dim);
    // softmax(query . keys) . values for each query head of each position (scores carry their
    // scale already: it is in cos and sin).
    void (*attend)(const Attend& a);
    // The largest of x[0..size) and its index, the lowest on a tie; index -1 if one is NaN.
    void (*largest)(const float* x, int size, float* value, int* index);
};

// Names, best first, of those that this build has and this machine can run: "vnni", "avx2",
// "portable".
const Isa* const* available(int* count);

}  // namespace paceline
