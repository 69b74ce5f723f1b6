#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bind.h"
#include "encode.h"
#include "engine.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace paceline {

namespace {

template <class T, int dims>
using Array = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;

constexpr std::pair<const char*, Kind> NAMES[] = {
    {"int4", Q4_1}, {"int8", Q8_0}, {"fp16", FP16}, {"q4_0", Q4_0}, {"q4_k", Q4_K},
    {"q5_0", Q5_0}, {"q5_1", Q5_1}, {"q5_k", Q5_K}, {"q6_k", Q6_K},
};
constexpr int FLOAT_KINDS = 3;  // the first so many are made of floats

void check(bool fine, const std::string& otherwise) {
    if (!fine) throw std::invalid_argument(otherwise);
}

std::string text(std::size_t number) { return std::to_string(number); }

// Every block of m, on all threads.
template <class Work>
void each_block(Engine& engine, int blocks, Work&& work) {
    nb::gil_scoped_release release;
    engine.pool.run([&](Pool::Team& team) { team.each(blocks, work); });
}

Matrix from_gguf(Engine& engine, int ggml_type, Array<const std::uint8_t, 2> raw, int cols,
                 std::optional<Array<const std::int32_t, 1>> order) {
    const auto kind = kind_of(ggml_type);
    check(kind.has_value(), "no kind holds GGUF type " + std::to_string(ggml_type));
    const auto [inputs, bytes] = file_block(ggml_type);
    check(cols > 0 && cols % inputs == 0, "cols is " + std::to_string(cols) +
                                              ", but this type's blocks have " + text(inputs));
    const std::size_t row_bytes = std::size_t(cols) / inputs * bytes;
    check(raw.shape(1) == row_bytes, "raw has " + text(raw.shape(1)) + " bytes a row, but " +
                                         text(cols) + " columns take " + text(row_bytes));
    const std::size_t rows = order ? order->shape(0) : raw.shape(0);
    check(rows > 0 && rows <= std::size_t(std::numeric_limits<int>::max()) - LANES,
          "a matrix cannot have " + text(rows) + " rows");
    const std::int32_t* at = order ? order->data() : nullptr;
    for (std::size_t i = 0; at && i < rows; ++i) {
        check(at[i] >= 0 && std::size_t(at[i]) < raw.shape(0),
              "order[" + text(i) + "] is " + std::to_string(at[i]) + ", but raw has " +
                  text(raw.shape(0)) + " rows");
    }
    Matrix m(*kind, int(rows), cols);
    each_block(engine, m.blocks(), [&](int block) {
        transcode(ggml_type, raw.data(), row_bytes, at, m, block);
    });
    return m;
}

void check_shape(int rows, int cols) {
    check(rows > 0 && rows <= std::numeric_limits<int>::max() - LANES && cols > 0 &&
              cols <= std::numeric_limits<int>::max() - SUPER,
          "a matrix cannot be " + std::to_string(rows) + " x " + std::to_string(cols));
}

Matrix empty(const std::string& kind, int rows, int cols) {
    check_shape(rows, cols);
    for (int i = 0; i < FLOAT_KINDS; ++i) {
        if (kind == NAMES[i].first) return Matrix(NAMES[i].second, rows, cols);
    }
    throw std::invalid_argument("unknown kind '" + kind + "'; known: int4, int8, fp16");
}

Matrix packed(const std::string& kind, int rows, int cols, Array<const std::uint8_t, 1> data) {
    const auto* found = std::find_if(std::begin(NAMES), std::end(NAMES),
                                     [&](const auto& name) { return kind == name.first; });
    check(found != std::end(NAMES), "unknown kind '" + kind + "'");
    check_shape(rows, cols);
    // The array's own memory, which nobody writes to; its owner may only go with the GIL held.
    auto* bytes = const_cast<std::uint8_t*>(data.data());
    const std::size_t size = data.shape(0);
    const std::shared_ptr<std::uint8_t> kept(bytes, [data](std::uint8_t*) mutable {
        nb::gil_scoped_acquire held;
        data = {};
    });
    return Matrix(found->second, rows, cols, Buffer(kept, size));
}

const std::pair<const char*, Kind>& named(const Matrix& m) {
    return *std::find_if(std::begin(NAMES), std::end(NAMES),
                         [&](const auto& name) { return name.second == m.kind; });
}

void fill(Matrix& m, Engine& engine, int first_row, Array<const float, 2> values) {
    check(!m.data.borrowed(), "a packed matrix cannot be filled: its bytes are another's");
    check(&named(m) < NAMES + FLOAT_KINDS,
          std::string("a matrix of kind ") + named(m).first + " cannot be filled with floats");
    check(values.shape(1) == std::size_t(m.cols), "values has " + text(values.shape(1)) +
                                                      " columns, the matrix " + text(m.cols));
    const std::size_t count = values.shape(0), end = std::size_t(first_row) + count;
    check(first_row >= 0 && first_row % LANES == 0,
          "first_row is " + std::to_string(first_row) + ", not a multiple of 8");
    check(end <= std::size_t(m.rows), "rows " + std::to_string(first_row) + " to " + text(end) +
                                          " do not fit a matrix of " + text(m.rows));
    check(count % LANES == 0 || end == std::size_t(m.rows),
          text(count) + " rows are no multiple of 8 and do not end the matrix");
    each_block(engine, int((count + LANES - 1) / LANES), [&](int block) {
        const float* rows = values.data() + std::size_t(block) * LANES * m.cols;
        quantise(rows, m, first_row / LANES + block);
    });
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> rows(const Matrix& m, Array<const std::int64_t, 1> ids) {
    const std::size_t count = ids.shape(0), cols = m.cols;
    for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t id = ids.data()[i];
        if (id < 0 || id >= m.rows) {
            throw std::out_of_range("row " + std::to_string(id) + " of a matrix of " +
                                    std::to_string(m.rows) + " rows");
        }
    }
    auto out = std::make_unique<float[]>(count * cols);
    {
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < count; ++i) {
            decode(m, int(ids.data()[i]), out.get() + i * cols);
        }
    }
    float* data = out.get();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    (void)out.release();
    return {data, {count, cols}, owner};
}

}  // namespace

void bind_matrix(nb::module_& m) {
    nb::class_<Matrix>(m, "Matrix", "A weight [rows, cols], laid out for the products with it.")
        .def_static("from_gguf", &from_gguf, "engine"_a, "ggml_type"_a, "raw"_a.noconvert(),
                    "cols"_a, "order"_a = nb::none(),
                    "Every value of a GGUF tensor, without loss. ggml_type: its number in the "
                    "file; raw [rows, row_bytes] uint8, the file's bytes; order [n] int32: row i "
                    "is raw's row order[i]. ValueError for another type, or sizes that do not "
                    "fit.")
        .def_static("empty", &empty, "kind"_a, "rows"_a, "cols"_a,
                    "Zeros of kind int4, int8 or fp16, to be filled. ValueError for another.")
        .def_static("packed", &packed, "kind"_a, "rows"_a, "cols"_a, "data"_a.noconvert(),
                    "The matrix whose `data` (see there) these bytes [nbytes] uint8 are: used where "
                    "they lie, not copied. ValueError for another kind or size.")
        .def("fill", &fill, "engine"_a, "first_row"_a, "values"_a,
             "Rows from first_row (a multiple of 8) on become `values` [n, cols] float32, rounded "
             "to the kind; n is a multiple of 8 or reaches the last row. A NaN makes NaN of its "
             "group of 32 (fp16: itself); what is too large saturates. ValueError for sizes that "
             "do not fit and for a kind that empty() does not make.")
        .def("rows", &rows, "ids"_a,
             "ids [n] int64 -> those rows [n, cols] float32; IndexError for one that is not "
             "there.")
        .def_prop_ro("shape", [](const Matrix& self) { return std::pair(self.rows, self.cols); })
        .def_prop_ro("kind", [](const Matrix& self) { return named(self).first; },
                     "int4 (also a GGUF Q4_1), int8 (Q8_0), fp16, q4_0, q4_k, q5_0, ...")
        .def_prop_ro(
            "data",
            [](nb::handle self) {
                const Matrix& m = nb::cast<const Matrix&>(self);
                return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(
                    m.data.data(), {m.data.size()}, self);
            },
            "The bytes as they lie in memory [nbytes] uint8: the matrix itself, for reading.")
        .def_prop_ro("nbytes", [](const Matrix& self) { return self.data.size(); });
}

}  // namespace paceline
