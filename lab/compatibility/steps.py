"""Every step of tokengraft on one tokenizer, compared with the library that owns its format.

A step gives a short result, or raises: `TokengraftError` is a refusal, `DifferenceError` a bug.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import tokengraft as tg
from lab.compatibility.collect import Entry
from lab.compatibility.libraries import Library, library_of
from lab.compatibility.texts import Texts, drawn, with_added

WIDTH = 4


class DifferenceError(Exception):
    """tokengraft and the library disagree, or something changed that must not."""


def require(holds: bool, problem: str) -> None:
    """Raises if something does not hold."""
    if not holds:
        raise DifferenceError(problem)


class Case:
    """A tokenizer of the matrix, and what the steps make of it. Each is made once."""

    def __init__(self, entry: Entry, texts: Texts, work: Path) -> None:
        self.entry, self.texts, self.work = entry, texts, work
        work.mkdir(parents=True, exist_ok=True)
        self.written: dict[str, Library] = {}

    @cached_property
    def base(self) -> tg.Tokenizer:
        return tg.load(self.entry.folder)

    @cached_property
    def library(self) -> Library:
        return library_of(self.entry.folder, self.base, self.entry.encoding)

    @cached_property
    def counts(self) -> tg.PretokenCounts:
        return tg.count(self.base, iter(self.texts.learned))

    @cached_property
    def order(self) -> tg.PruneOrder:
        return tg.prune_order(self.base, self.counts)[: self.texts.n_edited]

    @cached_property
    def pruned(self) -> tg.Tokenizer:
        return self.order.apply(self.base)

    @cached_property
    def extension(self) -> tg.Extension:
        return tg.extend(self.base, self.counts, self.texts.n_edited)

    @cached_property
    def refill(self) -> tg.Extension:
        """As many new tokens as were pruned."""
        return tg.extend(self.pruned, self.counts, len(self.order))

    @cached_property
    def swapped(self) -> tg.Tokenizer:
        return self.refill.apply(self.pruned)

    @cached_property
    def plan(self) -> tg.VocabPlan:
        return tg.plan(self.base, self.swapped)

    def saved(self, tokenizer: tg.Tokenizer, name: str) -> tuple[Path, Library]:
        """A tokenizer as tokengraft writes it, and how the library reads that."""
        folder = tg.save(tokenizer, self.work / name, verify=False)
        self.written[name] = library_of(folder, tokenizer, self.entry.encoding)
        return folder, self.written[name]

    def comparable(self, library: Library, texts: Iterable[str]) -> list[str]:
        """The texts that the library reads as transformers does: some leave the text of special tokens alone."""
        special = [] if library.finds_added else [token.content for token in self.base.added]
        return [text for text in texts if not any(content in text for content in special)]

    def samples(self, library: Library, tokenizer: tg.Tokenizer) -> list[str]:
        texts = [*self.texts.compared, *drawn(tokenizer, 2 * self.texts.n_edited), *with_added(tokenizer)]
        return self.comparable(library, texts)


def _same_ids(library: Library, tokenizer: tg.Tokenizer, texts: Sequence[str]) -> None:
    for text, ids in zip(texts, library.encode([*texts]), strict=True):
        ours = tokenizer.encode(text)
        require(ours == ids, f"{library.name} encodes {text!r:.80} as {ids!r:.80}, tokengraft as {ours!r:.80}")


def _same_text(case: Case, library: Library, tokenizer: tg.Tokenizer) -> None:
    """Decoding gives the text that the base gave, unless the base had an unknown token for a part of it."""
    unknown = case.base.ids.get(case.base.model.get("unk_token") or "")
    for text in case.comparable(library, case.texts.compared):
        ids = case.base.encode(text)
        before, after = case.library.decode(ids), library.decode(tokenizer.encode(text))
        require(
            unknown in ids or before == after, f"{text!r:.80} is decoded to {after!r:.80}, before to {before!r:.80}"
        )


def _kept_ids(case: Case, tokenizer: tg.Tokenizer) -> None:
    for token in case.base.added:
        now = tokenizer.ids.get(token.content)
        require(now == token.id, f"the added token {token.content!r} had the id {token.id}, now {now}")
    moved = [string for string, i in tokenizer.ids.items() if case.base.ids.get(string, i) != i]
    require(not moved, f"{len(moved):,} kept tokens have another id, such as {moved[:1]}")


def _edited(case: Case, tokenizer: tg.Tokenizer, name: str) -> tuple[Path, Library]:
    """What must hold of every edited tokenizer."""
    folder, library = case.saved(tokenizer, name)
    _same_ids(library, tokenizer, case.samples(library, tokenizer))
    _same_ids(library, tg.load(folder), case.texts.compared[:50] if library.finds_added else [])
    _same_text(case, library, tokenizer)
    _kept_ids(case, tokenizer)
    return folder, library


def _all_reachable(library: Library, tokenizer: tg.Tokenizer, new: Iterable[str]) -> None:
    tokens = {token.string: token for token in tokenizer.tokens}
    for string in new:
        ids = library.encode_token(tokens[string])
        require(ids == [tokens[string].id], f"{library.name} encodes the new token {string!r} as {ids}")


def inspect(case: Case) -> str:
    found = tg.inspect(case.base)
    require(found.tokens == len(case.base.tokens), "inspect and the tokenizer count different numbers of tokens")
    return f"{found.unreachable:,} unreachable"


def encode(case: Case) -> str:
    texts = case.samples(case.library, case.base)
    _same_ids(case.library, case.base, texts)
    return f"{len(texts):,} texts"


def save(case: Case) -> str:
    saved = tg.save(case.base, case.work / "saved", verify=False)
    for path in saved.iterdir():
        require(path.read_bytes() == (case.entry.folder / path.name).read_bytes(), f"{path.name} has other bytes")
    missing = {path.name for path in case.entry.folder.iterdir()} - {path.name for path in saved.iterdir()}
    require(not missing, f"not written: {missing}")
    return f"{len(case.base.files) + (case.base.main == 'tokenizer.json')} files"


def count(case: Case) -> str:
    tokens = sum(case.counts.tokens(case.base).values())
    expected = sum(map(len, case.library.encode(case.texts.learned)))
    require(tokens == expected, f"{case.library.name} has {expected:,} tokens, the counts {tokens:,}")
    return f"{tokens:,} tokens"


def prune(case: Case) -> str:
    _edited(case, case.pruned, "pruned")
    left = set(case.order.tokens) & case.pruned.ids.keys()
    require(len(case.base.tokens) - len(case.pruned.tokens) == len(case.order), "other tokens were removed")
    require(not left, f"pruned tokens are still there: {[*left][:3]}")
    unreachable = {case.pruned.strings[i] for i in case.pruned.structure.unreachable}
    before = {case.base.strings[i] for i in case.base.structure.unreachable}
    require(unreachable <= before, f"kept tokens became unreachable: {[*(unreachable - before)][:3]}")
    return f"{len(case.order):,} tokens"


def extend(case: Case) -> str:
    extended = case.extension.apply(case.base)
    _, library = _edited(case, extended, "extended")
    require(len(extended.tokens) - len(case.base.tokens) == len(case.extension.tokens), "other tokens were added")
    _all_reachable(library, extended, case.extension.tokens)
    before, after = (sum(len(t.encode(text)) for text in case.texts.learned) for t in (case.base, extended))
    # An unknown run of characters was one token before they were added.
    require(after <= before or not case.base.spells_everything, f"the text has {after:,} tokens, before {before:,}")
    return f"{len(case.extension.tokens):,} tokens"


def swap(case: Case) -> str:
    _, library = _edited(case, case.swapped, "swapped")
    _all_reachable(library, case.swapped, case.refill.tokens)
    require(len(case.swapped.tokens) == len(case.base.tokens), "another number of tokens")
    require(case.swapped.n_rows == case.base.n_rows, f"{case.swapped.n_rows} rows, before {case.base.n_rows}")
    return f"{len(case.refill.tokens):,} tokens"


def plan(case: Case) -> str:
    made = case.plan
    old = {token.id: token for token in case.base.tokens}
    for token in case.swapped.tokens:
        source = made.sources[token.id]
        if isinstance(source, int):
            require(old[source].string == token.string, f"{token.string!r} has the row of {old[source].string!r}")
        else:
            pieces = b"".join(old[piece].bytes for piece in source)
            unknown = case.base.model.get("unk_token") in {old[piece].string for piece in source}
            require(pieces == token.bytes or unknown, f"the pieces of {token.string!r} are {pieces!r}")
    return f"{made.summary.kept:,} kept, {made.summary.added:,} new"


def transplant(case: Case) -> str:
    checkpoint, rows = case.work / "checkpoint", case.base.n_rows + 7
    shutil.copytree(case.entry.folder, checkpoint)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH}
    (checkpoint / "config.json").write_text(json.dumps(config | {"vocab_size": rows, "tie_word_embeddings": True}))
    table = np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(np.float32)
    name = "model.embed_tokens.weight"
    save_file({name: table}, checkpoint / "model.safetensors", metadata={"format": "pt"})
    tg.transplant(checkpoint, case.swapped, case.work / "transplanted")
    new = load_file(case.work / "transplanted" / "model.safetensors")[name]
    kept = [(i, s) for i, s in enumerate(case.plan.sources) if isinstance(s, int)]
    ids, sources = (np.array(column) for column in zip(*kept, strict=True))
    require(new[ids].tobytes() == table[sources].tobytes(), "kept rows have other bytes")
    return f"{len(kept):,} rows equal"


def check(case: Case) -> str:
    result = tg.check(case.swapped, base=case.base)
    require(result.passed, "; ".join(f"{f.name}: {f.detail} {f.evidence[:1]}" for f in result.failures))
    notes = [finding.name for finding in result.findings if finding.outcome == "note"]
    return f"{len(result.findings)} checks" + (f", notes: {', '.join(notes)}" if notes else "")


def evaluate(case: Case) -> str:
    file = case.work / "text.txt"
    file.write_text("\n".join(case.texts.learned), encoding="utf-8")
    found = tg.evaluate({"base": case.base, "swapped": case.swapped}, {"text": file})
    for name, library in {"base": case.library, "swapped": case.written["swapped"]}.items():
        expected, tokens = sum(map(len, library.encode(case.texts.learned))), found[name, "text"].tokens
        require(tokens == expected, f"{library.name} has {expected:,} tokens with {name}, evaluate {tokens:,}")
    gain = found["swapped", "text"].gain
    return f"{gain:+.1%} bytes per token"


def convert(case: Case, folder: Path) -> str:
    """Writes the tokenizer as a `tokenizer.json`, which has the ids that the library gives."""
    tg.save(tg.convert(case.base, "huggingface"), folder, verify=False)
    texts = case.samples(case.library, case.base)
    _same_ids(case.library, tg.load(folder), texts)
    return f"{len(texts):,} texts"


STEPS: dict[str, Callable[[Case], str]] = {
    step.__name__: step
    for step in (inspect, encode, save, count, prune, extend, swap, plan, transplant, check, evaluate)
}
NEEDS = {"plan": "swap", "transplant": "swap", "check": "swap", "evaluate": "swap"}
"""Steps that work on the result of another."""
