"""Exact integrals over noise: where a rule changes its mind, to 1e-12.

A rule that compares uniforms with thresholds does one and the same thing all over a box of noise,
and something else in the next. The boxes are found, not sampled: wherever two corners of a box that
differ in one coordinate disagree, the place between them where the answer changes is searched for,
and the box is cut there.

Why a box whose corners agree is done: if along every axis each answer holds on one interval (a
threshold is passed once; an inverted cumulative sum runs through its tokens in order), agreeing
corners make an edge constant, constant edges a face, and so on up to the box. What may break that
rule is looked for: a few points inside each box are asked too, and where one disagrees the box is
cut on the way to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""`rule(which, points)`: for each of N rows, what rule `which` [N] int64 does at `points` [N, D]
float64 in [0, 1): an int64 code for each [N]."""

Hints = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""`hints(which, points)`: places [N, H] at which the answer may well change, on any line through
each of `points`; a right guess saves a search, a wrong one costs two questions."""

TOP = 1 - 2.0**-53  # the largest uniform
WIDTH = 2.0**-42  # a place is known when it lies in an interval so narrow
INSIDE = 3  # points asked inside each box
BOXES = 1 << 12  # of one rule, at one level
MOST = 64  # levels of cuts; a rule of thresholds needs one for each of them


@dataclass(frozen=True)
class Pieces:
    """The boxes: `which` rule each belongs to, its `weight`, a `point` inside it, and its `code`.
    [P], but `point` [P, D]. Of each rule the weights sum to 1, but for 1e-12."""

    which: np.ndarray
    weight: np.ndarray
    point: np.ndarray
    code: np.ndarray


@dataclass
class _Boxes:
    """Closed boxes `low`..`high` [N, D] of the rules `which` [N]; `code` [N, 2^D] at the corners,
    bit d of a corner's number: at the high end of dimension d."""

    which: np.ndarray
    low: np.ndarray
    high: np.ndarray
    code: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> _Boxes:
        return _Boxes(self.which[rows], self.low[rows], self.high[rows], self.code[rows])

    def weight(self) -> np.ndarray:
        return (self.high - self.low).prod(1)


@dataclass
class _Lines:
    """For each box a line on which the answer changes: along `axis` [N] (-1: there is none) from
    the point `start` [N, D] to the coordinate `stop` [N]."""

    axis: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    @classmethod
    def none(cls, boxes: _Boxes) -> _Lines:
        count = len(boxes.low)
        return cls(np.full(count, -1), boxes.low.copy(), np.zeros(count))

    def __getitem__(self, rows: np.ndarray) -> _Lines:
        return _Lines(self.axis[rows], self.start[rows], self.stop[rows])

    def put(self, rows: np.ndarray, other: _Lines) -> None:
        self.axis[rows], self.start[rows], self.stop[rows] = other.axis, other.start, other.stop


def pieces(
    rule: Rule, rules: int, dims: int, sections: int = 16, hints: Hints | None = None
) -> Pieces:
    """All boxes of rules 0..`rules`-1 over `dims` uniforms. `sections`: into how many parts a
    search cuts its interval at each step: more ask for more points, fewer for more calls. Raises
    ValueError for a rule that is not made of thresholds."""
    every = np.arange(1 << dims)
    bits = (every[:, None] >> np.arange(dims)) & 1
    which = np.arange(rules)
    low, high = np.zeros((rules, dims)), np.full((rules, dims), TOP)
    boxes = _Boxes(which, low, high, _ask_corners(rule, which, low, high, bits))
    rng = np.random.default_rng(0)
    done: list[_Boxes] = []
    for _ in range(MOST):
        lines = _edges(boxes, bits)
        flat = np.flatnonzero(lines.axis < 0)
        lines.put(flat, _strays(rule, boxes[flat], rng))
        over = lines.axis < 0
        done.append(boxes[over])
        boxes, lines = boxes[~over], lines[~over]
        if not len(lines.axis):
            return _result(done)
        if len(lines.axis) > BOXES * rules:
            break
        left, right = _search(rule, boxes, lines, sections, hints)
        boxes = _cut(rule, boxes, lines.axis, left, right, bits)
        boxes = boxes[boxes.weight() > WIDTH**2]
    raise ValueError("the rule is not made of thresholds: its boxes have no end")


def _result(done: list[_Boxes]) -> Pieces:
    which, low, high, code = (
        np.concatenate([getattr(part, name) for part in done])
        for name in ("which", "low", "high", "code")
    )
    return Pieces(which, (high - low).prod(1), (low + high) / 2, code[:, 0])


def _ask_corners(
    rule: Rule, which: np.ndarray, low: np.ndarray, high: np.ndarray, bits: np.ndarray
) -> np.ndarray:
    """Codes [N, C] at the corners `bits` [C, D] of N boxes."""
    points = np.where(bits, high[:, None], low[:, None])
    asked = np.repeat(which, len(bits))
    codes = rule(asked, points.reshape(len(asked), low.shape[1]))
    return codes.reshape(len(which), len(bits))


def _edges(boxes: _Boxes, bits: np.ndarray) -> _Lines:
    """The first axis along which two corners disagree, and the edge between them."""
    lines = _Lines.none(boxes)
    for d in range(boxes.low.shape[1] - 1, -1, -1):
        below = np.flatnonzero(bits[:, d] == 0)
        differs = boxes.code[:, below] != boxes.code[:, below + (1 << d)]
        some = np.flatnonzero(differs.any(1))
        corner = bits[below[differs[some].argmax(1)]]
        start = np.where(corner, boxes.high[some], boxes.low[some])
        lines.put(some, _Lines(np.full(len(some), d), start, boxes.high[some, d]))
    return lines


def _strays(rule: Rule, boxes: _Boxes, rng: np.random.Generator) -> _Lines:
    """For boxes whose corners agree: a line on the way to a point inside that does not, if one is
    found."""
    lines = _Lines.none(boxes)
    count, dims = boxes.low.shape
    for _ in range(INSIDE if count and dims else 0):
        point = boxes.low + rng.random((count, dims)) * (boxes.high - boxes.low)
        differs = rule(boxes.which, point) != boxes.code[:, 0]
        for row in np.flatnonzero(differs & (lines.axis < 0)):  # rare: an axis at a time
            way = np.repeat(boxes.low[row][None], dims + 1, 0)
            for d in range(dims):
                way[d + 1 :, d] = point[row, d]
            codes = rule(np.full(dims + 1, boxes.which[row]), way)
            d = int(np.flatnonzero(codes[1:] != codes[:-1])[0])
            lines.axis[row], lines.start[row], lines.stop[row] = d, way[d], point[row, d]
    return lines


def _search(
    rule: Rule, boxes: _Boxes, lines: _Lines, sections: int, hints: Hints | None
) -> tuple[np.ndarray, np.ndarray]:
    """The ends [N] of a narrow interval on each line in which the answer first changes."""
    row = np.arange(len(lines.axis))
    left, right = lines.start[row, lines.axis], lines.stop.copy()
    first = rule(boxes.which, lines.start)
    share = np.arange(1, sections) / sections
    at = None
    if hints is not None:
        around = hints(boxes.which, lines.start)
        around = np.concatenate([around - WIDTH / 2, around + WIDTH / 2], 1)
        at = np.sort(np.clip(around, left[:, None], right[:, None]), 1)
    while (right - left).max() > WIDTH:
        if at is None:
            at = left[:, None] + share * (right - left)[:, None]
        points = np.repeat(lines.start[:, None], at.shape[1], 1)
        points[row[:, None], np.arange(at.shape[1]), lines.axis[:, None]] = at
        asked = np.repeat(boxes.which, at.shape[1])
        differs = rule(asked, points.reshape(len(asked), -1)).reshape(at.shape) != first[:, None]
        index = np.where(differs.any(1), differs.argmax(1), at.shape[1])  # the first that differs
        ends = np.concatenate([left[:, None], at, right[:, None]], 1)
        left, right, at = ends[row, index], ends[row, index + 1], None
    return left, right


def _cut(
    rule: Rule,
    boxes: _Boxes,
    axis: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    bits: np.ndarray,
) -> _Boxes:
    """Two boxes of each one: up to `left`, and from `right` on, along `axis`."""
    row = np.arange(len(axis))
    below, above = boxes.high.copy(), boxes.low.copy()
    below[row, axis], above[row, axis] = left, right
    new = _Boxes(
        np.concatenate([boxes.which, boxes.which]),
        np.concatenate([boxes.low, above]),
        np.concatenate([below, boxes.high]),
        np.concatenate([boxes.code, boxes.code]),
    )
    # half of the corners of each are new: those on the cut
    side = np.concatenate([np.ones_like(axis), np.zeros_like(axis)])
    fresh = side[:, None] == bits[:, np.concatenate([axis, axis])].T  # [2N, C]
    box, corner = np.nonzero(fresh)
    points = np.where(bits[corner], new.high[box], new.low[box])
    new.code[box, corner] = rule(new.which[box], points)
    return new
