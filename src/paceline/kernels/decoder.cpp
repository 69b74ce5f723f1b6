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

int count_of(const Call& call, int row) {
    return call.counts.empty() ? call.count : call.counts[row];
}

void check_tree(const Call& call) {
    const int before = call.nodes - call.count;
    if (before < 0) throw std::invalid_argument("a tree has a parent for each of its tokens");
    for (int b = 0; b < call.rows; ++b) {
        if (count_of(call, b) && call.at[b] < before)
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
    need(int(call.into.size()) == call.rows, "the number of rows");
    need(call.counts.empty() || int(call.counts.size()) == call.rows, "the number of counts");
    const int length = std::min({call.length, ropes_[0].length, ropes_[1].length});
    for (int b = 0; b < call.rows; ++b) {
        const int row = call.into[b], count = count_of(call, b);
        if (row < 0 || row >= call.batch)
            throw std::invalid_argument("row " + std::to_string(row) + " does not fit a cache of " +
                                        std::to_string(call.batch));
        if (std::count(call.into.begin(), call.into.end(), row) > 1)
            throw std::invalid_argument("row " + std::to_string(row) + " is read into twice");
        if (count < 0 || count > call.count)
            throw std::invalid_argument("a row of " + std::to_string(call.count) +
                                        " tokens has not " + std::to_string(count));
        if (count && (call.at[b] < 0 || call.at[b] > length - count))
            throw std::invalid_argument("positions " + std::to_string(call.at[b]) + ".." +
                                        std::to_string(call.at[b] + count) +
                                        " do not fit a cache of " + std::to_string(length));
        for (int i = 0; call.tokens && i < count; ++i) {
            const std::int64_t token = call.tokens[std::int64_t(b) * call.count + i];
            if (token < 0 || token >= embedding_->rows)
                throw std::out_of_range("token " + std::to_string(token) +
                                        " is none of a vocabulary of " +
                                        std::to_string(embedding_->rows));
        }
    }
    if (call.parents) check_tree(call);
}

void Decoder::plan(const Call& call) {
    places_.clear();
    pieces_.clear();
    for (int b = 0; b < call.rows; ++b) {
        const int count = count_of(call, b), pieces = (count + ATTEND_AT_ONCE - 1) / ATTEND_AT_ONCE;
        const int first = int(places_.size());
        for (int i = 0; i < pieces; ++i) {
            const int start = count * i / pieces, end = count * (i + 1) / pieces;
            pieces_.push_back({first + start, end - start});
        }
        for (int i = 0; i < count; ++i)
            places_.push_back({b, i, std::int64_t(b) * call.count + i});
    }
    if (call.parents) plan_tree(call);
}

void Decoder::reserve(const Call& call, int threads) {
    const int rows = int(places_.size());
    x_.reserve(rows);
    y_.reserve(rows);
    for (Input* input : {&normed_, &heads_, &ffn_}) input->reserve(rows);
    std::int64_t end = 0;
    for (int b = 0; b < call.rows; ++b)
        if (const int count = count_of(call, b)) end = std::max(end, call.at[b] + count);
    const int group = shape_.heads / shape_.kv_heads;
    const std::int64_t size = std::min(call.count, ATTEND_AT_ONCE) * group * (end + LANES);
    // Larger steps, so that a growing sequence does not ask for memory at every token.
    if (size > scores_.stride) scores_ = Rows(int((size + size / 4 + 1023) / 1024 * 1024));
    scores_.reserve(threads);
    scored_.reserve(threads);
    if (call.top) picks_.resize(head_.chunks().size() * rows);
}

// The nodes of the tokens of a tree.
void Decoder::plan_tree(const Call& call) {
    const int before = call.nodes - call.count;
    nodes_.clear();
    own_.clear();
    std::vector<std::size_t> ends;
    for (const Place& place : places_) {
        const std::int64_t* parents = call.parents + std::int64_t(place.row) * call.nodes;
        const std::int64_t base = call.at[place.row] - before;
        const std::size_t from = own_.size();
        for (std::int64_t j = before + place.index; j >= 0; j = parents[j])
            own_.push_back(base + j);
        std::reverse(own_.begin() + from, own_.end());
        ends.push_back(own_.size());
        nodes_.push_back({base + std::int64_t(own_.size() - from) - 1, nullptr});
    }
    for (std::size_t i = 0; i < ends.size(); ++i)  // now that they no longer move
        nodes_[i].own = own_.data() + (i ? ends[i - 1] : 0);
}

void Decoder::forward(Engine& engine, const Call& call) {
    if (call.rows < 1 || call.count < 1) throw std::invalid_argument("a pass needs a token");
    std::lock_guard lock(busy_);
    check(call);
    plan(call);
    if (places_.empty()) throw std::invalid_argument("a pass needs a token");
    reserve(call, engine.pool.size());
    Pass pass(*this, *engine.isa, call);
    engine.pool.run([&](Pool::Team& team) { pass.run(team); });
}

}  // namespace paceline
