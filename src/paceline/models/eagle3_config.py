"""The config.json of an EAGLE-3 head, in the two ways that people write it.

Plain (SafeAILab, SGLang): the layer's sizes at the top level; layer ids, where there are any, in
`eagle_config` and meaning what *leaves* that layer. `speculators` (vLLM): the layer's sizes in
`transformer_layer_config`, layer ids at the top level and meaning what *enters* that layer. A head
that names none takes (2, L // 2, L - 3) of a target of L layers, entering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import PacelineError
from paceline.models.config import Config
from paceline.models.head_files import MadeFor

_LLAMA = {  # what a config need not say: transformers writes down what differs from these
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
}
_IDS = "eagle_aux_hidden_state_layer_ids"
_UNKNOWN = {"parallel_drafting": "drafts in parallel", "draft_is_moe": "is a mixture of experts"}


def is_eagle3(raw: Mapping[str, Any]) -> bool:
    """Whether this is the config of an EAGLE-3 head. SafeAILab's own heads call themselves a Llama
    and are known by the size of their vocabulary."""
    kind = raw.get("speculators_model_type")
    if kind is not None:
        return kind == "eagle3"
    names = " ".join(map(str, raw.get("architectures") or []))
    return "eagle3" in names.lower() or "draft_vocab_size" in raw


@dataclass(frozen=True)
class Eagle3Config:
    """`layer`: the sizes of its one layer. `features`: width of one of the target's states. `taps`:
    the target's layers whose entering states it reads (None: the default). `draft_vocab`: how many
    tokens it knows (None: all). `made_for`: its target.

    `norm_before_residual`: what is added to the attention's result is the normed state, not the
    state. `norm_before_fc`: the features are normed together before `fc`; `fc_norm`: each by
    itself. `norm_output`: what it feeds back to itself is normed. `trained_embedding`: its own
    table of embeddings, if it has one, is not just a copy of the target's.
    """

    layer: Config
    features: int
    taps: tuple[int, ...] | None
    draft_vocab: int | None
    made_for: MadeFor
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    trained_embedding: bool = True
    confidence: float = 0.0

    @staticmethod
    def read(raw: Mapping[str, Any], name: str) -> Eagle3Config:
        """From config.json of the head that the user calls `name`. Raises PacelineError, by name,
        for what is not implemented or makes no sense."""
        try:
            return _read(raw, name)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, PacelineError):
                raise PacelineError(f"{name}: {error}") from None
            raise PacelineError(
                f"{name}: its config.json makes no sense ({error!r}); get it again"
            ) from None


def _read(raw: Mapping[str, Any], name: str) -> Eagle3Config:
    ours = "speculators_model_type" in raw
    inner: Mapping[str, Any] = raw["transformer_layer_config"] if ours else raw
    eagle: Mapping[str, Any] = raw.get("eagle_config") or {}
    both = {**eagle, **raw}
    layers = int(inner.get("num_hidden_layers", 1))
    if layers != 1:
        raise PacelineError(f"it has {layers} layers; heads of one are implemented")
    for key, what in _UNKNOWN.items():
        if both.get(key):
            raise PacelineError(f"it {what} ({key}), which is not implemented")
    if eagle.get("use_aux_hidden_state") is False:
        raise PacelineError("it reads the last state alone (use_aux_hidden_state), as no EAGLE-3")
    layer = Config.from_hf({**_LLAMA, **inner, **_AS_LLAMA})
    verifier: Mapping[str, Any] = (raw.get("speculators_config") or {}).get("verifier") or {}
    target: Mapping[str, Any] = raw.get("target") or {}
    features = int(raw.get("target_hidden_size") or layer.hidden)
    wanted = both.get("draft_vocab_size")
    return Eagle3Config(
        layer=layer,
        features=features,
        taps=_taps(raw, eagle),
        draft_vocab=None if wanted is None else int(wanted),
        made_for=MadeFor(
            name=target.get("name") or verifier.get("name_or_path"),
            hidden=features,
            vocab=int(target.get("vocab") or layer.vocab_size),
            layers=target.get("layers"),
        ),
        # a speculators config that is silent means yes to the one server that reads them
        norm_before_residual=bool(both.get("norm_before_residual", ours)),
        norm_before_fc=bool(both.get("norm_before_fc")),
        fc_norm=bool(both.get("fc_norm")),
        norm_output=bool(both.get("norm_output")),
        trained_embedding=not ours or bool(raw.get("embed_requires_grad")),
        confidence=float(raw.get("confidence") or 0.0),
    )


_AS_LLAMA = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "layer_types": None}


def _taps(raw: Mapping[str, Any], eagle: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Layers whose entering states are read, from either spelling."""
    if ids := raw.get(_IDS):
        taps = tuple(int(i) for i in ids)
    elif ids := eagle.get(_IDS):
        taps = tuple(int(i) + 1 for i in ids)
    else:
        return None
    if list(taps) != sorted({*taps}) or taps[0] < 0:
        raise PacelineError(f"its layer ids {list(ids)} are not in ascending order")
    return taps


def layer_ids(taps: tuple[int, ...]) -> dict[str, Any]:
    """The entries of config.json that name `taps`, for readers of either spelling."""
    leaving = [tap - 1 for tap in taps]
    return {_IDS: list(taps), "eagle_config": {"use_aux_hidden_state": True, _IDS: leaving}}


def default_taps(layers: int) -> tuple[int, ...]:
    """What a head reads that names no layers, of a target of `layers`."""
    taps = (2, layers // 2, layers - 3)
    if not 0 <= taps[0] < taps[1] < taps[2]:
        raise PacelineError(f"a target of {layers} layers has no three depths to read; name them")
    return taps
