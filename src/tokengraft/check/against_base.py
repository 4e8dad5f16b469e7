"""Checks of an edit: what must be the same as in the base."""

from itertools import pairwise
from typing import Any

from tokengraft.check.finding import EVIDENCE, Finding, Outcome, finding
from tokengraft.check.settings_file import read_settings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.tokenizer.edit import first_whitespace_merge
from tokengraft.tokenizer.rewrite import renumbered, renumbered_settings
from tokengraft.tokenizer.settings import SETTINGS
from tokengraft.tokenizer.tokenizer import Tokenizer

AGAIN = 4
"""Merges that may have been learned again, for each removed or new token."""
TOKEN_SETTINGS = ("_token", "_tokens", "_token_id")
"""Endings of the settings that name tokens or ids, or say which tokens are put around text."""


def added_reachable(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether merges can produce every new token."""
    new = {string: i for string, i in tokenizer.ids.items() if string not in base.ids}
    failing = set(tokenizer.structure.unreachable)
    wrong = [string for string, i in new.items() if i in failing]
    return finding("added tokens reachable", wrong, f"all of {len(new):,} new tokens", "{n} new tokens are unreachable")


def specials(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether the added tokens of the base exist, with the same flags."""
    after = {token.content: token for token in tokenizer.added}
    flags = ("special", "normalized", "single_word", "lstrip", "rstrip")
    wrong = []
    for token in base.added:
        now = after.get(token.content)
        if now is None:
            wrong.append(f"{token.content!r} was removed")
        elif any(getattr(now, flag) != getattr(token, flag) for flag in flags):
            wrong.append(f"{token.content!r} has other flags")
    return finding("special tokens", wrong, f"all {len(base.added):,} added tokens", "{n} were removed or changed")


def pipeline(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether the pipeline and the settings of the model are unchanged."""
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
    return finding(
        "pipeline", wrong, "normalizer, pre-tokenizer, post-processor and decoder are unchanged", "{n} parts changed"
    )


def merges(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether the merges of kept tokens exist, in the order of the base and before all learned ones.

    If tokens were both removed and learned, some may have been learned again, and their merges are among the learned
    ones. These are a note, up to `AGAIN` times the number of removed and new tokens.
    """
    fine, before = "unchanged, with learned merges after them", base.core_vocabulary
    if before.n_merges == tokenizer.core_vocabulary.common_merges(before) <= first_whitespace_merge(tokenizer):
        return Finding("merges", "pass", fine)
    ranks = {pair: rank for rank, pair in enumerate(base.merge_strings())}
    pairs, runs = _expected_merges(tokenizer, base)
    behind = [pair for pair in pairs[_first_behind(base, pairs) :] if pair in ranks]
    behind += [b for a, b in pairwise(pair for pair in runs if pair in ranks) if ranks[a] > ranks[b]]
    listed, ids = {*pairs, *runs}, tokenizer.ids
    lost = [p for p in ranks if p not in listed and p[0] in ids and p[1] in ids and p[0] + p[1] in ids]
    wrong = [f"{pair} is missing" for pair in lost] + [f"{pair} ranks lower than in the base" for pair in behind]
    new, removed = len(ids.keys() - base.ids.keys()), len(base.ids.keys() - ids.keys())
    if wrong and new and removed and len(wrong) <= AGAIN * (new + removed):
        return Finding("merges", "note", f"{len(wrong):,} were removed and learned again", tuple(wrong[:EVIDENCE]))
    return finding("merges", wrong, fine, "{n} are missing or out of order")


def named_tokens(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether `tokenizer_config.json` names the same tokens in `bos_token`, `add_bos_token` and similar settings."""
    if SETTINGS not in base.files or SETTINGS not in tokenizer.files:
        outcome: Outcome = "note" if SETTINGS in base.files else "pass"
        return Finding("settings", outcome, f"no {SETTINGS} to compare")
    moved = {i: tokenizer.ids[string] for string, i in base.ids.items() if string in tokenizer.ids}
    before = renumbered_settings(read_settings(base, SETTINGS), moved, set(base.ids.values()) - moved.keys())
    after = read_settings(tokenizer, SETTINGS)
    names = [name for name in {**before, **after} if name.endswith(TOKEN_SETTINGS) or name == "tokenizer_class"]
    wrong = [
        f"{name} was {before.get(name)!r:.100}, is {after.get(name)!r:.100}"
        for name in names
        if _content(before.get(name)) != _content(after.get(name))
    ]
    return finding("settings", wrong, "name the same tokens", "{n} changed")


def _content(value: Any) -> Any:
    """A setting; for a token with flags, only its text."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def templates(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether chat templates are unchanged and name no removed token."""
    names = [name for name in base.files if "chat_template" in name]
    wrong = [f"{name} changed" for name in names if tokenizer.files.get(name) != base.files[name]]
    before, after = (read_settings(t, "tokenizer_config.json") for t in (base, tokenizer))
    if before.get("chat_template") != after.get("chat_template"):
        wrong.append("chat_template in tokenizer_config.json changed")
    text = str(before.get("chat_template") or "") + "".join(base.files[n].decode(errors="replace") for n in names)
    removed = [t.content for t in base.added if t.content in text and t.content not in tokenizer.ids]
    wrong += [f"the template names {content!r}, which was removed" for content in removed]
    return finding("chat template", wrong, "unchanged", "{n} differences")


def kept_ids(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether kept tokens have the same ids. A token that was removed and learned again may have any id."""
    shared = {string: i for string, i in tokenizer.ids.items() if string in base.ids}
    if all(base.ids[string] == i for string, i in shared.items()):
        return Finding("kept ids", "pass", f"{len(shared):,} kept tokens have the same ids")
    both, again = sorted((base.ids[string], i, string) for string, i in shared.items()), _learned_again(tokenizer, base)
    kept = [(before, after) for before, after, string in both if string not in again]
    moved = [f"{before} → {after}" for before, after in kept if before != after]
    fine = f"{len(kept):,} kept tokens have the same ids"
    if not moved:
        return Finding(
            "kept ids",
            "note",
            f"{fine}; {len(again):,} were removed and learned again",
            tuple(sorted(again)[:EVIDENCE]),
        )
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
    pairs, _ = _expected_merges(tokenizer, base)
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


def _expected_merges(tokenizer: Tokenizer, base: Tokenizer) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The merges as strings, and those of runs of white space, which come last.

    Without those of a new token that make a token of the base, where the file implies them.

    In a rank file and in a SentencePiece model every pair that makes a token merges, with the priority of that token.
    So a new token may bring merges that rank among those of the base.
    """
    known, implies = base.ids, tokenizer.main in (tokenizer.rank_file, tokenizer.piece_file)

    def expected(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(a, b) for a, b in pairs if not implies or a + b not in known or (a in known and b in known)]

    pairs, end = tokenizer.merge_strings(), first_whitespace_merge(tokenizer)
    return expected(pairs[:end]), expected(pairs[end:])


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


def preserved(tokenizer: Tokenizer, base: Tokenizer, counts: PretokenCounts) -> Finding:
    """Whether every counted pretoken is encoded to the tokens and ids that it had.

    Raises:
        CountsError: The counts were made for another pipeline.
    """
    name, changed = "preserved text", counts.changed(base, tokenizer)
    if len(changed):
        occurrences, total = changed.table.total(), max(counts.table.total(), 1)
        shown = (f"{text.decode(errors='replace')!r}, {count:,} times" for text, count in changed.top(EVIDENCE))
        detail = f"{len(changed):,} of {len(counts):,} distinct pretokens ({occurrences / total:.2%} of all) have other"
        return Finding(name, "fail", f"{detail} tokens", tuple(shown))
    strings = base.strings
    moved = [i for i in counts.tokens(base) if tokenizer.ids[strings[i]] != i]
    if moved:
        detail = f"all {len(counts):,} distinct pretokens have the same tokens; {len(moved):,} of these have other ids"
        return Finding(name, "note", detail, tuple(strings[i] for i in moved[:EVIDENCE]))
    return Finding(name, "pass", f"all {len(counts):,} distinct pretokens have the same ids")
