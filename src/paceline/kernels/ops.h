// What stands between the products: norms, activations, rotation. Included by each instruction set.
//
// Sums have a fixed order, and what goes element by element is computed in whole vectors to the
// end, so that every element is rounded alike wherever it stands.
#pragma once

#include <math.h>

#include <limits>

#include "attention.h"
#include "floats.h"

namespace paceline {
namespace PACELINE_ISA {

// at(i, n) for the vectors of a row of `size`: n of them count (8, fewer in the last).
template <class F>
PACELINE_INLINE void each_vector(int size, F&& at) {
    int i = 0;
    for (; i + LANES <= size; i += LANES) at(i, LANES);
    if (i < size) at(i, size - i);
}

inline void rms_norm(const float* x, const float* weight, float eps, int size, float* y) {
    Floats part[4] = {all(0.0f), all(0.0f), all(0.0f), all(0.0f)};
    int i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES) {
        for (int j = 0; j < 4; ++j) {
            const Floats v = load(x + i + j * LANES);
            part[j] = madd(v, v, part[j]);
        }
    }
    each_vector(size - i, [&](int k, int n) {
        const Floats v = load(x + i + k, n);
        part[0] = madd(v, v, part[0]);
    });
    const float mean = sum((part[0] + part[1]) + (part[2] + part[3])) / float(size);
    const Floats scale = all(1.0f / sqrtf(mean + eps));
    each_vector(size, [&](int k, int n) {
        store(y + k, load(x + k, n) * scale * load(weight + k, n), n);
    });
}

inline void silu(const float* gate, const float* up, int size, float* y) {
    each_vector(size, [&](int i, int n) {
        const Floats g = load(gate + i, n);
        store(y + i, g / (exp(all(0.0f) - g) + all(1.0f)) * load(up + i, n), n);
    });
}

// 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), is x / (1 + e^(-2u)).
inline void gelu(const float* gate, const float* up, int size, float* y) {
    each_vector(size, [&](int i, int n) {
        const Floats g = load(gate + i, n);
        const Floats inner = madd(g * g * g, all(0.044715f), g);
        const Floats e = exp(inner * all(-1.5957691f));
        store(y + i, g / (e + all(1.0f)) * load(up + i, n), n);
    });
}

inline void add(const float* x, int size, float* y) {
    each_vector(size, [&](int i, int n) { store(y + i, load(y + i, n) + load(x + i, n), n); });
}

inline void rotate(float* x, const float* cos, const float* sin, int dim) {
    const int half = dim / 2;
    each_vector(half, [&](int i, int n) {
        float* second = x + half + i;
        const Floats a = load(x + i, n), b = load(second, n);
        store(x + i, madd(b, load(sin + i, n), a * load(cos + i, n)), n);
        store(second, madd(a, load(sin + half + i, n), b * load(cos + half + i, n)), n);
    });
}

inline void largest(const float* x, int size, float* value, int* index) {
    constexpr float INFINITE = std::numeric_limits<float>::infinity();
    Floats most = all(-INFINITE);
    Ints odd = most != most;
    each_vector(size, [&](int i, int n) {
        Floats v = all(-INFINITE);
        if (n == LANES) {
            v = load(x + i);
        } else {
            float padded[LANES];
            for (int k = 0; k < LANES; ++k) padded[k] = x[i + (k < n ? k : 0)];
            v = load(padded);
        }
        odd = odd | (v != v);
        most = select(v > most, v, most);
    });
    bool number = true;
    *value = -INFINITE;
    for (int k = 0; k < LANES; ++k) {
        number = number && !odd[k];
        if (most[k] > *value) *value = most[k];
    }
    *index = -1;
    if (!number) {
        *value = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    for (int i = 0; i < size && *index < 0; ++i)
        if (x[i] == *value) *index = i;
}

}  // namespace PACELINE_ISA
}  // namespace paceline
