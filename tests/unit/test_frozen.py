"""A frozen mapping reads like a dict, cannot be changed, and survives copying and pickling."""

import copy
import json
import pickle

import pytest

from tokengraft.representation import FrozenDict

CHANGES = {
    "set": lambda mapping: mapping.__setitem__("b", 2),
    "delete": lambda mapping: mapping.__delitem__("a"),
    "update": lambda mapping: mapping.update(b=2),
    "or": lambda mapping: mapping.__ior__({"b": 2}),
    "pop": lambda mapping: mapping.pop("a"),
    "popitem": lambda mapping: mapping.popitem(),
    "setdefault": lambda mapping: mapping.setdefault("b", 2),
    "clear": lambda mapping: mapping.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_refused(change):
    mapping = FrozenDict({"a": 1})
    with pytest.raises(TypeError, match="cannot be changed"):
        CHANGES[change](mapping)
    assert mapping == {"a": 1}


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_a_copy_is_equal_and_frozen_too(copied):
    again = copied(FrozenDict({"a": 1}))
    assert again == {"a": 1}
    assert type(again) is FrozenDict


def test_it_is_written_as_json_like_any_dict():
    assert json.dumps(FrozenDict({"a": 1})) == '{"a": 1}'
