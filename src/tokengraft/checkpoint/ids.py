"""Reads a model's configs and rewrites every token id in them by a plan."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokengraft.errors import CheckpointError, option
from tokengraft.output.json_file import read_settings, require_plain
from tokengraft.tokenizer.added import SETTINGS, SPECIAL_MAP, loader_settings
from tokengraft.tokenizer.rewrite import ID_FIELD
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan

CONFIG = "config.json"
GENERATION = "generation_config.json"
CONFIGS = (
    CONFIG,
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
_OTHER_CODES = r"(codebook|codec|tts_codec|t2u|audio_stream)_"
"""How fields begin that name codes of sound, which are no tokens: of CSM, Higgs Audio, Qwen-Omni and SeamlessM4T."""
_ID_FIELD = re.compile(
    rf"^(?!{_OTHER_CODES})(?=.*({ID_FIELD.pattern}|^(begin_)?suppress_tokens$|^(bad|force|stop)_words_ids$"
    r"|^(bos|eos|eod|pad|unk|sep|cls|mask|newline)_id$|^(im|img|image|video|frame|audio|slice)_(\w+_)?id$))"
)
_NUMBER_OF_TOKEN = re.compile(r"(^|_)(?<!per_)token$")
"""Fields that hold the text of a token, or its id, as in GOT-OCR: an id if it is a number."""
_READ_ONLY = re.compile(r"^(pad|padding|bos|unk|unknown|image|video|audio)_token_(id|index)$")
"""Fields with ids that a model reads and that no one wants it to generate."""
TOKEN_MAP = "vocabulary_map"
"""The ids of tokens by their text, in configs of Chameleon and Emu3."""
_IMAGE_CODE = re.compile(r"^IMGIMG|^<\|visual token|^<\|extra_200\|>$|^<image>$")
"""Tokens in that map that these models use for images."""
_NAMED_IDS = frozenset(("lang_to_id", "task_to_id"))
"""The ids of languages and tasks by their names, in generation configs of Whisper."""
_PAIRS = {"forced_decoder_ids": 1, "sequence_bias": 0}
"""Pairs of a position in the output and an id, or of a list of ids and a number: where the ids are."""
_SIZE_FIELD = re.compile(r"(^|_)vocab_size(_per_layer_input)?$|^n_vocab$")
_OWN_VOCABULARY = re.compile(r"^(vision|audio)_")
"""Parts of a config whose `vocab_size` is not that of the language model. With it, their ids are their own too."""


def read_config(path: Path) -> Any:
    """The content of a model's config, as transformers reads it: see `parse_config`."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read `{path}`: {error.strerror}", hint="check its permissions") from error
    return parse_config(raw, str(path))


def parse_config(raw: bytes, name: str) -> Any:
    """The content of a config: `Infinity` and `NaN` are numbers, and of a key that is given twice the last counts."""
    try:
        document = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"`{name}` is not JSON: {error}", hint="download the model again") from error
    require_plain(document, name)
    return document


def model_configs(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of every config in a model folder that may name tokens, by file name; empty if there is no folder."""
    paths = [Path(folder) / name for name in CONFIGS]
    return {path.name: read_config(path) for path in paths if path.is_file()}


def config_tokens(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> list[str]:
    """The tokens that the configs of a model folder and the tokenizer's own settings name, by id or by string."""
    found = set[str]()
    settings = (read_settings(tokenizer.files, name) for name in (SETTINGS, SPECIAL_MAP))
    for config in (*model_configs(folder).values(), *settings):
        found.update(tokenizer.strings[i] for _, i in id_fields(config) if i in tokenizer.strings)
        found.update(string for string in _token_strings(config) if string in tokenizer.ids)
    return sorted(found)


def changed_roles(old: Tokenizer, new: Tokenizer) -> dict[str, int]:
    """The ids of tokens that only the settings of the new tokenizer give a role: `eos_token_id`, `pad_token_id`."""
    before, after = (loader_settings(tokenizer.files) for tokenizer in (old, new))
    texts = {role: (_text(before.get(role)), _text(after.get(role))) for role in ("eos_token", "pad_token")}
    return {f"{role}_id": new.ids[text] for role, (was, text) in texts.items() if text != was and text in new.ids}


def _text(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def with_roles(config: dict[str, Any], roles: Mapping[str, int], file: str) -> dict[str, Any]:
    """A config in which other tokens have a role. Other ids of a list, which end a text too, follow.

    >>> with_roles({"eos_token_id": [2, 7]}, {"eos_token_id": 5, "pad_token_id": 6}, "config.json")
    {'eos_token_id': [5, 2, 7], 'pad_token_id': 6}
    """

    def changed(part: dict[str, Any]) -> dict[str, Any]:
        inner = {key: changed(value) for key, value in part.items() if isinstance(value, dict)}
        found = {name: token_id for name, token_id in roles.items() if name in part}
        lists = {
            name: [i, *(j for j in part[name] if j != i)] for name, i in found.items() if isinstance(part[name], list)
        }
        return part | inner | found | lists

    new, text = changed(config), config.get("text_config")
    missing = roles.keys() - config.keys() - (text.keys() if isinstance(text, dict) else set())
    return new | ({name: roles[name] for name in sorted(missing)} if file in (CONFIG, GENERATION) else {})


def _token_strings(value: Any, key: str = "") -> Iterator[str]:
    """Strings under keys such as `eos_token` and `extra_special_tokens`, at any depth."""
    named = key.endswith(("_token", "_tokens"))
    if isinstance(value, str) and named:
        yield value
    elif isinstance(value, list | dict):
        for inner, item in value.items() if isinstance(value, dict) else ((key, item) for item in value):
            yield from _token_strings(item, key if named else str(inner))


def config_numbers(config: Mapping[str, Any]) -> Iterator[int]:
    """Every number of a config that may be a size of the model: not an id and not the size of the vocabulary."""
    for key, value in config.items():
        if isinstance(value, Mapping) and key != TOKEN_MAP:
            yield from config_numbers(value)
        elif type(value) is int and not is_id_or_size(str(key)):
            yield value


def is_id_or_size(name: str) -> bool:
    """Whether a field of this name holds an id, ids or the size of the vocabulary.

    >>> is_id_or_size("image_token_id"), is_id_or_size("vocab_size"), is_id_or_size("hidden_size")
    (True, True, False)
    >>> is_id_or_size("slice_start_id"), is_id_or_size("codebook_pad_token_id"), is_id_or_size("audio_stream_bos_id")
    (True, False, False)
    """
    return bool(_ID_FIELD.search(name) or _SIZE_FIELD.search(name))


def used_ids(config: Any) -> set[int]:
    """Every token id that a config names, except in lists of ids that must not be chosen.

    >>> used_ids({"eos_token_id": 2, "suppress_tokens": [7, 8]})
    {2}
    """
    return {token_id for field, token_id in id_fields(config) if field not in NEVER_CHOSEN}


def generated_ids(fields: Iterable[tuple[str, int]]) -> set[int]:
    """Of the ids that fields name, those that a model may have to generate, such as the end of a text.

    >>> generated_ids([("eos_token_id", 2), ("pad_token_id", 2), ("image_token_id", 3)])
    {2}
    """
    return {token_id for field, token_id in fields if not (field in NEVER_CHOSEN or _READ_ONLY.search(field))}


def suppressing(config: Mapping[str, Any], unused: Iterable[int]) -> dict[str, Any]:
    """A generation config whose list of suppressed ids also has those without a token.

    It then says more than the model's config, so transformers must not make it from that one again.

    >>> suppressing({"eos_token_id": 2, "suppress_tokens": [7]}, [3, 7])
    {'eos_token_id': 2, 'suppress_tokens': [7, 3]}
    """
    listed = [] if config.get(SUPPRESSED) is None else config[SUPPRESSED]
    if not isinstance(listed, list | tuple) or any(type(token_id) is not int for token_id in listed):
        raise CheckpointError(
            f"`{SUPPRESSED}` in a config is {listed!r:.80}; it must be a list of token ids",
            hint=f"correct `{SUPPRESSED}` in the source, or pass {option('hole_rows', 'keep')}",
        )
    more = sorted({*unused}.difference(listed))
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
    """A copy of a config with every id replaced by ``rename(field, id)``.

    The part of a speech or vision model may have ids of its own vocabulary.
    """
    if isinstance(value, dict):
        return {key: _map_field(str(key), item, rename) for key, item in value.items()}
    return [_map_ids(item, rename) for item in value] if isinstance(value, list) else value


def _map_field(key: str, value: Any, rename: Callable[[str, int], Any]) -> Any:
    if _ID_FIELD.search(key) or (type(value) is int and _NUMBER_OF_TOKEN.search(key)):
        return _map_numbers(key, value, rename)
    if _OWN_VOCABULARY.search(key) and isinstance(value, dict) and "vocab_size" in value:
        return value
    if key == TOKEN_MAP and isinstance(value, dict):
        # Removed tokens are left out, except those that the model needs for images.
        names = {token: f"{TOKEN_MAP}: {token}" if _IMAGE_CODE.search(token) else TOKEN_MAP for token in value}
        ids = {token: _map_numbers(names[token], token_id, rename) for token, token_id in value.items()}
        return {token: token_id for token, token_id in ids.items() if token_id is not None}
    if key in _NAMED_IDS and isinstance(value, dict):
        return {name: _map_numbers(key, token_id, rename) for name, token_id in value.items()}
    if key not in _PAIRS or not isinstance(value, list):
        return _map_ids(value, rename)
    at = _PAIRS[key]
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


@dataclass(frozen=True)
class Renumbering:
    """The change of ids by a plan, also of rows without a token, which a config may name."""

    plan: VocabPlan
    rows: tuple[int, int]
    """Rows of the embedding before and after, padding included."""

    @cached_property
    def moved(self) -> dict[int, int]:
        """The new id of every old row that is still there."""
        plan, moved = self.plan, dict(self.plan.moved)
        # Padding rows keep their position relative to the end of the tokens, if they still exist.
        shift = plan.rows_after - plan.rows_before
        moved |= {i: i + shift for i in range(plan.rows_before, self.rows[0]) if i + shift < self.rows[1]}
        # A hole keeps its id if it is still a hole.
        holes = {*range(plan.rows_before)}.difference(moved, plan.removed)
        return moved | {i: i for i in holes if i < plan.rows_after and plan.sources[i] is None}

    def new_id(self, token_id: int, field: str, file: str) -> int | None:
        """The new id of an old one that a field of a file holds. None if a list may do without."""
        if token_id in self.moved:
            return self.moved[token_id]
        if field == TOKEN_MAP or field.rsplit(".", 1)[-1] in NEVER_CHOSEN:
            return None
        if not 0 <= token_id < max(self.rows):
            return token_id  # not a row before or after, such as -1
        where = f"`{field}` in `{file}` is {token_id:,}"
        if token_id in self.plan.removed:
            raise CheckpointError(
                f"{where}, a token that the new tokenizer does not have",
                hint=f"protect that token when you prune: {option('protect')}",
            )
        raise CheckpointError(
            f"{where}, a row without a token, and the new vocabulary has no such row or gives it to a token",
            hint=f"correct `{field}` in the source, for example to null",
        )

    def config(self, config: Mapping[str, Any], file: str) -> dict[str, Any]:
        """A config with the ids and the size of the new vocabulary."""
        changed: dict[str, Any] = _map_ids(dict(config), lambda field, token_id: self.new_id(token_id, field, file))
        before, after = self.rows
        _resize(changed, before, after)
        parts = [part for part in (changed.get("text_config"), changed) if isinstance(part, dict)]
        for part in parts:
            if part.get("vocab_size") == self.plan.rows_before:
                part["vocab_size"] = after
        if file == CONFIG and before != after and not any("vocab_size" in part for part in parts):
            # Otherwise the default of the config class would be used, which is the old size.
            parts[0]["vocab_size"] = after
        return changed
