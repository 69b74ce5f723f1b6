#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bind.h"
#include "decoder.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace paceline {
namespace {

template <class T, int dims>
using Array = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
using Floats1 = Array<const float, 1>;

Vector copied(const std::optional<Floats1>& values) {
    if (!values) return {};
    return Vector(values->data(), values->data() + values->shape(0));
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> apply(const Linear& linear, Engine& engine,
                                                 Array<const float, 2> x) {
    const int rows = int(x.shape(0)), cols = linear.cols(), stride = linear.rows();
    if (int(x.shape(1)) != cols) throw std::invalid_argument("x does not fit the linear's columns");
    auto out = std::make_unique<float[]>(std::size_t(rows) * stride);
    if (rows > 0) {
        nb::gil_scoped_release release;
        Input input(cols);
        input.reserve(rows);
        engine.pool.run([&](Pool::Team& team) {
            team.each(rows, [&](int r) {
                std::memcpy(input.row(r), x.data() + std::int64_t(r) * cols, cols * sizeof(float));
                input.encode(*engine.isa, rows, r, 0, linear.coded());
            });
            team.each(int(linear.chunks().size()), [&](int i) {
                const Linear::Chunk& chunk = linear.chunks()[i];
                for (int t = 0; t < tile_count(rows); ++t) {
                    float* at = out.get() + std::int64_t(tile_start(rows, t)) * stride;
                    linear.multiply(*engine.isa, chunk, input, rows, t, at + chunk.column, stride);
                }
            });
        });
    }
    nb::capsule owner(out.get(), [](void* data) noexcept { delete[] static_cast<float*>(data); });
    return {out.release(), {std::size_t(rows), std::size_t(stride)}, owner};
}

void set_rope(Decoder& self, bool local, Array<const float, 2> cos, Array<const float, 2> sin) {
    const std::size_t length = cos.shape(0), dim = self.shape().head_dim;
    if (cos.shape(1) != dim || sin.shape(1) != dim || sin.shape(0) != length)
        throw std::invalid_argument("the tables of a rope are [length, head_dim], both");
    auto owner = std::make_shared<std::pair<decltype(cos), decltype(sin)>>(cos, sin);
    nb::gil_scoped_release release;
    self.set_rope(local, {cos.data(), sin.data(), int(length), std::move(owner)});
}

void forward(Decoder& self, Engine& engine, std::optional<Array<const std::int64_t, 2>> tokens,
             const std::vector<std::int64_t>& at, Array<float, 6> cache, std::vector<int> into,
             Array<float, 3> hidden, std::optional<Array<float, 3>> logits,
             std::optional<Array<std::int64_t, 2>> top, std::optional<int> limit,
             std::vector<int> taps, std::optional<Array<const float, 3>> states,
             std::optional<Array<const std::int64_t, 2>> parents,
             std::optional<std::vector<int>> counts) {
    const std::size_t rows = hidden.shape(0), count = hidden.shape(1);
    const Shape& shape = self.shape();
    const auto need = [](bool fits, const char* what) {
        if (!fits) throw std::invalid_argument(what);
    };
    need(at.size() == rows, "at needs a position for each row of tokens");
    need(into.size() == rows, "rows need one of the cache for each row of tokens");
    need(!counts || counts->size() == rows, "counts need a number for each row of tokens");
    need(self.suits(int(cache.shape(0))) && cache.shape(1) == 2 &&
             int(cache.shape(3)) == shape.kv_heads && int(cache.shape(5)) == shape.head_dim,
         "this cache is another model's");
    const auto fits = [&](const auto& out, int width) {
        return out.shape(0) == rows && out.shape(1) == count && int(out.shape(2)) == width;
    };
    const int wide = self.hidden() * std::max(1, int(taps.size()));
    need(!tokens || (tokens->shape(0) == rows && tokens->shape(1) == count),
         "tokens are not [rows, count] as hidden has them");
    need(!states || fits(*states, self.hidden()), "states are not [rows, count, hidden]");
    need(fits(hidden, wide), "hidden is not [rows, count, hidden, or hidden for each tap]");
    need(!logits || fits(*logits, self.vocab()), "logits is not [rows, count, vocabulary]");
    need(!top || (top->shape(0) == rows && top->shape(1) == count), "top is not [rows, count]");
    need(!parents || parents->shape(0) == rows, "parents need a row for each row of tokens");
    const Call call{
        .tokens = tokens ? tokens->data() : nullptr,
        .states = states ? states->data() : nullptr,
        .rows = int(rows),
        .count = int(count),
        .counts = std::move(counts).value_or(std::vector<int>()),
        .into = std::move(into),
        .at = at.data(),
        .cache = cache.data(),
        .batch = int(cache.shape(2)),
        .length = int(cache.shape(4)),
        .parents = parents ? parents->data() : nullptr,
        .nodes = parents ? int(parents->shape(1)) : 0,
        .hidden = hidden.data(),
        .taps = std::move(taps),
        .logits = logits ? logits->data() : nullptr,
        .top = top ? top->data() : nullptr,
        .limit = limit.value_or(self.vocab()),
    };
    nb::gil_scoped_release release;
    self.forward(engine, call);
}

}  // namespace

void bind_decoder(nb::module_& m) {
    nb::class_<Linear>(m, "Linear", "Matrices one below the other, and a bias: y = x W' + b.")
        .def(
            "__init__",
            [](Linear* self, std::vector<std::shared_ptr<const Matrix>> matrices,
               const std::optional<Floats1>& bias) {
                new (self) Linear(std::move(matrices), copied(bias));
            },
            "matrices"_a, "bias"_a = nb::none())
        .def_prop_ro("nbytes", &Linear::bytes)
        .def_prop_ro("rows", &Linear::rows)
        .def_prop_ro("cols", &Linear::cols)
        .def("__call__", &apply, "engine"_a, "x"_a);

    nb::class_<Layer>(m, "Layer", "One block's parts.")
        .def(
            "__init__",
            [](Layer* self, const Floats1& norm, const Linear& qkv, const Linear& o,
               const Floats1& ffn_norm, const Linear& gate_up, const Linear& down,
               const std::optional<Floats1>& q_norm, const std::optional<Floats1>& k_norm,
               const std::optional<Floats1>& post_attention, const std::optional<Floats1>& post_ffn,
               bool local) {
                new (self) Layer{copied(norm),     copied(ffn_norm),       copied(q_norm),
                                 copied(k_norm),   copied(post_attention), copied(post_ffn),
                                 qkv,              o,                      gate_up,
                                 down,             local};
            },
            nb::kw_only(), "norm"_a, "qkv"_a, "o"_a, "ffn_norm"_a, "gate_up"_a, "down"_a,
            "q_norm"_a = nb::none(), "k_norm"_a = nb::none(), "post_attention"_a = nb::none(),
            "post_ffn"_a = nb::none(), "local"_a = false);

    nb::class_<Decoder>(m, "Decoder", "A decoder-only transformer in one call.")
        .def(
            "__init__",
            [](Decoder* self, const std::vector<const Layer*>& layers,
               std::shared_ptr<const Matrix> embedding, const Floats1& norm, const Linear& head,
               int heads, int kv_heads, int head_dim, float eps, float embed_scale, bool gelu,
               int window, std::vector<int> slots) {
                std::vector<Layer> copies;
                for (const Layer* layer : layers) copies.push_back(*layer);
                const Shape shape{heads, kv_heads, head_dim, eps, embed_scale, gelu, window};
                new (self)
                    Decoder(shape, std::move(copies), std::move(slots), std::move(embedding),
                            copied(norm), head);
            },
            nb::kw_only(), "layers"_a, "embedding"_a.none(), "norm"_a, "head"_a, "heads"_a,
            "kv_heads"_a, "head_dim"_a, "eps"_a, "embed_scale"_a = 1.0f, "gelu"_a = false,
            "window"_a = 0, "slots"_a = std::vector<int>())
        .def_prop_ro("nbytes", &Decoder::bytes)
        .def("set_rope", &set_rope, "local"_a, "cos"_a, "sin"_a)
        .def("forward", &forward, "engine"_a, "tokens"_a.none(), "at"_a, "cache"_a, "rows"_a,
             "hidden"_a, "logits"_a = nb::none(), "top"_a = nb::none(), "limit"_a = nb::none(),
             "taps"_a = std::vector<int>(), "states"_a = nb::none(), "parents"_a = nb::none(),
             "counts"_a = nb::none());
}

}  // namespace paceline
