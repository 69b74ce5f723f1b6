// What this machine's processor can do. Compiled without any of it, so that it runs anywhere.
#include "isa.h"

#if defined(_MSC_VER) && !defined(__clang__)
#include <immintrin.h>
#include <intrin.h>
#endif

namespace paceline {

#if defined(__GNUC__) || defined(__clang__)
bool has_avx2() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}
bool has_vnni() {
#ifdef PACELINE_EMULATE_VNNI
    return has_avx2();
#endif
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
}
#else
namespace {
bool bit(int leaf, int reg, int n) {
    int r[4];
    __cpuidex(r, leaf, 0);
    return r[reg] >> n & 1;
}
bool saves(unsigned mask) {  // the system keeps these registers
    return bit(1, 2, 27) && (_xgetbv(0) & mask) == mask;
}
}  // namespace
bool has_avx2() { return saves(0x6) && bit(7, 1, 5) && bit(1, 2, 12) && bit(1, 2, 29); }
bool has_vnni() {
    return has_avx2() && saves(0xe6) && bit(7, 1, 16) && bit(7, 1, 31) && bit(7, 1, 30) &&
           bit(7, 2, 11);
}
#endif

}  // namespace paceline
