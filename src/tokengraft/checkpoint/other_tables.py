"""Refuses models with further tensors that have a vocabulary axis, which a transplant would not change.

Medusa and EAGLE heads have their own tables. Those of multi-token prediction in DeepSeek-V3, and for each layer in
Gemma-3n, are known by their names and rewritten (`layout`). Some models fix ids: see `require_fixed_ids`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokengraft.checkpoint.ids import Renumbering, config_numbers
from tokengraft.errors import CheckpointError

_TABLE = re.compile(
    r"(^|[._])(embed_tokens|tok_embeddings|word_embeddings|wte|embed_in|embed_out|lm_head|shared_head|output"
    r"|medusa|eagle|mtp|nextn|t2d|d2t)([._]|$)"
)
_ALWAYS = re.compile(r"(^|\.)(embed_tokens_per_layer\.weight|d2t)$")
"""Tables that may have another number of rows, and tables whose numbers are ids."""
_POSITIONS_FROM_PADDING = frozenset(
    (
        *("camembert", "data2vec-text", "esm", "ibert", "kosmos-2", "kosmos-2.5", "layoutlmv3", "lilt", "longformer"),
        *("luke", "m2m_100", "markuplm", "mpnet", "roberta", "roberta-prelayernorm", "trocr", "xglm", "xlm-roberta"),
        *("xlm-roberta-xl", "xmod"),
    )
)
"""Types of models in transformers that compute positions from `pad_token_id`."""
_FACTORS = {2, 3, 4}
"""Factors of fused and default sizes: gate and up; query, key and value; the inner size of GPT-2."""


def require_no_other_tables(
    tensors: Iterable[tuple[str, tuple[int, ...]]], rows: int, config: Mapping[str, Any]
) -> None:
    """Refuses a model in which one of these tensors, given by name and shape, has an axis as long as the vocabulary.

    An axis may have that length by accident, because the hidden size or another size in the config is equal. Such a
    tensor is refused only if its name is that of a table of tokens.
    """
    by_accident = _is_size(rows, {*config_numbers(config)})
    names = [
        f"`{name}` {list(shape)}"
        for name, shape in tensors
        if _ALWAYS.search(name) or (rows in shape and not (by_accident and not _TABLE.search(name)))
    ]
    if names:
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        raise CheckpointError(
            f"{len(names):,} other tensors have an axis of {rows:,}, as long as the vocabulary, or name ids: "
            f"{', '.join(names[:3])}{more}. They are not supported: they would no longer match the vocabulary",
            hint="pass a checkpoint without them, for example without its heads for multi-token prediction; "
            "otherwise please report the architecture, with the names and shapes of its tensors",
        )


def require_fixed_ids(shorter: Iterable[int], config: Mapping[str, Any], renumbering: Renumbering) -> None:
    """Refuses a plan that changes ids which the model has fixed.

    Gemma-3n takes the ids from `vocab_offset` on for images and sound, and has a table for each layer that ends there:
    ``shorter`` has the rows of such tables. Other models have such ids too: see `_offsets`. Tokens below may be
    replaced by others. RoBERTa computes positions from the id of padding. Whisper computes the ids of timestamps from
    that of the token before them.
    """
    _require_fixed_padding(config, renumbering)
    _require_timestamps(config, renumbering)
    plan, rows, ends = renumbering.plan, renumbering.rows, [*shorter]
    first = fixed_from(config, rows[0], ends)
    if first is None:
        return
    moved = any(old != new and max(old, new) >= first for old, new in plan.moved.items())
    new = any(isinstance(source, tuple) for source in plan.sources[first:])
    pieces = (row for source in plan.sources if isinstance(source, tuple) for row in source)
    lacking = any(row >= min(ends) for row in pieces) if ends else False
    if rows[0] != rows[1] or moved or new or lacking or any(row >= first for row in plan.removed):
        raise changes_fixed_ids(first)


def fixed_from(config: Mapping[str, Any], rows: int, shorter: Iterable[int] = ()) -> int | None:
    """The first id that a model uses for other things than text; None if there is none, or it is not known."""
    return min([*shorter, *_offsets(config, rows)], default=None)


def changes_fixed_ids(first: int) -> CheckpointError:
    """The error for a plan that changes ids from ``first`` on, or the number of rows."""
    return CheckpointError(
        f"the model uses the ids from {first:,} on for other things than text, and the plan changes them or the number "
        "of rows",
        hint="replace tokens without changing other ids: `tokengraft adapt --swap N`",
    )


def _require_fixed_padding(config: Mapping[str, Any], renumbering: Renumbering) -> None:
    kind, padding = config.get("model_type"), config.get("pad_token_id")
    if not isinstance(kind, str) or kind not in _POSITIONS_FROM_PADDING or type(padding) is not int:
        return
    new = renumbering.new_id(padding, "pad_token_id", "config.json")
    if new != padding:
        raise CheckpointError(
            f"models of the type {kind} compute positions from `pad_token_id`, which is {padding:,}, and the plan "
            f"moves that token to {new:,}",
            hint="keep its id: use `tokengraft prune --ids keep`, or replace tokens with `tokengraft adapt --swap N`",
        )


def _require_timestamps(config: Mapping[str, Any], renumbering: Renumbering) -> None:
    """Refuses a plan after which the ids of Whisper's languages, tasks and timestamps no longer follow each other."""
    start = config.get("decoder_start_token_id")
    if config.get("model_type") != "whisper" or type(start) is not int:
        return
    new = [renumbering.moved.get(token_id) for token_id in range(start, renumbering.rows[0])]
    first = new[0] if new else None
    added = first is not None and any(isinstance(source, tuple) for source in renumbering.plan.sources[first:])
    if new and (added or first is None or new != [*range(first, first + len(new))]):
        raise CheckpointError(
            f"models of the type whisper use the ids from {start:,} on for languages, tasks and timestamps, one after "
            "the other, and the plan adds tokens there, removes some or changes their order",
            hint="keep all ids: use `tokengraft adapt --swap N` or `tokengraft prune --ids keep`. They can move if the "
            "tokenizer has tokens for all rows from there on, timestamps (`<|0.00|>` to `<|30.00|>`) included",
        )


def _offsets(config: Mapping[str, Any], rows: int) -> Iterator[int]:
    """The first ids of other things than text, by the fields of a config.

    Gemma-3n and Kimi-Audio name them. Idefics and Molmo have a second table for the ids after the rows of the first.
    OpenVLA takes the last ids before its padding for actions.

    >>> [*_offsets({"n_action_bins": 256, "pad_to_multiple_of": 64}, 32064)]
    [31744]
    """
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _offsets(value, rows)
        elif type(value) is not int:
            continue
        elif key in ("vocab_offset", "kimia_token_offset"):
            yield value
        elif key == "additional_vocab_size" and value > 0:
            yield rows
        elif key == "n_action_bins":
            padding = config.get("pad_to_multiple_of")
            yield rows - value - (padding if type(padding) is int else 0)


def _is_size(rows: int, numbers: set[int]) -> bool:
    """Whether a number is one of these, or a product of two of them.

    >>> _is_size(96, {32}), _is_size(96, {12, 8}), _is_size(97, {32})
    (True, True, False)
    """
    return rows in numbers or any(
        number > 1 and rows % number == 0 and rows // number in numbers | _FACTORS for number in numbers
    )
