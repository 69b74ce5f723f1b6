// What every computation runs on: threads, and the code for this machine's processor.
#pragma once

#include <stdexcept>
#include <string>

#include "isa.h"
#include "pool.h"

namespace paceline {

struct Engine {
    // `isa`: one of the names of available(), or "" for the best. Throws std::invalid_argument for
    // another, and for threads < 1.
    Engine(int threads, const std::string& isa) : isa(find(isa)), pool(checked(threads)) {}

    const Isa* isa;  // first: no thread starts for a name that means nothing
    Pool pool;

private:
    static const Isa* find(const std::string& name) {
        int count;
        const Isa* const* all = available(&count);
        std::string known;
        for (int i = 0; i < count; ++i) {
            if (name.empty() || name == all[i]->name) return all[i];
            known += (i ? ", " : "") + std::string(all[i]->name);
        }
        throw std::invalid_argument("unknown isa '" + name + "'; this machine has: " + known);
    }
    static int checked(int threads) {
        if (threads >= 1) return threads;
        throw std::invalid_argument("threads must be at least 1, not " + std::to_string(threads));
    }
};

}  // namespace paceline
