"""The process of one peer: `python -m paceline.bench.peers NAME`, JSON lines in and out.

First comes the job, and the answer to it is how the peer is set; then prompts, each answered in
turn, until the input ends. What the libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from paceline.bench.peer import Job
from paceline.bench.peers import ADAPTERS
from paceline.bench.peers.tuning import one_line
from paceline.bench.quiet import quiet

_WARM = 8  # tokens


def main(name: str) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        print(json.dumps(message), file=out, flush=True)

    lines = map(json.loads, sys.stdin)
    job = Job(**next(lines))
    try:
        peer = ADAPTERS[name].open(job, lambda line: say(note=line))
    except Exception as error:
        return say(error=one_line(error))
    for mode in peer.settings:  # what is done at first is no part of what follows
        with suppress(Exception):  # a mode that fails will fail again, and then it counts
            peer.generate(job.trial, _WARM, mode)
    say(settings=dict(peer.settings), about=list(peer.about), absent=dict(peer.absent))
    for line in lines:
        try:
            answer = asdict(peer.generate(**line))
        except Exception as error:
            say(error=one_line(error))
            continue
        quiet()  # its threads may spin on, and the next turn is another's
        say(answer=answer)
    return None


if __name__ == "__main__":
    main(sys.argv[1])
