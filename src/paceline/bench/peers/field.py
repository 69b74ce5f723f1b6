"""Peers that take turns, and their lines in the record file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

from paceline.bench.peer import Answer, Job, Note, Peer
from paceline.bench.peers import installed
from paceline.bench.peers.remote import PeerFailed, RemotePeer
from paceline.bench.peers.tuning import one_line, spelled
from paceline.bench.quiet import quiet

ANY = "any"  # the mode of a peer that did not come to have modes


class Way(NamedTuple):
    """An engine and one of its modes."""

    engine: str
    mode: str


class Field:
    """Peers, each way of theirs asked in turn. `errors`: why a way ended; it is asked no more."""

    def __init__(self, peers: Sequence[Peer], errors: Mapping[Way, str] | None = None) -> None:
        self._peers = {peer.name: peer for peer in peers}
        self.errors: dict[Way, str] = dict(errors or {})
        ways = [Way(peer.name, mode) for peer in peers for mode in peer.settings]
        self.ways = [*ways, *self.errors]

    @classmethod
    def open(cls, names: Sequence[str], job: Job, note: Note) -> Field:
        """Start these peers, each with a search for its best settings, of which `note` hears. One
        that cannot start has its reason in `errors`. Raises as `installed` does."""
        peers: list[Peer] = []
        errors: dict[Way, str] = {}
        with ExitStack() as started:
            for name in installed(names):
                try:
                    peer = RemotePeer(name, job, note)
                except PeerFailed as error:
                    errors[Way(name, ANY)] = str(error)
                    note(f"{name}: {error}")
                else:
                    peers.append(peer)
                    started.callback(peer.close)
            started.pop_all()  # all are there: they end with the field
        return cls(peers, errors)

    def card(self) -> list[str]:
        """What differs from ours, and the settings of each way: lines to print."""
        lines: list[str] = []
        for name, peer in self._peers.items():
            lines += [f"{name}: {'; '.join(peer.about)}"]
            lines += [f"  {mode}: {spelled(given)}" for mode, given in peer.settings.items()]
            lines += [f"  no {mode}: {why}" for mode, why in peer.absent.items()]
        ended = [way for way in self.errors if way.mode == ANY]
        return lines + [f"{way.engine}: left out: {self.errors[way]}" for way in ended]

    def turn(self, ids: Sequence[int], max_tokens: int, number: int = 0) -> dict[Way, Answer]:
        """An answer of each way that has not ended; turn `number` begins with another of them. A
        way that fails is missing from now on."""
        answers: dict[Way, Answer] = {}
        first = number % max(1, len(self.ways))
        for way in [*self.ways[first:], *self.ways[:first]]:
            if way in self.errors:
                continue
            quiet()
            try:
                answer = self._peers[way.engine].generate(ids, max_tokens, way.mode)
                if not answer.ids:
                    raise PeerFailed("it answered nothing")
            except Exception as error:
                self.errors[way] = one_line(error)
            else:
                answers[way] = answer
        return answers

    def records(
        self, of: Mapping[str, Any], turns: Sequence[Mapping[Way, Answer]], ours: Sequence[int]
    ) -> list[dict[str, Any]]:
        """The lines of one prompt. `of`: run, model, prompt and category; `turns`: what `turn` gave
        for it; `ours`: the ids of our own answer."""
        return [self._record(of, way, turns, ours) for way in self.ways]

    def _record(
        self,
        of: Mapping[str, Any],
        way: Way,
        turns: Sequence[Mapping[Way, Answer]],
        ours: Sequence[int],
    ) -> dict[str, Any]:
        error = self.errors.get(way)
        answers = [] if error else [turn[way] for turn in turns]
        settings = {} if way.mode == ANY else self._peers[way.engine].settings[way.mode]
        rates = [answer.tokens_per_second for answer in answers]
        return {
            "kind": "peer",
            **of,
            "engine": way.engine,
            "mode": way.mode,
            "tokens": len(answers[0].ids) if answers else None,
            "seconds": [answer.seconds for answer in answers],
            "ttft_s": [answer.first_s for answer in answers],
            "tpot_s": [1 / rate for rate in rates],
            "tokens_per_second": median(rates) if rates else None,
            "same_tokens": all(a.ids == list(ours) for a in answers) if answers else None,
            "settings": dict(settings),
            "error": error,
        }

    def close(self) -> None:
        """End their processes."""
        for peer in self._peers.values():
            end: Callable[[], None] | None = getattr(peer, "close", None)
            if end is not None:
                end()

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
