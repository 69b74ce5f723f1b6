"""`paceline bench`: each prompt plain and speculative, in turns, each written down at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import paceline
from paceline import kernels
from paceline.bench import card, machine
from paceline.bench.engine import Engines
from paceline.bench.measure import Differs, Spoilt, pair
from paceline.bench.records import Log, Record, Writer
from paceline.bench.request import Request
from paceline.bench.suites import Message, Prompt, title
from paceline.bench.sweep import Cell
from paceline.build import LLM
from paceline.errors import PacelineError
from paceline.models.progress import Note, Progress
from paceline.text.chat import chat_ids
from paceline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from paceline.bench.peers.field import Field

_ANSWER = 4  # a token of an answer takes about as long as so many of a prompt


class Bench:
    """A bench that is ready to run: the model loaded, everything warm, the peers started, the card
    measured and written down. `log`: what `writer`'s file holds already, if it is gone on with;
    `argv`: how it was called. To be closed. Raises PacelineError for anything that the user can put
    right."""

    def __init__(
        self,
        request: Request,
        writer: Writer,
        log: Log | None,
        argv: Sequence[str],
        progress: Progress,
        note: Note,
    ) -> None:
        self._request, self._writer = request, writer
        self._prompts, self._cells = request.prompts, request.cells
        threads = request.threads or kernels.default_threads()
        where = {"hardware": machine.hardware(threads), "commit": machine.commit()}
        asked = request.asked(self._prompts)
        if log is not None:
            _check_same(log.run, {**where, "asked": asked})
        llm = _load(request, self._cells, progress, note)
        self._tokenizer, self._device = llm.tokenizer, llm.model.device
        self._engines = Engines(llm, self._cells)
        firsts = list(self._ids())
        self._engines.warm_up(firsts[0] if firsts else [0] * 8, progress)
        self._field = self._peers(llm, threads, firsts, note) if request.peers else None
        self._done: dict[tuple[str, str], Record] = {}
        if log is not None:
            self.run = log.run
            self._done = {(r["prompt"], _key(r["cell"])): r for r in log.prompts}
            return
        most = max((cell.get("k", request.k) for cell in self._cells), default=request.k)
        context = sum(map(len, firsts)) // max(1, len(firsts)) + request.tokens // 2
        self.run = {
            "kind": "run",
            "run": uuid4().hex[:12],
            "paceline": paceline.__version__,
            "commit": where["commit"],
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "argv": list(argv),
            "hardware": where["hardware"],
            "versions": machine.versions(),
            "model": llm.name,
            "dtype": llm.dtype,
            "draft": llm.draft,
            "k": llm.k,
            "window": request.window,
            "verify": request.verify,
            "temperature": request.temperature,
            "max_tokens": request.tokens,
            "repeats": request.times,
            "suite": title(request.sources),
            "lossless": all(self._engines.lossless),
            "asked": asked,
            "peers": [] if self._field is None else self._field.card(),
            "card": card.measure(
                llm, context=context, threads=threads, k=most, alpha=request.alpha
            ),
        }
        writer.add(self.run)

    @property
    def planned(self) -> int:
        """How many pairs of answers there are to be in the end."""
        return len(self._prompts) * len(self._cells)

    @property
    def left(self) -> int:
        """How many of them are not there yet."""
        return self.planned - len(self._done)

    def measure(self, progress: Progress) -> None:
        """Everything that is not there yet. A prompt that fails is written down with its reason,
        and the others go on."""
        units = [
            (prompt, i)
            for prompt in self._prompts
            for i, cell in enumerate(self._cells)
            if (prompt.name, _key(cell)) not in self._done
        ]
        costs = [self._cost(prompt) for prompt, _ in units]
        for turn, (prompt, i) in enumerate(units):
            progress(sum(costs[:turn]), sum(costs), "answers")
            record, others = self._records(prompt, i, turn)
            for each in (record, *others):
                self._writer.add(each)
            self._done[prompt.name, _key(self._cells[i])] = record
        progress(sum(costs), sum(costs), "answers")

    def close(self) -> None:
        """End the peers. May be called more than once."""
        if self._field is not None:
            self._field.close()

    def _records(self, prompt: Prompt, index: int, turn: int) -> tuple[Record, list[Record]]:
        """Of a prompt in a cell, and of the peers."""
        cell, others = self._cells[index], list[Record]()
        record: Record = {
            "kind": "prompt",
            "run": self.run["run"],
            "prompt": prompt.name,
            "category": prompt.category,
            "cell": dict(cell),
            "prompt_tokens": None,
            "plain": None,
            "speculative": None,
            "same_tokens": None,
            "error": None,
        }
        try:
            ids = encode(self._tokenizer, self._conversation(prompt, cell))
            record["prompt_tokens"] = len(ids)
            plain, drafted, same, others = self._answers(prompt, ids, index, turn)
            record |= {"plain": plain, "speculative": drafted, "same_tokens": same}
        except (Spoilt, PacelineError) as error:
            record["error"] = str(error)
            record["same_tokens"] = False if isinstance(error, Differs) else None
        except Exception as error:  # whatever it is, the other prompts can be measured
            record["error"] = " ".join(f"{type(error).__name__}: {error}".split())
        return record, others

    def _answers(
        self, prompt: Prompt, ids: Sequence[int], index: int, turn: int
    ) -> tuple[Record, Record, bool | None, list[Record]]:
        """Both sides, whether they are the same tokens, and what the peers made of it."""
        plain, drafted = self._engines.plain, self._engines.cells[index]
        params, repeats = self._request.params(self._cells[index]), self._request.times
        exact = self._engines.lossless[index] and self._device.type == "cpu"
        if self._field is None:
            sides = pair(plain, drafted, ids, params, repeats=repeats, turn=turn, exact=exact)
            return (*sides, [])
        from paceline.bench.peers.beside import beside

        run, model = self.run["run"], self.run["model"]
        of = {"run": run, "model": model, "prompt": prompt.name, "category": prompt.category}
        found = beside(plain, drafted, self._field, of, ids, params, repeats)
        if exact and not found[2]:
            raise Differs("speculative and plain answers differ")
        return found

    def _peers(self, llm: LLM, threads: int, firsts: Sequence[list[int]], note: Note) -> Field:
        from paceline.bench.peers.beside import job
        from paceline.bench.peers.field import Field

        turns = 1 + sum(prompt.follows is not None for prompt in self._prompts)
        longest = max(map(len, firsts), default=0) + self._request.tokens
        longest = min(llm.context, longest if turns == 1 else 2 * longest + self._request.tokens)
        return Field.open(self._request.peers, job(llm, threads, longest), note)

    def _conversation(self, prompt: Prompt, cell: Cell) -> list[Message]:
        """With the answers to the turns before it."""
        if prompt.follows is None:
            return list(prompt.messages)
        before = next(each for each in self._prompts if each.name == prompt.follows)
        answered = self._done[before.name, _key(cell)]["plain"]
        if answered is None:
            raise Spoilt("the turn before it failed")
        said = "".join(text for text, _ in answered["made"])
        answer = {"role": "assistant", "content": said}
        return [*self._conversation(before, cell), answer, *prompt.messages]

    def _ids(self) -> Iterator[list[int]]:
        """Of the prompts that can be read before anything is answered."""
        for prompt in self._prompts:
            if prompt.follows is None:
                with suppress(PacelineError):
                    yield encode(self._tokenizer, prompt.messages)

    def _cost(self, prompt: Prompt) -> int:
        """How long it takes, in about the time of a token of a prompt."""
        try:
            read = len(encode(self._tokenizer, prompt.messages))
        except PacelineError:
            return 1
        return read + _ANSWER * self._request.tokens


def encode(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The ids of a conversation; for a model without a chat template, of its texts. Raises
    PacelineError where there are none."""
    if tokenizer.chat_template is None:
        return tokenizer.prompt("\n\n".join(message["content"] for message in messages))
    return chat_ids(tokenizer, messages)


def _load(request: Request, cells: Sequence[Cell], progress: Progress, note: Note) -> LLM:
    swept = all("draft" in cell for cell in cells)  # then there is no need to load another one
    return LLM(
        request.model,
        draft="none" if swept else request.draft,
        k=request.k,
        window=request.window,
        verify=request.verify,
        dtype=request.dtype,
        device=request.device,
        threads=request.threads,
        progress=progress,
        note=note,
    )


def _check_same(run: Record, now: Mapping[str, Any]) -> None:
    """Raise PacelineError unless a run was made as this one would be: what differs cannot be
    compared, and would stand in one table."""
    for name, value in json.loads(json.dumps(dict(now))).items():
        before = run.get(name)
        if before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            name = next(key for key in value if before.get(key) != value[key])
            before, value = before.get(name), value[name]
        raise PacelineError(
            f"--resume needs the same settings: {name} was {_short(before)} and is {_short(value)}"
        )


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _key(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)
