"""Rank files as tokenizers: tiktoken and tekken files, alone or in a folder with a `tokenizer.json`.

A file alone is converted as Hugging Face's converter does. One thing then follows transformers and not tiktoken or
mistral-common: the text of a special token is encoded as that token.
"""

import json
import re
from collections.abc import Mapping
from itertools import chain, product
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, OptionError, UnsupportedTokenizerError, option
from tokengraft.formats.huggingface import MAX_ID, checked, new_document
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import LISTING, SETTINGS, decoder_entries, new_entry
from tokengraft.tokenizer.kind import pipeline_parts
from tokengraft.tokenizer.rank_file import ENCODING, PATTERNS, Encoding, RankFile, SpecialTokens, known_encoding
from tokengraft.tokenizer.tokenizer import Tokenizer

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
                hint=f"drop {option('pattern')} and {option('special_tokens')}",
            )


NOTHING_GIVEN = Given()


def read_ranks(
    files: Mapping[str, bytes], file: str, *, name: str | None = None, given: Given = NOTHING_GIVEN
) -> Tokenizer:
    """The tokenizer of a rank file among the files of a folder without a `tokenizer.json`. Errors call it ``name``."""
    name, kept = name or file, dict(files)
    ranks = RankFile.read(files[file], name)
    if ranks.format == "tiktoken":
        encoding = _encoding(ranks, files, name, given)
        if given != NOTHING_GIVEN:
            kept[ENCODING] = JsonStyle().dump(encoding.as_dict())
    else:
        given.require_none(name)
        encoding = Encoding.of(ranks.pattern, {t: i for i, t in enumerate(ranks.special_tokens)}, name=name)
    specials = encoding.special_ids(ranks.end)
    taken = {token_id: token for token, token_id in ranks.ids.items()}
    for text, token_id in specials.items():
        if token_id > MAX_ID:
            raise InvalidTokenizerError(
                f"`{name}`: the special token {text!r} has the id {token_id:,}, and ids end at {MAX_ID:,}",
                hint=f"give it another id: {option('special_tokens')}; in a list, ids follow the highest rank",
            )
        if text in ranks.ids or token_id in taken:
            other = text if text in ranks.ids else taken[token_id]
            raise InvalidTokenizerError(
                f"`{name}`: the special token {text!r} with the id {token_id:,} and the token {other!r} with the id "
                f"{ranks.ids[other]:,} are the same or have the same id",
                hint=f"give it another id or text: {option('special_tokens')}",
            )
    require_same_meaning(encoding.pattern, name)
    rest = json.dumps(_document(encoding.pattern, specials), ensure_ascii=False)
    return checked(Tokenizer(ranks.vocabulary(specials), rest, FrozenDict(kept), main=file))


def _encoding(ranks: RankFile, files: Mapping[str, bytes], name: str, given: Given) -> Encoding:
    """The encoding of a tiktoken file: as given, as the file beside it says, or as known."""
    known = known_encoding(files, ranks)
    if known is not None:
        pattern = known.pattern if given.pattern is None else given.pattern
        return Encoding.of(pattern, known.special_tokens if given[1] is None else given.special_tokens, name=name)
    if given.pattern is not None:
        listed = given.special_tokens
        if listed is None:  # code beside a tiktoken file has the ids of the tokens that `tokenizer_config.json` lists
            settings = parse_settings(files.get(SETTINGS, b"{}"), SETTINGS)
            entries = decoder_entries(settings.get(LISTING) or {})
            listed = {entry["content"]: token_id for token_id, entry in entries}
        return Encoding.of(given.pattern, listed, name=name)
    raise UnsupportedTokenizerError(
        f"`{name}` has {len(ranks.ids):,} ranks and is no known tiktoken file; its split pattern is not in the file",
        hint=f"pass the pattern: {option('pattern')} of `tokengraft convert`, or `load(..., pattern=...)`, as one of "
        f"{', '.join(PATTERNS)} or as a regular expression; and its special tokens. A folder with a `{ENCODING}` has "
        "both",
    )


def require_same_meaning(pattern: str, name: str) -> None:
    """Refuses a pattern that `tokenizers` and tiktoken may apply differently; the known ones are proven.

    Their regex engines differ in rare syntax, and in text between matches. So a pattern has only syntax that tokengraft
    reads itself, and matches all text.
    """
    if pattern in PATTERNS.values():
        return
    short = (match[0] for match in _SHORT_CLASS.finditer(pattern) if match["found"])
    others = (
        match[0]
        for match in _DIFFERENT.finditer(pattern)
        if match["found"] or (match["range"] and int(match["least"]) > int(match["most"]))
    )
    found = next(chain(short, others), None)
    if found:
        raise UnsupportedTokenizerError(
            f"`{name}`: `{found}` in the pattern {pattern!r} means something else to `tokenizers` than to tiktoken",
            hint="write the pattern without it: `x{1,3}` for `x{1,3}+` where nothing more follows, `(?!\\s)` for `$` "
            f"after white space; or pass the name of a known pattern with {option('pattern')}",
        )
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


def _document(pattern: str, specials: Mapping[str, int]) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges."""
    # tiktoken drops text that the pattern does not match. The known patterns match all text.
    known = pattern in PATTERNS.values()
    split = {"type": "Split", "pattern": {"Regex": pattern}} | (
        {"behavior": "Isolated", "invert": False} if known else {"behavior": "Removed", "invert": True}
    )
    by_id = sorted(specials.items(), key=lambda item: item[1])
    return new_document(
        {"ignore_merges": True},
        added_tokens=[new_entry(token_id, text) for text, token_id in by_id],
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, _BYTE_LEVEL]},
        decoder=_BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True},
    )


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
