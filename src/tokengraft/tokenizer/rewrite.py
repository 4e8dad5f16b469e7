"""Rewrites the files of a tokenizer after a change of tokens: every place that names a token, a merge or an id.

Chat templates name tokens by their text, which never changes, and are left alone. So are special-token maps, unless
added tokens are new.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

from tokengraft.errors import UnsupportedTokenizerError
from tokengraft.output.json_file import JsonStyle, parse_settings
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.added import ADDITIONAL, EXTRA, FLAGS, LISTING, SETTINGS, SPECIAL_MAP, AddedToken
from tokengraft.tokenizer.kind import processor_steps
from tokengraft.tokenizer.piece_model import PieceModel, piece_file
from tokengraft.tokenizer.rank_file import ENCODING, RankFile, family_encoding, known_encoding, rank_file

ID_FIELD = re.compile(r"(^|_)token_(id|ids|index)$")
"""Fields of settings and configs that hold an id or a list of ids."""
TOKENIZER_JSON, VOCAB_TXT = "tokenizer.json", "vocab.txt"
"""The main file, and the tokens of WordPiece, one on each line, by id."""


@dataclass(frozen=True)
class Change:
    """The tokens of a tokenizer after a change, and how they differ from those before."""

    before: Mapping[str, int]
    """All tokens before the change, with their ids."""
    ids: Mapping[str, int]
    """All tokens after it."""
    new: Mapping[str, int]
    """New tokens, in the order they were learned. Added tokens are not learned."""
    specials: Mapping[int, tuple[str, bool]]
    """Added tokens by their new id: the text, and whether the token is special."""
    scores: Mapping[str, float]
    """Unigram: the scores of the new tokens."""
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """New added tokens by ascending id, with their flags."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Settings such as `eos_token` that name another token now."""

    @cached_property
    def moved(self) -> Mapping[int, int]:
        """Kept tokens: the id before, and the id after."""
        return {token_id: self.ids[string] for string, token_id in self.before.items() if string in self.ids}

    @cached_property
    def gone(self) -> Mapping[str, int]:
        """Removed tokens, with the ids they had."""
        gone = self.before.keys() - self.ids.keys()
        return {string: token_id for string, token_id in self.before.items() if string in gone} if gone else {}

    @property
    def replaced(self) -> dict[str, str]:
        """Removed tokens, each with the new token that has its id, if no kept token has another id than before."""
        if any(before != after for before, after in self.moved.items()):
            return {}
        new = {token_id: token for token, token_id in self.new.items()}
        return {string: new[token_id] for string, token_id in self.gone.items() if token_id in new}

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Removed tokens, each with the new added token that has its id."""
        given = {self.ids[token]: token for token in self.given}
        return {string: given[token_id] for string, token_id in self.gone.items() if token_id in given}

    @classmethod
    def of(
        cls,
        before: Mapping[str, int],
        after: Mapping[str, int],
        added: Iterable[AddedToken],
        learned: Iterable[str] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> "Change":
        """The change between two sets of tokens with their ids.

        ``added`` are the added tokens, new ones too. ``learned`` are the other new ones in the order they were learned;
        by default by id.
        """
        added = [token for token in added if token.content in after]
        given = {t.content: t for t in sorted(added, key=lambda t: after[t.content]) if t.content not in before}
        if learned is None:
            learned = sorted(after.keys() - before.keys() - given.keys(), key=after.__getitem__)
        return cls(
            before=before,
            ids=after,
            new={token: after[token] for token in learned},
            specials={after[t.content]: (t.content, t.special) for t in added},
            scores=scores or {},
            given={content: {flag: getattr(token, flag) for flag in FLAGS} for content, token in given.items()},
        )


def rewrite_document(rest: str, entries: Sequence[Mapping[str, Any]], change: Change) -> str:
    """The text of a `tokenizer.json` without vocabulary and merges, after a change; it lists all added tokens."""
    document: dict[str, Any] = json.loads(rest)
    listed = with_given(entries, change)
    document["added_tokens"] = [{**entry, "id": change.ids[entry["content"]]} for entry in listed]
    if (unknown := document["model"].get("unk_id")) is not None:
        document["model"]["unk_id"] = change.moved.get(unknown)
    document |= renumbered(rest, change.ids)
    if isinstance(document.get("padding"), dict) and (pad := change.roles.get("pad_token")) is not None:
        document["padding"] |= {"pad_token": pad, "pad_id": change.ids[pad]}
    return json.dumps(document, ensure_ascii=False)


def with_given(entries: Iterable[Mapping[str, Any]], change: Change) -> list[dict[str, Any]]:
    """Entries of added tokens after a change: new ones are in the place of those that they replace, or at the end."""
    named = {entry["content"]: dict(entry) for entry in entries}
    new = {content: {"content": content, **flags} for content, flags in change.given.items()}
    placed = {change.renamed.get(content, content): entry for content, entry in named.items()}
    return [new.get(content, entry) for content, entry in {**placed, **new}.items() if content in change.ids]


def renumbered(rest: str, ids: Mapping[str, int]) -> dict[str, Any]:
    """The parts of a `tokenizer.json` that list tokens with ids (post-processor, padding), with these ids."""
    document: dict[str, Any] = json.loads(rest)
    parts: dict[str, Any] = {name: document[name] for name in ("post_processor", "padding") if name in document}
    for step in processor_steps(parts.get("post_processor")):
        for special in (step.get("special_tokens") or {}).values() if step.get("type") == "TemplateProcessing" else ():
            pairs = zip(special["tokens"], special["ids"], strict=False)
            special["ids"] = [ids.get(token, token_id) for token, token_id in pairs]
        for name in ("sep", "cls"):
            if isinstance(step.get(name), list) and step[name][0] in ids:
                step[name][1] = ids[step[name][0]]
    padding = parts.get("padding")
    if isinstance(padding, dict) and padding.get("pad_token") in ids:
        padding["pad_id"] = ids[padding["pad_token"]]
    return parts


def stale_files(files: Mapping[str, bytes]) -> list[str]:
    """Files that list the old tokens in a format other than a SentencePiece model.

    A changed tokenizer leaves them out, except for a rank file that can express the change.
    """
    model = piece_file(files)
    last_parts = {name: name.rpartition("/")[2] for name in files if name != model}
    return sorted(
        name
        for name, last in last_parts.items()
        if last in ("tekken.json", ENCODING)
        or last.startswith("tokenizer.model")
        or last.endswith((".tiktoken", ".model"))
    )


def rewrite_files(
    files: Mapping[str, bytes], change: Change, merges: Callable[[], list[tuple[str, str]]], *, main: str | None = None
) -> Iterator[tuple[str, bytes]]:
    """The other files of a tokenizer after a change, without those that cannot express it; an error for ``main``.

    ``merges`` gives the merges after the change. It is called only where a file lists them.
    """
    model, stale = piece_file(files), stale_files(files)
    yield from _rewritten_rank_files(files, change, main)
    for name, raw in files.items():
        if name in stale:
            continue
        if name == model:
            pieces = PieceModel.read(raw, name)
            if pieces.is_unigram:
                pieces = pieces.rescored(change.scores, change.replaced, change.gone, change.ids, change.specials)
            else:
                # SentencePiece finds user-defined pieces in text, as other loaders find added tokens. But without
                # another file, only the type of a piece says that it is special.
                given = {change.ids[t]: (t, flags["special"] and name == main) for t, flags in change.given.items()}
                pieces = pieces.rewritten(change.new, change.moved, change.specials, given)
            yield name, pieces.write()
        elif name == VOCAB_TXT:
            # Added tokens that the file does not list stay outside of it.
            listed = {line.removesuffix("\r") for line in raw.decode(errors="replace").split("\n")}
            listed |= change.new.keys() | {new for old, new in change.renamed.items() if old in listed}
            tokens = sorted((token for token in change.ids if token in listed), key=change.ids.__getitem__)
            yield name, "".join(f"{token}\n" for token in tokens).encode()
        elif name == "merges.txt":
            lines = [line for line in raw.decode(errors="replace").splitlines()[:1] if line.startswith("#version")]
            lines += (f"{left} {right}" for left, right in merges())
            yield name, "".join(f"{line}\n" for line in lines).encode()
        elif name in ("vocab.json", "added_tokens.json", SETTINGS) or (
            name == SPECIAL_MAP and (change.given or change.roles)
        ):
            yield name, _rewritten_json(name, raw, change)
        else:
            yield name, raw


def _rewritten_json(name: str, raw: bytes, change: Change) -> bytes:
    """A JSON file that lists tokens or ids, after a change. Its bytes stay if nothing in it changes."""
    content = parse_settings(raw, name)
    listed = content.get("special_tokens", {}) if name == ENCODING else content
    named = [change.renamed.get(token, token) for token in listed if isinstance(token, str)]
    appended = [token for token in change.given if token not in change.renamed.values()]
    kept = {token: change.ids[token] for token in named if token in change.ids}
    changed: dict[str, Any] = kept | {token: change.ids[token] for token in appended}  # of `added_tokens.json`
    if name == "vocab.json":
        changed = dict(sorted((kept | dict(change.new)).items(), key=lambda item: item[1]))
    elif name == ENCODING:  # a list has no ids: they follow from the number of ranks
        specials = changed if isinstance(listed, dict) else [*named, *appended]
        changed = content | ({"special_tokens": specials} if specials or listed else {})
    elif name == SETTINGS:
        gone, listed = set(change.gone.values()), content.get(LISTING)
        changed = {
            key: _new_id(value, change, gone) if ID_FIELD.search(key) else value for key, value in content.items()
        }
        if isinstance(listed, dict):
            entries = with_given((e for e in listed.values() if isinstance(e, dict) and "content" in e), change)
            changed[LISTING] = {str(change.ids[entry["content"]]): entry for entry in entries}
    if name in (SETTINGS, SPECIAL_MAP):
        changed = _named(content if name == SPECIAL_MAP else changed, change)
    return raw if changed == content else JsonStyle.of(raw).dump(changed)


def _named(content: dict[str, Any], change: Change) -> dict[str, Any]:
    """Settings that name new added tokens as special, under other names if they replace others, and have new roles."""
    special = [token for token, flags in change.given.items() if flags["special"]]
    key = EXTRA if isinstance(content.get(EXTRA), list) else ADDITIONAL
    listed = content.get(key, [])
    if special and isinstance(listed, list) and not isinstance(content.get(EXTRA), dict):
        texts = [str(one.get("content") if isinstance(one, dict) else one) for one in listed]
        named = [change.renamed.get(text, one) for text, one in zip(texts, listed, strict=True)]
        content = content | {key: [*named, *(token for token in special if token not in named)]}
    ids = {f"{role}_id": change.ids[text] for role, text in change.roles.items() if f"{role}_id" in content}
    lists = {name: [i, *content[name]] for name, i in ids.items() if isinstance(content[name], list)}
    return content | dict(change.roles) | ids | lists


def _new_id(value: Any, change: Change, gone: Collection[int]) -> Any:
    """An id after a change: None if its token was removed, unchanged if no token has it."""
    if isinstance(value, list):
        return [_new_id(one, change, gone) for one in value if type(one) is not int or one not in gone]
    if type(value) is not int:
        return value
    return None if value in gone else change.moved.get(value, value)


def _rewritten_rank_files(files: Mapping[str, bytes], change: Change, main: str | None) -> Iterator[tuple[str, bytes]]:
    """The rank file after a change, with the file that has its pattern; nothing if it cannot express the change."""
    name = rank_file(files)
    if name is None:
        return
    try:
        rewritten = rewritten_ranks(files, name, change)
    except UnsupportedTokenizerError:
        if name == main:
            raise
        return
    # Llama-3 may be in a folder twice: as `tokenizer.model` and as `original/tokenizer.model`.
    yield from ((twin, rewritten) for twin in files if files[twin] == files[name])
    if ENCODING in files:
        yield ENCODING, _rewritten_json(ENCODING, files[ENCODING], change)
    elif name == main and (encoding := family_encoding(RankFile.read(files[name], name).sha256)):
        # By its ranks, the file is no longer known.
        yield ENCODING, _rewritten_json(ENCODING, JsonStyle().dump(encoding.as_dict()), change)


def rewritten_ranks(files: Mapping[str, bytes], name: str, change: Change) -> bytes:
    """The rank file of this name after a change. `UnsupportedTokenizerError` says why it cannot express the change."""
    ranks = RankFile.read(files[name], name)
    texts = {text for text, _ in change.specials.values()}
    learned = {token: token_id for token, token_id in change.ids.items() if token not in texts}
    order = [token for token in (*ranks.ids, *change.new) if token in learned]
    if len(order) < len(learned):
        other = min(learned.keys() - set(order))
        _refuse(name, f"it lacks the token {other!r}, which is not new", "remove the file from the folder")
    for before, after in pairwise(order):
        if learned[before] > learned[after]:
            what = "a new token" if after in change.new else f"the token {after!r}"
            _refuse(
                name,
                f"{what} has the id {learned[after]:,}, and {before!r}, which merges before it, has "
                f"{learned[before]:,}: ids are priorities there, so a new token cannot take a lower one",
                "close the holes before you extend (`tokengraft prune --ids compact`, `Tokenizer.compact`)",
            )
    by_place, shift = _special_places(files, name, ranks, change)
    ranks = _with_given_specials(name, ranks, change)
    lowest, highest = min(learned.values(), default=ranks.first), max(learned.values(), default=-1)
    end = highest + 1 if shift is None or ranks.header is not None else ranks.end + shift
    if lowest < ranks.first or highest >= end:
        _refuse(
            name,
            f"the id {highest:,} is after the special tokens, which have the ids after all ranks there"
            if highest >= end
            else f"the id {lowest:,} is one of a special token there",
            "extend it as a tokenizer.json (`tokengraft convert SOURCE --to huggingface`); after that, `tokengraft "
            "convert --to tiktoken --renumber` moves the special tokens behind the new ones. If no loader counts "
            "ranks, give special tokens their ids: `tokengraft convert --special-tokens` with a JSON object",
        )
    ids = FrozenDict({token: learned[token] for token in order})
    return replace(ranks, ids=ids, end=end).write(fill=by_place)


def _special_places(files: Mapping[str, bytes], name: str, ranks: RankFile, change: Change) -> tuple[bool, int | None]:
    """Whether more ranks would move the special tokens, and by how much their ids change.

    None if their ids do not depend on the ranks, or there are none.
    """
    before = {after: token_id for token_id, after in change.moved.items()}
    specials: dict[str, tuple[int, int | None]] = {
        text: (before[after], after) for after, (text, _) in change.specials.items() if after in before
    }
    gone_texts = change.gone.keys() - change.renamed.keys() - ranks.ids.keys()
    specials |= {text: (change.gone[text], None) for text in change.gone if text in gone_texts}
    by_place = False
    if ranks.header is None:
        # It is known for known files, and otherwise assumed where special tokens have the ids after the ranks.
        encoding = known_encoding(files, ranks)
        is_last = ranks.end in [token_id for token_id, _ in specials.values()]
        by_place = not isinstance(encoding.special_tokens, Mapping) if encoding else is_last
        specials = specials if by_place else {}
    else:
        specials = {text: ids for text, ids in specials.items() if ids[0] < ranks.first}
    gone = next((text for text, (_, after) in specials.items() if after is None), None)
    shifts = {after - before for before, after in specials.values() if after is not None}
    if gone is not None or len(shifts) > 1 or (ranks.header is not None and shifts - {0}):
        what = f"the special token {gone!r} was removed" if gone is not None else "special tokens have other ids"
        _refuse(name, f"{what}, and their loader gives them ids by their place", "keep the special tokens")
    return by_place, next(iter(shifts), None)


def _with_given_specials(name: str, ranks: RankFile, change: Change) -> RankFile:
    """The rank file with the new added tokens: a tekken file lists them, in the place of those that they replace."""
    if ranks.header is None or not change.given:
        return ranks
    texts = [change.renamed.get(text, text) for text in ranks.special_tokens]
    other = next((token for token in change.given if token not in texts), None)
    if other is not None:
        _refuse(
            name,
            f"the special token {other!r} has the id {change.ids[other]:,}, and special tokens have the first "
            f"{ranks.first:,} ids there",
            "give fewer special tokens than it has reserved ones, such as `<SPECIAL_20>`",
        )
    listed = list((ranks.header or {}).get("special_tokens") or ())
    last = max(texts.index(token) for token in change.given)
    entries = [
        {**(listed[rank] if rank < len(listed) else {"is_control": True}), "rank": rank, "token_str": text}
        for rank, text in enumerate(texts[: max(len(listed), last + 1)])
    ]
    return replace(ranks, header=FrozenDict({**ranks.header, "special_tokens": entries}))


def _refuse(name: str, reason: str, hint: str) -> NoReturn:
    raise UnsupportedTokenizerError(f"`{name}` cannot express the change: {reason}", hint=hint)
