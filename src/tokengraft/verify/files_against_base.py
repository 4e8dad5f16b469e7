"""Checks of the files of an edit: whatever differs from the base and is not explained by the edit.

Every file of the base is rewritten for the tokens of the edited tokenizer, as an edit does it, and compared key by key
with the file that is there. A difference that can change ids, segmentation or decoding is a failure of the check it
belongs to. All others are notes of one check, so that no difference is left out.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from tokengraft.errors import UnreadableFileError
from tokengraft.formats.sources import is_template
from tokengraft.formats.vocabulary_files import split_pattern
from tokengraft.output.json_file import parse_settings, read_settings
from tokengraft.tokenizer.added import FLAGS, OWN, SETTINGS, SPECIAL_MAP, loader_settings
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.piece_model import NORMAL
from tokengraft.tokenizer.rank_file import PATTERNS
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON, renumbered, rewrite_files
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import Finding, finding
from tokengraft.verify.loaders import added_texts, sample_texts


class Difference(NamedTuple):
    """A difference from the base that the edit does not explain."""

    place: str
    """The file and the key."""
    before: Any
    after: Any
    decides: bool = False
    """Whether it can change ids, segmentation or decoding."""

    def __str__(self) -> str:
        values = [value if isinstance(value, _Word) else f"{value!r:.100}" for value in (self.before, self.after)]
        return f"{self.place}: {values[0]} → {values[1]}"


class _Word(str):
    """What is shown without quotes in place of a value."""


MISSING, THERE, OTHER = _Word("nothing"), _Word("there"), _Word("other content")
MOST = 40
"""Changes that are shown by name."""
_BOTH_SETTINGS, PIECES = f"{SETTINGS} {SPECIAL_MAP}", "tokenizer.model"


def file_findings(tokenizer: Tokenizer, base: Tokenizer, again: Collection[str]) -> Iterator[Finding]:
    """The findings about pipeline, settings, chat templates and SentencePiece model, and one with all other changes.

    Tokens of the base that were removed and learned again are in ``again``.
    """
    replayed = _replayed(tokenizer, base)
    others: list[Difference] = []

    def found(name: str, fine: str, differences: Iterable[Difference], more: Iterable[str] = ()) -> Finding:
        each = [*differences]
        others.extend(one for one in each if not one.decides)
        return finding(name, [*(str(one) for one in each if one.decides), *more], fine, "{n} differences")

    same = "normalizer, pre-tokenizer, post-processor and decoder are unchanged"
    yield found("pipeline", same, _pipeline(tokenizer, base, again))
    changed = (*_settings(tokenizer, base, replayed), *_other_files(tokenizer, base, replayed))
    yield found("settings", "name the same tokens and classes", changed)
    templates = "".join(_effective_templates(base).values())
    removed = [t.content for t in base.added if t.content in templates and t.content not in tokenizer.ids]
    named = [f"the template names {content!r}, which was removed" for content in removed]
    yield found("chat template", "unchanged", _templates(tokenizer, base), named)
    if base.piece_model:
        yield found("SentencePiece model", "kept pieces and rules are unchanged", _piece_model(tokenizer, base, again))
    detail = f"{len(others):,}, none of which is known to change ids or decoding" if others else "none"
    yield Finding("other changes", "note" if others else "pass", detail, tuple(map(str, others[:MOST])))


Severity = Literal["fail", "note", "elsewhere"]
_POLICIES: tuple[tuple[str, str, Severity], ...] = (
    (TOKENIZER_JSON, "added_tokens model.vocab model.merges model.unk_id", "elsewhere"),
    (TOKENIZER_JSON, "normalizer pre_tokenizer post_processor decoder truncation padding", "fail"),
    (TOKENIZER_JSON, "model.type model.dropout model.unk_token model.fuse_unk model.byte_fallback", "fail"),
    (TOKENIZER_JSON, "model.continuing_subword_prefix model.end_of_word_suffix model.ignore_merges", "fail"),
    (TOKENIZER_JSON, "model.max_input_chars_per_word", "fail"),
    (_BOTH_SETTINGS, "chat_template", "elsewhere"),
    (_BOTH_SETTINGS, "*_token *_special_tokens token_id token_ids token_index", "fail"),
    (_BOTH_SETTINGS, "*_token_id *_token_ids *_token_index tokenizer_class auto_map errors legacy from_slow", "fail"),
    (_BOTH_SETTINGS, "add_prefix_space add_dummy_prefix add_bos_token add_eos_token sp_model_kwargs", "fail"),
    (_BOTH_SETTINGS, "split_special_tokens spaces_between_special_tokens use_default_system_prompt", "fail"),
    (_BOTH_SETTINGS, "clean_up_tokenization_spaces tokenize_chinese_chars fix_mistral_regex", "fail"),
    (_BOTH_SETTINGS, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", "fail"),
    (_BOTH_SETTINGS, "do_lower_case strip_accents keep_accents remove_space", "fail"),
    (_BOTH_SETTINGS, "tokenizer_file vocab_file merges_file", "fail"),
    ("tekken.json", "config.pattern config.version special_tokens", "fail"),
    ("tokenization_*.py", "*", "fail"),
    (PIECES, "*_spec.field?* field?*", "note"),  # read when the model was trained, or unknown
    (PIECES, "*_spec.*", "fail"),
    ("*", "*", "note"),
)
"""How bad a difference is: files, fields, severity. The first line that fits holds.

A failure can change ids, segmentation or decoding. Fields that are compared `elsewhere` are left out here.
"""


def severity(file: str, field: str) -> Severity:
    """How bad a difference in a field of a file is.

    >>> severity("tokenizer.json", "decoder"), severity("tokenizer_config.json", "model_max_length")
    ('fail', 'note')
    """
    return next(
        level
        for files, fields, level in _POLICIES
        if any(fnmatchcase(file, one) for one in files.split())
        and any(fnmatchcase(field, one) for one in fields.split())
    )


# The pipeline: `tokenizer.json` without tokens and merges.


def _pipeline(tokenizer: Tokenizer, base: Tokenizer, again: Collection[str]) -> Iterator[Difference]:
    # Renumbered first: a post-processor and padding name tokens with their ids.
    before, after = (
        {name: part for name, part in {**t.document, **renumbered(t.rest, tokenizer.ids)}.items() if name != "model"}
        | {f"model.{name}": value for name, value in t.model.items()}
        for t in (base, tokenizer)
    )
    # Both split text by the matches of one pattern, which is known to match all text.
    patterns = {split_pattern(one) for one in (tokenizer, base) if one.kind == "byte-level"}
    same = {"pre_tokenizer"} if len(patterns) == 1 and patterns <= {*PATTERNS.values()} else set()
    same |= set() if tokenizer.unreachable else {"model.ignore_merges"}  # then it skips nothing
    if tokenizer.main != base.main and _same_pretokens(tokenizer, base):
        same |= {*before, *after}  # formats write the same pipeline differently
    for name, (old, new) in _changed(before, after).items():
        level = severity(TOKENIZER_JSON, name)
        if level != "elsewhere":
            decides = level == "fail" and name not in same and _effective(name, old) != _effective(name, new)
            yield Difference(f"tokenizer.json: {name}", old, new, decides)
    if tokenizer.algorithm == base.algorithm == "Unigram":
        if tokenizer.unknown != base.unknown:  # by its text: the id may have moved
            yield Difference(f"{tokenizer.main}: the unknown token", base.unknown, tokenizer.unknown, True)
        for string, score in tokenizer.scores.items():
            if base.scores.get(string, score) != score:
                where = f"{tokenizer.main}: the score of {string!r}"
                yield Difference(where, base.scores[string], score, string not in again)
    yield from _listed_tokens(tokenizer, base)


def _same_pretokens(tokenizer: Tokenizer, base: Tokenizer) -> bool:
    """Whether two pipelines split sample texts alike."""
    texts = [*sample_texts(base)[:500], *added_texts(base), " a  b\n\n c\t1234 don't é\u0301 猫 ▁"]

    def pretokens(one: Tokenizer, text: str) -> list[tuple[bool, str]]:
        pieces = one.pretokenize(text)
        return [(isinstance(piece, int), one.strings[piece] if isinstance(piece, int) else piece) for piece in pieces]

    return all(pretokens(base, text) == pretokens(tokenizer, text) for text in texts)


def _effective(name: str, step: Any) -> Any:
    """A step of the pipeline without what changes neither ids nor text: offsets, and steps that do nothing.

    Of a setting of the model, None for the default.
    """
    if name.startswith("model."):
        return None if step is MISSING or not step or (name, step) == ("model.type", "BPE") else step
    if not isinstance(step, dict):
        return None if step is MISSING else step
    plain = {key: _effective(name, value) for key, value in step.items() if key != "trim_offsets"}
    for key in ("normalizers", "pretokenizers", "processors", "decoders"):
        if isinstance(plain.get(key), list):
            parts = [_effective(name, part) for part in plain[key]]
            plain[key] = [part for part in parts if part is not None]
    if step.get("type") == "ByteLevel":
        # Of the three fields, a decoder reads none, and a post-processor changes only offsets.
        defaults = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
        return defaults | plain if name == "pre_tokenizer" else None if name == "post_processor" else "ByteLevel"
    if step.get("type") == "TemplateProcessing" and "SpecialToken" not in json.dumps([step["single"], step["pair"]]):
        return None
    return None if plain.get("processors") == [] else plain


def _listed_tokens(tokenizer: Tokenizer, base: Tokenizer) -> Iterator[Difference]:
    """Entries of `added_tokens` that differ where another file decides the flags."""
    listed, before = ({e["content"]: e for e in t.document.get("added_tokens") or ()} for t in (tokenizer, base))
    tokens, old = ({token.content: token for token in t.added} for t in (tokenizer, base))
    for content, entry in listed.items():
        token, was = tokens.get(content), old.get(content)
        if token is None or was is None or any(getattr(token, flag) != getattr(was, flag) for flag in FLAGS):
            continue
        flags = {key: value for key, value in entry.items() if key not in ("id", "content")}
        known = (before.get(content, {}), was._asdict())
        if not any({key: e.get(key, MISSING) for key in flags} == flags for e in known):
            yield Difference(f"tokenizer.json: added_tokens {content!r}", before.get(content, MISSING), entry)
    for content in before.keys() & tokens.keys() - listed.keys():
        yield Difference(f"tokenizer.json: added_tokens {content!r}", before[content], MISSING)


# Settings: `tokenizer_config.json` and `special_tokens_map.json`.

_DEFAULTS = {"add_prefix_space": False, "clean_up_tokenization_spaces": False, "split_special_tokens": False}
"""What transformers assumes of settings that are missing."""
_SWITCHES = ("add_bos_token", "add_eos_token")
"""transformers 5 ignores them where there is a `tokenizer.json`. llama.cpp and transformers 4 do not."""
_PLAIN = {"PreTrainedTokenizer", "TokenizersBackend"}
"""Classes that read `tokenizer.json` as it is; without the ending `Fast`, which transformers 5 ignores."""


def _settings(tokenizer: Tokenizer, base: Tokenizer, expected: Mapping[str, bytes]) -> Iterator[Difference]:
    decided = set[tuple[str, str]]()
    if SETTINGS in tokenizer.files:
        before, after = _loaded(expected), _loaded(tokenizer.files)
        for name in {**before, **after}:
            gone = name in _SWITCHES and name not in after
            # Without settings in the base, only their defaults are known.
            known = name in _DEFAULTS or (SETTINGS in base.files and severity(SETTINGS, name) == "fail")
            if known and not gone and _value(name, before.get(name)) != _value(name, after.get(name)):
                decided |= {(file, name) for file in (SETTINGS, SPECIAL_MAP)}
                old, new = before.get(name), after.get(name)
                yield Difference(f"{SETTINGS}: {name}", old, new, not _names_new(tokenizer, base, name, new))
    if SPECIAL_MAP in tokenizer.files:
        before = _loaded(expected) | read_settings(expected, SPECIAL_MAP)
        after = read_settings(tokenizer.files, SPECIAL_MAP)
        for name in after:
            known = severity(SPECIAL_MAP, name) == "fail" and (name in before or SETTINGS in base.files)
            if known and _value(name, before.get(name)) != _value(name, after[name]):
                decided.add((SPECIAL_MAP, name))
                decides = not _names_new(tokenizer, base, name, after[name])
                yield Difference(f"{SPECIAL_MAP}: {name}", before.get(name, MISSING), after[name], decides)
    for file in (SETTINGS, SPECIAL_MAP):
        if file in expected and file in tokenizer.files:
            before, after = read_settings(expected, file), read_settings(tokenizer.files, file)
            for name, values in _changed(before, after).items():
                if (file, name) not in decided and severity(file, name) != "elsewhere":
                    yield from _changes(f"{file}: ", {name: values[0]}, {name: values[1]})


def _names_new(tokenizer: Tokenizer, base: Tokenizer, name: str, value: Any) -> bool:
    """Whether a setting gives a new added token a role, by its text or its id, as `add_special` does."""
    new = {token.content: token.id for token in tokenizer.added if token.content not in base.ids}
    first = value[0] if isinstance(value, list) and value else value
    first = first.get("content") if isinstance(first, dict) else first
    return name.removesuffix("_id") in ("eos_token", "pad_token") and first in (*new, *new.values())


def _loaded(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The settings as transformers merges them, with the switches that it reads only without a `tokenizer.json`."""
    try:
        merged = loader_settings(files)
    except UnreadableFileError:
        return {}
    own = merged.pop(OWN, None)
    switches = {name: value for name, value in read_settings(files, SETTINGS).items() if name in _SWITCHES}
    return merged | (own if isinstance(own, dict) else {}) | switches


def _value(name: str, value: Any) -> Any:
    """A setting for comparison: tokens as their text, lists of tokens in order, defaults where there is none."""
    if isinstance(value, dict) and "content" in value:
        value = value["content"]
    if isinstance(value, list) and name.endswith("_tokens"):
        value = sorted({str(_value("", one)) for one in value})
    if name == "tokenizer_class" and isinstance(value, str):
        value = value.removesuffix("Fast")
        return None if value in _PLAIN else value
    return _DEFAULTS.get(name) if value in (None, [], {}) else value


# Chat templates.


def _templates(tokenizer: Tokenizer, base: Tokenizer) -> Iterator[Difference]:
    before, after = _effective_templates(base), _effective_templates(tokenizer)
    # A single file, and formats other than `tokenizer.json`, have no settings and no templates.
    alone = not base.files or (SETTINGS in base.files and SETTINGS not in tokenizer.files and not after)
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if name == "chat_template.json":  # for processors, which may have none of their own
            old, new = (value or t.get("default") for value, t in ((old, before), (new, after)))
        if old != new:
            yield Difference(f"chat template {name!r}", old or MISSING, new or MISSING, not alone)
    old, new = (read_settings(t.files, SETTINGS).get("chat_template") for t in (base, tokenizer))
    if SETTINGS in base.files and SETTINGS in tokenizer.files and old != new and before == after:
        yield Difference(f"{SETTINGS}: chat_template", old, new)
    for name in sorted({*base.files, *tokenizer.files}):
        if is_template(name) and before == after and base.files.get(name) != tokenizer.files.get(name):
            was, now = (THERE if name in one.files else MISSING for one in (base, tokenizer))
            yield Difference(name, was, now)


def _effective_templates(tokenizer: Tokenizer) -> dict[str, str]:
    """The chat templates by name, as transformers finds them: files come before settings."""
    found = {
        "default" if name.startswith("chat_template.") else name.rpartition("/")[2].removesuffix(".jinja"): raw
        for name, raw in tokenizer.files.items()
        if is_template(name) and name.endswith(".jinja")
    }
    texts: dict[str, Any] = {name: raw.decode(errors="replace") for name, raw in found.items()}
    if not texts:
        listed = read_settings(tokenizer.files, SETTINGS).get("chat_template")
        entries = listed if isinstance(listed, list) else [{"name": "default", "template": listed}]
        texts = {str(e.get("name")): e.get("template") for e in entries if isinstance(e, dict) and e.get("template")}
    if "chat_template.json" in tokenizer.files:
        texts["chat_template.json"] = read_settings(tokenizer.files, "chat_template.json").get("chat_template")
    return {name: text if isinstance(text, str) else json.dumps(text) for name, text in texts.items() if text}


# The SentencePiece model.

_SPECS: dict[int, tuple[str, dict[int, str]]] = {
    2: (
        "trainer_spec",
        {3: "model_type", 24: "treat_whitespace_as_suffix", 35: "byte_fallback", 40: "unk_id", 41: "bos_id"}
        | {42: "eos_id", 43: "pad_id", 44: "unk_surface", 45: "unk_piece", 46: "bos_piece", 47: "eos_piece"}
        | {48: "pad_piece", 53: "pretokenization_delimiter"},
    ),
    3: (
        "normalizer_spec",
        {2: "precompiled_charsmap", 3: "add_dummy_prefix", 4: "remove_extra_whitespaces", 5: "escape_whitespaces"},
    ),
    5: ("denormalizer_spec", {2: "precompiled_charsmap"}),
}
"""Parts of a SentencePiece model by number, with the fields that decide ids or decoding."""


def _piece_model(tokenizer: Tokenizer, base: Tokenizer, again: Collection[str]) -> Iterator[Difference]:
    before, after, file = base.piece_model, tokenizer.piece_model, tokenizer.piece_file
    if before is None or after is None:
        return
    pieces = {piece.string: piece for i, piece in enumerate(after.pieces) if i not in after.holes}
    added = {token.content for token in tokenizer.added}
    for i, old in enumerate(before.pieces):
        new = pieces.pop(old.string, None)
        place = f"{file}: the piece {old.string!r}"
        if new is None and old.string in tokenizer.ids and i not in before.holes:
            yield Difference(place, THERE, MISSING, True)
        elif new is not None and new.type != old.type:
            yield Difference(f"{place}, type", old.type, new.type, True)
        elif new is not None and new.raw != old.raw and old.string not in again:
            yield Difference(f"{place}, score", old.score, new.score)
    for string, new in pieces.items():
        if (new.type == NORMAL) == (string in added):
            yield Difference(f"{file}: the piece {string!r}, type", MISSING, new.type, True)
    for (number, field), (old, new) in _changed(before.fields(), after.fields()).items():
        spec, names = _SPECS.get(number, (f"field {number}", {}))
        name = f"{spec}.{names.get(field, f'field {field}')}"
        yield Difference(f"{file}: {name}", old, new, severity(PIECES, name) == "fail")


def _other_files(tokenizer: Tokenizer, base: Tokenizer, expected: Mapping[str, bytes]) -> Iterator[Difference]:
    for name in sorted({base.main, tokenizer.main, *base.files, *tokenizer.files}):
        in_both = name in tokenizer.files and name in base.files
        if not in_both and not (name == base.main == tokenizer.main) and not is_template(name):
            was, now = (THERE if name in (one.main, *one.files) else MISSING for one in (base, tokenizer))
            yield Difference(name, was, now)
        handled = not in_both or name in (SETTINGS, SPECIAL_MAP, base.piece_file) or is_template(name)
        if handled or expected[name] == tokenizer.files[name]:
            continue
        try:
            old, new = (parse_settings(raw, name) for raw in (expected[name], tokenizer.files[name]))
        except UnreadableFileError:
            # Files of lists of tokens are compared with `tokenizer.json` by another check.
            yield Difference(name, THERE, OTHER, severity(name, "") == "fail")
            continue
        for each in _changes(f"{name}: ", old, new):
            yield each._replace(decides=severity(name, each.place.removeprefix(f"{name}: ")) == "fail")


def _replayed(tokenizer: Tokenizer, base: Tokenizer) -> dict[str, bytes]:
    """The files of the base as an edit writes them for the tokens of the tokenizer."""
    added = [*base.added, *(token for token in tokenizer.added if token.content not in base.ids)]
    change = Change(base.ids, tokenizer.ids, added)
    files, replayed = {name: raw for name, raw in base.files.items() if name != base.piece_file}, dict[str, bytes]()
    with suppress(UnreadableFileError):  # of the base; another check says so
        replayed = dict(rewrite_files(files, change, tokenizer.merge_strings))
    if tokenizer.ids == base.ids:  # nothing had to be rewritten
        replayed |= {name: raw for name, raw in files.items() if tokenizer.files.get(name) == raw}
    # A rank file that cannot express the change in one step may express it in several.
    ranks = {name: tokenizer.files.get(name, b"") for name in files if name == base.rank_file}
    return files | ranks | replayed


def _changes(place: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """The keys of two JSON objects that differ, also in objects inside them."""
    for key, (old, new) in _changed(before, after).items():
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(f"{place}{key}.", old, new)
        else:
            yield Difference(f"{place}{key}", old, new)


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    both = {key: (before.get(key, MISSING), after.get(key, MISSING)) for key in {**before, **after}}
    return {key: (old, new) for key, (old, new) in both.items() if old != new and repr(old) != repr(new)}  # not for NaN
