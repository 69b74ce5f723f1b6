#include "pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "encode.h"

namespace paceline {

Pass::Pass(Decoder& decoder, const Isa& isa, const Call& call)
    : d_(decoder),
      isa_(isa),
      call_(call),
      rows_(int(decoder.places_.size())),
      tiles_(tile_count(rows_)) {}

void Pass::run(Team& team) const {
    embed(team);
    const Vector* post = nullptr;
    for (int i = 0; i < d_.layers(); ++i) {
        const Layer& layer = d_.layers_[i];
        norm(team, post, layer.norm, layer.qkv.coded(), tap(i));
        product(team, layer.qkv, d_.normed_, false);
        rotate(team, i);
        attend(team, i);
        if (layer.o.coded()) encode(team, d_.heads_, layer.o.coded(), [](int, int, int) {});
        post = layer.post_attention.empty() ? nullptr : &layer.post_attention;
        product(team, layer.o, d_.heads_, !post);
        norm(team, post, layer.ffn_norm, layer.gate_up.coded());
        product(team, layer.gate_up, d_.normed_, false);
        activate(team, layer.down.coded());
        post = layer.post_ffn.empty() ? nullptr : &layer.post_ffn;
        product(team, layer.down, d_.ffn_, !post);
    }
    const bool scored = call_.logits || call_.top;
    norm(team, post, d_.norm_, scored ? d_.head_.coded() : 0, tap(d_.layers()));
    if (call_.taps.empty()) team.each(rows_, [&](int r) {
        std::memcpy(call_.hidden + d_.places_[r].out * d_.hidden(), d_.normed_.row(r),
                    d_.hidden() * sizeof(float));
    });
    if (scored) head(team);
    if (call_.top) pick(team);
}

void Pass::embed(Team& team) const {
    const float scale = d_.shape_.embed_scale;
    team.each(rows_, [&](int r) {
        float* x = d_.x_.row(r);
        if (call_.states) {
            const std::int64_t size = d_.hidden();
            std::memcpy(x, call_.states + d_.places_[r].out * size, size * sizeof(float));
            return;
        }
        decode(*d_.embedding_, int(call_.tokens[d_.places_[r].out]), x);
        if (scale == 1.0f) return;
        for (int i = 0; i < d_.hidden(); ++i) x[i] *= scale;
    });
}

int Pass::tap(int layer) const {
    const auto at = std::lower_bound(call_.taps.begin(), call_.taps.end(), layer);
    return at == call_.taps.end() || *at != layer ? -1 : int(at - call_.taps.begin());
}

void Pass::norm(Team& team, const Vector* post, const Vector& weight, int coded, int tap) const {
    const int size = d_.hidden();
    const float eps = d_.shape_.eps;
    team.each(rows_, [&](int r) {
        float* x = d_.x_.row(r);
        if (post) {
            isa_.rms_norm(d_.y_.row(r), post->data(), eps, size, d_.y_.row(r));
            isa_.add(d_.y_.row(r), size, x);
        }
        if (tap >= 0) {
            const std::int64_t at = d_.places_[r].out * call_.taps.size() + tap;
            std::memcpy(call_.hidden + at * size, x, size * sizeof(float));
        }
        isa_.rms_norm(x, weight.data(), eps, size, d_.normed_.row(r));
        d_.normed_.encode(isa_, rows_, r, 0, coded);
    });
}

void Pass::product(Team& team, const Linear& linear, const Input& input, bool residual) const {
    const auto& chunks = linear.chunks();
    team.each(int(chunks.size()), [&](int i) {
        const Linear::Chunk& chunk = chunks[i];
        for (int t = 0; t < tiles_; ++t) {
            const int first = tile_start(rows_, t), end = tile_start(rows_, t + 1);
            linear.multiply(isa_, chunk, input, rows_, t, d_.y_.row(first) + chunk.column,
                            d_.y_.stride);
            for (int r = first; residual && r < end; ++r)
                isa_.add(d_.y_.row(r) + chunk.column, chunk.columns, d_.x_.row(r) + chunk.column);
        }
    });
}

float* Pass::keys(int layer, int row, int head) const {
    const std::int64_t first =
        std::int64_t(d_.slots_[layer]) * 2 * call_.batch + call_.into[row];
    const std::int64_t at = first * d_.shape_.kv_heads + head;
    return call_.cache + at * call_.length * d_.shape_.head_dim;
}

std::int64_t Pass::values() const {
    return std::int64_t(call_.batch) * d_.shape_.kv_heads * call_.length * d_.shape_.head_dim;
}

void Pass::rotate(Team& team, int layer) const {
    const Layer& l = d_.layers_[layer];
    const Rope& rope = d_.ropes_[l.local];
    const int dim = d_.shape_.head_dim, heads = d_.shape_.heads, kv_heads = d_.shape_.kv_heads;
    const int group = heads / kv_heads;
    team.each(rows_ * kv_heads, [&](int i) {
        const int r = i / kv_heads, h = i % kv_heads, row = d_.places_[r].row;
        const std::int64_t entry = call_.at[row] + d_.places_[r].index;
        const std::int64_t position = call_.parents ? d_.nodes_[r].position : entry;
        const auto turn = [&](float* x, const Vector& norm) {
            if (!norm.empty()) isa_.rms_norm(x, norm.data(), d_.shape_.eps, dim, x);
            isa_.rotate(x, rope.cos + position * dim, rope.sin + position * dim, dim);
        };
        float* y = d_.y_.row(r);
        for (int q = h * group; q < (h + 1) * group; ++q) turn(y + q * dim, l.q_norm);
        float* key = y + (heads + h) * dim;
        turn(key, l.k_norm);
        float* to = keys(layer, row, h) + entry * dim;
        std::memcpy(to, key, dim * sizeof(float));
        std::memcpy(to + values(), key + kv_heads * dim, dim * sizeof(float));
    });
}

void Pass::attend(Team& team, int layer) const {
    const Shape& shape = d_.shape_;
    const int dim = shape.head_dim, group = shape.heads / shape.kv_heads;
    const int pieces = int(d_.pieces_.size()), items = shape.kv_heads * pieces;
    // Where threads would get nothing, or wait long for the last, a group's heads are shared out.
    int parts = 1;
    while (parts < group && items * parts % team.size() && items * parts < 4 * team.size()) ++parts;
    team.each(items * parts, [&](int i) {
        const int part = i % parts, item = i / parts;
        const auto [r, count] = d_.pieces_[item / shape.kv_heads];
        const int head = item % shape.kv_heads, row = d_.places_[r].row;
        const int from = group * part / parts, to = group * (part + 1) / parts;
        const int column = (head * group + from) * dim;
        const float* at = keys(layer, row, head);
        int first = int(call_.at[row]) + d_.places_[r].index, last = first + count - 1;
        int shared = last + 1;
        const Node* nodes = call_.parents ? &d_.nodes_[r] : nullptr;
        if (nodes) {
            const auto [lowest, highest] = std::minmax_element(
                nodes, nodes + count,
                [](const Node& a, const Node& b) { return a.position < b.position; });
            first = int(lowest->position), last = int(highest->position);
            shared = int(call_.at[row]) - (call_.nodes - call_.count);
        }
        isa_.attend({
            .query = d_.y_.row(r) + column,
            .query_stride = d_.y_.stride,
            .keys = at,
            .values = at + values(),
            .out = d_.heads_.row(r) + column,
            .out_stride = d_.heads_.stride(),
            .scores = d_.scores_.row(team.index()),
            .dim = dim,
            .group = to - from,
            .first = first,
            .end = last + 1,
            .count = count,
            .nodes = nodes,
            .shared = shared,
            .window = d_.layers_[layer].local ? shape.window : 0,
        });
    });
}

template <class Work>
void Pass::encode(Team& team, const Input& input, int coded, Work&& work) const {
    constexpr int PIECE = 256;  // a multiple of GROUP
    const int cols = input.cols(), pieces = (cols + PIECE - 1) / PIECE;
    team.each(tiles_ * pieces, [&](int i) {
        const int t = i / pieces, piece = i % pieces, from = piece * PIECE;
        const bool last = piece == pieces - 1;
        for (int r = tile_start(rows_, t); r < tile_start(rows_, t + 1); ++r) {
            work(r, from, last ? cols : from + PIECE);
            if (coded) input.encode(isa_, rows_, r, from, last ? coded : from + PIECE);
        }
    });
}

void Pass::activate(Team& team, int coded) const {
    const auto act = d_.shape_.gelu ? isa_.gelu : isa_.silu;
    const Input& ffn = d_.ffn_;
    encode(team, ffn, coded, [&](int r, int from, int to) {
        const float* gate = d_.y_.row(r) + from;
        act(gate, gate + ffn.cols(), to - from, ffn.row(r) + from);
    });
}

bool Pass::whole(int first, int end) const {
    return d_.places_[end - 1].out - d_.places_[first].out == end - 1 - first;
}

void Pass::head(Team& team) const {
    const auto& chunks = d_.head_.chunks();
    team.each(int(chunks.size()), [&](int i) {
        const Linear::Chunk& chunk = chunks[i];
        for (int t = 0; t < tiles_; ++t) {
            const int first = tile_start(rows_, t), end = tile_start(rows_, t + 1);
            float* out = d_.scored_.row(team.index());
            std::int64_t stride = Linear::CHUNK_COLUMNS;
            // logits of rows that lie one behind the other go straight to their place
            const bool dense = call_.logits && whole(first, end);
            if (dense) {
                stride = d_.vocab();
                out = call_.logits + d_.places_[first].out * stride + chunk.column;
            }
            d_.head_.multiply(isa_, chunk, d_.normed_, rows_, t, out, stride);
            for (int r = first; call_.logits && !dense && r < end; ++r)
                std::memcpy(call_.logits + d_.places_[r].out * d_.vocab() + chunk.column,
                            out + (r - first) * stride, chunk.columns * sizeof(float));
            if (!call_.top) continue;
            const int counted = std::clamp(call_.limit - chunk.column, 0, chunk.columns);
            for (int r = first; r < end; ++r, out += stride) {
                Decoder::Pick& pick = d_.picks_[std::int64_t(i) * rows_ + r];
                isa_.largest(out, counted, &pick.value, &pick.index);
                pick.index += chunk.column;
            }
        }
    });
}

void Pass::pick(Team& team) const {
    const int chunks = int(d_.head_.chunks().size());
    team.each(rows_, [&](int r) {
        Decoder::Pick best{-std::numeric_limits<float>::infinity(), -1};
        bool number = true;
        for (int i = 0; i < chunks; ++i) {  // ids ascend with i: on a tie the lowest stays
            const Decoder::Pick& pick = d_.picks_[std::int64_t(i) * rows_ + r];
            number = number && !std::isnan(pick.value);
            if (pick.value > best.value) best = pick;
        }
        call_.top[d_.places_[r].out] = number && std::isfinite(best.value) ? best.index : -1;
    });
}

}  // namespace paceline
