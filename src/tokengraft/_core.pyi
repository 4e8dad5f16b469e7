from typing import final

__all__ = ["Bpe", "Pipeline", "__version__"]

__version__: str

@final
class Bpe:
    """A BPE merge table."""
    def __new__(
        cls,
        vocab: dict[str, int],
        merges: list[tuple[int, int]],
        *,
        ignore_merges: bool,
        byte_fallback: bool,
        unk_token: str | None,
        fuse_unk: bool,
    ) -> Bpe: ...
    def encode(self, pretoken: str) -> list[int]: ...
    def encode_by_merges(self, pretoken: str) -> list[int]: ...
    def structure(self) -> tuple[list[tuple[int, int, int]], list[int], list[int]]:
        """Merged tokens with their two parts, atomic tokens, unreachable tokens; each by ascending id."""

@final
class Pipeline:
    """The normalizer, pre-tokenizer and added tokens of a `tokenizer.json`."""
    def __new__(cls, skeleton: str) -> Pipeline: ...
    def pieces(self, text: str) -> list[str | int]: ...
