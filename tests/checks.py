"""What the tests of `check` share."""

from dataclasses import replace
from types import MappingProxyType

SETTINGS = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|start|>", "add_bos_token": True}
SETTINGS |= {"eos_token_id": [395, 396]}


def outcome(found, name):
    return next(finding for finding in found.findings if finding.name == name)


def template(content, token_id):
    """A post-processor that puts a token before a text."""
    special, sequence = {"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    tokens = {content: {"id": content, "ids": [token_id], "tokens": [content]}}
    ends = {"single": [special, sequence], "pair": [special, sequence, {"Sequence": {"id": "B", "type_id": 1}}]}
    return {"type": "TemplateProcessing", **ends, "special_tokens": tokens}


def with_files(tokenizer, **files):
    return replace(tokenizer, files=MappingProxyType({**tokenizer.files, **files}))


def with_merges(tokenizer, change):
    return tokenizer.with_tokens(tokenizer.ids, change(tokenizer.merge_strings()))
