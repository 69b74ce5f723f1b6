#include "bind.h"

NB_MODULE(_native, m) {
    m.doc() = "Paceline's kernels; paceline.kernels.load() is the way in.";
#ifdef NDEBUG
    nanobind::set_leak_warnings(false);  // an interrupted program need not tidy up
#endif
    paceline::bind_engine(m);
    paceline::bind_matrix(m);
    paceline::bind_decoder(m);
}
