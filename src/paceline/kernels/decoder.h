// A decoder-only transformer: one call reads some tokens into a cache and scores them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine.h"
#include "linear.h"

namespace paceline {

// Positions whose attention is computed together: keys and values are read once for all of them.
constexpr int ATTEND_AT_ONCE = 8;

using Vector = std::vector<float>;

struct Layer {
    Vector norm, ffn_norm;                // [hidden]
    Vector q_norm, k_norm;                // [head_dim], or empty: none
    Vector post_attention, post_ffn;      // [hidden], or empty: none
    Linear qkv, o, gate_up, down;
    bool local;                           // sees a window alone, turns by the second table
};

struct Shape {
    int heads, kv_heads, head_dim;
    float eps, embed_scale;
    bool gelu;   // else silu
    int window;  // positions that a local layer sees; 0: all
};

// Tables [length][head_dim] for `rotate`, scaled so that scores come out scaled.
struct Rope {
    const float* cos = nullptr;
    const float* sin = nullptr;
    int length = 0;
    std::shared_ptr<const void> owner;  // of both
};

// One pass: row b reads the first counts[b] of its `count` tokens from position at[b] on, into row
// into[b] of the cache. What stands behind them is not looked at, and nothing is written for it.
struct Call {
    const std::int64_t* tokens;  // [rows][count]; null where there are states
    const float* states;         // [rows * count][hidden]: what enters the first layer; may be null
    int rows, count;
    std::vector<int> counts;     // [rows], 0 to count; empty: all of them
    std::vector<int> into;       // [rows], each another
    const std::int64_t* at;      // [rows]
    float* cache;                // [layers][2][batch][kv_heads][length][head_dim]
    int batch, length;
    // [rows][nodes], or null: the tokens are the last `count` of so many nodes of a tree. Node j's
    // entry lies at at[b] - (nodes - count) + j; it follows node parents[j] < j, -1: what lies in
    // front of the tree.
    const std::int64_t* parents;
    int nodes;
    // out: without taps [rows * count][hidden], after the final norm; with taps
    // [rows * count][taps][hidden], the states that enter these layers; their number: leave the
    // last
    float* hidden;
    std::vector<int> taps;       // ascending
    float* logits;               // out [rows * count][vocab]; may be null
    // out [rows * count]; may be null: the likeliest of the first `limit` ids, the lowest on a tie;
    // -1 where one of those is NaN or the largest is infinite
    std::int64_t* top;
    int limit;
};

// A position's results depend, to the bit, on its row's tokens up to it alone (in a tree: on those
// that it follows): not on how they were cut into passes, on the other rows, on the number of threads, or on what the cache holds behind.
class Decoder {
public:
    // Layer i reads and writes the cache's layer slots[i]; none given: i. Without an embedding a
    // call must bring states. Throws std::invalid_argument where the parts do not fit together.
    Decoder(Shape shape, std::vector<Layer> layers, std::vector<int> slots,
            std::shared_ptr<const Matrix> embedding, Vector norm, Linear head);

    // The tables of the layers that are local, or of those that are not.
    void set_rope(bool local, Rope rope);
    // One at a time: a second caller waits. Throws std::invalid_argument for positions that do not
    // fit, std::out_of_range for a token that is none, std::bad_alloc; then nothing has happened.
    void forward(Engine& engine, const Call& call);

    int hidden() const { return int(norm_.size()); }
    int vocab() const { return head_.rows(); }
    int layers() const { return int(layers_.size()); }
    bool suits(int cache_layers) const;  // whether a cache of so many layers is this model's
    const Shape& shape() const { return shape_; }
    std::size_t bytes() const;  // of weights that a pass with an output layer reads

private:
    friend class Pass;
    // One token of a pass: number `index` of row `row`; `out`: where its results go.
    struct Place {
        int row, index;
        std::int64_t out;
    };
    // `count` tokens of one row whose attention is computed together; `first`: the place of the
    // first of them.
    struct Piece {
        int first, count;
    };
    // What one chunk of the output layer has for one row.
    struct Pick {
        float value;
        int index;
    };

    void check(const Call& call) const;
    void plan(const Call& call);
    void plan_tree(const Call& call);
    void reserve(const Call& call, int threads);

    Shape shape_;
    std::vector<Layer> layers_;
    std::vector<int> slots_;
    int cached_;                      // layers of a cache at least; without slots: exactly
    bool whole_;
    std::shared_ptr<const Matrix> embedding_;
    Vector norm_;
    Linear head_;
    Rope ropes_[2];

    Mutex busy_;
    Rows x_;                          // the residual stream
    Rows y_;                          // what a product gives
    Input normed_, heads_, ffn_;      // what the products read
    Rows scores_;                     // a row a thread
    Rows scored_;                     // logits of a chunk and a tile, a row a thread
    std::vector<Place> places_;       // of all tokens of a pass, row by row
    std::vector<Piece> pieces_;
    std::vector<Pick> picks_;         // [chunks][places]
    std::vector<Node> nodes_;         // [places]; of a chain: none
    std::vector<std::int64_t> own_;   // of all nodes, one's behind another's
};

}  // namespace paceline
