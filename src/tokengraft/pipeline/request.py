"""`Request`: what was asked, by a command, a function or a recipe.

`request_from`: the request that options of the table describe, as a command line or a recipe gives them. `read_recipe`:
the options in a file, written by hand or as the record of an adapted model.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property, reduce
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple

from tokengraft.corpus.open import STDIN, Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.counts.threads import CountOptions
from tokengraft.errors import OptionError, positive, require, require_type
from tokengraft.errors import option as spelled
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Limits
from tokengraft.measure.choose_size import SizeOptions
from tokengraft.options.option import Given, command_line
from tokengraft.options.table import options_of
from tokengraft.options.values import (
    ALL,
    kept_texts,
    lines_of,
    named_texts,
    one_text,
    special_texts,
    texts_by_name,
    weighted_texts,
)
from tokengraft.pipeline.options import KEEP, AdaptOptions, Role, Size, Sizes, Source, Target, is_listed, sizes_of
from tokengraft.progress import logger, stages
from tokengraft.pruning.removable import Protection
from tokengraft.representation import FrozenDict

Step = Literal["adapt", "extend", "prune"]


@dataclass(frozen=True)
class Edit:
    """What `extend` and `prune` are asked for besides: they write a tokenizer, and no checkpoint."""

    counts: Sequence[str | Path] = ()
    corpus: Sequence[str] = ()
    weight: Sequence[str] | None = None
    """One for each of the counts or corpora."""
    held_out: Mapping[str, Corpus] = field(default_factory=dict)
    """Text to choose and to measure sizes on, by name."""
    curve: bool = False
    """`extend`: measure all sizes, and write nothing."""
    character_coverage: float | None = None
    extension: Path | None = None
    """`extend`: where to write what was learned."""
    method: Any = None
    """`prune`: the order; `extend`: a baseline."""
    scripts: Sequence[str] = ()
    """`prune`: the scripts to keep."""
    rows: int | None = None
    """`prune`: how many rows are left."""
    ids: Literal["compact", "keep"] = "compact"
    order: Path | None = None
    """`prune`: the file of an order, which is read if neither text nor a method says how to make one."""
    report: Path | None = None

    @property
    def reads_order(self) -> bool:
        """Whether the order is read from a file."""
        return self.order is not None and not (self.counts or self.corpus or self.method)


@dataclass(frozen=True)
class Request:
    """The arguments of an adaptation, an extension or a pruning, with all defaults filled in."""

    source: Source
    targets: Mapping[str, Target]
    kept: Mapping[str, Corpus]
    """Texts to keep, by name."""
    out: Path
    sizes: Sizes
    options: AdaptOptions
    step: Step = "adapt"
    edit: Edit = field(default_factory=Edit)
    command: str | None = None
    """The command line, for the record. A repeated record keeps that of the first run."""
    named: Given | None = None
    """The options that were given by name; None if they were given in Python."""

    @cached_property
    def given(self) -> Given:
        """The options that were given, as the table names them."""
        if self.named is not None:
            return self.named
        sizes = {name: getattr(self.sizes, name) for name in ("add", "remove", "swap")}
        asked = {"target": self.targets, "keep": self.kept, **sizes}
        return {name: value for name, value in asked.items() if value} | given_of(self.options)

    @property
    def corpora(self) -> dict[str, Corpus]:
        """Every text by name, targets first. Lists of paths are sorted, so that their order changes no result."""
        texts = {name: target.corpus for name, target in self.targets.items()}
        for name, corpus in (texts | dict(self.kept)).items():
            if isinstance(corpus, list | tuple) and all(isinstance(one, str | os.PathLike) for one in corpus):
                texts[name] = sorted(corpus, key=os.fspath)
            else:
                texts[name] = corpus
        return texts

    @property
    def other_texts(self) -> dict[str, Corpus]:
        """Texts that are read as a whole, by what they are for: to preserve, the same sentences, and to measure on."""
        preserve, parity = self.options.preserve, self.options.parity_text or {}
        texts = {} if preserve is None or isinstance(preserve, PretokenCounts) else {"text to preserve": preserve}
        texts |= {f"parity text {name}": corpus for name, corpus in parity.items()}
        tests = {name: text for name, text in self.tests.items() if not isinstance(text, PretokenCounts)}
        texts |= {f"test text {name}": corpus for name, corpus in tests.items()}
        return texts | {f"held-out text {name}": corpus for name, corpus in self.edit.held_out.items()}

    @property
    def tests(self) -> Mapping[str, Corpus | PretokenCounts]:
        """Texts to measure on besides held-out documents, by name."""
        return self.options.test or {}

    def role(self, name: str) -> Literal["target", "keep"]:
        """Whether a text is a target or kept."""
        return "target" if name in self.targets else "keep"

    def start(self, step: str) -> None:
        """Reports that a step starts."""
        logger.info("%s", step)
        if self.options.on_step:
            self.options.on_step(step)


def shown_name(text: str, role: Role) -> str:
    """What terminal and report call a text. A target and a test text may have the same name.

    >>> shown_name("et", "target"), shown_name("et", "test"), shown_name("en", "keep"), shown_name("keep", "keep")
    ('et', 'et (test)', 'en (keep)', 'keep')
    """
    return text if role == "target" or (text, role) == (KEEP, "keep") else f"{text} ({role})"


def given_of(options: AdaptOptions) -> dict[str, Any]:
    """The options that differ from their defaults, by their names in the table."""
    both: tuple[Any, Any] = options, AdaptOptions()
    given = dict[str, Any]()
    for option in options_of("recipe"):
        if not option.field:
            continue
        names = option.field.split(".")
        value, usual = (reduce(lambda v, name: getattr(v, name, None), names, one) for one in both)
        if value is not usual and (option.name == "preserve" or value != usual):  # a column cannot be compared
            given[option.name] = True if option.name.startswith("no_") else value
    return given


INLINE = ("deny", "protect", "include", "special")
"""Options whose value is a file with one text per line, or, in a recipe, the texts themselves."""
_PARTS: dict[str, Callable[..., Any]] = {
    "read_options": ReadOptions,
    "count_options": CountOptions,
    "limits": Limits,
    "include": WordList,
    "size": SizeOptions,
    "protection": Protection,
}


def options_from(given: Given, step: Step = "adapt") -> AdaptOptions:
    """The options with the values that were given by the names of the table."""
    values: dict[str, Any] = {}
    documents = "lines" if step == "adapt" else "files"
    parts: dict[str, dict[str, Any]] = {"size": {"multiple": 64}, "read_options": {"documents": documents}}
    for option in options_of("recipe"):
        if option.name not in given or not option.field:
            continue
        value = given[option.name]
        if option.name == "special":
            value = tuple(special_texts([value] if isinstance(value, str) else value))
        elif option.name in INLINE and isinstance(value, str | os.PathLike):
            value = lines_of(Path(value), option.name)
        elif option.name == "parity_text" and not isinstance(value, Mapping):
            value = named_texts(value, option.name)
        owner, _, name = option.field.rpartition(".")
        (parts.setdefault(owner, {}) if owner else values)[name] = False if option.name.startswith("no_") else value
    if isinstance(words := parts.get("include", {}).get("words"), list):
        parts["include"]["words"] = tuple(words)
    return AdaptOptions(**values, **{name: _PARTS[name](**part) for name, part in parts.items()})


def request_from(step: Step, source: Source, given: Given) -> Request:
    """The request that options describe, by their names in the table.

    `extend` and `prune` learn from, or keep, one text that they count as a whole; with `--balance parity`, several.
    """
    options = options_from(given, step)
    if step == "adapt":
        targets = {name: Target(*pair) for name, pair in weighted_texts(given.get("target", ())).items()}
        kept = kept_texts(given.get("keep"), KEEP) or {}
        if "test" in given:
            options = replace(options, test=texts_by_name(given["test"], "test"))
        sizes = sizes_of(options, **{name: given[name] for name in ("add", "remove", "swap") if name in given})
        return Request(source, targets, kept, Path(given["out"]), sizes, options, named=given)
    edit = Edit(**{one.name: given[one.name] for one in fields(Edit) if one.name in given and one.name != "held_out"})
    if held_out := given.get("held_out"):
        named = texts_by_name(held_out, "held_out") if step == "prune" else dict([one_text(held_out, "held_out")])
        edit = replace(edit, held_out=named)
    texts = [*map(str, edit.corpus or edit.counts)]
    if options.balance == "parity":
        targets = {name: Target(files) for name, files in named_texts(texts, "corpus").items()}
    else:
        targets = {"text": Target(texts)} if texts else {}
    add, remove = given.get("add", 0), given.get("remove", ALL)
    if step == "extend":
        hint = f"pass {spelled('add', 'N')}, {spelled('include', 'FILE')} or {spelled('special', 'TOKEN')}"
        require(bool(add) or is_listed(options), "no tokens were asked for", hint)
        sizes = sizes_of(options, add=add)
    else:  # a whole order has as many tokens as it has
        if isinstance(remove, int):
            positive("remove", remove)
        sizes = Sizes(remove=1 if remove == ALL or "rows" in given else remove)
    return Request(source, targets, {}, Path(given.get("out", "")), sizes, options, step, edit, named=given)


def commanded(step: Step, source: Source, given: Given) -> Request:
    """The request of a command line, which it records without what does not change the result."""
    known = options_of("recipe" if step == "adapt" else step)
    given = {option.name: given[option.name] for option in known if option.name in given}
    decisive = {name: value for name, value in given.items() if step != "adapt" or name not in OF_A_RUN}
    return replace(request_from(step, source, given), command=command_line(step, [str(source)], known, decisive))


def work_folder(out: Path) -> Path:
    """The folder for cached counts, beside the output."""
    whole = out.resolve()
    return whole.with_name(whole.name + ".work")


def new_request(
    source: Source,
    target: Corpus | Mapping[str, Target | Corpus] | None,
    keep: Corpus | Mapping[str, Corpus] | None,
    out: str | os.PathLike[str],
    options: AdaptOptions | None,
    **sizes: Size,
) -> Request:
    """The request that the arguments of `adapt` describe."""
    require_type("source", source, str, os.PathLike)
    require_type("options", options, AdaptOptions, NoneType)
    options = options or AdaptOptions()
    named = target if isinstance(target, Mapping) else {} if target is None else {"target": target}
    targets = {name: item if isinstance(item, Target) else Target(item) for name, item in named.items()}
    kept = keep if isinstance(keep, Mapping) else {} if keep is None else {KEEP: keep}
    return Request(source, targets, kept, Path(out), sizes_of(options, **sizes), options)


def read_once(corpus: Corpus, read_options: ReadOptions) -> list[str | int]:
    """The inputs of a corpus that can be read only once: names of pipes, or the identity of an iterator."""
    if isinstance(corpus, Iterator):
        return [id(corpus)]
    if not isinstance(corpus, str | os.PathLike | list | tuple):
        return []
    return [
        source.name
        for source in open_corpus(corpus, read_options)
        if source.name == STDIN or (source.file is not None and Path(source.name).is_fifo())
    ]


@contextmanager
def shown_steps(request: Request) -> Iterator[Request]:
    """The request with callbacks that show each step, if nothing else does."""
    options = request.options
    if options.quiet or options.on_step or options.progress or logger.isEnabledFor(logging.INFO):
        yield request
        return
    with stages(quiet=False) as shown:

        def start(step: str) -> None:
            shown.start(step, "tokens" if step.startswith("learning") else "bytes")

        yield replace(request, options=replace(options, on_step=start, progress=shown.update))


OF_A_RUN = frozenset(("out", "force", "json", "quiet", "dry_run", "recipe", "workers", "memory", "engine", "address"))
"""Options that do not change the result."""
_HINT = "pass a TOML or JSON file with the options of `tokengraft adapt`, or the tokengraft.json of an adapted model"


class Recipe(NamedTuple):
    """What a file says that `--recipe` names."""

    model: str = ""
    given: Given = FrozenDict()
    command: str | None = None
    """The command line, if it is the record of an adapted model."""


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """The options in a TOML or JSON file, or in the record of an adapted model."""
    import tomllib

    name, command = os.fspath(path), None
    try:
        raw = Path(path).read_bytes()
        content = json.loads(raw) if name.endswith(".json") else tomllib.loads(raw.decode())
    except OSError as error:
        raise OptionError(f"cannot read the recipe `{name}`: {error.strerror or error}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:  # not JSON, TOML or UTF-8; or a NUL in the path
        kind = "JSON" if name.endswith(".json") else "TOML"
        raise OptionError(f"the recipe `{name}` is not valid {kind}: {error}", hint=_HINT) from error
    if isinstance(content, dict) and isinstance(request := content.get("request"), dict):
        if request.get("step") != "adapt":
            raise OptionError(f"`{name}` records the step {request.get('step')!r}, not an adaptation", hint=_HINT)
        if only := request.get("only_in_python"):
            raise OptionError(
                f"`{name}` records options that only Python has: {', '.join(map(str, only))}",
                hint="call tg.adapt with them again",
            )
        content, command = request.get("options"), request.get("command")
    if not isinstance(content, dict):
        raise OptionError(f"`{name}` has no options of `tokengraft adapt`", hint=_HINT)
    options = {option.name: option for option in options_of("recipe")}
    known = {"model", *options} - (OF_A_RUN - {"engine", "memory", "workers"})
    if unknown := next((key for key in content if key not in known), None):
        close = get_close_matches(unknown, known, n=1)
        meant = f"write {close[0]}" if close else f"remove it; options: {', '.join(sorted(known))}"
        why = "belongs on the command line" if unknown in OF_A_RUN else "is not an option of a recipe"
        raise OptionError(f"`{unknown}` in `{name}` {why}", hint=meant)
    for key, value in content.items():
        for text, files in value.items() if isinstance(value, Mapping) else [(key, value)]:
            hint = "call tg.adapt with it again"
            require(files is not None, f"the text `{text}` was an object in memory, which a recipe cannot have", hint)
            require(files != [], f"`{text}` in `{name}` is an empty list", "write at least one, or remove it")
    given = {
        key: value if key in INLINE and isinstance(value, list) else options[key].parsed(value)
        for key, value in content.items()
        if key != "model" and (value is not False or options[key].kind.action != "flag")
    }
    return Recipe(str(content.get("model") or ""), given, command if isinstance(command, str) else None)
