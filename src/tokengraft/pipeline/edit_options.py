"""`require_edit`: refuses what `tokengraft extend` and `tokengraft prune` cannot do, before any text is read.

These are commands alone: their messages name options of the command line. `tg.extend` and `tg.prune` have their own.
"""

from collections.abc import Callable, Iterator

from tokengraft.checkpoint.table import model_rows, row_step
from tokengraft.corpus.open import local_files, paths_of
from tokengraft.counts.pretoken_counts import is_counts_file
from tokengraft.errors import OptionError, require
from tokengraft.options.table import options_of
from tokengraft.options.values import ALL, AUTO
from tokengraft.pipeline.request import Request
from tokengraft.pruning.methods import COUNTED
from tokengraft.tokenizer.tokenizer import Tokenizer

WHOLE = ("script", "script-leaf", "unreachable")
"""Methods that order only the tokens to remove."""


def require_edit(job: Request, base: Tokenizer) -> None:
    """Refuses texts, sizes and methods that do not go together."""
    options, edit, sizes = job.options, job.edit, job.sizes
    if job.step == "extend":
        message = "no text to learn from was given"
        require(bool(job.targets) or sizes.listed, message, "pass --counts or --corpus, or --include without --add")
        message = "text to learn from was given, and no number of tokens"
        require(not (job.targets and sizes.listed), message, "pass --add N, or drop --counts and --corpus")
        naive = edit.method not in (None, "continued")
        require(not (naive and sizes.auto), f"--add {AUTO} is for continued training", "pass --add N")
        message = f"--add {AUTO} chooses the number of tokens on held-out text, and none was given"
        require(bool(edit.held_out) or not sizes.auto, message, "pass --held-out TEXT, or a number of tokens")
        if options.size.training_text:
            weighted_texts = len({*(edit.weight or ())}) > 1
            message = "--training-text has no effect: --weight multiplies occurrences"
            require(not weighted_texts, message, "drop --training-text or --weight")
        if naive:
            allowed = {"counts", "corpus", "weight", "add", "method", "report", "out", "force", "json", "quiet"}
            _refuse(job, lambda name: name not in allowed | _READING, f"is for continued training, not {edit.method}")
    else:
        _require_order(job, base)
    texts = [*map(str, edit.corpus), *(one for files in job.other_texts.values() for one in paths_of(files) or ())]
    if all(map(is_counts_file, texts)):
        _refuse(job, lambda name: name in _READING, "is for reading text, and all texts are counts")
    if not edit.corpus:
        _refuse(job, lambda name: name in _LIMITS, "is for --corpus, and none was given")


_READING = {option.name for option in options_of("count") if option.group}
_LIMITS = ("max_bytes", "max_documents", "shard")


def _refuse(job: Request, has_none: Callable[[str], bool], why: str) -> None:
    """Refuses options that have no effect for a reason that the table does not know."""
    if name := next(filter(has_none, job.given), None):
        flag = f"--{name.replace('_', '-')}"
        raise OptionError(f"{flag} {why}", hint=f"drop {flag}")


def _require_order(job: Request, base: Tokenizer) -> None:
    """Refuses options of `prune` that decide an order which is read, and a method without what it needs."""
    edit, given = job.edit, job.given
    method = edit.method or "leaf-expected"
    if edit.reads_order:
        allowed = {"order", "remove", "rows", "held_out", "keep_coverage", "ids", "report", "out", "force", "json"}
        why = f"decides an order, and `{edit.order}` was made before"
        _refuse(job, lambda name: name not in {*allowed, "quiet", *_READING}, why)
    require(
        bool(job.targets) or edit.reads_order or method not in COUNTED,
        f"the method {method} counts tokens in a text, and no text was given",
        "pass --counts or --corpus, choose --method last-id-leaf, or pass --order with an order made before",
    )
    require(
        bool({"remove", "rows"} & given.keys()) or method in WHOLE,
        f"the number of tokens to remove was not given, and the method {method} orders all of them",
        f"pass --remove N, --rows N, --remove {ALL}, or --remove {AUTO} --held-out TEXT",
    )
    message = f"--remove {AUTO} chooses the number of tokens on held-out text, and none was given"
    require(bool(edit.held_out) or not job.sizes.covering, message, "pass --held-out TEXT, or a number of tokens")
    if edit.rows is not None:
        model = model_rows(job.source)
        rows = model.left(base.n_rows, base.n_rows)[0] if model else base.n_rows
        step = row_step(base.n_rows, rows)
        message = f"--rows is {edit.rows:,}; expected {step:,} to {rows - 1:,}"
        hint = f"there are {rows:,} now; pass --rows with a number in between"
        require(step <= edit.rows < rows, message, hint)
    require(
        edit.ids != "keep" or base.algorithm == "BPE",
        f"--ids keep leaves ids without a token, and a {base.algorithm} vocabulary is a list",
        "leave out --ids keep, which renumbers the tokens; or replace tokens, which moves no id: `tokengraft adapt "
        "--swap N`",
    )


def shared_texts(job: Request) -> Iterator[str]:
    """A warning if files of --held-out are in --corpus too."""
    read_options = job.options.read_options
    corpus = {path for one in job.corpora.values() for path in local_files(one, read_options)}
    held_out = {path for one in job.edit.held_out.values() for path in local_files(one, read_options)}
    if shared := sorted(corpus & held_out):
        others = f" and {len(shared) - 1:,} more files are" if shared[1:] else " is"
        yield f"`{shared[0]}`{others} in --corpus and in --held-out: the result looks better than on other text"
