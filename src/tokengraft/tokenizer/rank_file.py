"""Rank files (tiktoken, tekken): their tokens with ranks, read and written without loss."""

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, NoReturn

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, UnreadableFileError, UnsupportedTokenizerError, option
from tokengraft.output.json_file import JsonStyle, parse_json
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.kind import BYTE_OF, CHARACTER_OF

Format = Literal["tiktoken", "tekken"]
_NAMES = re.compile(r"(.*/)?(tekken\.json|tiktoken\.model|tokenizer\.model.*|[^/]*\.tiktoken)")
_FIRST_LINE = re.compile(rb"(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/=]{4} [0-9]{1,10}\r?\n")
_TEKKEN_ENTRY = re.compile(rb'"token_bytes"\s*:\s*"')
_BYTES = {ord(character): byte for character, byte in BYTE_OF.items()}
_UNUSED = b"\xff<unused rank %d>"
"""The bytes at a rank that no token has. No text gives them: UTF-8 has no byte 0xFF."""
MAX_UNUSED = 2**20
"""Ranks that may have a placeholder."""
MAX_SPECIALS = 2**16
"""Special tokens of a tekken file, which need not list them. Known files have 1,000."""
_OLD_SPECIALS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The first special tokens of tekken files that list none: version 7 and earlier."""


@dataclass(frozen=True)
class RankFile:
    """The tokens of a rank file."""

    ids: Mapping[str, int]
    """The tokens by ascending rank, spelled in the byte-level alphabet, with their ids. Special tokens are not here."""
    end: int
    """The id after the last rank, tokens or not."""
    first: int = 0
    """The id of the first rank."""
    header: Mapping[str, Any] | None = None
    """What a tekken file has beside its tokens. A tiktoken file has only tokens."""
    style: JsonStyle | None = None
    """The layout of a tekken file."""

    @classmethod
    def read(cls, raw: bytes, name: str) -> "RankFile":
        """The tokens in the bytes of a file."""
        return _read_tekken(raw, name) if _is_json(raw) else cls(*_checked(_tiktoken_entries(raw, name), name))

    @property
    def format(self) -> Format:
        """What the file is."""
        return "tiktoken" if self.header is None else "tekken"

    def vocabulary(self, specials: Mapping[str, int]) -> _core.Vocabulary:
        """The tokens and the special tokens, with the merges that encode as the rule of rank files does.

        They are all pairs of tokens that make a token, by the rank of what they make: the list of Hugging Face's
        converter. The pairs of one token do not compete (see docs/architecture.md).
        """
        return _core.Vocabulary.by_products({**self.ids, **specials}, [*specials.values()])

    @property
    def pattern(self) -> str | None:
        """The split pattern, if the file has one."""
        pattern = self.header["config"].get("pattern") if self.header else None
        return pattern if isinstance(pattern, str) else None

    @cached_property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens of a tekken file in the order of their ids; those that it does not list are numbered."""
        if self.header is None:
            return ()
        entries: Any = self.header.get("special_tokens")
        if entries is None:
            entries = [{"rank": rank, "token_str": text} for rank, text in enumerate(_OLD_SPECIALS)]
        try:
            texts = [str(entry["token_str"]) for entry in entries]
            in_order = [entry["rank"] for entry in entries] == [*range(len(entries))]
        except (TypeError, KeyError):
            in_order, texts = False, []
        texts += [f"<SPECIAL_{rank}>" for rank in range(len(texts), self.first)]
        if not in_order or len(set(texts)) < len(texts) or len(texts) > self.first:
            raise InvalidTokenizerError(
                f"`special_tokens` of the tekken file lists {json.dumps(entries)[:120]}; expected at most "
                f"{self.first:,} tokens, each once, in the order of their ranks",
                hint="check what wrote the file",
            )
        return tuple(texts)

    @cached_property
    def sha256(self) -> str:
        """The hash of the lines of a tiktoken file."""
        return sha256(b"".join(_lines(self._by_rank()))).hexdigest()

    def write(self, *, fill: bool = False) -> bytes:
        """The bytes of the file. With ``fill``, ranks without a token have a placeholder, as in every tekken file."""
        entries = self._by_rank()
        if fill or self.header is not None:
            unused = self.end - self.first - len(entries)
            if unused > MAX_UNUSED:
                raise UnsupportedTokenizerError(
                    f"`{self.format}` cannot express the change: {unused:,} ranks would have no token",
                    hint="close the holes: `Tokenizer.compact`",
                )
            tokens = {rank: token for token, rank in entries}
            entries = [(tokens.get(rank, _UNUSED % rank), rank) for rank in range(self.end - self.first)]
        if self.header is None:
            return b"".join(_lines(entries))
        vocab = []
        for token, rank in entries:
            try:
                text = token.decode()
            except UnicodeDecodeError:
                text = None
            vocab.append({"rank": rank, "token_bytes": b64encode(token).decode(), "token_str": text})
        sizes = {"num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + self.first}
        content = {**self.header, "config": {**self.header["config"], **sizes}, "vocab": vocab}
        return (self.style or JsonStyle()).dump(content)

    def _by_rank(self) -> list[tuple[bytes, int]]:
        return [(token.translate(_BYTES).encode("latin-1"), i - self.first) for token, i in self.ids.items()]


def rank_file(files: Mapping[str, bytes]) -> str | None:
    """The name of the rank file among the files of a folder, if there is one; of several, the first."""
    return next(rank_files(files), None)


def rank_files(files: Mapping[str, bytes]) -> Iterator[str]:
    """The names of the rank files among the files of a folder, in order. Decided by content.

    Llama-3 calls its list `tokenizer.model`, as SentencePiece does.
    """
    return (name for name in sorted(files) if _NAMES.fullmatch(name) and is_rank_file(files[name]))


def is_rank_file(raw: bytes) -> bool:
    """Whether the bytes are those of a rank file."""
    return bool(_TEKKEN_ENTRY.search(raw) if _is_json(raw) else _FIRST_LINE.match(raw))


def rank_file_name(name: str, raw: bytes) -> str:
    """The name of a rank file in a folder: its own, if a folder may have a file of that name."""
    return name if _NAMES.fullmatch(name) else "tekken.json" if _is_json(raw) else "tokenizer.tiktoken"


def _is_json(raw: bytes) -> bool:
    return raw[:100].lstrip()[:1] == b"{"


def _lines(entries: list[tuple[bytes, int]]) -> Iterator[bytes]:
    return (b"%b %d\n" % (b64encode(token), rank) for token, rank in entries)


def tiktoken_ranks(raw: bytes, name: str) -> dict[bytes, int]:
    """The tokens of a tiktoken file with their ranks, placeholders included, as `tiktoken.Encoding` takes them.

    Raises:
        UnreadableFileError: It is not a tiktoken file.
        InvalidTokenizerError: A token or a rank is listed twice, or a byte is missing.
    """
    entries = _tiktoken_entries(raw, name)
    _checked(entries, name)
    return dict(entries)


def _tiktoken_entries(raw: bytes, name: str) -> list[tuple[bytes, int]]:
    entries = []
    for number, line in enumerate(raw.splitlines(), start=1):
        if line:
            try:
                token, rank = line.split()
                entries.append((b64decode(token, validate=True), int(rank)))
            except (ValueError, binascii.Error):
                if line.split()[:1] and not line.split()[0].strip(b"="):
                    # Python's decoder of base64 reads it. Whisper's file has one as a filler.
                    raise InvalidTokenizerError(
                        f"line {number:,} of `{name}`, {line[:60]!r}, is a token without bytes, which no text has",
                        hint="remove the line from a copy of the file, and give the special tokens their ids: "
                        f"{option('special_tokens')}",
                    ) from None
                _unreadable(name, f"line {number:,} is {line[:60]!r}; expected a token in base64 and its rank")
    return entries


def _read_tekken(raw: bytes, name: str) -> RankFile:
    content = parse_json(raw, name)
    vocab, config = content.get("vocab"), content.get("config")  # it begins with `{`
    if not isinstance(vocab, list) or not isinstance(config, dict):
        _unreadable(name, "it has no `vocab` and `config` as tekken files have")
    sizes = (config.get(key) for key in ("default_vocab_size", "default_num_special_tokens"))
    size, first = (value if isinstance(value, int) else -1 for value in sizes)
    if not 0 <= first <= size <= len(vocab) + first:
        _unreadable(name, f"`config` gives {size:,} tokens, {first:,} of them special, and `vocab` has {len(vocab):,}")
    if first > MAX_SPECIALS:
        _unreadable(name, f"`config` gives {first:,} special tokens, and at most {MAX_SPECIALS:,} are read")
    entries = []
    for rank, entry in enumerate(vocab[: size - first]):
        try:
            entries.append((b64decode(entry["token_bytes"], validate=True), int(entry["rank"])))
        except (ValueError, TypeError, KeyError, binascii.Error):
            _unreadable(name, f"the entry at rank {rank:,} is {entry!r:.80}; expected `rank` and `token_bytes`")
        if entries[-1][1] != rank or (rank < 256 and entries[-1][0] != bytes([rank])):
            _unreadable(
                name, f"the entry at rank {rank:,} is {entry!r:.80}; ranks have no gaps and begin with the bytes"
            )
    ids, end = _checked(entries, name, first)
    header = FrozenDict({key: None if key == "vocab" else value for key, value in content.items()})
    return RankFile(ids, end, first, header, JsonStyle.of(raw))


def _checked(entries: list[tuple[bytes, int]], name: str, first: int = 0) -> tuple[FrozenDict[str, int], int]:
    """Tokens with their ids by ascending rank, without placeholders; and the id after the last."""
    by_rank = dict(sorted((rank, token) for token, rank in entries))
    tokens = {
        token.decode("latin-1").translate(CHARACTER_OF): rank + first
        for rank, token in by_rank.items()
        if token != _UNUSED % rank
    }
    problem = None
    if len(by_rank) < len(entries):
        problem = "two tokens have the same rank"
    elif len({token for token, _ in entries}) < len(entries):
        problem = "a token is listed twice"
    elif "" in tokens:
        problem = "a token is empty"
    elif missing := [byte for byte, character in CHARACTER_OF.items() if character not in tokens]:
        problem = f"{len(missing)} of the 256 bytes have no rank, such as 0x{missing[0]:02X}"
    elif min(by_rank) < 0:
        problem = f"the rank {min(by_rank):,} is negative"
    elif max(by_rank) + first >= 2**32:
        problem = f"the rank {max(by_rank):,} is too high for an id"
    if problem:
        raise InvalidTokenizerError(f"`{name}`: {problem}", hint="check what wrote the file")
    return FrozenDict(tokens), max(by_rank) + first + 1


def _unreadable(name: str, problem: str) -> NoReturn:
    raise UnreadableFileError(f"`{name}`: {problem}", hint="download the file again, or check what wrote it")
