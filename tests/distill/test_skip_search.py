"""The search for layers to leave out: what it finds, by what measure, and what it leaves behind."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file, save_file

from fakes import sequences
from paceline.build import LLM
from paceline.build.self_drafts import fingerprint
from paceline.cli.distill.skip import skip
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.shared import Shared
from paceline.distill import skip as module
from paceline.distill.skip import DEPTH, Agreement, Answer, Prices, find, search
from paceline.errors import PacelineError
from paceline.models.skip import Skip, save_skip, saved_skip
from tiny import write_llama

LAYERS = 7
PRICES = {2: 0.3, 3: 0.02, 4: 0.1, 5: 0.01, 6: 0.2, 7: 0.05}


class Score:
    """What is left of 1 when each layer costs its price, and `together` more as a set."""

    def __init__(self, together: dict[tuple[int, ...], float] | None = None) -> None:
        self.together, self.asked = together or {}, []

    def __call__(self, dropped: tuple[int, ...]) -> float:
        assert dropped == tuple(sorted(set(dropped)))
        self.asked.append(dropped)
        more = sum(v for k, v in self.together.items() if set(k) <= set(dropped))
        return 1 - sum(PRICES[i] for i in dropped) - more


def by_count(score: float, dropped: tuple[int, ...]) -> float:
    return score + 0.06 * len(dropped)


@pytest.mark.parametrize("wanted", range(1, 7))
def test_where_layers_add_up_it_finds_the_best_set_of_each_size(wanted: int) -> None:
    *_, (found, value) = search(Score(), by_count, [*PRICES], wanted)
    right = max(combinations(PRICES, wanted), key=Score())
    assert found == right
    assert value == Score()(right)


def test_of_its_own_it_takes_as_many_as_pay() -> None:
    """Every layer that costs less than it is worth, and no other."""
    results = [*search(Score(), by_count, [*PRICES])]
    assert results[-1][0] == (3, 5, 7)
    assert [len(found) for found, _ in results] == [1, 2, 3]


def test_each_result_is_worth_more_than_the_last() -> None:
    score = Score({(3, 5): 0.2, (5, 7): 0.1, (3, 4, 7): 0.05})
    for seed in range(5):
        results = [*search(score, by_count, [*PRICES], seed=seed)]
        worths = [by_count(value, found) for found, value in results]
        assert all(a < b for a, b in pairwise(worths))
        assert all(value == Score(score.together)(found) for found, value in results)


def test_layers_that_only_cost_together_are_exchanged() -> None:
    """Greedy takes the two cheapest and is stuck with them."""
    score = Score({(3, 5): 0.3})
    results = [*search(score, by_count, [*PRICES], 2, seed=1)]
    assert results[-1][0] == (5, 7)


def test_what_cannot_be_the_least_is_not_tried_again() -> None:
    score = Score()
    [*search(score, by_count, [*PRICES], 4)]
    greedy = [dropped for dropped in score.asked if len(dropped) > 1][: -module.EXCHANGES]
    assert len(greedy) == 3  # one for each further layer, where prices stay what they were


def test_a_known_set_is_to_be_beaten() -> None:
    best = (3, 5, 7)
    assert [found for found, _ in search(Score(), by_count, [*PRICES], known=[best])] == [best]
    results = [found for found, _ in search(Score(), by_count, [*PRICES], known=[(2,)])]
    assert results[0] == (2,)
    assert results[-1] == best


def test_the_same_seed_gives_the_same_search() -> None:
    asked = []
    for seed in (3, 3, 4):
        score = Score()
        [*search(score, by_count, [*PRICES], 3, seed=seed)]
        asked.append(score.asked)
    assert asked[0] == asked[1] != asked[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of which every layer counts, layer 3 least."""
    path = write_llama(tmp_path_factory.mktemp("model"), layers=LAYERS, context=128)
    tensors = load_file(path / "model.safetensors")
    for name in tensors:
        if "down_proj" in name or "o_proj" in name:
            tensors[name] *= 0.01 if ".3." in name else 4
    save_file(tensors, path / "model.safetensors")
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(params=["int8", "fp32"])
def llm(request: pytest.FixtureRequest, folder: Path) -> LLM:
    return LLM(str(folder), draft="none", dtype=request.param)


ANSWERS = [
    Answer([1, 2, 3], [5, 6, 7, 8, 9, 10]),
    Answer([40] * 20, [41]),
    Answer([7], [8, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8]),
    Answer([9, 9], [1, 1, 2, 3]),
    Answer([100, 101, 102, 103], [104, 105]),
]


def by_drafting(llm: LLM, agreement: Agreement, dropped: tuple[int, ...]) -> float:
    """The same share, as a drafter over the target's cache comes to it, token by token."""
    part, same, total = agreement.part(dropped), 0, 0
    for answer in ANSWERS:
        ids, given = answer.prompt_ids + answer.completion_ids, len(answer.prompt_ids)
        target = CachedModel(llm.model, 1, 64, llm.tokenizer.size)
        part.reach(target.cache.length)
        shared = Shared(target, part)
        for start in range(given, len(ids), DEPTH):
            seqs = sequences([ids[:start]], SamplingParams(), length=64)
            logits = shared.read(seqs)
            for j, token in enumerate(ids[start : start + DEPTH]):
                if j:
                    logits = shared.extend(seqs, torch.tensor([ids[start + j - 1]]), j - 1)
                same += int(logits.argmax(-1)) == token
                total += 1
    return same / total


def test_agreement_is_that_of_a_draft_over_the_target_s_cache(llm: LLM) -> None:
    """Of random continuations some tokens agree; the rows are ragged, some end in mid-block; and
    sets may be asked for in any order."""
    agreement = Agreement(llm.model, ANSWERS, llm.tokenizer.size)
    sets = [(3,), (2, 4, 5), (), (2, 3, 4, 5), (4,)]
    assert [agreement(s) for s in sets] == [by_drafting(llm, agreement, s) for s in sets]


def test_a_model_agrees_with_its_own_answers(llm: LLM) -> None:
    said = module.answers(llm, ["abc", "b" * 30, "some more"], 20, lambda *_: None)
    assert [len(answer.completion_ids) for answer in said] == [20, 20, 20]
    agreement = Agreement(llm.model, said, llm.tokenizer.size)
    assert agreement(()) == 1
    assert agreement((3,)) > 0.9  # which hardly does anything
    assert agreement((2, 4, 5)) < 0.5


def test_the_least_layer_is_found(llm: LLM) -> None:
    seen: list[tuple[int, int, str]] = []
    tell = lambda *step: seen.append(step)  # noqa: E731
    *_, best = find(llm, module.PROMPTS[:3], 1, tokens=12, progress=tell)
    assert (best.dropped, best.layers, best.dtype) == ([3], LAYERS, llm.dtype)
    assert best.alpha > 0.9
    steps = [(done, total) for done, total, what in seen if what == "leaving layers out"]
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize("wanted", [0, -1, 5, 99])
def test_a_number_of_layers_that_is_not_there(llm: LLM, wanted: int) -> None:
    with pytest.raises(PacelineError, match="7 layers, of which 4 can be left out; choose 1 to 4"):
        next(find(llm, ["x"], wanted))


def test_prices_predict_the_best_window(llm: LLM) -> None:
    prices = Prices(llm.model, repeats=1)
    prices.r = [1.0] * (module.WINDOW + 1)
    assert prices.best(1.0, 0.0) == (module.WINDOW, module.WINDOW + 1)
    assert prices.best(0.0, 0.5) == (1, 1 / 1.5)
    k, promised = prices.best(0.8, 0.2)
    most = max((1 - 0.8 ** (n + 1)) / 0.2 / (1 + 0.2 * n) for n in range(1, 9))
    assert promised == pytest.approx(most)
    assert 1 < k < 8


def run_command(folder: Path, **options: object) -> None:
    defaults = {"prompts": None, "layers": None, "max_tokens": 8, "seed": 0, "dtype": "int8"}
    rest = {"device": "cpu", "threads": None, "as_json": False}
    skip(str(folder), **{**defaults, **rest, **options})  # type: ignore[arg-type]


def test_the_command_keeps_what_it_found_for_the_draft(folder, home, tmp_path, capsys) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("one two\nthree\n")
    run_command(folder, prompts=str(file), layers=1, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["dropped"] == [3]
    assert Path(said["file"]).is_relative_to(home)
    assert saved_skip(fingerprint(folder)).dropped == [3]
    llm = LLM(str(folder), dtype="int8", draft="self:skip=auto", k=4)
    done = llm.generate("one two", SamplingParams(max_tokens=30, ignore_eos=True))
    assert done.stats.alpha > 0.9


def test_the_command_says_it_in_words(folder, capsys) -> None:
    run_command(folder, layers=1)
    out = capsys.readouterr().out
    assert "without layer 3 of 7: α " in out
    assert "times as fast, at K = " in out
    assert f"--model {folder} --draft self:skip=auto" in out


def test_a_result_is_not_replaced_by_a_worse_one(folder, capsys) -> None:
    save_skip(fingerprint(folder), Skip([3], LAYERS, 1, 0.1, 8, 9.0, "int8"))
    run_command(folder, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["dropped"] == [3]  # measured anew: whatever comes next costs far more
    assert found["alpha"] > 0.9
    assert found["speedup"] < 9


def test_ctrl_c_keeps_the_best_so_far(folder, monkeypatch, capsys) -> None:
    best = Skip([2, 4], LAYERS, 0.5, 0.5, 1, 1.0, "int8")

    def stopped(*_: object, **__: object):
        yield best
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "find", stopped)
    with pytest.raises(typer.Exit) as ended:
        run_command(folder)
    assert ended.value.exit_code == 130
    assert saved_skip(fingerprint(folder)) == best
    assert "without layers 2, 4, is kept" in capsys.readouterr().err


def test_ctrl_c_before_anything_was_found_leaves_nothing(folder, monkeypatch) -> None:
    def stopped(*_: object, **__: object):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "find", stopped)
    with pytest.raises(typer.Exit):
        run_command(folder)
    assert saved_skip(fingerprint(folder)) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_tokens": 0}, "--max-tokens must be at least 1"),
        ({"layers": 9}, "of which 4 can be left out; choose 1 to 4"),
        ({"prompts": "nowhere.txt"}, "nowhere.txt does not exist"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(folder, options, says) -> None:
    with pytest.raises(PacelineError) as refusal:
        run_command(folder, **options)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
