"""What every stack needs of a model: tables that fit the tokenizer and the config, and special ids that exist."""

import re
from collections.abc import Iterator

from tokengraft.check.finding import EVIDENCE, Finding
from tokengraft.check.serving.model_folder import GENERATION, ModelFolder
from tokengraft.checkpoint.ids import MAIN, NEVER_CHOSEN, id_fields
from tokengraft.checkpoint.layout import PER_LAYER, PER_LAYER_SIZE
from tokengraft.errors import CheckpointError

TRANSPLANT = "give the model this tokenizer: `tokengraft transplant MODEL TOKENIZER --out NEW`"
_PLACEHOLDER = re.compile(r"image|img|video|vision|frame|audio|index$")
"""Fields of ids that are replaced by the output of an encoder, and may lie beyond the table of tokens."""


def not_checked(name: str, reason: str) -> Finding:
    """A note that something could not be checked."""
    return Finding(name, "note", f"not checked: {reason}")


def model_findings(folder: ModelFolder) -> Iterator[Finding]:
    """The checks of tables and ids that all stacks share."""
    if not folder.has_model:
        yield not_checked("model", "this is a tokenizer without a model (no config.json)")
        return
    yield table_rows(folder)
    yield ids_fit(folder)
    yield special_ids(folder)


def table_rows(folder: ModelFolder) -> Finding:
    """Whether every table of tokens has `vocab_size` rows. Loaders create tables of that size and refuse others."""
    name, size, rows = "embedding rows", folder.vocab_size, folder.rows
    if not folder.tables or rows is None:
        return not_checked(name, folder.unread)
    wrong = [f"`{table}` has {held:,} rows" for table, held, wanted in _tables(folder) if held != wanted]
    if not wrong:
        return Finding(name, "pass", f"{rows:,}, as `vocab_size` says")
    alike = all(held == rows for _, held, _ in _tables(folder))
    set_size = f'set "vocab_size": {rows} in config.json'
    if size is None and alike:
        detail = f"config.json has no `vocab_size`, so the default of its class must be {rows:,}"
        return Finding(name, "note", detail, (), set_size)
    fix = set_size if alike and rows >= folder.tokenizer.n_rows else TRANSPLANT
    return Finding(name, "fail", f"`vocab_size` in config.json is {size}", tuple(wrong[:EVIDENCE]), fix)


def _tables(folder: ModelFolder) -> Iterator[tuple[str, int, int | None]]:
    """Every table: its name, its rows, and the rows that the config says it has."""
    for table in folder.tables:
        field = PER_LAYER_SIZE if PER_LAYER in table.info.name else "vocab_size"
        yield table.info.name, table.info.shape[0] if table.info.shape else 0, folder.size(field)


def ids_fit(folder: ModelFolder) -> Finding:
    """Whether every token has a row."""
    name, rows, needed = "ids", folder.rows, folder.tokenizer.n_rows
    if rows is None:
        return not_checked(name, f"{folder.unread or 'there are no weights'}, and config.json has no `vocab_size`")
    if needed > rows:
        return Finding(
            name, "fail", f"the highest id is {needed - 1:,}, and the model has {rows:,} rows", (), TRANSPLANT
        )
    return Finding(name, "pass", f"the tokenizer needs {needed:,} of {rows:,} rows")


def special_ids(folder: ModelFolder) -> Finding:
    """Whether the ids that configs name exist, and belong to tokens."""
    name, rows = "special ids", folder.rows
    strings = folder.tokenizer.strings
    named = [*_named(folder)]
    if rows is not None:
        beyond = [text for text, field, i in named if i >= rows and not _PLACEHOLDER.search(field)]
        if beyond:
            fix = "correct these fields, or give the model its tokenizer with `tokengraft transplant`"
            return Finding(name, "fail", f"{len(beyond)} are not below {rows:,}", tuple(beyond[:EVIDENCE]), fix)
    needed = [(text, i) for text, field, i in named if field not in NEVER_CHOSEN and not _PLACEHOLDER.search(field)]
    without = [text for text, i in needed if i not in strings]
    if without:
        fix = "if the model uses that row, give it a token; otherwise correct the field"
        return Finding(name, "note", f"{len(without)} have a row but no token", tuple(without[:EVIDENCE]), fix)
    return _end_of_text(folder) or Finding(name, "pass", f"all {len(needed)} in the configs have tokens")


def _named(folder: ModelFolder) -> Iterator[tuple[str, str, int]]:
    """The ids in the configs, from 0 on: a text that shows them, the field, and the id."""
    for file, config in folder.configs.items():
        try:
            fields = id_fields(dict(config))
        except CheckpointError:  # an id that is text or a fraction; `llama_cpp` and transformers ignore or refuse it
            continue
        yield from ((f"`{field}` in {file} is {i:,}", field, i) for field, i in fields if i >= 0)


def _end_of_text(folder: ModelFolder) -> Finding | None:
    """A note if the model would not stop at the end token that the tokenizer names."""
    token = folder.token_setting("eos_token")
    listed = [dict(folder.configs.get(file, {})).get("eos_token_id") for file in (GENERATION, MAIN)]
    ids = {i for value in listed for i in (value if isinstance(value, list) else [value]) if type(i) is int}
    own = folder.tokenizer.ids.get(token) if token is not None else None
    if own is None or not ids or own in ids:
        return None
    named = ", ".join(f"{folder.tokenizer.strings.get(i)!r} ({i:,})" for i in sorted(ids))
    detail = f"the configs end text with {named}, the tokenizer with {token!r} ({own:,})"
    return Finding("special ids", "note", detail, (), f"add {own} to `eos_token_id` in {GENERATION} if it ends a reply")
