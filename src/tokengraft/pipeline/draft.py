"""`draft`: chooses the ids of a draft head by text, and writes them in the forms that servers and trainers read.

- `token_ids.json`: a list of the ids.
- `d2t.npy`, `t2d.npy`: `--d2t-path` and `--t2d-path` of speculators. See `checkpoint.draft` for what they hold.
- `hot_token_id.pt` with ``pt``: `--speculative-token-map` of SGLang, which reads it with `torch.load` (cce0a12).
- `vocab_mapping.pt` with ``pt``: `model.vocab_mapping_path` of SpecForge, which does so too (a6b6b02).
"""

import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import log2
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.draft import IDS, PLOT, TARGET, DraftJob, ids_hash, map_files, maps_of
from tokengraft.checkpoint.model_files import REPORT, recorded, written_before
from tokengraft.checkpoint.table import model_rows
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, option, require
from tokengraft.formats.sources import load
from tokengraft.output.atomic import require_distinct, require_new, write_folder
from tokengraft.output.json_file import parse_json
from tokengraft.pruning.draft_vocabulary import (
    Coverage,
    CoveragePoint,
    DraftOrder,
    Size,
    chosen_size,
    draft_order,
    lacking_warning,
)
from tokengraft.representation import line_plot, shown
from tokengraft.tokenizer.tokenizer import Tokenizer


@shown
@dataclass(frozen=True)
class DraftVocabulary:
    """The ids that a draft model predicts, and the share of the tokens of texts that they cover."""

    ids: tuple[int, ...]
    """Ascending."""
    rows: int
    """Embedding rows of the target."""
    required: int
    """Ids that are always chosen: special tokens, those of chat templates, and bytes. 0 for a given map."""
    curve: tuple[CoveragePoint, ...]
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data, without the ids."""
        curve = [point._asdict() for point in self.curve]
        facts = {"size": len(self.ids), "rows": self.rows, "required": self.required, "curve": curve}
        return facts | {"warnings": [*self.warnings]}


def draft(
    model: str | os.PathLike[str],
    counts: PretokenCounts | None,
    out: str | os.PathLike[str],
    *,
    size: Size | None = None,
    coverage: float | None = None,
    held_out: Mapping[str, PretokenCounts] | None = None,
    ids: Iterable[int] | str | os.PathLike[str] | None = None,
    cut: str | os.PathLike[str] | None = None,
    pt: bool = False,
    force: bool = False,
) -> DraftVocabulary:
    """Writes the ids that the head of a draft model should have, and the draft with its head cut to them.

    Special tokens, tokens of chat templates and bytes are always chosen, then the most frequent tokens. The target
    verifies what a draft proposes, so that any choice gives the same text; a good one is accepted more often.

    Args:
        model: The target, or its tokenizer.
        counts: Text like that which the target will generate: code, chat, languages.
        out: The folder to write.
        size: The number of ids. `auto`: the smallest multiple of 1,024 of which twice as many would cover less than
            1 % more of every held-out text.
        coverage: Choose the size by the share of the tokens of every held-out text that it covers.
        held_out: Other text, by name, to measure coverage on.
        ids: Ids that were chosen before, in place of counts: a list, a JSON file, or a folder of this function.
        cut: An EAGLE-3 or MTP folder to cut. Without a head of its own, it gets rows of the target's.
        pt: Also write the pickled files for SGLang and SpecForge. Needs torch.
        force: Replace a folder that was written before.

    Raises:
        OptionError: The size does not fit, ids are not those of this tokenizer, or torch is not installed.
        CheckpointError: The draft cannot be cut.
        OutputError: The folder exists or cannot be written.

    Examples:
        >>> tok = tg.load("model")
        >>> made = tg.draft("model", tg.count(tok, "en.txt"), "map", size=300, held_out={"et": tg.count(tok, "et.txt")})
        >>> len(made.ids), made.curve[0].chosen["et"]
        (300, 0.848861)
    """
    require(
        not pt or find_spec("torch") is not None,
        f"{option('pt')} needs torch",
        hint=f"pip install torch, or leave out {option('pt')}",
    )
    require_new(out, force=force)
    require_distinct([p for p in (model, cut, ids) if isinstance(p, str | os.PathLike)], out)
    tokenizer, rows = load(model), model_rows(model)
    n_rows = max(rows.rows if rows else 0, tokenizer.n_rows)
    if (ids is None) == (counts is None):
        raise OptionError(
            "counts of a text or ids must be given, and not both",
            hint=f"pass {option('counts')}, {option('corpus')} or {option('ids')}",
        )
    if counts is not None:
        order = draft_order(tokenizer, counts)
    else:
        require(
            size is None and coverage is None,
            "ids have their number",
            hint=f"leave out {option('size')} and {option('coverage')}",
        )
        given = _ids_of(ids, tokenizer)
        order, size = DraftOrder((*given, *sorted({*tokenizer.ids.values()}.difference(given))), 0), len(given)
    texts = held_out or ({"counted text": counts} if counts is not None else {})
    measured = Coverage(order.ids, {name: text.tokens(tokenizer) for name, text in texts.items()})
    n = chosen_size(order, size, coverage, measured if held_out else None)
    curve = measured.curve(n)
    curve = curve if counts is not None else tuple(point for point in curve if point.size == n)  # ids have no order
    warnings = tuple(filter(None, [lacking_warning(tokenizer, order.ids[:n]) if counts is None else ""]))
    made = DraftVocabulary(tuple(sorted(order.ids[:n])), n_rows, order.required, curve, warnings)
    facts = {TARGET: ids_hash(tokenizer), "draft_vocabulary": made.as_dict()}
    files = _files(made, pt=pt)
    if cut is not None:
        job = DraftJob.cut(Path(cut), Path(model), n_rows, made.ids, facts)
        job.write(Path(out), force=force, others=files)
        return made
    record = {"tokengraft": _core.__version__, **facts, "files": sorted(files)}
    files[REPORT] = json.dumps(record, ensure_ascii=False, indent=2).encode() + b"\n"
    write_folder(files, Path(out), replaceable=written_before(Path(out)) if force else None)
    return made


def _ids_of(source: Any, tokenizer: Tokenizer) -> list[int]:
    """The ids of a list, a file or a folder, after refusing those that cannot be the ids of a draft of this model."""
    name, made_for = "the list of ids", None
    if isinstance(source, str | os.PathLike):
        path = Path(source) / IDS if Path(source).is_dir() else Path(source)
        name, made_for = f"`{path}`", recorded(path.parent, TARGET)
        try:
            source = parse_json(path.read_bytes(), str(path))
        except OSError as error:
            raise OptionError(f"cannot read {name}: {error.strerror}", hint=f"check {option('ids')}") from error
    ids = [*source] if isinstance(source, Iterable) and not isinstance(source, str | dict) else []
    are_ids = bool(ids) and all(type(i) is int for i in ids)
    beyond = sorted({*ids}.difference(tokenizer.ids.values())) if are_ids else []
    problem = ""
    if not are_ids:
        problem = "is not a list of ids"
    elif made_for not in (None, ids_hash(tokenizer)):
        problem = "was made for another tokenizer"
    elif beyond:
        problem = f"has {len(beyond):,} ids without a token, such as {beyond[0]:,}: it is that of another tokenizer"
    elif len({*ids}) < len(ids):
        problem = f"has {len(ids) - len({*ids}):,} ids that are listed before"
    require(not problem, f"{name} {problem}", hint="pass ids that `tokengraft draft` chose for this model")
    return ids


def _files(made: DraftVocabulary, *, pt: bool) -> dict[str, bytes]:
    files = map_files(made.ids, made.rows)
    curves = {
        name: [
            [(log2(point.size), point.chosen[name]) for point in made.curve],
            [(log2(point.size), point.first_ids[name]) for point in made.curve],
        ]
        for name in made.curve[0].chosen
    }
    title, sizes = "share of the tokens of a text; dashed: of as many first ids", [point.size for point in made.curve]
    if curves:
        files[PLOT] = line_plot(curves, (log2(sizes[0]), log2(sizes[-1])), title, f"{sizes[-1]:,} ids").encode()
    if pt:
        import torch

        d2t, t2d = map(torch.from_numpy, maps_of(made.ids, made.rows))
        for name, value in (("hot_token_id.pt", [*made.ids]), ("vocab_mapping.pt", {"d2t": d2t, "t2d": t2d})):
            torch.save(value, stream := io.BytesIO())
            files[name] = stream.getvalue()
    return files
