#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind.h"
#include "engine.h"

namespace nb = nanobind;

namespace paceline {

void bind_engine(nb::module_& m) {
    nb::class_<Engine>(m, "Engine",
                       "Threads and an instruction set; every computation runs on one. One of an "
                       "engine's computations runs at a time: a second caller waits.")
        .def(
            "__init__",
            [](Engine* self, int threads, std::optional<nb::str> isa) {
                new (self) Engine(threads, isa ? isa->c_str() : "");
            },
            nb::arg("threads"), nb::arg("isa") = nb::none(),
            "`isa`: one of isas(), the best by default. ValueError for another, or threads < 1.")
        .def_prop_ro("threads", [](const Engine& self) { return self.pool.size(); })
        .def_prop_ro("isa", [](const Engine& self) { return self.isa->name; });

    m.def(
        "isas",
        [] {
            int count;
            const Isa* const* all = available(&count);
            std::vector<std::string> names;
            for (int i = 0; i < count; ++i) names.emplace_back(all[i]->name);
            return names;
        },
        "The instruction sets that this build has and this machine can run, best first.");
}

}  // namespace paceline
