"""`check`: verifies a tokenizer, alone or against its base. Each finding has evidence.

Works for any tokenizer, including one that another tool wrote.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from tokengraft.check.verify import sample_texts, verify_folder
from tokengraft.errors import InvalidTokenizerError, TokengraftError, UnreadableFileError
from tokengraft.formats.files import save
from tokengraft.formats.sentencepiece import require_agreement
from tokengraft.output.json_file import parse_settings
from tokengraft.tokenizer.alphabet import CHARACTER_OF, byte_token, token_bytes
from tokengraft.tokenizer.edit import first_whitespace_merge
from tokengraft.tokenizer.inspect import id_layout
from tokengraft.tokenizer.rewrite import renumbered, renumbered_settings
from tokengraft.tokenizer.settings import SETTINGS
from tokengraft.tokenizer.tokenizer import AddedToken, Tokenizer

Outcome = Literal["pass", "fail", "note"]
EVIDENCE = 8
AGAIN = 4
"""Merges that may have been learned again, for each removed or new token."""
TOKEN_SETTINGS = ("_token", "_tokens", "_token_id")
"""Endings of the settings that name tokens or ids, or say which tokens are put around text."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    outcome: Outcome
    """`note` is information, not a failure."""
    detail: str
    evidence: tuple[str, ...] = ()
    """A few examples, if there are any."""


@dataclass(frozen=True)
class Check:
    """The results of all checks."""

    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The checks that failed."""
        return tuple(finding for finding in self.findings if finding.outcome == "fail")

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    def raise_for_failures(self) -> None:
        """Raises an error if a check failed.

        Raises:
            InvalidTokenizerError: A check failed. The message has every failure with its first example.
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
    """The results of all checks of a tokenizer; with a base, also of the checks of an edit.

    Args:
        tokenizer: The tokenizer.
        base: The tokenizer that it was made from, if any.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> result = tg.check(new, base=tok)
        >>> {finding.outcome for finding in result.findings}
        {'pass'}
        >>> result.raise_for_failures()
    """
    checks: list[Callable[[], Finding]] = [
        lambda: _holes(tokenizer),
        lambda: _alphabet(tokenizer, base),
        lambda: _round_trip(tokenizer, base),
        lambda: _added_found(tokenizer),
        lambda: _reachable(tokenizer, base),
        lambda: _files(tokenizer, base),
        lambda: _loaders(tokenizer, base),
    ]
    if base is not None:
        checks += [
            lambda: _added_reachable(tokenizer, base),
            lambda: _specials(tokenizer, base),
            lambda: _pipeline(tokenizer, base),
            lambda: _merges(tokenizer, base),
            lambda: _named_tokens(tokenizer, base),
            lambda: _templates(tokenizer, base),
            lambda: _kept_ids(tokenizer, base),
        ]
    return Check(tuple(run() for run in checks))


def _finding(name: str, wrong: list[str], fine: str, bad: str) -> Finding:
    """A finding that fails if there is evidence. ``{n}`` in ``bad`` is replaced by its amount."""
    if not wrong:
        return Finding(name, "pass", fine)
    return Finding(name, "fail", bad.format(n=f"{len(wrong):,}"), tuple(wrong[:EVIDENCE]))


def _holes(tokenizer: Tokenizer) -> Finding:
    # As ranges of ids: a file of a few kilobytes may leave four billion ids without a token.
    layout = id_layout((token.id for token in tokenizer.tokens), set())
    holes = [run for run in layout if run.use == "unused"]
    if not holes:
        return Finding("holes", "pass", "every id below the highest has a token")
    shown = (f"{run.first}" if run.first == run.last else f"{run.first} to {run.last}" for run in holes[:EVIDENCE])
    count = sum(run.last - run.first + 1 for run in holes)
    return Finding("holes", "note", f"{count:,} ids have no token", tuple(shown))


def _alphabet(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether every byte has a token, if the vocabulary is based on bytes. Bytes that the base lacks too are a note."""
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


def _round_trip(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether sample texts decode to themselves. With a base, only texts count that do so with the base."""
    texts = sample_texts(tokenizer)[:2000]
    spelled = dict(zip(texts, _spelled(tokenizer, texts), strict=True))
    changed = [text for text in texts if not _same_text(spelled[text], text)]
    if base is None:
        detail = f"{len(texts) - len(changed):,} of {len(texts):,} sample texts decode to themselves"
        shown = tuple(f"{text!r}" for text in changed[:EVIDENCE])
        return Finding("round trip", "note" if changed else "pass", detail, shown)
    before = zip(changed, _spelled(base, changed), strict=True)
    wrong = [f"{text!r} decodes to {spelled[text]!r}" for text, was in before if _same_text(was, text)]
    fine = "sample texts decode as with the base"
    return _finding("round trip", wrong, fine, "{n} sample texts no longer decode to themselves")


def _spelled(tokenizer: Tokenizer, texts: list[str]) -> Iterator[bytes]:
    """The bytes of the tokens of each text."""
    names = {token.id: token.bytes for token in tokenizer.tokens}
    return (b"".join(names[token_id] for token_id in _encoded(tokenizer, text)) for text in texts)


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text; empty if it has an unknown character and there is no unknown token."""
    try:
        return tokenizer.encode(text)
    except InvalidTokenizerError:
        return []


def _same_text(spelled: bytes, text: str) -> bool:
    """Whether bytes equal a text, except for spaces at its ends, which SentencePiece types add and strip."""
    return spelled.strip(b" ") == text.encode().strip(b" ")


def _reachable(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Tokens that merges cannot produce; with a base, only kept tokens that the base can produce."""
    failing = [tokenizer.strings[i] for i in tokenizer.structure.unreachable]
    if base is None:
        outcome: Outcome = "note" if failing else "pass"
        return Finding(
            "reachable", outcome, f"{len(failing):,} tokens are unreachable by merges", tuple(failing[:EVIDENCE])
        )
    unreachable = set(base.structure.unreachable)
    before = {string for string, i in base.ids.items() if i not in unreachable}
    wrong = [string for string in failing if string in before]
    return _finding(
        "kept tokens reachable",
        wrong,
        "all tokens reachable in the base are reachable",
        "{n} kept tokens became unreachable",
    )


def _added_reachable(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    new = {string: i for string, i in tokenizer.ids.items() if string not in base.ids}
    failing = set(tokenizer.structure.unreachable)
    wrong = [string for string, i in new.items() if i in failing]
    return _finding(
        "added tokens reachable", wrong, f"all of {len(new):,} new tokens", "{n} new tokens are unreachable"
    )


def _added_found(tokenizer: Tokenizer) -> Finding:
    """Whether the text of every added token encodes to it. A normalizer or another added token can prevent that."""
    wrong = [f"{t.content!r} encodes to {_encoded(tokenizer, t.content)}, not {t.id}" for t in _hidden(tokenizer)]
    return _finding("added tokens found", wrong, f"all {len(tokenizer.added):,}", "{n} are not found in their own text")


def _hidden(tokenizer: Tokenizer) -> Iterator[AddedToken]:
    for token in tokenizer.added:
        # The text of a run of `▁` is spaces, which the normalizer replaces. Gemma's are found only in that form.
        texts = {token.content, token_bytes(token.content, tokenizer.kind).decode(errors="replace")}
        if not any(token.id in _encoded(tokenizer, text) for text in texts):
            yield token


def _files(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether all files list the ids that loaders use. Contradictions that the base has too are a note."""
    contradictions = [*_contradictions(tokenizer)]
    before = set(_contradictions(base)) if base is not None and contradictions else set()
    wrong = [text for text in contradictions if text not in before]
    if contradictions and not wrong:
        return Finding(
            "files", "note", f"{len(contradictions):,} contradictions, as in the base", tuple(contradictions[:EVIDENCE])
        )
    return _finding("files", wrong, "all list the same ids", "{n} contradictions")


def _contradictions(tokenizer: Tokenizer) -> Iterator[str]:
    if tokenizer.main == "tokenizer.json":
        try:
            require_agreement(tokenizer, "the folder")
        except TokengraftError as error:
            yield error.message
    for entry in tokenizer.document.get("added_tokens") or ():
        known = tokenizer.ids.get(entry["content"])
        if known not in (None, entry["id"]):
            yield f"tokenizer.json lists {entry['content']!r} with the id {entry['id']}, and loaders use {known}"
    for name in ("vocab.json", "added_tokens.json"):
        try:
            content = parse_settings(tokenizer.files.get(name, b"{}"), name)
        except UnreadableFileError as error:
            yield error.message
            continue
        for token, token_id in content.items():
            if tokenizer.ids.get(token) != token_id:
                yield f"{name} gives {token!r} the id {token_id}, tokenizer.json {tokenizer.ids.get(token)}"
        if name == "vocab.json" and content:
            added = {token.content for token in tokenizer.added}
            lacking = (token for token in tokenizer.vocab if token not in content and token not in added)
            yield from (f"vocab.json lacks {token!r}, which tokenizer.json has" for token in lacking)
    for part, value in renumbered(tokenizer.rest, tokenizer.ids).items():
        if value != tokenizer.document[part]:
            yield f"{part} in tokenizer.json gives a token another id than the vocabulary does"
    listed = _settings(tokenizer, SETTINGS).get("added_tokens_decoder") or {}
    for token_id, entry in listed.items():
        known = tokenizer.ids.get(entry.get("content"))
        if known is not None and known != int(token_id):
            yield f"tokenizer_config.json gives {entry['content']!r} the id {token_id}, and loaders use {known}"
    raw = tokenizer.files.get("merges.txt")
    if raw is not None:
        lines = [line for line in raw.decode(errors="replace").splitlines() if line and not line.startswith("#version")]
        if lines != [f"{left} {right}" for left, right in tokenizer.merge_strings()]:
            yield "merges.txt lists other merges than tokenizer.json"


def _settings(tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """The content of a JSON file of the folder; empty if it is missing or cannot be read."""
    try:
        return parse_settings(tokenizer.files.get(name, b"{}"), name)
    except UnreadableFileError:
        return {}


def _loaders(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether loaders give the same ids: `tokenizers`, and if installed, transformers and sentencepiece."""
    with tempfile.TemporaryDirectory(prefix="tokengraft-") as folder:
        try:
            out = save(tokenizer, Path(folder) / "tokenizer")
            verified = verify_folder(out, tokenizer, base=base)
        except TokengraftError as error:
            return Finding("loaders", "fail", error.message)
    same = f"the same ids by {', '.join(verified.loaders) or 'no loader'}"
    if verified.failures:
        return Finding("loaders", "fail", f"{same}; others differ", verified.failures)
    return Finding("loaders", "note" if verified.notes else "pass", same, verified.notes)


def _specials(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    after = {token.content: token for token in tokenizer.added}
    flags = ("special", "normalized", "single_word", "lstrip", "rstrip")
    wrong = []
    for token in base.added:
        now = after.get(token.content)
        if now is None:
            wrong.append(f"{token.content!r} was removed")
        elif any(getattr(now, flag) != getattr(token, flag) for flag in flags):
            wrong.append(f"{token.content!r} has other flags")
    return _finding("special tokens", wrong, f"all {len(base.added):,} added tokens", "{n} were removed or changed")


def _pipeline(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    # Renumbered first: a post-processor and padding name tokens with their ids.
    before, after = ({**t.document, **renumbered(t.rest, tokenizer.ids)} for t in (base, tokenizer))
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
    wrong = [
        f"{part} was {before.get(part)!r:.300}, is {after.get(part)!r:.300}"
        for part in parts
        if before.get(part) != after.get(part)
    ]
    settings = ("ignore_merges", "byte_fallback", "unk_token", "fuse_unk")
    wrong += [f"{name} changed" for name in settings if base.model.get(name) != tokenizer.model.get(name)]
    return _finding(
        "pipeline", wrong, "normalizer, pre-tokenizer, post-processor and decoder are unchanged", "{n} parts changed"
    )


def _merges(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether the merges of kept tokens exist, in the order of the base and before all learned ones.

    If tokens were both removed and learned, some may have been learned again, and their merges are among the learned
    ones. These are a note, up to `AGAIN` times the number of removed and new tokens.
    """
    pairs, end = tokenizer.merge_strings(), first_whitespace_merge(tokenizer)
    ranks = {pair: rank for rank, pair in enumerate(base.merge_strings())}
    start = _first_behind(base, pairs[:end])
    behind = [pair for pair in pairs[start:end] if pair in ranks]
    behind += [b for a, b in pairwise(pair for pair in pairs[end:] if pair in ranks) if ranks[a] > ranks[b]]
    listed, ids = set(pairs), tokenizer.ids
    lost = [p for p in ranks if p not in listed and p[0] in ids and p[1] in ids and p[0] + p[1] in ids]
    wrong = [f"{pair} is missing" for pair in lost] + [f"{pair} ranks lower than in the base" for pair in behind]
    new, removed = len(ids.keys() - base.ids.keys()), len(base.ids.keys() - ids.keys())
    if wrong and new and removed and len(wrong) <= AGAIN * (new + removed):
        return Finding("merges", "note", f"{len(wrong):,} were removed and learned again", tuple(wrong[:EVIDENCE]))
    return _finding("merges", wrong, "unchanged, with learned merges after them", "{n} are missing or out of order")


def _named_tokens(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether `tokenizer_config.json` names the same tokens in `bos_token`, `add_bos_token` and similar settings."""
    if SETTINGS not in base.files or SETTINGS not in tokenizer.files:
        outcome: Outcome = "note" if SETTINGS in base.files else "pass"
        return Finding("settings", outcome, f"no {SETTINGS} to compare")
    moved = {i: tokenizer.ids[string] for string, i in base.ids.items() if string in tokenizer.ids}
    before = renumbered_settings(_settings(base, SETTINGS), moved, set(base.ids.values()) - moved.keys())
    after = _settings(tokenizer, SETTINGS)
    names = [name for name in {**before, **after} if name.endswith(TOKEN_SETTINGS) or name == "tokenizer_class"]
    wrong = [
        f"{name} was {before.get(name)!r:.100}, is {after.get(name)!r:.100}"
        for name in names
        if _content(before.get(name)) != _content(after.get(name))
    ]
    return _finding("settings", wrong, "name the same tokens", "{n} changed")


def _content(value: Any) -> Any:
    """A setting; for a token with flags, only its text."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _templates(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether chat templates are unchanged and name no removed token."""
    names = [name for name in base.files if "chat_template" in name]
    wrong = [f"{name} changed" for name in names if tokenizer.files.get(name) != base.files[name]]
    before, after = (_settings(t, "tokenizer_config.json") for t in (base, tokenizer))
    if before.get("chat_template") != after.get("chat_template"):
        wrong.append("chat_template in tokenizer_config.json changed")
    text = str(before.get("chat_template") or "") + "".join(base.files[n].decode(errors="replace") for n in names)
    removed = [t.content for t in base.added if t.content in text and t.content not in tokenizer.ids]
    wrong += [f"the template names {content!r}, which was removed" for content in removed]
    return _finding("chat template", wrong, "unchanged", "{n} differences")


def _kept_ids(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether kept tokens have the same ids. A token that was removed and learned again may have any id."""
    both = sorted((base.ids[string], i, string) for string, i in tokenizer.ids.items() if string in base.ids)
    again = _learned_again(tokenizer, base) if any(before != after for before, after, _ in both) else set()
    kept = [(before, after) for before, after, string in both if string not in again]
    moved = [f"{before} → {after}" for before, after in kept if before != after]
    fine = f"{len(kept):,} kept tokens have the same ids"
    if not moved and again:
        return Finding(
            "kept ids",
            "note",
            f"{fine}; {len(again):,} were removed and learned again",
            tuple(sorted(again)[:EVIDENCE]),
        )
    if not moved:
        return Finding("kept ids", "pass", fine)
    in_order = all(a < b for (_, a), (_, b) in pairwise(kept)) and all(after <= before for before, after in kept)
    if in_order and len(tokenizer.ids) == tokenizer.n_rows:
        return Finding(
            "kept ids", "note", f"renumbered in order without holes, {len(moved):,} changed", tuple(moved[:EVIDENCE])
        )
    return Finding("kept ids", "fail", f"{len(moved):,} kept tokens have other ids", tuple(moved[:EVIDENCE]))


def _learned_again(tokenizer: Tokenizer, base: Tokenizer) -> set[str]:
    """Tokens of the base that were removed and learned again, derived from the order of the merges.

    Kept merges are in the order of the base, and learned ones come after them. So a token that only merges in the
    learned part produce was learned, whether the base had it or not. Learned tokens take free ids in ascending order.
    If theirs do not ascend, the ids are wrong, and the result is empty. Added tokens and the alphabet are not learned.
    """
    pairs = tokenizer.merge_strings()[: first_whitespace_merge(tokenizer)]
    start = _first_learned(tokenizer, base, pairs)
    kept = {left + right for left, right in pairs[:start]}
    learned = dict.fromkeys(left + right for left, right in pairs[start:] if left + right not in kept)
    given = [tokenizer.ids[string] for string in learned if base.ids.get(string) != tokenizer.ids[string]]
    if any(a > b for a, b in pairwise(given)):
        return set()
    return learned.keys() & base.ids.keys() - {token.content for token in base.added}


def _first_learned(tokenizer: Tokenizer, base: Tokenizer, pairs: list[tuple[str, str]]) -> int:
    """The rank of the first merge that was learned."""
    start = _first_behind(base, pairs)
    # subtle: the first ones learned again may still be in the order of the base. New ids ascend in the order of
    # learning, so a token with a changed id right before a learned one with a higher id was learned too.
    while 0 < start < len(pairs):
        one, next_one = ("".join(pair) for pair in pairs[start - 1 : start + 1])
        if tokenizer.ids[one] == base.ids[one] or tokenizer.ids[one] >= tokenizer.ids[next_one]:
            break
        start -= 1
    return start


def _first_behind(base: Tokenizer, pairs: list[tuple[str, str]]) -> int:
    """The rank of the first merge that produces a new token, or ranks lower than in the base."""
    ranks = {pair: rank for rank, pair in enumerate(base.merge_strings())}
    reached, highest = base.structure.splits, -1
    for place, (left, right) in enumerate(pairs):
        rank, before = ranks.get((left, right)), base.ids.get(left + right)
        # A token that the base could not reach gets its merge at the rank of its score, among the kept ones.
        if before is None or (rank is None and before in reached) or (rank is not None and rank < highest):
            return place
        highest = max(highest, rank if rank is not None else -1)
    return len(pairs)
