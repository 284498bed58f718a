"""What the tokens of a vocabulary stand for: bytes of the text, or plain words without marks.

Three ways of writing tokens are told apart by trying: byte-level (GPT-2: every byte is one visible
character), sentencepiece (``▁`` is a space, ``<0xEA>`` a byte), and all others (WordPiece and the like),
which say too little about spaces to be turned back into text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

Spelling: TypeAlias = Literal["bytes", "pieces", "words"]

_SPACE: Final = "▁"


class Vocabulary:
    """Tokens of one tokenizer, as bytes and as plain text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._added = set(tokenizer.added_tokens_decoder)
        self._bytes: dict[int, bytes | None] = {}
        self.spelling: Spelling = "words"
        self.spelling = self._find_spelling()

    def joined(self, ids: Sequence[int], text: str) -> list[bytes] | None:
        """The bytes of every token, if they make up the text exactly (or with one space in front); else None.

        None where the tokenizer changed the text (case, accents, unknown characters) or does not spell out
        spaces.
        """
        pieces = [self.token_bytes(token) for token in ids]
        known = [piece for piece in pieces if piece is not None]
        if len(known) < len(pieces):
            return None
        whole = b"".join(known)
        encoded = text.encode("utf-8", "surrogatepass")
        return known if whole in (encoded, b" " + encoded) else None

    def plain(self, token_id: int) -> str:
        """The token as a person would write it, without marks for a word's start or continuation."""
        raw = self.token(token_id)
        if token_id in self._special:
            return raw
        if self.spelling == "bytes":
            spelt = self.token_bytes(token_id)
            return raw if spelt is None else spelt.decode("utf-8", "replace").strip()
        if self.spelling == "words" and raw.startswith("##") and len(raw) > 2:
            return raw[2:]
        return raw.removeprefix(_SPACE) or raw

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of text that the token stands for, spaces included; None where it does not say."""
        if token_id not in self._bytes:
            self._bytes[token_id] = self._spell(token_id)
        return self._bytes[token_id]

    def token(self, token_id: int) -> str:
        """The token as it stands in the vocabulary."""
        return str(self._tokenizer.convert_ids_to_tokens(token_id))

    def by_plain_text(self) -> dict[str, list[int]]:
        """Plain text -> the ids of all tokens that read so, special tokens left out."""
        found: dict[str, list[int]] = {}
        for token_id in sorted(set(self._tokenizer.get_vocab().values()) - self._special):
            found.setdefault(self.plain(token_id), []).append(token_id)
        return found

    def _find_spelling(self) -> Spelling:
        probe = "a b"
        ids = self._tokenizer.encode(probe, add_special_tokens=False)
        for spelling in ("bytes", "pieces"):
            self.spelling, self._bytes = spelling, {}
            if self.joined(ids, probe) is not None:
                return spelling
        self._bytes = {}
        return "words"

    def _spell(self, token_id: int) -> bytes | None:
        token = self.token(token_id)
        if token_id in self._added:
            return token.encode("utf-8", "surrogatepass")
        if self.spelling == "bytes":
            codes = [_BYTE_OF.get(character) for character in token]
            return None if None in codes else bytes(code for code in codes if code is not None)
        if self.spelling == "pieces":
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return token.replace(_SPACE, " ").encode("utf-8", "surrogatepass")
        return None


def _byte_characters() -> dict[str, int]:
    """The visible character that byte-level tokenizers write for each byte.

    Printable Latin-1 characters stand for themselves; the other bytes get the characters from U+0100 on, in
    order.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in visible}
    others = [byte for byte in range(256) if byte not in set(visible)]
    table.update({chr(0x100 + number): byte for number, byte in enumerate(others)})
    return table


_BYTE_OF: Final = _byte_characters()
