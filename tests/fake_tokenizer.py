"""A tokenizer whose answers are known by heart: one token per byte, then BOS and EOS."""

from __future__ import annotations

from paceline.text.tokenizer import Tokenizer
from paceline.text.vocabulary import Kind, Vocabulary, sentencepiece_bytes, split_out


class ByteTokenizer(Tokenizer):
    """Ids 0 to 255 are the bytes; `BOS` ("<bos>") and `EOS` ("<eos>") are control tokens."""

    BOS, EOS = 256, 257

    def __init__(self, *, add_bos: bool = True, chat_template: str | None = None) -> None:
        super().__init__(
            Vocabulary(
                tokens=[*(f"<0x{byte:02X}>" for byte in range(256)), "<bos>", "<eos>"],
                kinds=[Kind.BYTE] * 256 + [Kind.CONTROL] * 2,
                spell=sentencepiece_bytes,
                encode=self._bytes_of,
                bos_id=self.BOS,
                eos_ids=(self.EOS,),
                add_bos=add_bos,
                chat_template=chat_template,
            )
        )

    def _bytes_of(self, text: str, special: bool) -> list[int]:
        whole = [("<bos>", self.BOS), ("<eos>", self.EOS)] if special else []
        ids: list[int] = []
        for part in split_out(text, whole):
            ids += [part] if isinstance(part, int) else list(part.encode())
        return ids
