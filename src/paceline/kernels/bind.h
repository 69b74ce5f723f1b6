// What module.cpp puts into paceline.kernels._native.
#pragma once

#include <nanobind/nanobind.h>

namespace paceline {

void bind_engine(nanobind::module_& m);   // Engine, isas
void bind_matrix(nanobind::module_& m);   // weights and products
void bind_decoder(nanobind::module_& m);  // the whole decoder

}  // namespace paceline
