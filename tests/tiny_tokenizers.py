"""Tokenizers of a few hundred tokens, as GGUF metadata and as Hugging Face folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def byte_level(
    merges: Sequence[str] = (),
    added: Sequence[tuple[str, int]] = (("<|end|>", CONTROL),),
    pre: str = "gpt-2",
    **settings: Any,
) -> dict[str, Any]:
    """GGUF metadata: the 256 bytes, one token per merge ("t h" makes "th"), then `added`
    (token, kind); `settings` by their key after `tokenizer.ggml.`."""
    tokens = [*ALPHABET, *(merge.replace(" ", "") for merge in merges)]
    kinds = [NORMAL] * len(tokens)
    for token, kind in added:
        tokens.append(token)
        kinds.append(kind)
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": kinds,
        "merges": [*merges, "zzz none"],
        **settings,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


def sentencepiece(
    pieces: Sequence[tuple[str, float]],
    added: Sequence[tuple[str, int]] = (),
    bytes_too: bool = True,
    **settings: Any,
) -> dict[str, Any]:
    """GGUF metadata: <unk>, <s>, </s>, `added`, the 256 byte tokens, then `pieces` with scores."""
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), *added]
    raw = [f"<0x{byte:02X}>" for byte in range(256)] if bytes_too else []
    fields = {
        "model": "llama",
        "tokens": [*(t for t, _ in special), *raw, *(p for p, _ in pieces)],
        "scores": [0.0] * (len(special) + len(raw)) + [score for _, score in pieces],
        "token_type": [*(k for _, k in special), *[BYTE] * len(raw), *[NORMAL] * len(pieces)],
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **settings,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


def write_byte_level(
    folder: Path, merges: Sequence[str], added: Sequence[tuple[str, bool]], digits: str = r"\p{N}"
) -> Tokenizer:
    """`tokenizer.json` of the same vocabulary as `byte_level`, `added` being (token, special);
    numbers are cut by `digits`, as "smollm" does."""
    tokens = [*ALPHABET, *(merge.replace(" ", "") for merge in merges)]
    pairs = [(a, b) for a, b in (merge.split(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(digits), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(t, special=s, normalized=False) for t, s in added])
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def write_sentencepiece(folder: Path, pieces: Sequence[str], merges: Sequence[str]) -> None:
    """`tokenizer.json` in the manner of Llama 2 and Gemma: spaces as ▁, bytes as a fallback, and
    three spaces as one added token."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    pairs = [(a, b) for a, b in (merge.split(" ") for merge in merges)]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids, pairs, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens(["▁▁▁"])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(values), encoding="utf-8")
