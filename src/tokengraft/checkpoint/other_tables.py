"""Refuses models with further tensors that have a vocabulary axis, which a transplant would not change.

Multi-token prediction (DeepSeek-V3: `model.layers.61.shared_head.head.weight`), Medusa and EAGLE heads have their
own tables, and so do models with a table for each layer.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tokengraft.checkpoint.ids import config_numbers
from tokengraft.errors import CheckpointError

_TABLE = re.compile(
    r"(^|[._])(embed_tokens|tok_embeddings|word_embeddings|wte|embed_in|embed_out|lm_head|shared_head|output"
    r"|medusa|eagle|mtp|nextn|t2d|d2t)([._]|$)"
)
_FACTORS = {2, 3, 4}
"""Factors of fused and default sizes: gate and up; query, key and value; the inner size of GPT-2."""


def require_no_other_tables(
    tensors: Iterable[tuple[str, tuple[int, ...]]], rows: int, config: Mapping[str, Any]
) -> None:
    """Refuses a model in which one of these tensors has an axis as long as the vocabulary.

    An axis may have that length by accident, because the hidden size or another size in the config is equal. Such a
    tensor is refused only if its name is that of a table of tokens.

    Args:
        tensors: Names and shapes of all tensors other than the known ones with a vocabulary axis.
        rows: Rows of the embedding.
        config: The model's config.

    Raises:
        CheckpointError: There are such tensors. The message names them.
    """
    by_accident = _is_size(rows, {*config_numbers(config)})
    names = [
        f"`{name}` {list(shape)}"
        for name, shape in tensors
        if rows in shape and not (by_accident and not _TABLE.search(name))
    ]
    if names:
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        raise CheckpointError(
            f"{len(names):,} other tensors have an axis of {rows:,}, as long as the vocabulary: "
            f"{', '.join(names[:3])}{more}. They are not supported: they would no longer match the vocabulary",
            hint="pass a checkpoint without them, for example without its heads for multi-token prediction; "
            "otherwise please report the architecture, with the names and shapes of its tensors",
        )


def _is_size(rows: int, numbers: set[int]) -> bool:
    """Whether a number is one of these, or a product of two of them.

    >>> _is_size(96, {32}), _is_size(96, {12, 8}), _is_size(97, {32})
    (True, True, False)
    """
    return rows in numbers or any(
        number > 1 and rows % number == 0 and rows // number in numbers | _FACTORS for number in numbers
    )
