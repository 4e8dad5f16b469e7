"""`tokengraft convert`."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from tokengraft.cli.commands import input_paths, print_result, say
from tokengraft.errors import OptionError
from tokengraft.formats import load
from tokengraft.formats.convert import convert
from tokengraft.formats.sources import is_tokenizer_file
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.verify.check import prove_conversion, save_verified
from tokengraft.verify.transformers_loader import transformers_started

_ADDING = re.compile("TemplateProcessing|RobertaProcessing|BertProcessing")
"""Types of post-processors that put special tokens around text."""


def run_convert(options: argparse.Namespace) -> int:
    """Runs the command."""
    require_new(options.out, force=options.force, replaceable=is_tokenizer_file)
    require_distinct(input_paths([options.source, options.special_tokens]), options.out)
    with transformers_started():
        source = load(options.source, pattern=options.pattern, special_tokens=_special_tokens(options.special_tokens))
        converted = convert(source, options.to, renumber=options.renumber)
        proof = prove_conversion(source, converted)
        verified = save_verified(converted, options.out, base=None, force=options.force)
    # What the format does not have: special tokens around text, and files of the source.
    around = [json.dumps(one.document.get("post_processor")) for one in (source, converted)]
    lost = ["post-processor (special tokens around text)"]
    lost *= bool(_ADDING.search(around[0]) and not _ADDING.search(around[1]))
    left_out = [*lost, *sorted(name for name in source.files if name not in {*converted.files, source.main})]
    files = [converted.main, *(name for name in converted.files if name != converted.main)]
    summary = {
        "out": options.out,
        "format": options.to,
        "files": files,
        "tokens": len(converted.tokens),
        "rows": converted.n_rows,
        "proven": proof._asdict(),
        "loaded_by": verified.loaders,
        "left_out": left_out,
        "notes": verified.notes,
    }
    rows = [
        ("format", f"{options.to}: {', '.join(files)}"),
        ("tokens", f"{len(converted.tokens):,}; {proof.moved:,} of them have other ids"),
        ("proven", f"the same tokens for the text of all {proof.tokens:,} tokens and for {proof.texts:,} other texts"),
        ("loaded back by", ", ".join(verified.loaders) + ": the same ids"),
    ]
    rows += [("left out", ", ".join(left_out))] if left_out else []
    rows += [("warning", note) for note in verified.notes]
    if proof.moved:
        rows.append(("note", "ids have changed: adapt the checkpoint with `tokengraft transplant`"))
    print_result(options, summary, rows)
    if not options.json:
        say(f"wrote `{options.out}`", options)
    return 0


def _special_tokens(path: Path | None) -> Any:
    try:
        return json.loads(path.read_bytes()) if path else None
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"cannot read `{path}`: {error}", hint="check --special-tokens") from error
