#include "decoder.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "pass.h"

namespace paceline {
namespace {

void need(bool fits, const char* what) {
    if (!fits) throw std::invalid_argument(std::string(what) + " does not fit the decoder");
}

bool fits(const Vector& v, int size) { return v.empty() || int(v.size()) == size; }

void check_tree(const Call& call) {
    const int before = call.nodes - call.count;
    if (before < 0) throw std::invalid_argument("a tree has a parent for each of its tokens");
    for (int b = 0; b < call.rows; ++b) {
        if (call.at[b] < before)
            throw std::invalid_argument("a tree's node " + std::to_string(before) +
                                        " is not at position " + std::to_string(call.at[b]));
        for (int j = 0; j < call.nodes; ++j) {
            const std::int64_t parent = call.parents[std::int64_t(b) * call.nodes + j];
            if (parent < -1 || parent >= j)
                throw std::invalid_argument("node " + std::to_string(j) + " cannot follow node " +
                                            std::to_string(parent));
        }
    }
}

}  // namespace

Decoder::Decoder(Shape shape, std::vector<Layer> layers, std::vector<int> slots,
                 std::shared_ptr<const Matrix> embedding, Vector norm, Linear head)
    : shape_(shape),
      layers_(std::move(layers)),
      slots_(std::move(slots)),
      embedding_(std::move(embedding)),
      norm_(std::move(norm)),
      head_(std::move(head)) {
    const int size = hidden(), dim = shape_.head_dim, width = shape_.heads * dim;
    need(dim > 0 && dim % LANES == 0, "a head_dim that is no multiple of 8");
    need(shape_.kv_heads > 0 && shape_.heads > 0 && shape_.heads % shape_.kv_heads == 0, "heads");
    need(!embedding_ || embedding_->cols == size, "the embedding");
    need(head_.cols() == size, "the output layer");
    int ffn = 0, widest = size;
    for (const Layer& layer : layers_) {
        need(int(layer.norm.size()) == size && int(layer.ffn_norm.size()) == size, "a norm");
        need(fits(layer.post_attention, size) && fits(layer.post_ffn, size), "a post norm");
        need(fits(layer.q_norm, dim) && fits(layer.k_norm, dim), "a query or key norm");
        need(layer.qkv.cols() == size, "qkv");
        need(layer.qkv.rows() == width + 2 * shape_.kv_heads * dim, "qkv");
        need(layer.o.cols() == width && layer.o.rows() == size, "o");
        need(!ffn || layer.down.cols() == ffn, "down");
        ffn = layer.down.cols();
        need(layer.down.rows() == size, "down");
        need(layer.gate_up.cols() == size && layer.gate_up.rows() == 2 * ffn, "gate_up");
        widest = std::max({widest, layer.qkv.rows(), layer.gate_up.rows()});
    }
    whole_ = slots_.empty();
    if (whole_) {
        slots_.resize(layers_.size());
        std::iota(slots_.begin(), slots_.end(), 0);
    }
    need(slots_.size() == layers_.size(), "the number of slots");
    for (std::size_t i = 0; i < slots_.size(); ++i)
        need(slots_[i] >= 0 && std::count(slots_.begin(), slots_.end(), slots_[i]) == 1, "a slot");
    cached_ = slots_.empty() ? 0 : *std::max_element(slots_.begin(), slots_.end()) + 1;
    const auto whole = [](int cols) { return (cols + LANES - 1) / LANES * LANES; };
    x_ = Rows(whole(size));
    y_ = Rows(whole(widest));
    normed_ = Input(size);
    heads_ = Input(width);
    ffn_ = Input(ffn);
    scored_ = Rows(TILE * Linear::CHUNK_COLUMNS);
}

void Decoder::set_rope(bool local, Rope rope) {
    std::lock_guard lock(busy_);
    ropes_[local] = std::move(rope);
}

std::size_t Decoder::bytes() const {
    std::size_t bytes = head_.bytes();
    for (const Layer& layer : layers_)
        for (const Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
            bytes += linear->bytes();
    return bytes;
}

bool Decoder::suits(int cache_layers) const {
    return whole_ ? cache_layers == cached_ : cache_layers >= cached_;
}

void Decoder::check(const Call& call) const {
    for (int i = 0, last = -1; i < int(call.taps.size()); last = call.taps[i++])
        if (call.taps[i] <= last || call.taps[i] > layers())
            throw std::invalid_argument("taps ascend from 0 to " + std::to_string(layers()));
    if (!call.tokens == !call.states || (call.tokens && !embedding_))
        throw std::invalid_argument("a pass reads states, or tokens where there is an embedding");
    if (call.row < 0 || call.row > call.batch - call.rows)
        throw std::invalid_argument("rows " + std::to_string(call.row) + ".." +
                                    std::to_string(call.row + call.rows) +
                                    " do not fit a cache of " + std::to_string(call.batch));
    const int length = std::min({call.length, ropes_[0].length, ropes_[1].length});
    for (int b = 0; b < call.rows; ++b) {
        if (call.at[b] < 0 || call.at[b] > length - call.count)
            throw std::invalid_argument("positions " + std::to_string(call.at[b]) + ".." +
                                        std::to_string(call.at[b] + call.count) +
                                        " do not fit a cache of " + std::to_string(length));
    }
    if (call.parents) check_tree(call);
    for (int i = 0; call.tokens && i < call.rows * call.count; ++i) {
        if (call.tokens[i] < 0 || call.tokens[i] >= embedding_->rows)
            throw std::out_of_range("token " + std::to_string(call.tokens[i]) +
                                    " is none of a vocabulary of " +
                                    std::to_string(embedding_->rows));
    }
}

void Decoder::reserve(const Call& call, int threads) {
    const int rows = call.rows * call.count;
    x_.reserve(rows);
    y_.reserve(rows);
    for (Input* input : {&normed_, &heads_, &ffn_}) input->reserve(rows);
    const std::int64_t end = *std::max_element(call.at, call.at + call.rows) + call.count;
    const int group = shape_.heads / shape_.kv_heads;
    const std::int64_t size = std::min(call.count, ATTEND_AT_ONCE) * group * (end + LANES);
    // Larger steps, so that a growing sequence does not ask for memory at every token.
    if (size > scores_.stride) scores_ = Rows(int((size + size / 4 + 1023) / 1024 * 1024));
    scores_.reserve(threads);
    scored_.reserve(threads);
    if (call.top) picks_.resize(head_.chunks().size() * rows);
}

// The nodes of the tokens of a tree.
void Decoder::plan(const Call& call) {
    nodes_.clear();
    own_.clear();
    if (!call.parents) return;
    std::vector<std::size_t> ends;
    for (int b = 0; b < call.rows; ++b) {
        const std::int64_t* parents = call.parents + std::int64_t(b) * call.nodes;
        const std::int64_t base = call.at[b] - (call.nodes - call.count);
        for (int i = call.nodes - call.count; i < call.nodes; ++i) {
            const std::size_t from = own_.size();
            for (std::int64_t j = i; j >= 0; j = parents[j]) own_.push_back(base + j);
            std::reverse(own_.begin() + from, own_.end());
            ends.push_back(own_.size());
            nodes_.push_back({base + std::int64_t(own_.size() - from) - 1, nullptr});
        }
    }
    for (std::size_t i = 0; i < ends.size(); ++i)  // now that they no longer move
        nodes_[i].own = own_.data() + (i ? ends[i - 1] : 0);
}

void Decoder::forward(Engine& engine, const Call& call) {
    if (call.rows < 1 || call.count < 1) throw std::invalid_argument("a pass needs a token");
    std::lock_guard lock(busy_);
    check(call);
    reserve(call, engine.pool.size());
    plan(call);
    Pass pass(*this, *engine.isa, call);
    engine.pool.run([&](Pool::Team& team) { pass.run(team); });
}

}  // namespace paceline
