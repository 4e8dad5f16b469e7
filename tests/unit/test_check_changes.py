"""What `check --base` says of changes: every change is a failure or a note, and no result of an edit is a failure."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import builders
import pytest
from checkpoints import changed
from checks import byte_level_folder, outcome, sentencepiece_folder, tekken_folder, with_files, with_merges

import tokengraft as tg
from tokengraft import errors
from tokengraft.formats.convert import TARGETS
from tokengraft.tokenizer.edit import remove_tokens

pytestmark = pytest.mark.usefixtures("without_libraries")
TRUNCATION = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}


def made_from(base, folder):
    """Results of edits, each with a name: in memory, by files, and in another format."""
    counts = tg.count(base, iter(["põdrad põõsas õunad õues kass other mat"] * 5))
    pruned = tg.prune_order(base, counts)[:9].apply(base)
    yield "unchanged", base
    yield "pruned", pruned
    yield "compact", pruned.compact()
    for name, start in {"extended": base, "swapped": pruned, "smaller": pruned.compact()}.items():
        with suppress(errors.UnsupportedTokenizerError):  # a rank file cannot express every change
            yield name, tg.extend(start, counts, 12).apply(start)
    with suppress(errors.UnsupportedTokenizerError):
        start = tg.load(tg.save(pruned, folder / "pruned", verify=False))
        yield "swapped by files", tg.extend(start, counts, 12).apply(start)
    for to in TARGETS:
        with suppress(errors.UnsupportedTokenizerError):
            yield to, tg.convert(base, to)
            yield f"pruned, {to}", tg.convert(pruned, to)


@pytest.mark.parametrize("kind", [*builders.TINY, "all files", "`.model`", "`tekken.json`"])
def test_no_result_of_an_edit_fails_or_has_an_unexplained_change(kind, tmp_path):
    if kind in builders.TINY:
        folder = builders.write(tmp_path / "base", builders.TINY[kind]())
    else:
        folder = FOLDERS[kind](tmp_path / "base")
    base = tg.load(folder)
    for name, result in made_from(base, tmp_path):
        found = tg.check(result, base)
        assert found.passed, (name, found.failures)
        if not any(to in name for to in TARGETS):
            assert outcome(found, "other changes").outcome == "pass", (name, found)


def swapped_tokens(folder):
    """A tokenizer that lost five tokens, learned two of them again and four new ones."""
    pruned = remove_tokens(tg.load(folder), ["Ġother", "Ġcat", "Ġsat", "Ġteine", "Ġand"])
    return tg.extend(pruned, tg.count(pruned, iter(["õun sat õue cat õue õun"] * 9)), 6).apply(pruned)


def test_moved_merges_are_not_excused_beyond_what_was_removed_and_learned(tmp_path):
    base = tg.load(byte_level_folder(tmp_path / "base"))
    swapped = swapped_tokens(tmp_path / "base")
    found = outcome(tg.check(swapped, base), "merges")
    assert found.outcome == "note"
    assert len(found.evidence) == 2
    parts = {part for pair in swapped.merge_strings() for part in pair}
    leaves = [pair for pair in base.merge_strings() if "".join(pair) in swapped.ids.keys() - parts][:9]
    moved = with_merges(swapped, lambda merges: [*(pair for pair in merges if pair not in leaves), *reversed(leaves)])
    found = outcome(tg.check(moved, base), "merges")
    assert found.outcome == "fail"
    assert all("is out of order" in each for each in found.evidence)


def test_a_base_without_settings_says_only_what_their_defaults_are(tmp_path):
    folder = byte_level_folder(tmp_path / "base")
    bare, complete = tg.load(folder / "tokenizer.json"), tg.load(folder)
    for one, other in ((bare, complete), (complete, bare)):
        found = tg.check(one, other)
        assert found.passed, found.failures
        assert outcome(found, "other changes").outcome == "note"
    setting("add_prefix_space", value=True)(folder)
    assert outcome(tg.check(tg.load(folder), bare), "settings").outcome == "fail"


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "ci.md"


def in_json(name, change):
    """A change of a JSON file of a folder, by a function that changes its content in place."""

    def changed(folder):
        content = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else {}
        change(content)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")

    return changed


def in_model(change):
    """A change of the SentencePiece model of a folder, by a function that changes its message in place."""

    def changed(folder):
        pb = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
        model = pb.ModelProto.FromString((folder / "tokenizer.model").read_bytes())
        change(model)
        (folder / "tokenizer.model").write_bytes(model.SerializeToString())

    return changed


def setting(name, value):
    return in_json("tokenizer_config.json", lambda content: content.update({name: value}))


def special(name, value):
    return in_json("special_tokens_map.json", lambda content: content.update({name: value}))


def document(change):
    return in_json("tokenizer.json", change)


def listed_as_added(name):
    def change(content):
        content["added_tokens"].append(builders.added(content["model"]["vocab"][name], name, special=False))

    return document(change)


def piece(string, **fields):
    def change(model):
        for each in model.pieces:
            if each.piece == string:
                for name, value in fields.items():
                    setattr(each, name, value)

    return in_model(change)


def without(name):
    return lambda folder: (folder / name).unlink()


def written(name, text):
    return lambda folder: (folder / name).write_text(text)


def swapped_merges(content):
    content["model"]["merges"][3:5] = reversed(content["model"]["merges"][3:5])


def swapped_ids(content):
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def renumbered(folder):
    compacted = remove_tokens(tg.load(folder), ["Ġother"]).compact()
    tg.save(compacted, folder, force=True, verify=False)


def learned_again(folder):
    tg.save(swapped_tokens(folder), folder, force=True, verify=False)


def given_token(**roles):
    def change(folder):
        tg.save(tg.add_special(tg.load(folder), ["<new>"], **roles), folder, force=True, verify=False)

    return change


def merge_that_never_applies(folder):
    """Lists `Ġth` and `e`, which never stand side by side: `Ġthe` is made of `Ġ` and `the`."""
    document(lambda content: content["model"]["merges"].append(["Ġth", "e"]))(folder)
    with (folder / "merges.txt").open("a", encoding="utf-8") as lines:
        lines.write("Ġth e\n")


def trimmed_offsets(content):
    content["pre_tokenizer"]["trim_offsets"] = False


def template_in_settings(folder):
    setting("chat_template", (folder / "chat_template.jinja").read_text())(folder)
    (folder / "chat_template.jinja").unlink()


def tekken_config(**changed):
    return in_json("tekken.json", lambda content: content["config"].update(changed))


FOLDERS = {"all files": byte_level_folder, "`.model`": sentencepiece_folder, "`tekken.json`": tekken_folder}
TABLE = {
    "the id of a kept token": [document(swapped_ids)],
    "a merge of kept tokens that is missing or moved": [
        document(swapped_merges),
        document(lambda content: content["model"]["merges"].pop(3)),
    ],
    "a merge that makes a token which no merge made before, where no token was learned": [
        document(lambda content: content["model"]["merges"].append(["q", "z"])),
    ],
    "an added token that is gone, is new in some files only, or has other flags; a learned token listed as an added "
    "one": [
        in_json("tokenizer_config.json", lambda content: content["added_tokens_decoder"]["396"].update(lstrip=True)),
        listed_as_added("the"),
        document(lambda content: content["added_tokens"].append(builders.added(398, "<|new|>"))),
    ],
    "normalizer, pre-tokenizer, post-processor, decoder, truncation, padding, or a setting of the model": [
        document(lambda content: content.update(normalizer={"type": "NFC"})),
        document(lambda content: content["pre_tokenizer"].update(add_prefix_space=True)),
        document(lambda content: content.update(post_processor=None)),
        document(lambda content: content.update(decoder=None)),
        document(lambda content: content.update(truncation=TRUNCATION)),
        document(lambda content: content["model"].update(ignore_merges=True)),
    ],
    "the tokens that settings name, such as `eos_token`, in `tokenizer_config.json` or `special_tokens_map.json`": [
        setting("eos_token", "<|start|>"),
        setting("pad_token", "<|start|>"),
        setting("pad_token_id", 7),
        special("eos_token", "<|start|>"),
        special("pad_token", "<|start|>"),
    ],
    "switches such as `add_bos_token`, `add_prefix_space`, `clean_up_tokenization_spaces`, `split_special_tokens`": [
        setting("add_bos_token", value=False),
        setting("add_prefix_space", value=True),
        setting("clean_up_tokenization_spaces", value=True),
        setting("split_special_tokens", value=True),
        setting("add_eos_token", value=True),
    ],
    "`tokenizer_class`, `auto_map`, or the code that it names": [
        setting("tokenizer_class", "GPT2Tokenizer"),
        setting("auto_map", {"AutoTokenizer": ["tokenization_y.Y", None]}),
        written("tokenization_x.py", "class X: changed = True\n"),
    ],
    "a chat template, also a new one": [
        written("chat_template.jinja", "other"),
        without("chat_template.jinja"),
        lambda folder: (
            (folder / "additional_chat_templates").mkdir(),
            (folder / "additional_chat_templates" / "tool_use.jinja").write_text("new"),
        ),
    ],
    "`.model`: the type of a piece, the character map, the denormalizer, and fields such as `bos_piece`": [
        piece("<s>", type=builders.NORMAL),
        piece("<s>", type=builders.USER_DEFINED),
        in_model(lambda model: setattr(model.normalizer_spec, "precompiled_charsmap", b"rules")),
        in_model(lambda model: setattr(model.denormalizer_spec, "precompiled_charsmap", b"rules")),
        in_model(lambda model: setattr(model.normalizer_spec, "add_dummy_prefix", False)),
        in_model(lambda model: setattr(model.trainer_spec, "byte_fallback", False)),
        in_model(lambda model: setattr(model.trainer_spec, "bos_piece", "the")),
        in_model(lambda model: setattr(model.trainer_spec, "unk_surface", "?")),
        in_model(lambda model: setattr(model.trainer_spec, "bos_id", 5)),
    ],
    "`tekken.json`: the pattern, the version, a special token": [
        tekken_config(pattern="[^q]+|q"),
        tekken_config(version="v3"),
        in_json("tekken.json", lambda content: content["special_tokens"][1].update(is_control=False)),
        in_json("tekken.json", lambda content: content["special_tokens"][1].update(token_str="<end>")),
    ],
    "a new added token that all files list, also as `eos_token` or `pad_token`; a reserved token that was removed or "
    "renamed": [given_token(), given_token(eos="<new>", pad="<new>")],
    "ids that were renumbered in order, without holes": [renumbered],
    "tokens that were removed and learned again": [learned_again],
    "merges that never apply: more, fewer, or in other places": [merge_that_never_applies],
    "any other setting, such as `model_max_length` or `padding_side`": [
        setting("model_max_length", 99),
        setting("padding_side", "left"),
        setting("unheard_of", value=True),
        special("unheard_of", "x"),
    ],
    "`.model`: scores that leave the order of merges as it was, and other fields": [
        piece("a", score=-500.0),
        in_model(lambda model: setattr(model.trainer_spec, "vocab_size", 99)),
        in_model(lambda model: setattr(model.normalizer_spec, "name", "other")),
    ],
    "a file that is new or gone, such as a `.model`": [
        without("special_tokens_map.json"),
        without("vocab.json"),
        written("vocab.txt", "a\n"),
        written("tokenization_y.py", "pass\n"),
    ],
    "the same in another form, such as a chat template in a file of its own, or `trim_offsets`": [
        template_in_settings,
        document(trimmed_offsets),
        in_json("tokenizer_config.json", lambda content: content.pop("add_bos_token")),
        setting("tokenizer_class", "TokenizersBackend"),
    ],
}
CASES = [(row, n, change) for row, changes in TABLE.items() for n, change in enumerate(changes)]


def documented_outcomes():
    rows = (line.strip("| ").split(" | ") for line in GUIDE.read_text(encoding="utf-8").splitlines() if line[:1] == "|")
    return {row[0]: row[1] for row in rows if row[1:] in (["failure"], ["note"])}


def test_every_row_of_the_table_in_the_guide_is_tried():
    assert documented_outcomes().keys() == TABLE.keys()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind."""
    return {kind: make(tmp_path_factory.mktemp("made") / "base") for kind, make in FOLDERS.items()}


@pytest.mark.parametrize(("row", "change"), [pytest.param(r, c, id=f"{r[:40]} {n}") for r, n, c in CASES])
def test_a_change_is_found_as_the_guide_says(row, change, folders, tmp_path):
    made = folders.get(row.split(":")[0], folders["all files"])
    base = tg.load(made)
    shutil.copytree(made, tmp_path / "changed")
    change(tmp_path / "changed")
    before, found = tg.check(base, base), tg.check(tg.load(tmp_path / "changed"), base)
    assert before.passed
    new = [finding for finding in found.findings if finding not in before.findings]
    if documented_outcomes()[row] == "failure":
        assert any(finding.outcome == "fail" and finding.evidence for finding in new)
    else:
        assert found.passed, found.failures
        assert any(finding.outcome == "note" and finding.evidence for finding in new)


def test_a_piece_model_that_is_gone_is_a_note_by_name(folders, tmp_path):
    shutil.copytree(folders["`.model`"], tmp_path / "changed")
    (tmp_path / "changed" / "tokenizer.model").unlink()
    found = tg.check(tg.load(tmp_path / "changed"), tg.load(folders["`.model`"]))
    notes = [finding for finding in found.findings if finding.outcome == "note"]
    assert any("tokenizer.model" in line for finding in notes for line in finding.evidence)


def mutated(value):
    """Another value of the same type, or of another one."""
    if isinstance(value, bool) or value is None:
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value} " if isinstance(value, str) else None


def mutations(content, path=()):
    """Every change of one value in JSON content: where it is, and the changed content."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        nested = isinstance(value, dict | list) and value
        for place, inner in mutations(value, (*path, key)) if nested else [((*path, key), mutated(value))]:
            if isinstance(content, dict):
                yield place, content | {key: inner}
            else:
                yield place, [*content[:key], inner, *content[key + 1 :]]
        if isinstance(content, dict):
            yield (*path, key, "gone"), {name: each for name, each in content.items() if name != key}


def some_mutations(folder, name):
    """All mutations of settings, and some of the tokens and merges."""
    for n, (place, content) in enumerate(mutations(json.loads((folder / name).read_bytes()))):
        tokens = name == "vocab.json" or {"vocab", "merges"} & {*place}
        if not tokens or n % 97 == 0:
            yield place, content


@pytest.mark.parametrize("kind", ["all files", "`tekken.json`"])
def test_every_change_of_a_value_after_an_edit_is_refused_a_failure_or_a_note(kind, folders, tmp_path):
    base = tg.load(folders[kind])
    edited = changed(base, add=3)
    folder = tg.save(edited, tmp_path / "edited", verify=False)
    before = tg.check(tg.load(folder), base)
    assert {finding.outcome for finding in before.findings} == {"pass"}
    unsaid = []
    for path in sorted(folder.glob("*.json")):
        raw = path.read_bytes()
        for place, content in some_mutations(folder, path.name):
            path.write_text(json.dumps(content), encoding="utf-8")
            with suppress(errors.TokengraftError):
                unsaid += [(path.name, *place)] if tg.check(tg.load(folder), base) == before else []
        path.write_bytes(raw)
    assert not unsaid


def test_every_change_of_a_field_of_a_piece_model_is_refused_a_failure_or_a_note(folders):
    pb = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    base = tg.load(folders["`.model`"])
    before = tg.check(base, base)
    unsaid = []
    for spec in ("trainer_spec", "normalizer_spec", "denormalizer_spec"):
        for field in getattr(pb.ModelProto(), spec).DESCRIPTOR.fields:
            model = pb.ModelProto.FromString(base.files["tokenizer.model"])
            message = getattr(model, spec)
            value = getattr(message, field.name)
            if not isinstance(value, str | bytes | int | float):
                value.append("x")
            elif field.name == "model_type":
                message.model_type = 1
            else:
                setattr(message, field.name, b"x" if isinstance(value, bytes) else mutated(value))
            changed = with_files(base, **{"tokenizer.model": model.SerializeToString()})
            with suppress(errors.TokengraftError):
                unsaid += [field.name] if tg.check(changed, base) == before else []
    assert not unsaid
