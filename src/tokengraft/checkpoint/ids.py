"""Reads a model's configs and rewrites every token id in them by a plan."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokengraft.errors import CheckpointError
from tokengraft.output.json_file import require_plain
from tokengraft.plan import VocabPlan
from tokengraft.tokenizer.rewrite import ID_FIELD

MAIN = "config.json"
GENERATION = "generation_config.json"
CONFIGS = (
    MAIN,
    GENERATION,
    "genai_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "params.json",
)
"""Files with ids and the size of the vocabulary: of transformers, of ONNX Runtime GenAI, and Mistral's own."""
SUPPRESSED = "suppress_tokens"
"""Ids that `generate` of transformers never chooses: in `generation_config.json`, and the last part of a GGUF key."""
NEVER_CHOSEN = frozenset((SUPPRESSED, "begin_suppress_tokens"))
"""Lists of ids that are not chosen, always or as the first. An id in them needs no token."""
GENERATION_FIELDS = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids", "bad_words_ids", "force_words_ids"),
    *(SUPPRESSED, "begin_suppress_tokens", "sequence_bias"),
    *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "early_stopping", "max_time"),
    *("do_sample", "num_beams", "num_return_sequences", "num_beam_groups", "diversity_penalty", "penalty_alpha"),
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "use_cache"),
    *("repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
    *("encoder_repetition_penalty", "exponential_decay_length_penalty", "remove_invalid_values"),
    *("renormalize_logits", "guidance_scale"),
)
"""Fields of a generation config that transformers takes from the model's config if there is no generation config."""
FROM_MODEL = "_from_model_config"
"""Field of a generation config that lets transformers before 5 replace it by one made from the model's config."""
_ID_FIELD = re.compile(
    rf"{ID_FIELD.pattern}|^(begin_)?suppress_tokens$|^(bad|force)_words_ids$"
    r"|^(bos|eos|eod|pad|unk|sep|cls|mask)_id$|^(im|img|image|video|frame|audio)_(\w+_)?id$"
)
_PLACED = "forced_decoder_ids"
"""Pairs of a position in the output and an id."""
_BIASED = "sequence_bias"
"""Pairs of a list of ids and a number."""
_SIZE_FIELD = re.compile(r"(^|_)vocab_size(_per_layer_input)?$|^n_vocab$")
_NO_SETTINGS = frozenset(
    (*GENERATION_FIELDS, FROM_MODEL, "_name_or_path", "transformers_version", "dtype", "torch_dtype")
)
"""Fields of a config that do not decide what a model computes from its weights."""
_OWN_VOCABULARY = re.compile(r"^(vision|audio)_")
"""Parts of a config whose `vocab_size` is not that of the language model."""


def model_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what a transplant or a library that saves it may change: ids, sizes, generation, versions.

    >>> model_settings({"vocab_size": 3, "eos_token_id": 2, "rope_theta": 1e4, "text_config": {"vocab_size": 3}})
    {'rope_theta': 10000.0, 'text_config': {}}
    """
    return {
        name: model_settings(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if not (_ID_FIELD.search(name) or _SIZE_FIELD.search(name) or name in _NO_SETTINGS)
    }


def read_config(path: Path) -> Any:
    """The content of a model's config, as transformers reads it.

    Raises:
        CheckpointError: The file cannot be read, or is not JSON.
        UnreadableFileError: It is nested too deep, or has half of a surrogate pair.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read `{path}`: {error.strerror}", hint="check its permissions") from error
    return parse_config(raw, str(path))


def parse_config(raw: bytes, name: str) -> Any:
    """The content of a config: `Infinity` and `NaN` are numbers, and of a key that is given twice the last counts.

    Raises:
        CheckpointError: It is not JSON.
        UnreadableFileError: It is nested too deep, or has half of a surrogate pair.
    """
    try:
        document = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"`{name}` is not JSON: {error}", hint="download the model again") from error
    require_plain(document, name)
    return document


def config_numbers(config: Mapping[str, Any]) -> Iterator[int]:
    """Every number of a config that may be a size of the model: not an id and not the size of the vocabulary."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from config_numbers(value)
        elif type(value) is int and not _ID_FIELD.search(str(key)) and not _SIZE_FIELD.search(str(key)):
            yield value


def renumber_config(config: Mapping[str, Any], plan: VocabPlan, rows: tuple[int, int], name: str) -> dict[str, Any]:
    """A config with the ids and the size of the new vocabulary.

    Args:
        config: The content of the file; it is not changed.
        plan: The plan from the old to the new vocabulary.
        rows: Rows of the embedding before and after.
        name: The name of the file, for messages.

    Raises:
        CheckpointError: It names a removed token, or an id without a token that now belongs to a new one; or an id in
            it is not a whole number.
    """
    changed: dict[str, Any] = _map_ids(dict(config), Renumbering(plan, rows, name))
    _resize(changed, *rows)
    nested = changed.get("text_config")
    parts = [part for part in (nested, changed) if isinstance(part, dict)]
    for part in parts:
        if part.get("vocab_size") == plan.rows_before:
            part["vocab_size"] = rows[1]
    if name == MAIN and rows[0] != rows[1] and not any("vocab_size" in part for part in parts):
        # Otherwise the default of the config class would be used, which is the old size.
        parts[0]["vocab_size"] = rows[1]
    return changed


def named_ids(config: Any) -> set[int]:
    """Every token id that a config names, in the fields that `renumber_config` rewrites.

    >>> named_ids({"eos_token_id": [2, 3], "text_config": {"pad_token_id": 0}, "hidden_size": 16})
    {0, 2, 3}
    """
    return {token_id for _, token_id in id_fields(config)}


def used_ids(config: Any) -> set[int]:
    """Every token id that a config names, except in lists of ids that must not be chosen.

    >>> used_ids({"eos_token_id": 2, "suppress_tokens": [7, 8]})
    {2}
    """
    return {token_id for field, token_id in id_fields(config) if field not in NEVER_CHOSEN}


def suppressing(config: Mapping[str, Any], unused: Iterable[int]) -> dict[str, Any]:
    """A generation config whose list of suppressed ids also has those without a token.

    It then says more than the model's config, so transformers must not make it from that one again.

    >>> suppressing({"eos_token_id": 2, "suppress_tokens": [7]}, [3, 7])
    {'eos_token_id': 2, 'suppress_tokens': [7, 3]}

    Raises:
        CheckpointError: Its own list is not a list of ids.
    """
    listed = [] if config.get(SUPPRESSED) is None else config[SUPPRESSED]
    if not isinstance(listed, list | tuple) or any(type(token_id) is not int for token_id in listed):
        raise CheckpointError(
            f"`{SUPPRESSED}` in a config is {listed!r:.80}; it must be a list of token ids",
            hint=f"correct `{SUPPRESSED}` in the source, or pass --hole-rows keep",
        )
    more = [token_id for token_id in sorted(unused) if token_id not in {*listed}]
    if not more:
        return dict(config)
    return {name: value for name, value in config.items() if name != FROM_MODEL} | {SUPPRESSED: [*listed, *more]}


def id_fields(config: Any) -> list[tuple[str, int]]:
    """Every token id that a config names, with its field.

    >>> id_fields({"eos_token_id": [2, 3], "text_config": {"pad_token_id": 0}, "hidden_size": 16})
    [('eos_token_id', 2), ('eos_token_id', 3), ('pad_token_id', 0)]
    """
    fields: list[tuple[str, int]] = []
    _map_ids(config, lambda field, token_id: fields.append((field, token_id)))
    return fields


def _map_ids(value: Any, rename: Callable[[str, int], Any]) -> Any:
    """A copy of a config with every id replaced by ``rename(field, id)``."""
    if isinstance(value, dict):
        return {key: _map_field(str(key), item, rename) for key, item in value.items()}
    return [_map_ids(item, rename) for item in value] if isinstance(value, list) else value


def _map_field(key: str, value: Any, rename: Callable[[str, int], Any]) -> Any:
    if _ID_FIELD.search(key):
        return _map_numbers(key, value, rename)
    if key not in (_PLACED, _BIASED) or not isinstance(value, list):
        return _map_ids(value, rename)
    at = 1 if key == _PLACED else 0
    return [
        [*pair[:at], _map_numbers(key, pair[at], rename), *pair[at + 1 :]]
        if isinstance(pair, list) and len(pair) > at
        else pair
        for pair in value
    ]


def _map_numbers(key: str, value: Any, rename: Callable[[str, int], Any]) -> Any:
    if isinstance(value, list):
        items = [_map_numbers(key, item, rename) for item in value]
        if key not in NEVER_CHOSEN:
            return items
        return [item for item in items if item is not None] or (None if items else items)
    if isinstance(value, float) or (isinstance(value, str) and value.isdecimal()):
        raise CheckpointError(
            f"`{key}` in a config is {value!r}; a token id is a whole number", hint=f"correct `{key}` in the source"
        )
    return rename(key, value) if type(value) is int else value


def _resize(config: dict[str, Any], before: int, after: int) -> None:
    """Replaces the size of the vocabulary everywhere except in parts with their own vocabulary."""
    for key, value in config.items():
        if isinstance(value, dict) and not _OWN_VOCABULARY.search(str(key)):
            _resize(value, before, after)
        elif _SIZE_FIELD.search(str(key)) and value == before:
            config[key] = after


class Renumbering:
    """The new id of every old row that a config may name."""

    def __init__(self, plan: VocabPlan, rows: tuple[int, int], name: str) -> None:
        self.plan, self.rows, self.name = plan, rows, name
        self.moved = dict(plan.moved)
        # Padding rows keep their position relative to the end of the tokens, if they still exist.
        shift = plan.rows_after - plan.rows_before
        self.moved |= {i: i + shift for i in range(plan.rows_before, rows[0]) if i + shift < rows[1]}
        # A hole keeps its id if it is still a hole.
        holes = {*range(plan.rows_before)}.difference(self.moved, plan.removed)
        self.moved |= {i: i for i in holes if i < plan.rows_after and plan.sources[i] is None}

    def __call__(self, key: str, token_id: int) -> int | None:
        """The new id of an old one, which the field ``key`` holds. None in a list of suppressed ids if it has none."""
        if token_id in self.moved:
            return self.moved[token_id]
        if key.rsplit(".", 1)[-1] in NEVER_CHOSEN:
            return None
        if 0 <= token_id < max(self.rows):
            raise self._refusal(key, token_id)
        return token_id  # not a row before or after, such as -1

    def _refusal(self, key: str, token_id: int) -> CheckpointError:
        where = f"`{key}` in `{self.name}` is {token_id:,}"
        if token_id in self.plan.removed:
            return CheckpointError(
                f"{where}, a token that the new tokenizer does not have",
                hint="protect that token when you prune: --protect",
            )
        return CheckpointError(
            f"{where}, a row without a token, and the new vocabulary has no such row or gives it to a token",
            hint=f"correct `{key}` in the source, for example to null",
        )
