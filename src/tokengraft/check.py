"""`check`: what must be true of a tokenizer, and of one made from another, each with evidence.

Assumes nothing about who made it: a folder that another tool wrote is checked as ours are.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from tokengraft.alphabet import CHARACTER_OF, byte_token, token_bytes
from tokengraft.errors import InvalidTokenizerError, TokengraftError
from tokengraft.formats.files import save
from tokengraft.formats.sentencepiece import require_agreement
from tokengraft.tokenizer import Tokenizer
from tokengraft.verify import sample_texts, verify_folder

Outcome = Literal["pass", "fail", "note"]
EVIDENCE = 8


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    outcome: Outcome
    """`note` is worth knowing and no failure."""
    detail: str
    evidence: tuple[str, ...] = ()
    """A few cases, where there are some."""


@dataclass(frozen=True)
class Check:
    """Everything that was looked at."""

    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """What is wrong."""
        return tuple(finding for finding in self.findings if finding.outcome == "fail")

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures

    def raise_for_failures(self) -> None:
        """Raises where something is wrong.

        Raises:
            InvalidTokenizerError: With every failure and the first of its evidence.
        """
        if self.failures:
            lines = [
                f"{f.name}: {f.detail}" + (f", such as {f.evidence[0]}" if f.evidence else "") for f in self.failures
            ]
            raise InvalidTokenizerError(
                "the tokenizer fails its check:\n  " + "\n  ".join(lines),
                hint="see `tokengraft check` for all evidence",
            )


def check(tokenizer: Tokenizer, base: Tokenizer | None = None) -> Check:
    """What is true of a tokenizer, and of what became of its base.

    Args:
        tokenizer: The tokenizer.
        base: The tokenizer that it was made from, if any.

    Example:
        >>> check(new, base=tok).raise_for_failures()  # doctest: +SKIP
    """
    looks: list[Callable[[], Finding]] = [
        lambda: _ids(tokenizer),
        lambda: _holes(tokenizer),
        lambda: _merges(tokenizer),
        lambda: _alphabet(tokenizer, base),
        lambda: _round_trip(tokenizer),
        lambda: _reachable(tokenizer, base),
        lambda: _files(tokenizer),
        lambda: _loaders(tokenizer),
    ]
    if base is not None:
        looks += [
            lambda: _added_reachable(tokenizer, base),
            lambda: _specials(tokenizer, base),
            lambda: _pipeline(tokenizer, base),
            lambda: _templates(tokenizer, base),
            lambda: _kept_ids(tokenizer, base),
        ]
    return Check(tuple(look() for look in looks))


def _finding(name: str, wrong: list[str], fine: str, bad: str) -> Finding:
    """A finding that fails where there is evidence; ``{n}`` in ``bad`` is how much."""
    if not wrong:
        return Finding(name, "pass", fine)
    return Finding(name, "fail", bad.format(n=f"{len(wrong):,}"), tuple(wrong[:EVIDENCE]))


def _ids(tokenizer: Tokenizer) -> Finding:
    counted = Counter(tokenizer.ids.values())
    wrong = [f"{string!r} has the id {i}, like another" for string, i in tokenizer.ids.items() if counted[i] > 1]
    return _finding("unique ids", wrong, f"{len(counted):,} tokens, {len(counted):,} ids", "{n} tokens share ids")


def _holes(tokenizer: Tokenizer) -> Finding:
    used = set(tokenizer.ids.values())
    holes = [str(i) for i in range(tokenizer.n_rows) if i not in used]
    if not holes:
        return Finding("holes", "pass", "every id below the highest has a token")
    return Finding("holes", "note", f"{len(holes):,} ids have no token", tuple(holes[:EVIDENCE]))


def _merges(tokenizer: Tokenizer) -> Finding:
    ids, strings = tokenizer.ids, {i: string for string, i in tokenizer.ids.items()}
    pairs = [(strings.get(left), strings.get(right)) for left, right in tokenizer.merges]
    wrong = [f"{pair!r}" for pair in pairs if None in pair or f"{pair[0]}{pair[1]}" not in ids]
    return _finding(
        "closed merges", wrong, f"{len(pairs):,} merges of tokens into tokens", "{n} lack a part or product"
    )


def _alphabet(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether every byte can be spelled, where the vocabulary means to. What the base lacked is worth knowing only."""
    if tokenizer.kind == "byte-level":
        wanted = list(CHARACTER_OF.values())
    elif tokenizer.byte_fallback:
        wanted = [byte_token(byte) for byte in range(256)]
    else:
        return Finding("alphabet", "note", "unknown characters are lost: there is no byte fallback")
    missing = [string for string in wanted if string not in tokenizer.vocab]
    wrong = [f"{string!r}" for string in missing if base is not None and string in base.vocab]
    if missing and not wrong:
        shown = tuple(f"{string!r}" for string in missing[:EVIDENCE])
        return Finding("alphabet", "note", f"{len(missing)} of 256 bytes have no token: text with them is lost", shown)
    return _finding("alphabet", wrong, "every byte can be spelled", "{n} of 256 bytes lost their token")


def _round_trip(tokenizer: Tokenizer) -> Finding:
    """Whether the tokens of a pretoken spell it again. What the pipeline does to text before is the pipeline's."""
    if tokenizer.kind == "sentencepiece" and not tokenizer.byte_fallback:
        return Finding("round trip", "note", "not promised: there is no byte fallback")
    names = {token.id: token.bytes for token in tokenizer.tokens}
    spellable = {string for string in tokenizer.vocab if len(string) == 1}
    wrong, looked_at = [], 0
    for text in sample_texts(tokenizer)[:2000]:
        for piece in tokenizer.pretokenize(text):
            if isinstance(piece, str):
                if tokenizer.kind == "byte-level" and not spellable.issuperset(piece):
                    continue
                looked_at += 1
                spelled = b"".join(names[i] for i in tokenizer.bpe.encode(piece))
                if spelled != token_bytes(piece, tokenizer.kind):
                    wrong.append(f"{piece!r} comes back as {spelled!r}")
    return _finding("round trip", wrong, f"{looked_at:,} pretokens come back as they were", "{n} do not come back")


def _reachable(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Tokens that merges cannot make; with a base, kept ones that it could."""
    strings = {i: string for string, i in tokenizer.ids.items()}
    failing = [strings[i] for i in tokenizer.structure.unreachable]
    if base is None:
        outcome: Outcome = "note" if failing else "pass"
        return Finding(
            "reachable", outcome, f"{len(failing):,} tokens are not made by merges", tuple(failing[:EVIDENCE])
        )
    before = {string for string, i in base.ids.items() if i not in set(base.structure.unreachable)}
    wrong = [string for string in failing if string in before]
    return _finding("kept tokens reachable", wrong, "all that were reachable are", "{n} kept tokens became unreachable")


def _added_reachable(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    new = {string: i for string, i in tokenizer.ids.items() if string not in base.ids}
    failing = set(tokenizer.structure.unreachable)
    wrong = [string for string, i in new.items() if i in failing]
    return _finding(
        "added tokens reachable", wrong, f"all of {len(new):,} new tokens", "{n} new tokens are unreachable"
    )


def _files(tokenizer: Tokenizer) -> Finding:
    """Whether the other files say what `tokenizer.json` says."""
    return _finding("files", [*_contradictions(tokenizer)], "they agree with tokenizer.json", "{n} contradictions")


def _contradictions(tokenizer: Tokenizer) -> Iterator[str]:
    if tokenizer.main == "tokenizer.json":
        try:
            require_agreement(tokenizer, "the folder")
        except TokengraftError as error:
            yield error.message
    parsed = {name: _json(raw) for name, raw in tokenizer.files.items() if name.endswith(".json")}
    for name in ("vocab.json", "added_tokens.json"):
        for token, token_id in (parsed.get(name) or {}).items():
            if tokenizer.ids.get(token) != token_id:
                yield f"{name} gives {token!r} the id {token_id}, tokenizer.json {tokenizer.ids.get(token)}"
    listed = (parsed.get("tokenizer_config.json") or {}).get("added_tokens_decoder")
    for token_id, entry in (listed if isinstance(listed, dict) else {}).items():
        content = str(entry.get("content")) if isinstance(entry, dict) else ""
        if str(tokenizer.ids.get(content)) != token_id:
            known = tokenizer.ids.get(content)
            yield f"tokenizer_config.json gives {content!r} the id {token_id}, tokenizer.json {known}"
    raw = tokenizer.files.get("merges.txt")
    if raw is not None:
        lines = [line for line in raw.decode(errors="replace").splitlines() if line and not line.startswith("#version")]
        if lines != [f"{left} {right}" for left, right in tokenizer.merge_strings()]:
            yield "merges.txt lists other merges than tokenizer.json"


def _json(raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _loaders(tokenizer: Tokenizer) -> Finding:
    """What loaders make of the files: `tokenizers`, and where they are installed transformers and sentencepiece."""
    with tempfile.TemporaryDirectory(prefix="tokengraft-") as folder:
        try:
            out = save(tokenizer, Path(folder) / "tokenizer")
            verified = verify_folder(out, tokenizer)
        except TokengraftError as error:
            return Finding("loaders", "fail", error.message)
    if all(note.startswith("transformers cannot load") for note in verified.notes) and verified.notes:
        return Finding("loaders", "note", f"the same ids by {', '.join(verified.loaders)}", verified.notes)
    if verified.notes:
        return Finding("loaders", "fail", f"{', '.join(verified.loaders)} agree, others do not", verified.notes)
    return Finding("loaders", "pass", f"the same ids by {', '.join(verified.loaders)}")


def _specials(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    after = {token.content: token for token in tokenizer.added}
    flags = ("special", "normalized", "single_word", "lstrip", "rstrip")
    wrong = []
    for token in base.added:
        now = after.get(token.content)
        if now is None:
            wrong.append(f"{token.content!r} is gone")
        elif any(getattr(now, flag) != getattr(token, flag) for flag in flags):
            wrong.append(f"{token.content!r} has other flags")
    return _finding("special tokens", wrong, f"all {len(base.added):,} added tokens", "{n} are gone or changed")


def _pipeline(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    parts = ("normalizer", "pre_tokenizer", "decoder")
    wrong = [
        f"{part} was {base.document.get(part)!r}, is {tokenizer.document.get(part)!r}"
        for part in parts
        if base.document.get(part) != tokenizer.document.get(part)
    ]
    settings = ("ignore_merges", "byte_fallback", "unk_token", "fuse_unk")
    wrong += [f"{name} changed" for name in settings if base.model.get(name) != tokenizer.model.get(name)]
    return _finding("pipeline", wrong, "normalizer, pre-tokenizer and decoder as before", "{n} parts changed")


def _templates(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether chat templates are as they were, and name nothing that is gone."""
    names = [name for name in base.files if "chat_template" in name]
    wrong = [f"{name} changed" for name in names if tokenizer.files.get(name) != base.files[name]]
    before, after = (_json(t.files.get("tokenizer_config.json", b"{}")) for t in (base, tokenizer))
    if before.get("chat_template") != after.get("chat_template"):
        wrong.append("chat_template in tokenizer_config.json changed")
    text = str(before.get("chat_template") or "") + "".join(base.files[n].decode(errors="replace") for n in names)
    gone = [t.content for t in base.added if t.content in text and t.content not in tokenizer.ids]
    wrong += [f"the template names {content!r}, which is gone" for content in gone]
    return _finding("chat template", wrong, "as before", "{n} differences")


def _kept_ids(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    kept = sorted((base.ids[string], i) for string, i in tokenizer.ids.items() if string in base.ids)
    moved = [f"{before} → {after}" for before, after in kept if before != after]
    if not moved:
        return Finding("kept ids", "pass", f"{len(kept):,} kept tokens have their ids")
    in_order = all(a < b for (_, a), (_, b) in pairwise(kept))
    if in_order and len(tokenizer.ids) == tokenizer.n_rows:
        return Finding("kept ids", "note", f"closed up in order, {len(moved):,} moved", tuple(moved[:EVIDENCE]))
    return Finding("kept ids", "fail", f"{len(moved):,} kept tokens have other ids", tuple(moved[:EVIDENCE]))
