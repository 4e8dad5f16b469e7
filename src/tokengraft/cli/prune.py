"""`tokengraft prune`."""

import argparse

from tokengraft.cli.options import Commands, add_options, add_source
from tokengraft.cli.results import request_of, show_edit
from tokengraft.pipeline.edit import edit
from tokengraft.pipeline.request import shown_steps


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "prune",
        description="Remove tokens, by default the rarest leaves of the merge tree, so that every kept token stays "
        "reachable. Special and added tokens, bytes and, unless bytes spell them, characters are kept; by default also "
        "white space, digits, ASCII punctuation, names of source code and text of chat templates. Ids are renumbered "
        "without holes unless --ids keep.",
        first="--counts --corpus --remove --rows --held-out --method --scripts --protect --no-protect-defaults "
        "--ids --report --out --force --json",
    )
    add_source(command)
    add_options(command, "prune")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with shown_steps(request_of("prune", options.source, options)) as request:
        result = edit(request)
    show_edit(result, request, options)
    return 0
