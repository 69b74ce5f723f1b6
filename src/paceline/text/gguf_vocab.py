"""The vocabulary inside a GGUF file, with the ids that llama.cpp gives for the same text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError, unknown
from paceline.text.sentencepiece import SentencePiece
from paceline.text.vocabulary import (
    END_NAMES,
    Kind,
    Vocabulary,
    byte_level_bytes,
    end_ids,
    sentencepiece_bytes,
    split_out,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SUFFIX = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _modern(digits: str, letters: str = r"\p{L}") -> str:
    """The pattern that Llama 3 and Qwen share but for how many digits make a word."""
    other = rf" ?[^\s{letters}\p{{N}}]+[\r\n]*"
    word = rf"[^\r\n\p{{L}}\p{{N}}]?[{letters}]+"
    return rf"{_SUFFIX}|{word}|\p{{N}}{digits}|{other}|{_SPACES}"


def _cased(digits: str, suffix: str) -> str:
    """The pattern that Tekken and GPT-4o share: a word breaks where lower case turns to upper."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}"
    return rf"{words}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


# How each pre-tokenizer cuts a text into words: patterns applied one after another, each to what
# the ones before left; a match is a word, and so is what lies between two matches.
_PATTERNS: dict[str, list[str]] = {
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "qwen2": [_modern("")],
    "qwen35": [_modern("", r"\p{L}\p{M}")],
    "llama-bpe": [_modern("{1,3}")],
    "tekken": [_cased("", "")],
    "gpt-4o": [_cased("{1,3}", f"{_SUFFIX}?")],
    "deepseek-coder": [
        r"[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        "[一-龥\u0800-一가-\ud7ff]+",
        r"\p{N}",
    ],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
}
_SAME_AS = {
    "gpt-2": "phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat mellum",
    "smollm": "starcoder refact command-r codeshell exaone minerva-7b mellum2",
    "qwen2": "stablelm2 deepseek-r1-qwen hunyuan megrez solar-open grok-2",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 dbrx smaug-bpe glm4"
    " chatglm-bpe",
    "gpt-4o": "llama4 kanana2",
}
_ALIASES = {alias: name for name, aliases in _SAME_AS.items() for alias in aliases.split()}
# Those for which a word that is a token is that token, whatever the merges say, and which add a
# BOS unless the file says otherwise.
_LLAMA3 = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 tekken"
_WHOLE_WORDS = frozenset(_LLAMA3.split())

# Read as control tokens by name, even where the file calls them text: llama.cpp does so, and the
# ids for a text that holds them depend on it.
_MARKERS = """
    <|return|> <|call|> <|calls|> <|flush|> _<EOT> [EOS] <turn|> <|tool_response> [e~[
    <|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>
    <|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>
    <|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>
    <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO>
    <reponame> <|file_sep|>
"""
_CONTROL_NAMES = END_NAMES | frozenset(_MARKERS.split())


def gguf_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary that GGUF metadata describes.

    Raises PacelineError: no tokenizer in the file, or one of a kind that Paceline does not know.
    """
    get = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}.get
    tokens, model = get("tokens"), get("model")
    if not tokens or not model:
        raise PacelineError("this GGUF file has no tokenizer in it; use one that was made with it")
    kinds = get("token_type") or [Kind.NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise PacelineError("this GGUF file's tokenizer is damaged: not one type for each token")
    size = len(tokens)
    while size and kinds[size - 1] == Kind.UNUSED:
        size -= 1  # padding at the end is there only to round the model's width up
    tokens, kinds = tokens[:size], kinds[:size]
    if model == "llama":
        add_bos, spell = True, sentencepiece_bytes
        words = _sentencepiece(tokens, get)
    elif model == "gpt2":
        pre = get("pre") or "default"
        add_bos, spell = pre in _WHOLE_WORDS, byte_level_bytes
        words = _byte_level(tokens, get("merges"), pre)
    else:
        raise unknown("tokenizer kind", model, ["llama", "gpt2"])
    eos = [get(f"{name}_token_id", -1) for name in ("eos", "eot", "eom")]
    bos = get("bos_token_id", -1)
    return Vocabulary(
        tokens=tokens,
        kinds=kinds,
        spell=spell,
        encode=_whole_tokens_first(tokens, kinds, words),
        bos_id=bos if 0 <= bos < len(tokens) else None,
        eos_ids=end_ids(tokens, kinds, eos),
        add_bos=bool(get("add_bos_token", add_bos)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


# The ids of a piece of text without special tokens; True: no text stands before it, or a special
# token does.
_Words = Callable[[str, bool], list[int]]


def _whole_tokens_first(
    tokens: list[str], kinds: Sequence[int], words: _Words
) -> Callable[[str, bool], list[int]]:
    """An encoder that first takes out the tokens that are never made of others, longest first."""
    as_text: list[tuple[str, int]] = []
    as_special: list[tuple[str, int]] = []
    for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if (kind == Kind.NORMAL and token not in _CONTROL_NAMES) or not token:
            continue
        if kind in (Kind.CONTROL, Kind.UNKNOWN) or token in _CONTROL_NAMES:
            as_special.append((token, i))
        elif kind == Kind.USER:
            as_special.append((token, i))
            as_text.append((token, i))
    for table in (as_text, as_special):
        table.sort(key=lambda pair: -len(pair[0].encode()))

    def encode(text: str, special: bool) -> list[int]:
        ids: list[int] = []
        first = True
        for part in split_out(text, as_special if special else as_text):
            first_or_after_special, first = first, isinstance(part, int)
            ids += [part] if isinstance(part, int) else words(part, first_or_after_special)
        return ids

    return encode


def _sentencepiece(tokens: list[str], get: Callable[..., Any]) -> _Words:
    scores = get("scores")
    if not scores:
        raise PacelineError("this GGUF file's tokenizer has no scores; convert the model again")
    model = SentencePiece(tokens, scores, get("unknown_token_id"))
    prefix = bool(get("add_space_prefix", True))
    return lambda text, first: model.encode(text, prefix_space=prefix and first)


def _byte_level(tokens: list[str], merges: list[str] | None, pre: str) -> _Words:
    tokenizer = byte_level_tokenizer(tokens, merges, pre)
    return lambda text, _first: tokenizer.encode(text, add_special_tokens=False).ids


def byte_level_tokenizer(tokens: list[str], merges: list[str] | None, pre: str) -> Tokenizer:
    """What turns text without special tokens into ids, for a byte-level vocabulary. Raises
    PacelineError for an unknown pre-tokenizer, or without merges."""
    if not merges:
        raise PacelineError("this GGUF file's tokenizer has no merges; convert the model again")
    from tokenizers import Regex, Tokenizer
    from tokenizers import pre_tokenizers as cutters
    from tokenizers.models import BPE

    patterns = _PATTERNS.get(_ALIASES.get(pre, pre))
    if patterns is None:
        raise unknown("pre-tokenizer", pre, [*_PATTERNS, *_ALIASES])
    ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    pairs = [(line[:cut], line[cut + 1 :]) for line in merges if (cut := line.find(" ", 1)) > 0]
    whole = pre in _WHOLE_WORDS
    try:
        model = BPE(ids, pairs, ignore_merges=whole)
    except Exception:  # the library refuses a merge that names no token; such a merge never applies
        pairs = [(a, b) for a, b in pairs if a in ids and b in ids and a + b in ids]
        model = BPE(ids, pairs, ignore_merges=whole)
    tokenizer = Tokenizer(model)
    cuts = [cutters.Split(Regex(pattern), "isolated") for pattern in patterns]
    to_bytes = cutters.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = cutters.Sequence([*cuts, to_bytes])
    return tokenizer
