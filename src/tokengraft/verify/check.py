"""`check`: verifies a tokenizer, alone or against its base. Each finding has evidence.

Works for any tokenizer, including one that another tool wrote. With a base, problems that the base has too are notes.

`save` writes a tokenizer, loads the result with other libraries, and only then renames it into place.
`prove_conversion` encodes text with a tokenizer and with its conversion, and compares every id.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import (
    InvalidTokenizerError,
    OptionError,
    OutputError,
    TokengraftError,
    UnreadableFileError,
    option,
    require_type,
)
from tokengraft.formats import sources
from tokengraft.formats.agreement import require_agreement
from tokengraft.learn.preserve import split_by_joining
from tokengraft.output.json_file import parse_settings, read_settings
from tokengraft.output.partial import temporary_folder
from tokengraft.progress import stage
from tokengraft.pruning.cost import lost_characters
from tokengraft.tokenizer.added import SETTINGS
from tokengraft.tokenizer.inspect import id_layout
from tokengraft.tokenizer.kind import CHARACTER_OF, CONTINUATION, SPACE, byte_token, token_bytes
from tokengraft.tokenizer.known_tokens import HINT, broken, has_numbered
from tokengraft.tokenizer.marks import joined_like, kept_marks
from tokengraft.tokenizer.rewrite import renumbered
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify import against_base
from tokengraft.verify.files_against_base import file_findings
from tokengraft.verify.finding import Check, Finding, finding, note
from tokengraft.verify.joined_marks import joined_preserved, joined_words
from tokengraft.verify.loaders import Verification, added_texts, loading, sample_texts, verify_folder
from tokengraft.verify.transformers_loader import transformers_started


def holes(tokenizer: Tokenizer) -> Finding:
    """Ids below the highest that no token has."""
    # As ranges of ids: a file of a few kilobytes may leave four billion ids without a token.
    runs = tokenizer.core_model.runs([token.id for token in tokenizer.added])
    holes = [run for run in id_layout(runs) if run.use == "unused"]
    if not holes:
        return Finding("holes", "pass", "every id below the highest has a token")
    shown = [f"{run.first}" if run.first == run.last else f"{run.first} to {run.last}" for run in holes]
    count = sum(run.last - run.first + 1 for run in holes)
    return note("holes", f"{count:,} ids have no token", shown)


def alphabet(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether every byte has a token, if the vocabulary is based on bytes. Bytes that the base lacks too are a note."""
    if tokenizer.kind == "byte-level":
        wanted = CHARACTER_OF
    elif tokenizer.byte_fallback:
        wanted = {byte: byte_token(byte) for byte in range(256)}
    else:
        return note("alphabet", "unknown characters are lost: there is no byte fallback")
    wrong = [f"0x{byte:02X}" for byte, s in wanted.items() if base and s not in tokenizer.vocab and s in base.vocab]
    missing = tokenizer.missing_bytes
    if missing and not wrong:
        detail = f"{len(missing)} of the 256 bytes have no token{', as in the base' if base else ''}"
        return note("alphabet", f"{detail}: text with them is lost", [f"0x{byte:02X}" for byte in missing])
    return finding("alphabet", wrong, "every byte of text can be spelled", "{n} of 256 bytes lost their token")


def round_trip(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether sample texts decode to themselves. With a base, only texts count that do so with the base.

    Text with a new added token is split in another way, and some pipelines put a space after every added token.
    """
    texts = sample_texts(tokenizer)[:2000]
    new = [token.content for token in tokenizer.added if base is not None and token.content not in base.ids]
    texts = [text for text in texts if not any(content in text for content in new)]
    spelled = dict(zip(texts, _spelled(tokenizer, texts), strict=True))
    changed = [text for text in texts if not _same_text(spelled[text], text)]
    if base is None:
        detail = f"{len(texts) - len(changed):,} of {len(texts):,} sample texts decode to themselves"
        return note("round trip", detail, [*map(repr, changed)]) if changed else Finding("round trip", "pass", detail)
    before = zip(changed, _spelled(base, changed), strict=True)
    lost = {*lost_characters(base, {base.ids[token] for token in base.ids.keys() - tokenizer.ids.keys()})}
    damaged = [text for text, was in before if _same_text(was, text)]
    wrong = [f"{text!r} decodes to {spelled[text]!r}" for text in damaged if lost.isdisjoint(text)]
    fine = "sample texts decode as with the base"
    if damaged and not wrong:
        removed = f"{len(lost):,} characters lost a token: text with them becomes `{tokenizer.unknown}`"
        return note("round trip", removed, sorted(lost))
    return finding("round trip", wrong, fine, "{n} sample texts no longer decode to themselves")


def _spelled(tokenizer: Tokenizer, texts: list[str]) -> Iterator[bytes]:
    """The bytes of the tokens of each text."""
    encoded = _encoded(tokenizer, texts)
    used = {i: token_bytes(tokenizer.strings[i], tokenizer.kind) for i in {*chain.from_iterable(encoded)}}
    return (b"".join(map(used.__getitem__, ids)) for ids in encoded)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text; none if it has an unknown character and there is no unknown token."""
    try:
        return tokenizer.encode_batch(texts)
    except InvalidTokenizerError:
        return [ids for text in texts for ids in _encoded(tokenizer, [text])] if len(texts) > 1 else [[]]


def _same_text(spelled: bytes, text: str) -> bool:
    """Whether bytes equal a text, except for spaces at its ends, which SentencePiece types add and strip."""
    return spelled.strip(b" ") == text.encode().strip(b" ")


def reachable(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Tokens that merges cannot produce; with a base, only kept tokens that the base can produce."""
    failing = [tokenizer.strings[i] for i in tokenizer.unreachable]
    if base is None:
        detail = f"{len(failing):,} tokens are unreachable" + " by merges" * (tokenizer.algorithm == "BPE")
        return note("reachable", detail, failing) if failing else Finding("reachable", "pass", detail)
    unreachable = set(base.unreachable)
    wrong = [string for string in failing if string in base.ids and base.ids[string] not in unreachable]
    fine = "all tokens reachable in the base are reachable"
    return finding("kept tokens reachable", wrong, fine, "{n} kept tokens became unreachable")


def added_found(tokenizer: Tokenizer) -> Finding:
    """Whether the text of every added token encodes to it. A normalizer or another added token can prevent that."""
    contents = [token.content for token in tokenizer.added]
    # The text of a run of `▁` is spaces, which the normalizer replaces. Gemma's are found only in that form.
    as_text = [token_bytes(content, tokenizer.kind).decode(errors="replace") for content in contents]
    found = zip(tokenizer.added, _encoded(tokenizer, contents), _encoded(tokenizer, as_text), strict=True)
    wrong = [
        f"{token.content!r} encodes to {ids}, not {token.id}"
        for token, ids, other_ids in found
        if token.id not in ids and token.id not in other_ids
    ]
    name, added = "added tokens found", {token.content for token in tokenizer.added}
    # Only these may have the bytes of an added token, which is another string.
    if tokenizer.kind == "byte-level":
        spelled = {"".join(CHARACTER_OF[byte] for byte in content.encode()) for content in added}
        near = (string for string in tokenizer.vocab if string in spelled)
    else:
        near = (string for string in tokenizer.vocab if SPACE in string or string.startswith((CONTINUATION, "<0x")))
    ordinary = {token_bytes(string, tokenizer.kind): string for string in near if string not in added}
    double = [content for content in added if ordinary.get(content.encode(), content) != content]
    if double and not wrong:
        detail = f"{len(double):,} have the text of an ordinary token, which is never found now"
        return note(name, detail, [f"{content!r} and {ordinary[content.encode()]!r}" for content in sorted(double)])
    return finding(name, wrong, f"all {len(tokenizer.added):,}", "{n} are not found in their own text")


def numbered(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether ids that programs compute with, such as those of timestamps, are still those of the same tokens."""
    fine = "timestamps, codes and sentinels have ids that follow each other"
    return finding("numbered tokens", broken(tokenizer, base), fine, "{n} ids are taken for other tokens", HINT)


def files(tokenizer: Tokenizer, base: Tokenizer | None) -> Finding:
    """Whether all files list the ids that loaders use. Contradictions that the base has too are a note."""
    contradictions = [*_contradictions(tokenizer)]
    before = set(_contradictions(base)) if base is not None and contradictions else set()
    wrong = [text for text in contradictions if text not in before]
    if contradictions and not wrong:
        return note("files", f"{len(contradictions):,} contradictions, as in the base", contradictions)
    return finding("files", wrong, "all list the same ids", "{n} contradictions")


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
    listed = read_settings(tokenizer.files, SETTINGS).get("added_tokens_decoder") or {}
    for token_id, entry in listed.items():
        known = tokenizer.ids.get(entry.get("content"))
        if known is not None and known != int(token_id):
            yield f"tokenizer_config.json gives {entry['content']!r} the id {token_id}, and loaders use {known}"
    raw = tokenizer.files.get("merges.txt")
    if raw is not None:
        lines = [line for line in raw.decode(errors="replace").splitlines() if line and not line.startswith("#version")]
        if lines != [f"{left} {right}" for left, right in tokenizer.merge_strings()]:
            yield "merges.txt lists other merges than tokenizer.json"


@contextmanager
def loaders(tokenizer: Tokenizer, base: Tokenizer | None) -> Iterator[Callable[[], Finding]]:
    """A function: whether `tokenizers`, and if installed, transformers and sentencepiece give the same ids.

    They load the files while the block does other checks. The function waits for them.
    """
    with temporary_folder() as folder, ExitStack() as block:
        error: TokengraftError | None = None
        try:
            out = sources.save(tokenizer, folder / "tokenizer")
            upstream = block.enter_context(loading(out, tokenizer))
        except OutputError:  # says nothing about the tokenizer
            raise
        except TokengraftError as raised:
            error = raised

        def found() -> Finding:
            try:
                if error:
                    raise error
                verified = verify_folder(out, tokenizer, base=base, upstream=upstream)
            except OutputError:
                raise
            except TokengraftError as error_of_loader:
                return Finding("loaders", "fail", error_of_loader.message)
            same = f"the same ids by {', '.join(verified.loaders) or 'no loader'}"
            if verified.failures:
                return Finding("loaders", "fail", f"{same}; others differ", verified.failures)
            return Finding("loaders", "note" if verified.notes else "pass", same, verified.notes)

        yield found


@stage("checking the tokenizer")
def check(tokenizer: Tokenizer, base: Tokenizer | None = None, *, preserve: PretokenCounts | None = None) -> Check:
    """The results of all checks of a tokenizer; with a base, also of the checks of an edit.

    Args:
        tokenizer: The tokenizer.
        base: The tokenizer that it was made from, if any.
        preserve: Counts of text that must be encoded to the same ids as with the base.

    Raises:
        OptionError: ``preserve`` is given without a base.
        CountsError: The counts of ``preserve`` were made for another pipeline.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> result = tg.check(new, base=tok)
        >>> {finding.outcome for finding in result.findings}
        {'pass'}
        >>> result.raise_for_failures()
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("base", base, Tokenizer, NoneType)
    require_type("preserve", preserve, PretokenCounts, NoneType)
    if preserve is not None and base is None:
        raise OptionError(
            "text to preserve was given without the base that it is compared with",
            hint=f"pass the base: {option('base', 'SOURCE')}",
        )
    original, base = base, base and joined_like(base, tokenizer)
    with transformers_started(), loaders(tokenizer, base) as loaded:
        findings = [
            holes(tokenizer),
            alphabet(tokenizer, base),
            round_trip(tokenizer, base),
            added_found(tokenizer),
            reachable(tokenizer, base),
            files(tokenizer, base),
            *([numbered(tokenizer, base)] if has_numbered(base or tokenizer) else []),
        ]
        place = len(findings)
        if base is not original or (base is None and kept_marks(tokenizer)):
            findings.append(joined_words(tokenizer))
        if base is not None:
            learned = against_base.learned(tokenizer, base)
            again = {*learned.again, *against_base.scored_again(tokenizer, base)}
            findings += [
                against_base.added_reachable(tokenizer, base),
                against_base.specials(tokenizer, base),
                against_base.merges(tokenizer, base, learned),
                against_base.kept_ids(tokenizer, base, learned),
                *file_findings(tokenizer, base, again),
                *([against_base.preserved(tokenizer, base, preserve)] if preserve is not None else []),
            ]
        if original is not None and original is not base and preserve is not None:
            findings += joined_preserved(split_by_joining(preserve, tokenizer)[1], "fail")
        findings.insert(place, loaded())  # they had the time of all other checks to load it
    return Check(tuple(findings))


@stage("writing the tokenizer")
def save(
    tokenizer: Tokenizer,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    verify: bool = True,
    base: Tokenizer | None = None,
) -> Path:
    """Writes a tokenizer as a folder and returns its path.

    The folder is complete or does not exist. An unchanged tokenizer is written as it was read.

    By default the written files are loaded with `tokenizers`, and with transformers and sentencepiece where they are
    installed, and the ids of sample texts are compared, as the commands do. This takes 1 to 10 seconds.

    Args:
        tokenizer: The tokenizer.
        out: The folder to write. It must not exist.
        force: Replace an existing folder, if it holds only tokenizer files.
        verify: Load the written files and compare. If a loader gives other ids, nothing is kept.
        base: The tokenizer that it was made from. Differences that a loader has with the files of the base too are
            accepted, and the added tokens of the base must still be found in text.

    Raises:
        OutputError: The folder exists or cannot be written.
        InvalidTokenizerError: A loader gives other ids for the written files.
        OptionError: ``base`` is given, but nothing is verified.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> tg.save(new, "extended", base=tok).name
        'extended'
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("base", base, Tokenizer, NoneType)
    if base is not None and not verify:
        raise OptionError("`base` has no effect with verify=False", hint="drop base=, or drop verify=False")
    if not verify:
        return sources.save(tokenizer, out, force=force)
    save_verified(tokenizer, out, base=base, force=force)
    return Path(out)


def save_verified(
    tokenizer: Tokenizer,
    out: str | os.PathLike[str],
    *,
    base: Tokenizer | None,
    texts: Sequence[str] = (),
    force: bool = False,
) -> Verification:
    """Writes a tokenizer as `save` does and returns how loaders read it. Also compares ``texts``."""
    verified: list[Verification] = []

    def verify(folder: Path) -> None:
        verification = verify_folder(folder, tokenizer, [*texts], base=base)
        if base is None and verification.failures:
            raise InvalidTokenizerError(
                "loaders read the written tokenizer differently:\n  " + "\n  ".join(verification.failures),
                hint="pass base=, the tokenizer that it was made from, to accept differences that the base has too; "
                "or pass verify=False",
            )
        verification.raise_for_failures()
        verified.append(verification)

    with transformers_started():
        sources.save(tokenizer, out, force=force, check=verify)
    return verified[0]


class Proof(NamedTuple):
    """What was compared."""

    tokens: int
    """Tokens whose own text was encoded, added ones included."""
    texts: int
    """Texts of random tokens, and texts with added tokens."""
    moved: int
    """Tokens that have other ids in the conversion."""


def prove_conversion(before: Tokenizer, after: Tokenizer) -> Proof:
    """Compares the ids of both tokenizers, on the text of every token and on text of random tokens."""
    new_ids = {token_id: after.ids.get(string, -1) for token_id, string in before.strings.items()}
    own = [token.bytes.decode(errors="replace") for token in before.tokens]
    texts = [*sample_texts(before), *added_texts(before)]
    for text in [*own, *texts]:
        if [new_ids[token_id] for token_id in before.encode(text)] != after.encode(text):
            raise InvalidTokenizerError(f"the two encode {text!r} to different tokens", hint="please report this")
    return Proof(len(own), len(texts), sum(old != new for old, new in new_ids.items()))
