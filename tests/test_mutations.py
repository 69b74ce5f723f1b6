"""Deliberate breakages, each with the check that catches it.

A mutation replaces a piece of source in one function. If the piece is no longer there, the test
says so: find the new way to break it.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from checks import chains, heads, health, laws, output, races, randomness, tree_laws
from paceline.core import cached, follower, noise, sequences, stats, target, types
from paceline.drafters import first_of, lookup, sampling
from paceline.verifiers import block, candidates, coupled, greedy, paths, rejection, tree
from paceline.verifiers.block import Block


@dataclass(frozen=True)
class Mutation:
    """In `name` of module `where` ("function" or "Class.method"), `old` becomes `new`."""

    what: str
    where: object
    name: str
    old: str
    new: str
    check: Callable[[], None]


def mutate(monkeypatch: pytest.MonkeyPatch, m: Mutation) -> None:
    """Puts the broken function wherever any module holds the right one."""
    owner, _, attribute = m.name.rpartition(".")
    holder = getattr(m.where, owner) if owner else m.where
    right = inspect.getattr_static(holder, attribute)
    function = right.fget if isinstance(right, property) else right
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(m.old) == 1, f"{m.name} has changed: {m.old!r} is not there once"
    flags = __future__.annotations.compiler_flag
    code = compile(source.replace(m.old, m.new), "<mutation>", "exec", flags)
    names: dict[str, object] = {}
    exec(code, vars(m.where), names)
    if owner:
        monkeypatch.setattr(holder, attribute, names[attribute])
        return
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(attribute) is right:
            monkeypatch.setattr(module, attribute, names[attribute])


PERFECT = partial(health.perfect_drafter_is_accepted, 1.0)
LOOP = laws.first_tokens_follow_p
BLOCK = chains.blocks_are_lossless
SIBLINGS = tree_laws.siblings_are_lossless
CONTINUATIONS = tree_laws.continuations_are_lossless
AGREEMENT = tree_laws.continuations_are_accepted

MUTATIONS = [
    # the accept test and the residual
    Mutation("resample from p", rejection, "residual",
             "torch.where(use[:, None], rest, p)", "p", laws.rounds_are_lossless),
    Mutation("drop q from the residual, but for the refused token", rejection, "residual",
             "rest[:, : q.shape[-1]] -= q[row, i]", "rest[row, x[row, i]] -= q[row, i, x[row, i]]",
             laws.rounds_are_lossless),
    Mutation("softmaxed residual", rejection, "residual",
             "torch.where(use[:, None], rest, p)",
             "torch.where(use[:, None], rest.softmax(-1), p)", laws.rounds_are_lossless),
    Mutation("residual past the draft's end", rejection, "residual",
             "refused = n < size", "refused = n <= size", laws.rounds_are_lossless),
    Mutation("no fallback for an empty residual", rejection, "residual",
             "refused & (rest.sum(-1) > 0)", "refused", laws.empty_residual_is_a_draw_from_p),
    Mutation("invert the ratio", rejection, "_verify",
             "u * qx < px", "u * px < qx", laws.rounds_are_lossless),
    Mutation("ignore q in the accept test", rejection, "_verify",
             "u * qx < px", "u < px", laws.rejected_only_for_a_reason),
    Mutation("accept at u = 0 what p forbids", rejection, "_verify",
             "u * qx < px", "u * qx <= px", laws.impossible_tokens_are_refused),
    Mutation("shift q by one row", rejection, "of_drafted",
             "q.gather(-1", "q.roll(1, 1).gather(-1", laws.rounds_are_lossless),
    Mutation("shift q by one row in the residual", rejection, "residual",
             "q[row, i]", "q[row, i - 1]", laws.rounds_are_lossless),
    Mutation("shift p by one row", rejection, "with_last",
             "at_n = p[row, n]", "at_n = p[row, n - 1]", laws.rounds_are_lossless),
    Mutation("reuse the accept noise", rejection, "_verify",
             "lengths, u_last)", "lengths, torch.cat([u, u_last[:, :1]], 1))",
             laws.rounds_are_lossless),
    Mutation("count accepts after the first refusal", greedy, "accepted_prefix",
             ".cumprod(-1)", "", laws.accepts_stop_at_the_first_refusal),
    Mutation("accept padding", greedy, "accepted_prefix",
             "(passes & inside)", "passes", laws.rounds_are_lossless),
    Mutation("greedy rows accept anything", greedy, "Greedy.verify",
             "x == p.top[:, :-1]", "x == x",
             output.equals_the_target_alone),
    # trees
    Mutation("q of every sibling is the first one's", candidates, "one_by_one",
             "else q[node]", "else q[nodes[0]]", SIBLINGS),
    Mutation("the residual is forgotten between siblings", candidates, "one_by_one",
             "weights, mass = rest.double(), total", "last = rest", SIBLINGS),
    Mutation("the residual is not normalised between siblings", candidates, "one_by_one",
             "rest.double(), total", "rest.double(), 1.0", SIBLINGS),
    Mutation("the last draw forgets the refused siblings", candidates, "one_by_one",
             "return None, weights", "return None, p", SIBLINGS),
    Mutation("one number for all siblings", candidates, "one_by_one",
             "left.get(node, u[node])", "left.get(node, u[nodes[0]])", SIBLINGS),
    Mutation("p behind another node", tree, "walk", "rule(p[here]", "rule(p[here - 1]", SIBLINGS),
    Mutation("a token that was drawn twice is tested once", tree, "offers_of",
             "found[here].append(node)", "node in found[here] or found[here].append(node)",
             CONTINUATIONS),
    Mutation("continuations that a token was drawn in end with the first of them", tree,
             "offers_of", "for line in drawn", "for line in drawn[:1]", AGREEMENT),
    Mutation("K-SEQ divides by one", candidates, "kseq",
             "divisor(p, law, len(nodes))", "1.0", CONTINUATIONS),
    Mutation("K-SEQ divides by k", candidates, "divisor",
             "while best > _CLOSE", "while False", AGREEMENT),
    Mutation("K-SEQ draws from the residual of one candidate", candidates, "kseq",
             "alpha=taken", "alpha=1.0", CONTINUATIONS),
    Mutation("K-SEQ tests a token again with the same number", candidates, "kseq",
             "left[node] = _left(v, wanted, offered)", "pass", CONTINUATIONS),
    Mutation("what is left of a number is not stretched", candidates, "_left",
             "/ (offered - wanted)", "/ offered", CONTINUATIONS),
    Mutation("greedy rows take the first child", paths, "follow",
             "if tokens[child] == token", "", tree_laws.greedy_trees_say_what_the_target_would),
    Mutation("the accepted path stays where it was drafted", cached, "CachedModel.keep",
             "self.model.move(self.cache, slot, source, start)", "pass",
             tree_laws.greedy_trees_say_what_the_target_would),
    Mutation("refused nodes count as read", cached, "CachedModel._score",
             "[min(1, n) for n in real]", "real",
             tree_laws.refused_nodes_leave_nothing_in_the_cache),
    # block verification
    Mutation("a block ends at the first failure", block, "_verify",
             "torch.where(passes, i, n)", "torch.where(passes & (n == i - 1), i, n)", BLOCK),
    Mutation("h is p_i", block, "_verify",
             "torch.where((size > i) & ~lack.isnan(), inner, passes)", "passes", BLOCK),
    Mutation("p_i above one", block, "_verify",
             "((have > 0) & (have >= want)).double()", "have / want", BLOCK),
    Mutation("a block's residual without p_i", block, "_verify",
             "lengths, u_last, kept)", "lengths, u_last)", BLOCK),
    Mutation("S without the tokens that the drafter does not know", block, "_lack",
             "p[:, width:].sum", "p[:, :0].sum", BLOCK),
    Mutation("a block's end is its padding's end", block, "_verify",
             "(size > i) & ~lack.isnan()", "~lack.isnan()", BLOCK),
    Mutation("a block accepts at u = 0 what p forbids", block, "_verify",
             "want < have", "want <= have", partial(laws.impossible_tokens_are_refused, Block())),
    # lenience
    Mutation("lenience on the wrong side", rejection, "_verify",
             "lenience * qx", "qx / lenience", chains.lenience_keeps_its_bound),
    Mutation("a lenient residual adds to what comes too often already", rejection, "_verify",
             "with_last(p, x, q,", "with_last(p, x, None if q is None else lenience * q,",
             chains.lenience_keeps_its_bound),
    Mutation("greedy lenience on the wrong side", greedy, "_reach",
             "largest + margin", "largest - margin",
             chains.lenient_greedy_rows_say_what_is_nearly_as_likely),
    Mutation("a lenient row says what the target would have said", greedy, "Greedy.verify",
             "torch.where(inside, pad(x, (0, 1)), p.top)", "p.top",
             chains.lenient_greedy_rows_say_what_is_nearly_as_likely),
    # races
    Mutation("a race without its position", noise, "_winner",
             "[position]", "[0]", races.positions_are_independent),
    Mutation("runners are called by their places", noise, "_winner",
             "names is None", "True", races.names_decide_not_places),
    Mutation("a race that starts where the round does", coupled, "Coupled.verify",
             "base + n", "base", races.output_is_the_same_whoever_drafts),
    Mutation("a coupled draft one place on", sequences, "Sequences.draw_draft",
             "length + j", "length + j + 1", races.perfect_drafters_are_accepted),
    # noise
    Mutation("accept tests and last draw at one address", noise, "_hash",
             "(column[None, :] + np.uint64(purpose))", "column[None, :]",
             randomness.purposes_are_independent),
    Mutation("every round the same noise", noise, "_hash",
             "np.array(bases, dtype=np.uint64)", "np.array([0 for _ in bases], dtype=np.uint64)",
             randomness.rounds_are_independent),
    Mutation("noise by row, not by seed", noise, "_hash",
             "[seed % 2**64 for seed in seeds]", "[row for row, _ in enumerate(seeds)]",
             output.rows_do_not_meet),
    Mutation("tokens of weight zero can be drawn", noise, "draw",
             "right=True", "right=False", randomness.draws_at_the_edges),
    # caches
    Mutation("trust stale entries: compare nothing", cached, "CachedModel._shared",
             "bool(same.all())", "True", health.draft_cache_is_true),
    Mutation("trust stale entries: never lower `filled`", cached, "CachedModel._feed",
             "self.filled[slot] = min(self.filled[slot], start)", "pass",
             health.interrupted_reads_are_forgotten),
    Mutation("keep what stands behind a write", cached, "CachedModel._feed",
             "self.filled[slot] = start + n", "self.filled[slot] = start + n + 1",
             health.draft_cache_is_true),
    Mutation("mis-sync the pending token: it is read twice, one place on", cached,
             "CachedModel._score", "_places(seqs, -1)", "_places(seqs, 0)",
             output.equals_the_target_alone),
    Mutation("mis-sync the pending token: the one before it is left out", cached,
             "CachedModel.sync", "seqs.lengths[row] - 1", "seqs.lengths[row] - 2",
             output.equals_the_target_alone),
    Mutation("trust stale entries, seen by a perfect drafter", cached, "CachedModel._shared",
             "bool(same.all())", "True", PERFECT),
    Mutation("a perfect drafter that drops its last accepted token", cached, "CachedModel.read",
             "min(at, self.seen(seqs, b))", "at", PERFECT),
    Mutation("a draft's tokens one place on", cached, "CachedModel.extend",
             "_places(seqs, behind)", "_places(seqs, behind + 1)", health.draft_cache_is_true),
    Mutation("a draft's last accepted token is never read", cached, "CachedModel.read",
             "min(at, self.seen(seqs, b))", "at",
             health.draft_cache_is_true),
    # the drafter's distribution
    Mutation("q of another temperature than the draw", sampling, "Chain._sample",
             "draw_draft(q, ", "draw_draft(q**2, ", LOOP),
    Mutation("greedy drafts scored by their softmax", sampling, "heat",
             "if temperature is None", "if not temperature", LOOP),
    Mutation("drafts at the target's noise", sequences, "Sequences.draft_noise",
             "DRAFT, range(k)", "1, range(k)", randomness.purposes_are_independent),
    Mutation("a broken draft model's token has a q of zero", sampling, "Chain._sample",
             "point[:, 0] = 1", "point[:, 1] = 1", laws.broken_drafts_leave_p_as_it_is),
    Mutation("a merged draft forgets that lookup's q is a point mass", first_of, "_dense",
             "one_hot(tokens, vocabulary).float()",
             "one_hot(tokens * 0, vocabulary).float()", health.merged_drafts_keep_their_q),
    # p at its own prefix
    Mutation("counts frozen for a block", target, "_penalise",
             "ancestry(parents, t - 1)", "ancestry(parents, -1)",
             output.penalties_see_their_own_prefix),
    Mutation("counts one token behind", target, "_penalise",
             "ancestry(parents, t - 1)", "ancestry(parents, t - 2)",
             output.penalties_see_their_own_prefix),
    Mutation("end masked for the whole block or not at all", target, "_adjust",
             "if depth + 1 < early", "", output.penalties_see_their_own_prefix),
    # what becomes real
    Mutation("only a block's last token can end a row", sequences, "Sequences._commit",
             "token in self.eos[row]", "token in self.eos[row] and token == tokens[accepted]",
             output.ends_inside_a_block),
    Mutation("the limit counts rounds' ends", sequences, "Sequences._commit",
             "start + len(fresh) == self.limits[row]",
             "len(fresh) == accepted + 1 and start + len(fresh) >= self.limits[row]",
             output.limits_are_exact),
    Mutation("what was cut off counts as accepted", sequences, "Sequences._commit",
             "min(accepted, len(fresh))", "accepted", output.counters_are_right),
    Mutation("emitted is accepted plus one", stats, "Stats.add",
             "self.emitted += len(row.tokens)", "self.emitted += row.accepted + 1",
             output.counters_are_right),
    Mutation("a draft that was cut off counts as refused", types, "Emitted.tested",
             "len(self.tokens) > self.accepted and self.accepted < self.drafted",
             "self.accepted < self.drafted", output.counters_are_right),
    # heads
    Mutation("a head trusts entries of other tokens", follower, "Follower.seen",
             "bool(same.all())", "True", heads.features_are_the_committed_ones),
    Mutation("a head keeps the entry that reads the first other token", follower, "Follower.seen",
             "same.to(torch.int8).argmin()) - 1", "same.to(torch.int8).argmin())",
             heads.features_are_the_committed_ones),
    Mutation("a head's own states pass for the target's", follower, "Follower.extend",
             "return self.model",
             "self.filled = [n + behind for n in seqs.lengths]; return self.model",
             heads.features_are_the_committed_ones),
    Mutation("a head's drafted tokens one place on", follower, "Follower._places",
             "n - 1 + behind", "n + behind", heads.features_are_the_committed_ones),
    Mutation("a head reads the token beside its features", follower, "Follower._read",
             "seqs.tokens[b, s + 1 :]", "seqs.tokens[b, s:]",
             heads.features_are_the_committed_ones),
    Mutation("a token is dropped after it was drawn", sampling, "_go_on",
             "lengths[b] = j", "lengths[b] = max(0, j - 1)", heads.doubt_ends_a_draft_fairly),
    # lookup
    Mutation("lookup finds the n-gram that it looks for", lookup, "Lookup._find",
             "tokens[:end] == tokens[end]", "tokens[: end + 1] == tokens[end]",
             health.lookup_copies_what_followed),
]  # fmt: skip


@pytest.mark.parametrize("m", MUTATIONS, ids=lambda m: m.what)
def test_mutation_is_caught(m: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, m)
    with pytest.raises(AssertionError):
        m.check()


CHECKS = list(dict.fromkeys(m.check for m in MUTATIONS))


@pytest.mark.parametrize("check", CHECKS)
def test_check_passes_without_a_mutation(check: Callable[[], None]) -> None:
    check()
