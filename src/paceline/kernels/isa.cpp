#include "isa.h"

namespace paceline {

extern const Isa PORTABLE;
#ifdef PACELINE_X86
extern const Isa AVX2;
bool has_avx2();
#endif
#ifdef PACELINE_VNNI
extern const Isa VNNI;
bool has_vnni();
#endif

const Isa* const* available(int* count) {
    struct List {
        const Isa* items[3];
        int count = 0;
        List() {
#ifdef PACELINE_VNNI
            if (has_vnni()) items[count++] = &VNNI;
#endif
#ifdef PACELINE_X86
            if (has_avx2()) items[count++] = &AVX2;
#endif
            items[count++] = &PORTABLE;
        }
    };
    static const List list;
    *count = list.count;
    return list.items;
}

}  // namespace paceline
