"""`adapt`: the whole road in one function, from a model and some text to an adapted model.

Every step is one that can be taken alone; nothing is done here that the parts do not do.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from hashlib import blake2b, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tokengraft import _core
from tokengraft.adaptation import Adaptation, Served
from tokengraft.atomic import new_file, require_new
from tokengraft.check import check
from tokengraft.checkpoint.layout import find_vocabulary, open_checkpoint
from tokengraft.checkpoint.transplant import transplant
from tokengraft.corpus import Corpus, Reading, documents, open_corpus
from tokengraft.counting import Effort, Progress, count
from tokengraft.counts import PretokenCounts, as_weight
from tokengraft.errors import CorpusError, OptionError
from tokengraft.evaluate import evaluate
from tokengraft.extend import Limits, extend
from tokengraft.formats.files import folder_files, save
from tokengraft.formats.sources import load
from tokengraft.plan import plan
from tokengraft.prune import Protection, prune_order
from tokengraft.report import report_page
from tokengraft.tokenizer import Tokenizer
from tokengraft.verify import verify_folder

ONE_IN = 50
"""One document in so many is held out."""
MOST_HELD_OUT = 2_000_000
"""Bytes of each corpus that are held out at most: more take longer and say no more."""
KEEP = "keep"
PLAIN = (
    "".join(map(chr, range(32, 127))),
    '{"id": 12345, "name": "value", "items": [1, 2.5, -3e10, true, false, null], "nested": {"a": "b\\\\n"}}\n',
    "\n\n\t\t    \r\n",
    "def main():\n    return 0\n\n\nif (a == b && c != d) { return x[i]; }  // done\n",
)
"""Text that every deployment meets, whatever its languages: its tokens are never pruned."""


Stage = Callable[[str], object]
"""Called with what is being done, in words."""


class Target(NamedTuple):
    """A language, or another kind of text, to teach."""

    corpus: Corpus
    weight: int | Fraction | str = 1
    """Against the other targets, which are brought to equal size first."""


@dataclass(frozen=True)
class Wish:
    """How many tokens come and go."""

    add: int = 0
    remove: int = 0

    def __post_init__(self) -> None:
        if self.add < 0 or self.remove < 0 or not (self.add or self.remove):
            raise OptionError(
                f"{self.add:,} tokens to add and {self.remove:,} to remove were asked for",
                hint="pass --swap N, or --add N, or --remove N",
            )


def adapt(
    source: str | os.PathLike[str],
    *,
    target: Corpus | Mapping[str, Target],
    out: str | os.PathLike[str],
    keep: Corpus | None = None,
    swap: int = 0,
    add: int = 0,
    remove: int = 0,
    init: str = "fvt",
    reading: Reading | None = None,
    effort: Effort | None = None,
    limits: Limits | None = None,
    report: bool = True,
    force: bool = False,
    stage: Stage | None = None,
    progress: Progress | None = None,
) -> Adaptation:
    """Adapts a model, or a tokenizer alone, to text: prunes, extends, checks, measures, transplants.

    Documents are held out of every corpus before it is counted, and the result is measured on them. Counting is kept in
    a folder beside the output until all is done: a run that was interrupted goes on from there.

    Args:
        source: A model folder with weights, or a tokenizer.
        target: The text to learn from, or several by name, each with a weight.
        out: The folder to write.
        keep: The text whose tokens are to stay, beside the target's own.
        swap: So many tokens go and as many come: shapes and special ids stay.
        add: So many tokens come.
        remove: So many tokens go. What is not filled again is closed up.
        init: How new rows come about, as for `transplant`.
        reading: How to read the corpora. Text files are read a document a line.
        effort: Workers and memory for counting.
        limits: Which tokens may be made.
        report: Write `report.html` into the folder too, where plotly is installed.
        force: Replace an earlier result.
        stage: Told what is being done.
        progress: Told how much of the text has been read.

    Raises:
        OptionError: Nothing is asked for, or two things that exclude each other.
        CorpusError: A corpus cannot be read, or is too small to hold something out of.
        TokengraftError: As the steps raise it.

    Example:
        >>> adapt("Llama-3.2-1B", target="et/*.parquet", keep="en/*.parquet", swap=16_000, out="out")  # doctest: +SKIP
    """
    if swap and (add or remove):
        raise OptionError(
            "both a swap and numbers to add or remove were given", hint="pass --swap alone, or the others"
        )
    wish = Wish(add or swap, remove or swap)
    folder = Path(out)
    require_new(folder, force=force)
    told = stage or (lambda _: None)
    base = load(source)
    targets = dict(target) if isinstance(target, Mapping) else {"target": Target(target)}
    corpora = {**{name: item.corpus for name, item in targets.items()}, **({KEEP: keep} if keep is not None else {})}
    if KEEP in targets:
        raise OptionError(f"a target is called {KEEP!r}, as what is to stay is", hint="call it something else")
    counted = _Counted(base, folder.with_name(folder.name + ".work"), reading or Reading(), effort or Effort())
    counted.tell = _telling(corpora, counted.reading, progress)
    parts = {}
    for name, corpus in corpora.items():
        told(f"counting {name}")
        parts[name] = counted(name, corpus)
    learn = equal_mix([(parts[name].counts, as_weight(item.weight)) for name, item in targets.items()])
    stay = equal_mix([(learn, Fraction(1)), *((parts[name].counts, Fraction(1)) for name in parts if name == KEEP)])
    told("deciding which tokens go")
    order = prune_order(base, stay, protection=protection(base))[: wish.remove] if wish.remove else None
    pruned = order.apply(base) if order else base
    told("learning new tokens")
    extension = extend(pruned, learn, wish.add, limits=limits) if wish.add else None
    new = extension.apply(pruned) if extension else pruned
    if len(new.ids) < new.n_rows:
        new = new.compact()
    told("checking and measuring")
    held_out = {name: part.held_out for name, part in parts.items()}
    found = Adaptation(
        base=base,
        tokenizer=new,
        order=order,
        extension=extension,
        plan=plan(base, new),
        check=check(new, base),
        evaluation=evaluate({"base": base, "new": new}, {name: iter(texts) for name, texts in held_out.items()}),
        served={},
        transplant=None,
    )
    found.check.raise_for_failures()
    found = replace(found, served=_served(found, {name: parts[name].counts for name in targets}))
    told("writing")
    done = _write(source, found, held_out, folder, _Writing(init, force, report and find_spec("plotly") is not None))
    counted.forget()
    return done


class Part(NamedTuple):
    """A corpus, counted, and what was held out of it."""

    counts: PretokenCounts
    held_out: list[str]


class _Counted:
    """Counts corpora, and remembers what it has counted until all is done."""

    def __init__(self, tokenizer: Tokenizer, folder: Path, reading: Reading, effort: Effort) -> None:
        self.tokenizer, self.folder = tokenizer, folder
        self.reading, self.effort = replace(reading, documents="lines"), effort
        self.tell: Callable[[str, int], object] | None = None
        files = folder_files(tokenizer)
        self.identity = sha256(b"".join(name.encode() + sha256(files[name]).digest() for name in sorted(files)))

    def __call__(self, name: str, corpus: Corpus) -> Part:
        key = self._key(name, corpus)
        counts_file, held_file = self.folder / f"{key}.parquet", self.folder / f"{key}.jsonl"
        if key and held_file.exists() and counts_file.exists():
            lines = held_file.read_text(encoding="utf-8").splitlines()
            return Part(PretokenCounts.load(counts_file), [json.loads(line) for line in lines])
        held_out: list[str] = []
        rest = set_aside(documents(corpus, self.reading, self.tell), held_out)
        counts = count(self.tokenizer, rest, reading=self.reading, effort=self.effort)
        if not held_out or not len(counts):
            raise CorpusError(
                f"the corpus `{name}` is too small: {counts.totals.documents:,} documents, {len(held_out):,} held out",
                hint=f"give more documents; one in {ONE_IN} is held out to measure by",
            )
        part = Part(counts, held_out)
        if key:
            counts.save(counts_file, force=True)
            with new_file(held_file, force=True) as partial:
                partial.write_text("".join(f"{json.dumps(text)}\n" for text in held_out), encoding="utf-8")
        return part

    def _key(self, name: str, corpus: Corpus) -> str | None:
        """What a count depends on, as a file name; None for a corpus that cannot be known again."""
        items = [corpus] if isinstance(corpus, str | os.PathLike) else corpus
        if not isinstance(items, list | tuple) or "-" in items:
            return None
        inputs = sorted({item.name for item in open_corpus(items, self.reading)})
        found = [(path, Path(path).stat()) for path in inputs]
        stats = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in found]
        described = json.dumps(
            [name, stats, asdict(self.reading), ONE_IN, MOST_HELD_OUT, _core.__version__], default=str
        )
        known = self.identity.copy()
        known.update(described.encode())
        return f"{name}-{known.hexdigest()[:24]}"

    def forget(self) -> None:
        """Removes what was remembered, of earlier inputs too; whatever else lies in the folder stays."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if re.fullmatch(r".+-[0-9a-f]{24}\.(parquet|jsonl)", path.name):
                    path.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()


def _telling(
    corpora: Mapping[str, Corpus], reading: Reading, progress: Progress | None
) -> Callable[[str, int], object] | None:
    """What tells of bytes read, as shares of all corpora whose size is known."""
    paths = [corpus for corpus in corpora.values() if isinstance(corpus, str | os.PathLike | list | tuple)]
    if progress is None or "-" in paths:
        return None
    total = sum(found.size for corpus in paths for found in open_corpus(corpus, reading))
    return lambda name, size: progress(name, size, total)


def set_aside(texts: Iterator[str], held_out: list[str]) -> Iterator[str]:
    """The documents that are not held out; those that are go into the list. Copies of one go the same way.

    >>> held = []
    >>> rest = list(set_aside(map(str, range(1000)), held))
    >>> len(held), sorted(map(int, rest + held)) == list(range(1000))
    (14, True)
    """
    size, seen = 0, set[int]()
    for text in texts:
        digest = int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")
        if digest in seen:
            continue
        if digest % ONE_IN or size >= MOST_HELD_OUT or not text.strip():
            yield text
            continue
        seen.add(digest)
        size += len(text)
        held_out.append(text)


def equal_mix(parts: Sequence[tuple[PretokenCounts, Fraction]]) -> PretokenCounts:
    """Counts brought to equal size, then weighted and added up."""
    totals = [max(counts.totals.pretokens, 1) for counts, _ in parts]
    scaled = [
        counts.scale(weight * Fraction(max(totals), total))
        for (counts, weight), total in zip(parts, totals, strict=True)
    ]
    mixed = scaled[0]
    for part in scaled[1:]:
        mixed += part
    return mixed


def protection(tokenizer: Tokenizer) -> Protection:
    """What no deployment should lose: the tokens of its own chat templates, of plain ASCII and of JSON."""
    strings = {token_id: string for string, token_id in tokenizer.ids.items()}
    used = {token_id for text in (*PLAIN, *chat_templates(tokenizer)) for token_id in tokenizer.encode(text)}
    return Protection(tokens=sorted(strings[token_id] for token_id in used))


def chat_templates(tokenizer: Tokenizer) -> Iterator[str]:
    """The text of every chat template that comes with a tokenizer."""
    for name, raw in tokenizer.files.items():
        if name.endswith(".jinja"):
            yield raw.decode(errors="replace")
    settings = tokenizer.files.get("tokenizer_config.json")
    found = json.loads(settings).get("chat_template") if settings else None
    for template in found if isinstance(found, list) else [found]:
        text = template.get("template") if isinstance(template, dict) else template
        if isinstance(text, str):
            yield text


def _served(found: Adaptation, parts: Mapping[str, PretokenCounts]) -> dict[str, Served]:
    """What each target gained, and how many of the added tokens are its own."""
    added = {i for string, i in found.tokenizer.ids.items() if string not in found.base.ids}
    counted = {name: counts.tokens(found.tokenizer) for name, counts in parts.items()}
    totals = {name: max(sum(tokens.values()), 1) for name, tokens in counted.items()}
    own = dict.fromkeys(parts, 0)
    for token_id in added:
        shares = {name: tokens.get(token_id, 0) / totals[name] for name, tokens in counted.items()}
        best = max(shares, key=lambda name: shares[name])
        own[best] += shares[best] > 0
    return {name: Served(found.evaluation["new", name].gain, own[name]) for name in parts}


def has_weights(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a folder with a checkpoint."""
    folder = Path(source)
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _write(
    source: str | os.PathLike[str],
    found: Adaptation,
    held_out: Mapping[str, list[str]],
    folder: Path,
    options: "_Writing",
) -> Adaptation:
    if has_weights(source):
        # What a transplant will do is known before it is done, and belongs on the page.
        found = replace(found, transplant=transplant(source, found.tokenizer, None, init=options.init))
    others = {"adaptation.json": json.dumps(found.as_dict(), ensure_ascii=False, indent=2).encode() + b"\n"}
    if options.report:
        title = f"{Path(source).name}, adapted to {', '.join(found.served)}"
        others["report.html"] = report_page(found, held_out, title=title).encode()
    if found.transplant:
        done = transplant(source, found.tokenizer, folder, init=options.init, force=options.force, others=others)
        return replace(found, transplant=done)
    save(
        found.tokenizer,
        folder,
        force=options.force,
        check=lambda path: verify_folder(path, found.tokenizer),
        others=others,
    )
    return found


class _Writing(NamedTuple):
    init: str
    force: bool
    report: bool


@dataclass(frozen=True)
class Outlook:
    """What an adaptation would do, before anything is read but names and headers."""

    rows_before: int
    rows_after: int
    text_bytes: int
    """On disk, of all corpora."""
    weights_bytes: int
    """Of the checkpoint; 0 where there is none."""
    parameters_added: int
    memory_bytes: int
    """A guess: what was needed for so much text, up to what tables of pretokens may take."""
    seconds: float
    """A guess: what reading so much text and writing so many weights took on two cores."""


def outlook(source: str | os.PathLike[str], corpora: Mapping[str, Corpus], wish: Wish) -> Outlook:
    """What an adaptation would do and cost.

    Raises:
        TokengraftError: Where `adapt` would raise it before reading any text.
    """
    base = load(source)
    size = sum(found.size for corpus in corpora.values() for found in open_corpus(corpus, Reading()))
    weights = parameters = 0
    if has_weights(source):
        checkpoint = open_checkpoint(Path(source))
        vocabulary = find_vocabulary(checkpoint)
        weights = sum(file.path.stat().st_size for file in checkpoint.files)
        widths = [tensor.info.shape[1] if len(tensor.info.shape) > 1 else 1 for tensor in vocabulary.tensors]
        parameters = (wish.add - wish.remove) * sum(widths)
    rows = len(base.ids) + wish.add - wish.remove
    seconds = 10 + size / 20e6 + weights / 400e6
    memory = 500_000_000 + min(2 * size, Effort().memory)
    return Outlook(base.n_rows, rows, size, weights, parameters, memory, seconds)
