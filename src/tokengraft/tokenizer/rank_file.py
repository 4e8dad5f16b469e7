"""Rank files (tiktoken, tekken): their tokens with ranks, read and written without loss.

`Encoding`: what a tiktoken file lacks, split pattern and special tokens, given or of a known vocabulary.
"""

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
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
    is_filled: bool = False
    """Whether ranks without a token have a placeholder, as in every tekken file."""

    @classmethod
    def read(cls, raw: bytes, name: str) -> "RankFile":
        """The tokens in the bytes of a file."""
        return _read(raw, name)

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

    def require_writable(self) -> None:
        """Refuses a file that would have too many placeholders."""
        unused = self.end - self.first - len(self.ids)
        if self.is_filled and unused > MAX_UNUSED:
            raise UnsupportedTokenizerError(
                f"`{self.format}` cannot express the change: {unused:,} ranks would have no token",
                hint="close the holes: `Tokenizer.compact`",
            )

    def write(self) -> bytes:
        """The bytes of the file."""
        self.require_writable()
        entries = self._by_rank()
        if self.is_filled:
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


@lru_cache(maxsize=2)
def _read(raw: bytes, name: str) -> RankFile:
    """The tokens of a file. A change and its checks ask for those of the same two files again and again."""
    return _read_tekken(raw, name) if _is_json(raw) else RankFile(*_checked(_tiktoken_entries(raw, name), name))


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
    """The tokens of a tiktoken file with their ranks, placeholders included, as `tiktoken.Encoding` takes them."""
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
    return RankFile(ids, end, first, header, JsonStyle.of(raw), is_filled=True)


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


ENCODING = "tiktoken_encoding.json"
"""The file beside a tiktoken file that has what the latter lacks. tokengraft writes it with a changed vocabulary."""

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
LLAMA3 = f"{_CL100K}|{_SPACES}"
CL100K = rf"{_CL100K}|\s+(?![\s\S])|{_SPACES}"
"""As Llama-3's, but white space at the end of the text is one pretoken, whatever line ends it has."""
O200K = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _SPACES,
    ]
)

QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = O200K.replace("{1,3}", "").replace(f"{_CONTRACTIONS}?", "")

SpecialTokens = Mapping[str, int] | Sequence[str]
"""Special tokens with their ids; or, where a loader gives them the ids after the ranks, in their order."""


@dataclass(frozen=True)
class Encoding:
    """What a tiktoken file does not have."""

    pattern: str
    special_tokens: SpecialTokens

    def special_ids(self, n_ranks: int) -> dict[str, int]:
        """The ids of the special tokens beside so many ranks."""
        if isinstance(self.special_tokens, Mapping):
            return dict(self.special_tokens)
        return {token: n_ranks + place for place, token in enumerate(self.special_tokens)}

    def as_dict(self) -> dict[str, Any]:
        """The content of the file `ENCODING`."""
        tokens = self.special_tokens
        return {"pat_str": self.pattern, "special_tokens": dict(tokens) if isinstance(tokens, Mapping) else [*tokens]}

    @classmethod
    def of(cls, pattern: Any, special_tokens: Any, *, name: str) -> "Encoding":
        """The encoding with a pattern and special tokens that a user or a file gives."""
        if not isinstance(pattern, str) or not pattern:
            raise InvalidTokenizerError(
                f"`{name}` has the pattern {pattern!r}; expected a regular expression",
                hint=f"pass one of the known names, {', '.join(PATTERNS)}, or a regular expression as tiktoken has it",
            )
        is_list, is_mapping = isinstance(special_tokens, list | tuple), isinstance(special_tokens, Mapping)
        ids = [*special_tokens.values()] if is_mapping else []
        proper = (
            (is_list or is_mapping)
            and all(isinstance(text, str) and text for text in special_tokens)
            and all(type(token_id) is int and 0 <= token_id < 2**32 for token_id in ids)
            and len(set(special_tokens)) == len(special_tokens)
            and len(set(ids)) == len(ids)
        )
        if not proper:
            raise InvalidTokenizerError(
                f"the special tokens in `{name}` are {special_tokens!r:.200}; expected texts with their ids, each once",
                hint='write {"<|start|>": 128000, ...}, or a list of texts, whose ids are those after the ranks',
            )
        return cls(PATTERNS.get(pattern, pattern), tuple(special_tokens) if is_list else dict(special_tokens))


def _reserved(name: str, first: int, end: int) -> list[str]:
    return [f"<|{name}reserved_special_token_{number}|>" for number in range(first, end)]


def _llama3() -> tuple[str, ...]:
    """The special tokens of Llama-3.1 and later."""
    named = ["finetune_right_pad_id", "step_id", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
    first = ["<|begin_of_text|>", "<|end_of_text|>", *_reserved("", 0, 2)]
    return (*first, *(f"<|{name}|>" for name in [*named, "image"]), *_reserved("", 2, 246))


def _llama4() -> tuple[str, ...]:
    text, vision, reasoning = "text_post_train_", "vision_", "reasoning_"
    return (
        *(f"<|{name}|>" for name in ("begin_of_text", "end_of_text", "fim_prefix", "fim_middle", "fim_suffix")),
        *(f"<|{name}|>" for name in ("header_start", "header_end", "eom", "eot", "step")),
        *_reserved(text, 0, 6),
        *(f"<|{name}|>" for name in ("python_start", "python_end", "finetune_right_pad")),
        *_reserved(text, 8, 69),
        *("<|image_start|>", "<|image_end|>", *_reserved(vision, 0, 2), "<|tile_x_separator|>", "<|tile_y_separator|>"),
        *(*_reserved(vision, 2, 6), "<|image|>", *_reserved(vision, 6, 7), "<|patch|>", *_reserved(vision, 7, 1048)),
        *(*_reserved(reasoning, 0, 8), "<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"),
        *_reserved("", 0, 904),
    )


_END = "<|endoftext|>"
FAMILIES = {
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": "llama4",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "r50k_base",
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "p50k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k_base",
}
"""Known vocabularies, by the hash of the lines of the file in the order of the ranks."""
_FILL_IN_THE_MIDDLE = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
ENCODINGS = {
    "llama3": Encoding(LLAMA3, _llama3()),
    "llama4": Encoding(O200K, _llama4()),
    "r50k_base": Encoding(GPT2, {_END: 50256}),
    "p50k_base": Encoding(GPT2, {_END: 50256}),
    "cl100k_base": Encoding(CL100K, {_END: 100257, **_FILL_IN_THE_MIDDLE, "<|endofprompt|>": 100276}),
    "o200k_base": Encoding(O200K, {_END: 199999, "<|endofprompt|>": 200018}),
}
PATTERNS = {name: encoding.pattern for name, encoding in ENCODINGS.items()}
PATTERNS |= {"gpt2": GPT2, "qwen2": QWEN2, "tekken": TEKKEN}
"""Known patterns by name. Each matches all text."""


def family_encoding(sha256: str) -> Encoding | None:
    """The encoding of a known vocabulary, by the hash of its ranks; None if it is not known."""
    return ENCODINGS.get(FAMILIES.get(sha256, ""))


def known_encoding(files: Mapping[str, bytes], ranks: RankFile) -> Encoding | None:
    """The encoding of a tiktoken file: that of the file `ENCODING` beside it, or of a known vocabulary."""
    if ENCODING not in files:
        return family_encoding(ranks.sha256)
    problem = "is not a JSON object"
    try:
        content = json.loads(files[ENCODING])
    except (ValueError, RecursionError) as error:
        content, problem = None, f"is not JSON: {error}"
    if not isinstance(content, dict):
        raise InvalidTokenizerError(f"`{ENCODING}` {problem}", hint="write it again, or remove it")
    return Encoding.of(content.get("pat_str"), content.get("special_tokens", {}), name=ENCODING)
