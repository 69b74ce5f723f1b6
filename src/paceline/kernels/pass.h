// One pass through a decoder, as every thread of a team runs it.
#pragma once

#include "decoder.h"

namespace paceline {

class Pass {
public:
    // All memory has been reserved: nothing in here can fail.
    Pass(Decoder& decoder, const Isa& isa, const Call& call);
    void run(Pool::Team& team) const;

private:
    using Team = Pool::Team;

    void embed(Team& team) const;
    // Adds what the last product gave, if it has yet to pass the norm `post`; then the norm. `tap`:
    // the tap that takes the state in between, or -1.
    void norm(Team& team, const Vector* post, const Vector& weight, int coded, int tap = -1) const;
    int tap(int layer) const;  // which tap is at that layer; -1: none
    void product(Team& team, const Linear& linear, const Input& input, bool residual) const;
    void rotate(Team& team, int layer) const;
    void attend(Team& team, int layer) const;
    void activate(Team& team, int coded) const;
    // work(r, from, to) for the columns of each row r, piece by piece, then the codes of `coded`
    // columns. The codes of a tile's rows lie among each other: one thread makes a piece of all.
    template <class Work>
    void encode(Team& team, const Input& input, int coded, Work&& work) const;
    bool whole(int first, int end) const;  // whether results of these places lie without a gap
    void head(Team& team) const;
    void pick(Team& team) const;

    float* keys(int layer, int row, int head) const;
    std::int64_t values() const;  // from a key to its value

    Decoder& d_;
    const Isa& isa_;
    const Call& call_;
    const int rows_, tiles_;
};

}  // namespace paceline
