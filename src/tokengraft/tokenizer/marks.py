"""`join_marks`: words of scripts with combining marks stay whole, so that merges can make tokens of them.

The split patterns of GPT-2, Llama-3 and Qwen take runs of letters, `\\p{L}+`, for words. Vowel signs of Hindi and tone
marks of Thai are combining marks, not letters. So these words are cut at every mark, and no merge can cross a cut. The
pattern of a joined tokenizer takes marks of some scripts that follow a letter into the word. Text without these marks
is split as before.

`joined_like`: a base with the marks that another tokenizer joins, which is what its tokens can be compared with.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from tokengraft import _core
from tokengraft.errors import OptionError, UnsupportedTokenizerError, option, require_type
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.representation import FrozenDict, frozen_strings
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.rank_file import PATTERNS
from tokengraft.tokenizer.tokenizer import Tokenizer

PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The class of transformers that reads `tokenizer.json` as it is. Others may have a split pattern of their own."""
JOINER = b"u200D"
"""What the file of every joined tokenizer has."""
_WORD = r"\p{L}+"
_PARTS = re.compile(r"\\p\{L\}\+(?![+?*{])|\[(?:\\.|[^\]\\])*\]|\(\?\w*x|\(\?<[=!]|\\.|.", re.DOTALL)
"""Parts of a pattern: runs of letters, classes of characters (which may have the same text), starts of groups in which
text has another meaning or length matters, and anything else."""
_JOINED = re.compile(r"\\p\{L\}\(\?:\\p\{L\}\|(\[[^\]]*\])\[\\u200C\\u200D\]\?\)\*")


def script_names(names: Collection[str], name: str) -> tuple[str, ...]:
    """The long names of scripts, sorted, as Unicode spells them. ``name`` is the option that errors are about.

    >>> script_names(["arab", "Latin"], "scripts")
    ('Arabic', 'Latin')
    """
    known = {_loose(one): long for long, short in _core.script_properties() for one in (long, short)} if names else {}
    for one in names:
        if _loose(one) not in known:
            matches = get_close_matches(_loose(one), known, n=5, cutoff=0.5)
            close = list(dict.fromkeys(known[match] for match in matches)) or ["Latin", "Arabic", "Devanagari"]
            raise OptionError(
                f"there is no Unicode script {one!r}; names like it: {', '.join(close)}",
                hint=f"pass {option(name)} {close[0]}",
            )
    return tuple(sorted({known[_loose(one)] for one in names}))


def _loose(name: str) -> str:
    """A name as Unicode compares names: without case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", name).lower()


def join_marks(tokenizer: Tokenizer, scripts: Collection[str]) -> Tokenizer:
    """The tokenizer whose words of some scripts are not cut at combining marks, such as the vowel signs of Hindi.

    Count text, extend and prune with the result. Tokens and merges are the same, and text without marks of these
    scripts is split as before. Programs that have the split pattern in their code, such as llama.cpp and tiktoken, do
    not follow: they cut words as before, so that the new tokens are not used.

    Args:
        tokenizer: A byte-level tokenizer whose `tokenizer.json` takes runs of letters for words.
        scripts: The scripts by their long or short names, such as ``["Devanagari"]``.

    Raises:
        OptionError: A script does not exist, or has no marks.
        UnsupportedTokenizerError: The tokenizer does not cut words at marks, or its file cannot say how it splits.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.tokenizer.join_marks(tok, ["Devanagari"])
        >>> len(tok.pretokenize("हिन्दी")), len(new.pretokenize("हिन्दी"))
        (6, 1)
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    names = script_names(frozen_strings("scripts", scripts), "join_marks")
    marks = _core.marks([*names])
    if not marks:
        raise OptionError(
            f"{', '.join(names) or 'no script'} has no combining marks of its own",
            hint=f"leave out {option('join_marks')}: words of this script are not cut",
        )
    if tokenizer.main != "tokenizer.json" or tokenizer.rank_file:
        raise UnsupportedTokenizerError(
            f"words can be kept whole only in a `tokenizer.json`: the split pattern of `{tokenizer.rank_file}` is in "
            "the code of the programs that read it"
            if tokenizer.rank_file
            else f"`{tokenizer.main}` has no split pattern",
            hint=f"leave out {option('join_marks')}, or remove the file if there is a `tokenizer.json` too",
        )
    if '"AutoTokenizer"' in tokenizer.files.get(SETTINGS, b"").decode(errors="replace"):
        raise UnsupportedTokenizerError(
            f"`auto_map` in {SETTINGS} names code for the tokenizer, which has a split pattern of its own",
            hint=f"leave out {option('join_marks')}, or take `auto_map` out if that code is not needed",
        )
    joined = _with_class(tokenizer, f"[{''.join(_ranges(marks))}]")
    if joined is None:
        already = _class_of(tokenizer)
        raise UnsupportedTokenizerError(
            "the tokenizer keeps the marks of other scripts in words already"
            if already
            else "the pipeline has no split pattern that takes runs of letters, `\\p{L}+`, for words",
            hint="start from the tokenizer before that, and name all scripts at once"
            if already
            else f"leave out {option('join_marks')}; `tokengraft inspect` shows the pipeline",
        )
    cut = [mark for mark in marks if len(joined.pretokenize(f"a{mark}")) > 1]
    if cut:
        raise UnsupportedTokenizerError(
            f"another step of the pipeline cuts words, at {len(cut):,} of {len(marks):,} marks: U+{ord(cut[0]):04X}",
            hint=f"leave out {option('join_marks')}; `tokengraft inspect` shows the pipeline",
        )
    return joined


def joined_like(base: Tokenizer, tokenizer: Tokenizer) -> Tokenizer:
    """The base with the marks that a tokenizer made from it joins; the base itself if there are none."""
    found = _class_of(tokenizer)
    return (_with_class(base, found) if found else None) or base


def joined_scripts(tokenizer: Tokenizer) -> list[str]:
    """The scripts whose marks a joined tokenizer keeps in words; empty if it is not joined."""
    joined = {*kept_marks(tokenizer)}
    if not joined:
        return []
    marks = {name: {*_core.marks([name])} for name, _ in _core.script_properties()}
    inside = {name: own for name, own in marks.items() if own and own <= joined}
    largest = sorted(name for name, own in inside.items() if not any(own < other for other in inside.values()))
    # The class may be of another version of Unicode, and lack marks that a script has now.
    return largest or sorted({name for names in _core.scripts([*joined]) for name in names})


def kept_marks(tokenizer: Tokenizer) -> str:
    """The marks that a joined tokenizer keeps in words."""
    listed = re.sub(r"\\u([0-9A-F]{4})", lambda match: chr(int(match[1], 16)), (_class_of(tokenizer) or "[]")[1:-1])
    spans = re.finditer(r"(.)(?:-(.))?", listed, re.DOTALL)
    return "".join(chr(point) for span in spans for point in range(ord(span[1]), ord(span[2] or span[1]) + 1))


def cut_scripts(tokenizer: Tokenizer, text: str) -> list[str]:
    """The scripts of a text whose words the tokenizer cuts at marks, though `join_marks` would keep them whole."""
    if tokenizer.kind != "byte-level" or tokenizer.main != "tokenizer.json" or tokenizer.rank_file:
        return []
    characters = {*text}
    [names] = _core.scripts(["".join(sorted(characters))])
    if characters.isdisjoint(_core.marks(names)):
        return []
    marks = {name: _core.marks([name]) for name in names}
    marked = [name for name in names if not characters.isdisjoint(marks[name])]
    joined = {name: _with_class(tokenizer, f"[{''.join(_ranges(marks[name]))}]") for name in marked}
    return [name for name, one in joined.items() if one is not None and one is not tokenizer]


def _with_class(tokenizer: Tokenizer, marks: str) -> Tokenizer | None:
    """The tokenizer that keeps a class of marks in words; itself if it does; None if it takes no runs of letters."""
    document = json.loads(tokenizer.rest)
    if _class_of(tokenizer) == marks:
        return tokenizer
    step = document.get("pre_tokenizer")
    changed = _joined_step(step, marks)
    if changed == step:
        return None
    document["pre_tokenizer"] = changed
    files = dict(tokenizer.files)
    settings = parse_settings(files[SETTINGS], SETTINGS) if SETTINGS in files else {}
    if settings.get("tokenizer_class") != PLAIN_CLASS:
        style = JsonStyle.of(files[SETTINGS]) if SETTINGS in files else JsonStyle()
        files[SETTINGS] = style.dump({**settings, "tokenizer_class": PLAIN_CLASS})
    return replace(tokenizer, rest=json.dumps(document, ensure_ascii=False), files=FrozenDict(files))


def _joined_step(step: Any, marks: str) -> Any:
    """A step of a pre-tokenizer with another split pattern. The pattern inside of `ByteLevel` becomes a step before."""
    if not isinstance(step, dict):
        return step
    if step.get("type") == "Sequence":
        parts: list[Any] = []
        for part in step.get("pretokenizers") or ():
            new = _joined_step(part, marks)
            parts += new["pretokenizers"] if new.get("type") == "Sequence" != part.get("type") else [new]
        return step | {"pretokenizers": parts}
    if step.get("type") == "Split" and (regex := (step.get("pattern") or {}).get("Regex")):
        return step | {"pattern": {"Regex": _joined_pattern(regex, marks)}}
    # A space before the text would be put before every word.
    if step.get("type") == "ByteLevel" and step.get("use_regex", True) and not step.get("add_prefix_space", True):
        pattern = {"Regex": _joined_pattern(PATTERNS["gpt2"], marks)}
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        return {"type": "Sequence", "pretokenizers": [split, step | {"use_regex": False}]}
    return step


def _joined_pattern(pattern: str, marks: str) -> str:
    r"""A split pattern whose words have marks.

    >>> _joined_pattern(r" ?\p{L}+|[\p{L}+]", "[\u0e31]")
    ' ?\\p{L}(?:\\p{L}|[ั][\\u200C\\u200D]?)*|[\\p{L}+]'
    """
    word = rf"\p{{L}}(?:\p{{L}}|{marks}[\u200C\u200D]?)*"  # a joiner after a mark decides how the two are drawn
    parts = _PARTS.findall(pattern)
    if any(_is_hard(part) for part in parts) or "".join(parts) != pattern:
        return pattern
    return "".join(word if part == _WORD else part for part in parts)


def _is_hard(part: str) -> bool:
    """Whether a part says that a pattern cannot be changed by its text: classes in classes, comments, lookbehind."""
    inner = re.sub(r"\\.", "", part[1:-1]) if part.startswith("[") else ""
    return "[" in inner or "&&" in inner or part in ("[]", "[^]") or part.startswith("(?")


def _class_of(tokenizer: Tokenizer) -> str | None:
    """The class of marks that a joined tokenizer keeps in words."""
    patterns = (pattern for pattern in _patterns(tokenizer.document.get("pre_tokenizer")))
    return next((match[1] for pattern in patterns if (match := _JOINED.search(pattern))), None)


def _patterns(step: Any) -> Iterator[str]:
    if isinstance(step, dict):
        for part in step.get("pretokenizers") or ():
            yield from _patterns(part)
        regex = (step.get("pattern") or {}).get("Regex") if step.get("type") == "Split" else None
        if isinstance(regex, str):
            yield regex


def _ranges(characters: str) -> Iterator[str]:
    """The members of a class of characters, as every regex engine reads them: `\\u0900-\\u0903`.

    Engines write code points of five digits in different ways, so these stand for themselves.
    """
    points = enumerate(map(ord, characters))
    for _, run in groupby(points, key=lambda item: item[1] - item[0]):
        first, *_, last = [point for _, point in run] * 2
        shown = [f"\\u{point:04X}" if point < 0x10000 else chr(point) for point in (first, last)]
        yield shown[0] if first == last else "-".join(shown)
