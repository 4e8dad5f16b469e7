"""Rank files as tokenizers: tiktoken and tekken files, alone or in a folder with a `tokenizer.json`.

A file alone is converted as Hugging Face's converter does. One thing then follows transformers and not tiktoken or
mistral-common: the text of a special token is encoded as that token.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, OptionError, UnsupportedTokenizerError
from tokengraft.formats.huggingface import MAX_ID, require_added_ids
from tokengraft.frozen import FrozenDict
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.tokenizer.families import ENCODING, PATTERNS, Encoding, family_encoding, read_encoding
from tokengraft.tokenizer.kind import pipeline_parts
from tokengraft.tokenizer.rank_file import RankFile
from tokengraft.tokenizer.settings import FLAGS, LISTING, SETTINGS, decoder_entries
from tokengraft.tokenizer.tokenizer import Tokenizer

SpecialTokens = Mapping[str, int] | Sequence[str]
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_DIFFERENT = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]"
    r"|(?P<found>\{\d+(?:,\d*)?\}\+|\{,\d+\}|[$^])|(?P<range>\{(?P<least>\d{1,9}),(?P<most>\d{1,9})\})",
    re.DOTALL,
)
"""What the regex engines of `tokenizers` and tiktoken read differently: `x{1,3}+`, `x{,3}`, `x{3,1}`, `^`, `$`."""


_SYNTAX = re.compile(r"(?P<rare>\\[wWbB]|\[:|--|~~|\[\^?\]|\[\^(?:\\.|[^\]\\])*&&)|\\.", re.DOTALL)
"""Words, whose characters differ; named classes; operators on sets, except for `[a&&[^b]]`, which both read alike."""
_CHARACTERS = "aA1'.-_ \t\n\r\u00a0é猫\u0301٣Ⅷ€\u200d\x00\ue000\U0001f642"
"""One character or more of each class that patterns tell apart."""
_SHORT_CLASS = re.compile(r"\\(?:(?P<found>[pP](?!\{))|.)", re.DOTALL)
"""`\\pL` for `\\p{L}`, also inside brackets: a letter `p` to `tokenizers`."""


class Given(NamedTuple):
    """What a user gives for a tiktoken file, which lacks it. None for what is known."""

    pattern: str | None = None
    """The split pattern, or the name of a known one."""
    special_tokens: SpecialTokens | None = None
    """The special tokens, with their ids or in the order of the ids after the ranks."""

    def require_none(self, name: str) -> None:
        """Refuses a pattern or special tokens for another format."""
        if self != (None, None):
            raise OptionError(
                f"`{name}` is not read from a tiktoken file, so it has its pattern and special tokens",
                hint="drop --pattern and --special-tokens",
            )


NOTHING_GIVEN = Given()


def read_ranks(
    raw: bytes, *, name: str, file: str, files: Mapping[str, bytes], given: Given = NOTHING_GIVEN
) -> Tokenizer:
    """The tokenizer in the bytes of a rank file without a `tokenizer.json`.

    Args:
        raw: The bytes.
        name: What to call the file in errors.
        file: Its name in the folder that will be written.
        files: The other tokenizer files of the folder, which the tokenizer keeps.
        given: What a user gives for a tiktoken file.

    Raises:
        UnreadableFileError: It is not a rank file.
        UnsupportedTokenizerError: The pattern is not known, or means something else to `tokenizers`.
        InvalidTokenizerError: It is inconsistent.
    """
    ranks = RankFile.read(raw, name)
    kept = {**files, file: raw}
    if ranks.format == "tiktoken":
        encoding = _encoding(ranks, files, name, given)
        kept |= {} if given == NOTHING_GIVEN else {ENCODING: JsonStyle().dump(encoding.as_dict())}
    else:
        given.require_none(name)
        encoding = Encoding.of(ranks.pattern, {t: i for i, t in enumerate(ranks.special_tokens)}, name=name)
    return _tokenizer(ranks, encoding, FrozenDict(kept), file, name)


def _encoding(ranks: RankFile, files: Mapping[str, bytes], name: str, given: Given) -> Encoding:
    """The encoding of a tiktoken file: as given, as the file beside it says, or as known."""
    known = read_encoding(files[ENCODING]) if ENCODING in files else family_encoding(ranks.sha256)
    if known is not None:
        pattern = known.pattern if given.pattern is None else given.pattern
        return Encoding.of(pattern, known.special_tokens if given[1] is None else given.special_tokens, name=name)
    if given.pattern is not None:
        listed = _listed_specials(files) if given.special_tokens is None else given.special_tokens
        return Encoding.of(given.pattern, listed, name=name)
    raise UnsupportedTokenizerError(
        f"`{name}` has {len(ranks.ids):,} ranks and is no known tiktoken file; its split pattern is not in the file",
        hint="pass the pattern: `--pattern` of `tokengraft convert`, or `load(..., pattern=...)`, as one of "
        f"{', '.join(PATTERNS)} or as a regular expression; and its special tokens. A folder with a `{ENCODING}` has "
        "both",
    )


def _listed_specials(files: Mapping[str, bytes]) -> dict[str, int]:
    """The added tokens that `tokenizer_config.json` lists, with the ids there: code beside a tiktoken file has them."""
    settings = parse_settings(files[SETTINGS], SETTINGS) if SETTINGS in files else {}
    return {entry["content"]: token_id for token_id, entry in decoder_entries(settings.get(LISTING) or {})}


def _tokenizer(ranks: RankFile, encoding: Encoding, files: FrozenDict[str, bytes], file: str, name: str) -> Tokenizer:
    specials = encoding.special_ids(ranks.end)
    _require_separate(ranks, specials, name)
    require_same_meaning(encoding.pattern, name)
    tokenizer = Tokenizer.of_core(
        ranks.vocabulary(specials),
        rest=json.dumps(_document(encoding.pattern, specials), ensure_ascii=False),
        files=files,
        main=file,
    )
    _ = tokenizer.bpe
    require_added_ids(tokenizer)
    _ = tokenizer.pipeline  # building the two checks them
    return tokenizer


def _require_separate(ranks: RankFile, specials: Mapping[str, int], name: str) -> None:
    """Refuses special tokens whose text or id a token has, or whose id is beyond what ids can be."""
    taken = {token_id: token for token, token_id in ranks.ids.items()}
    for text, token_id in specials.items():
        if token_id > MAX_ID:
            raise InvalidTokenizerError(
                f"`{name}`: the special token {text!r} has the id {token_id:,}, and ids end at {MAX_ID:,}",
                hint="give it another id: --special-tokens; in a list, ids follow the highest rank",
            )
        if text in ranks.ids or token_id in taken:
            other = text if text in ranks.ids else taken[token_id]
            raise InvalidTokenizerError(
                f"`{name}`: the special token {text!r} with the id {token_id:,} and the token {other!r} with the id "
                f"{ranks.ids[other]:,} are the same or have the same id",
                hint="give it another id or text: --special-tokens",
            )


def require_same_meaning(pattern: str, name: str) -> None:
    """Refuses a pattern that the regex engine of `tokenizers` reads differently from the one of tiktoken."""
    short = (match[0] for match in _SHORT_CLASS.finditer(pattern) if match["found"])
    others = (match[0] for match in _DIFFERENT.finditer(pattern) if match["found"] or _is_reversed(match))
    found = next(chain(short, others), None)
    if found:
        raise UnsupportedTokenizerError(
            f"`{name}`: `{found}` in the pattern {pattern!r} means something else to `tokenizers` than to tiktoken",
            hint="write the pattern without it: `x{1,3}` for `x{1,3}+` where nothing more follows, `(?!\\s)` for `$` "
            "after white space; or pass the name of a known pattern with --pattern",
        )

    if pattern not in PATTERNS.values():
        _require_understood(pattern, name)


def _require_understood(pattern: str, name: str) -> None:
    """Refuses a pattern with syntax that tokengraft does not read itself, and one that does not match all text.

    The regex engines of tiktoken and `tokenizers` differ in rare syntax, and in text between matches.
    """
    document = _document(pattern, {})
    pipeline = _core.Pipeline(json.dumps(document))  # a pattern that is not one is refused here
    document["pre_tokenizer"]["pretokenizers"][0] |= {"behavior": "Isolated", "invert": False}
    if _core.Pipeline.engine(json.dumps(document), True) == "tokenizers crate" or any(
        match["rare"] for match in _SYNTAX.finditer(pattern)
    ):
        raise UnsupportedTokenizerError(
            f"`{name}`: the pattern {pattern!r} has syntax that tiktoken and `tokenizers` may read differently",
            hint=f"write it with classes such as `\\p{{L}}` and `[^\\r\\n]`, greedy quantifiers, groups and `(?!\\S)`; "
            f"or pass the name of a known pattern: {', '.join(PATTERNS)}",
        )
    texts = chain(_CHARACTERS, map("".join, product(_CHARACTERS, repeat=2)))
    dropped = next(
        (text for text in texts if sum(len(str(piece)) for piece in pipeline.pieces(text)) < len(text.encode())), None
    )
    if dropped is not None:
        raise UnsupportedTokenizerError(
            f"`{name}`: the pattern {pattern!r} does not match all of {dropped!r}, and tiktoken "
            "drops what is not matched",
            hint="add an alternative at the end that matches any character: `|[\\s\\S]`",
        )


def _is_reversed(match: re.Match[str]) -> bool:
    return bool(match["range"]) and int(match["least"]) > int(match["most"])


def _document(pattern: str, specials: Mapping[str, int]) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges."""
    # tiktoken drops text that the pattern does not match. The known patterns match all text.
    known = pattern in PATTERNS.values()
    split = {"type": "Split", "pattern": {"Regex": pattern}} | (
        {"behavior": "Isolated", "invert": False} if known else {"behavior": "Removed", "invert": True}
    )
    flags = dict.fromkeys(FLAGS, False) | {"special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token_id, "content": text} | flags for text, token_id in _by_id(specials)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, _BYTE_LEVEL]},
        "post_processor": None,
        "decoder": _BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {},
            "merges": [],
        },
    }


def _by_id(specials: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(specials.items(), key=lambda item: item[1])


def split_pattern(tokenizer: Tokenizer) -> str | None:
    """The one pattern whose matches are the pretokens of a byte-level tokenizer; None if there is no such pattern."""
    steps = [*pipeline_parts(tokenizer.document.get("pre_tokenizer"))]
    if tokenizer.document.get("normalizer") or not steps or steps[-1]["type"] != "ByteLevel":
        return None
    split, last = steps[:-1], steps[-1]
    if last.get("add_prefix_space", True) or len(split) + bool(last.get("use_regex", True)) != 1:
        return None
    if not split:
        return PATTERNS["gpt2"]
    rule = (split[0].get("behavior"), bool(split[0].get("invert")))
    regex = split[0].get("pattern", {}).get("Regex") if split[0]["type"] == "Split" else None
    return regex if rule in (("Isolated", False), ("Removed", True)) else None


def require_rank_agreement(tokenizer: Tokenizer, folder: str, ranks: RankFile | None = None) -> None:
    """Refuses a rank file that does not say what the `tokenizer.json` beside it says.

    The proof covers every text: the same tokens with the same ids, and for each the same merge that makes it, in the
    same order.

    Args:
        tokenizer: The tokenizer.
        folder: What to call the folder in errors.
        ranks: The rank file; by default the one among the files of the tokenizer, if there is one.

    Raises:
        InvalidTokenizerError: With the first difference.
    """
    ranks = ranks or tokenizer.ranks
    difference = next(_differences(tokenizer, ranks), None) if ranks else None
    if difference:
        raise InvalidTokenizerError(
            f"`{tokenizer.rank_file}` and `{tokenizer.main}` in `{folder}` differ: {difference}",
            hint="one of the two is stale: take it out of a copy of the folder, or pass the path of the other itself",
        )


def _differences(tokenizer: Tokenizer, ranks: RankFile) -> Iterator[str]:
    added = {token.content for token in tokenizer.added}.difference(ranks.ids)
    learned = {string: token_id for string, token_id in tokenizer.vocab.items() if string not in added}
    if learned != ranks.ids:
        for token, token_id in ranks.ids.items():
            if learned.get(token) != token_id:
                yield f"the token {token!r} has the id {token_id:,} in the one and {learned.get(token)} in the other"
        yield f"tokenizer.json has the token {min(learned.keys() - ranks.ids.keys())!r}, which is not in the other"
    pattern = ranks.pattern or getattr(family_encoding(ranks.sha256), "pattern", None)
    if pattern and split_pattern(tokenizer) != pattern:
        yield "tokenizer.json does not split text by the pattern of the other"
    yield from merge_differences(tokenizer, ranks)


def merge_differences(tokenizer: Tokenizer, ranks: RankFile) -> Iterator[str]:
    """Where the merges of a tokenizer encode differently from the ranks. Nothing means: the same for every pretoken."""
    listed, wanted = tokenizer.core_vocabulary, ranks.vocabulary({})
    if not listed.n_merges == wanted.n_merges == listed.common_merges(wanted):
        vocab = tokenizer.vocab
        merges = tuple([(vocab[left], vocab[right]) for left, right in wanted.merge_strings()])
        yield from split_differences(tokenizer, replace(tokenizer, merges=merges, files=FrozenDict()))
    if not tokenizer.ignore_merges and (whole := tokenizer.structure.unreachable):
        yield (
            f"merges do not make the token {tokenizer.strings[whole[0]]!r} (one of {len(whole):,}), which rank files "
            "encode to itself"
        )


def split_differences(tokenizer: Tokenizer, other: Tokenizer) -> Iterator[str]:
    """Where two tokenizers with the same ids encode pretokens differently, merge skipping aside.

    A token that encodes to itself is always made by the same pair, and any other is never made by a merge. So two lists
    of merges encode alike if these pairs are the same, in the same order.
    """
    ours, theirs = tokenizer.structure.splits, other.structure.splits
    for token_id, string in sorted(tokenizer.strings.items()):
        one, two = ours.get(token_id), theirs.get(token_id)
        if one != two:
            said = [" + ".join(repr(tokenizer.strings[i]) for i in pair) if pair else "nothing" for pair in (one, two)]
            yield (
                f"{string!r} is made of {said[0]} by the merges of {tokenizer.main}, and of {said[1]} where any two "
                "tokens merge that make a token"
            )
    if [*_firing(tokenizer)] != [*_firing(other)]:
        yield f"the merges of {tokenizer.main} are not in the order of the tokens that they make"


def _firing(tokenizer: Tokenizer) -> Iterator[tuple[int, int]]:
    """The merges that make a token in some text, in order."""
    pairs = set(tokenizer.structure.splits.values())
    return (pair for pair in tokenizer.merges if pair in pairs)
