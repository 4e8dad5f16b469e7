"""Tokenizers from files that have no pipeline: rank files (tiktoken, tekken), SentencePiece models, `vocab.txt`.

Each is converted as Hugging Face's converter does, with the pipeline that its format or its settings mean. Of rank
files, one thing then follows transformers and not tiktoken or mistral-common: the text of a special token is encoded
as that token.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, product
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.errors import InvalidTokenizerError, OptionError, UnreadableFileError, UnsupportedTokenizerError, option
from tokengraft.formats.huggingface import MAX_ID, checked, naming, new_document, readable_text
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import LISTING, SETTINGS, decoder_entries, loader_settings, new_entry
from tokengraft.tokenizer.kind import CONTINUATION, SPACE, pipeline_parts, require_whole_charsmaps
from tokengraft.tokenizer.piece_model import CONTROL, UNKNOWN, USER_DEFINED, PieceModel, all_splits
from tokengraft.tokenizer.rank_file import ENCODING, PATTERNS, Encoding, RankFile, SpecialTokens, known_encoding
from tokengraft.tokenizer.rewrite import VOCAB_TXT
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
    rest = json.dumps(_rank_document(encoding.pattern, specials), ensure_ascii=False)
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
    document = _rank_document(pattern, {})
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


def _rank_document(pattern: str, specials: Mapping[str, int]) -> dict[str, Any]:
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


def read_piece_model(
    files: Mapping[str, bytes], file: str, *, name: str | None = None, beside: Tokenizer | None = None
) -> Tokenizer:
    """The tokenizer of a `.model` among the files of a folder. Errors call it ``name``.

    Pieces that score alike are merged in the order of the `tokenizer.json` ``beside`` it. Without one they are refused.
    """
    name = name or file
    model = PieceModel.read(files[file], name)
    holes = model.holes
    ids = {piece.string: i for i, piece in enumerate(model.pieces) if i not in holes}
    if len(ids) + len(holes) < len(model.pieces):
        double = next(piece.string for i, piece in enumerate(model.pieces) if ids.get(piece.string, i) != i)
        raise InvalidTokenizerError(f"`{name}` has the piece {double!r} twice", hint="pass another model")
    _require_expressible(model, name, has_order=beside is not None)
    rest = json.dumps(_piece_document(model), ensure_ascii=False)
    if model.is_unigram:
        scores = FrozenDict({piece.string: piece.score for piece in model.pieces})
        return checked(Tokenizer(_core.Vocabulary(ids, []), rest, FrozenDict(files), main=file, scores=scores))
    made = [left + right for left, right in beside.merge_strings()] if beside else []
    order = {string: place for place, string in enumerate(dict.fromkeys([*made, *ids]))}
    merges = [(ids[left], ids[right]) for left, right in all_splits(model.normal, order)]
    return checked(Tokenizer(_core.Vocabulary(ids, merges), rest, FrozenDict(files), main=file))


def _require_expressible(model: PieceModel, name: str, *, has_order: bool) -> None:
    """Refuses models that no pipeline or list of merges expresses. ``has_order``: another file says what merges when.

    Of pieces that score alike, SentencePiece takes the leftmost. A piece may have a character that is no piece.
    """
    spec, defined = model.normalizer, [piece.string for piece in model.pieces if piece.type == USER_DEFINED]
    is_listed = not (has_order or model.is_unigram)
    merged = {s: score for s, score in model.normal.items() if is_listed and len(s) > 1 and s.strip(SPACE)}
    counted = Counter(merged.values())
    alike = [string for string, score in merged.items() if counted[score] > 1]
    strange = [string for string in merged if not model.normal.keys() >= set(string)]
    spaced = [string for string in defined if SPACE in string and spec.add_dummy_prefix]
    problem = ""
    if alike:
        problem = f"has {len(alike):,} pieces that score alike, such as {alike[0]!r}"
    elif strange:
        problem = f"has the piece {strange[0]!r}, a character of which is no piece"
    elif defined and model.is_unigram:
        problem = f"has the user-defined piece {defined[0]!r}: SentencePiece finds it inside words"
    elif not spec.escape_whitespaces or (spec.add_dummy_prefix and model.rules.treat_whitespace_as_suffix):
        problem = f"keeps spaces as they are or writes `{SPACE}` after words, for which there is no pipeline"
    elif spaced:
        problem = f"has the user-defined piece {spaced[0]!r} and puts a `{SPACE}` before text; no pipeline does both"
    if problem:
        raise UnsupportedTokenizerError(
            f"`{name}` {problem}", hint="pass a folder with the `tokenizer.json` of this model"
        )


def _piece_document(model: PieceModel) -> dict[str, Any]:
    """A `tokenizer.json` without vocabulary and merges."""
    unknown = next((piece.string for piece in model.pieces if piece.type == UNKNOWN), None)
    space = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoders: list[dict[str, Any]] = [space, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.normalizer.add_dummy_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    added = []
    for token_id, piece in enumerate(model.pieces):
        if piece.type in (UNKNOWN, CONTROL, USER_DEFINED):
            # A piece with a `▁` is searched for after spaces were replaced by `▁`.
            is_defined = piece.type == USER_DEFINED
            normalized = is_defined and SPACE in piece.string
            added.append(new_entry(token_id, piece.string, special=not is_defined, normalized=normalized))
    document = new_document(
        {"unk_token": unknown, "fuse_unk": True, "byte_fallback": model.byte_fallback},
        added_tokens=added,
        normalizer={"type": "Sequence", "normalizers": [*_normalizers(model)]},
        decoder={"type": "Sequence", "decoders": decoders},
    )
    if not model.is_unigram:
        return document
    unk_id = next((token_id for token_id, piece in enumerate(model.pieces) if piece.type == UNKNOWN), None)
    settings: dict[str, Any] = {"type": "Unigram", "unk_id": unk_id, "vocab": [], "byte_fallback": model.byte_fallback}
    # Words can be split one by one, unless a piece spans two of them.
    is_split = not any(SPACE in string[1:] for string in model.normal)
    words = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": True}
    return document | {"model": settings, "pre_tokenizer": words if is_split else None}


def _normalizers(model: PieceModel) -> Iterator[dict[str, Any]]:
    """The steps of the file's normalizer, as the `tokenizers` library names them."""
    spec = model.normalizer
    if spec.charsmap:
        rules = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(spec.charsmap).decode()}
        require_whole_charsmaps(rules)
        yield rules
    if spec.remove_extra_whitespaces:
        # A literal `▁` at the end counts as a space, one at the beginning does not.
        for pattern, content in ((rf"\A +|[ {SPACE}]+\z", ""), (" {2,}", " ")):
            yield {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
    if spec.add_dummy_prefix:
        yield {"type": "Prepend", "prepend": SPACE}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


_NOT_BERT = {
    "do_basic_tokenize": True,
    "never_split": [],
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "do_word_tokenize": True,
    "do_subword_tokenize": True,
}
"""Settings of tokenizers with a `vocab.txt` that need another pipeline if they have another value."""


def read_vocab_txt(files: Mapping[str, bytes], *, name: str) -> Tokenizer:
    """The tokenizer of the `vocab.txt` of a BERT type, with the settings of `tokenizer_config.json`."""
    try:
        tokens = files[VOCAB_TXT].decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"`{name}` is not text: {error}", hint="download it again") from error
    vocab = {token.removesuffix("\r"): token_id for token_id, token in enumerate(tokens)}
    settings = loader_settings(files)
    strange = next((name for name in _NOT_BERT if settings.get(name) not in (None, _NOT_BERT[name])), None)
    if strange is not None:
        raise UnsupportedTokenizerError(
            f"`tokenizer_config.json` beside `{name}` has `{strange}` set to {settings[strange]!r:.80}, and no "
            "pipeline does that",
            hint="pass a folder with the `tokenizer.json` of this model",
        )
    special = []
    for use in ("unk", "sep", "pad", "cls", "mask"):
        token = settings.get(f"{use}_token")
        text = token.get("content") if isinstance(token, dict) else token
        special.append(text if text and isinstance(text, str) else f"[{use.upper()}]")
    unknown, sep, _, cls, _ = special
    missing = next((token for token in (unknown, sep, cls) if token not in vocab), None)
    if missing is not None or len(vocab) < len(tokens):
        what = "has a token twice" if missing is None else f"lacks the token {missing!r}"
        raise InvalidTokenizerError(
            f"`{name}` {what}, so it is no vocabulary of a BERT type", hint="pass a folder with a tokenizer.json"
        )
    document = new_document(
        {},
        added_tokens=[new_entry(vocab[token], token) for token in special if token in vocab],
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings.get("do_lower_case", True),
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor={"type": "BertProcessing", "sep": [sep, vocab[sep]], "cls": [cls, vocab[cls]]},
        decoder={"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
    )
    document["model"] = {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": 100,
        "vocab": {},
    }
    with naming(name):
        vocabulary = _core.Vocabulary(vocab, [])
        return checked(Tokenizer(vocabulary, readable_text(document), FrozenDict(files), main=VOCAB_TXT))
