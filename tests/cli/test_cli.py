"""The command line as people and programs see it."""

import functools
import json
import os
import pty
import signal
import subprocess
import sys

import builders
import pytest

from tokengraft import cli


def run(*arguments, **options):
    command = [sys.executable, "-m", "tokengraft", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_inspect_prints_a_line_a_finding(tmp_path, tokengraft):
    folder = builders.write(tmp_path, builders.byte_level(ignore_merges=True))
    lines = dict(line.split(maxsplit=1) for line in tokengraft("inspect", folder).out.splitlines())
    assert lines["kind"] == "byte-level BPE"
    assert lines["flags"] == "ignore_merges on, byte_fallback off"
    assert lines["unreachable"] == "0: merges can produce every learned token"


def test_inspect_json_is_data(tmp_path, tokengraft):
    found = tokengraft("inspect", builders.write(tmp_path, builders.sentencepiece()), "--json").json
    assert found["kind"] == "sentencepiece"
    assert found["id_layout"][0] == {"first": 0, "last": 2, "use": "added"}


def test_warnings_are_shown(tmp_path, tokengraft):
    ignored, incomplete = builders.byte_level(), builders.specials_first()
    ignored["added_tokens"][0]["id"] = 7777
    del incomplete["model"]["vocab"]["ñ"]
    shown = tokengraft("inspect", builders.write(tmp_path / "ignored", ignored)).out
    assert "1 added tokens do not have the id that added_tokens lists" in shown
    shown = tokengraft("inspect", builders.write(tmp_path / "incomplete", incomplete)).out
    assert "1 of the 256 bytes have no token" in shown


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b"[" * 5000, b'{"model": {"type": "Unigram"}}'])
def test_a_bad_file_ends_in_an_error_a_hint_and_status_2(tmp_path, raw):
    (tmp_path / "tokenizer.json").write_bytes(raw)
    done = run("inspect", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help(tokengraft):
    assert "tokengraft 0." in tokengraft("--version").out
    assert "inspect" in tokengraft("--help").out
    assert "SOURCE" in tokengraft("inspect", "--help").out


def test_a_closed_pipe_is_no_traceback(tmp_path):
    folder = builders.write(tmp_path, builders.byte_level())
    command = f"{sys.executable} -m tokengraft inspect {folder} --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{", "")


def test_a_terminal_without_unicode_still_gets_an_answer(tmp_path):
    folder = builders.write(tmp_path, builders.sentencepiece())
    done = run("inspect", folder, env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr


def test_a_terminal_gets_a_table_in_colour(tmp_path):
    folder = builders.write(tmp_path, builders.byte_level())
    near, far = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "tokengraft", "inspect", str(folder)]
    with subprocess.Popen(command, stdout=far, env=environment) as process:
        os.close(far)
        shown = b""
        while chunk := _read(near):
            shown += chunk
    assert process.returncode == 0
    assert b"\x1b[1;36mkind" in shown


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux reports the other end's close as an error
        return b""


def shell(arguments, redirection):
    command = f"{sys.executable} -m tokengraft {arguments} {redirection}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["--help", "inspect {folder}", "inspect {folder} --json"])
@pytest.mark.parametrize(("redirection", "said"), [("> /dev/full", "No space left"), (">&-", "stdout is closed")])
def test_results_that_cannot_be_printed_are_an_error(tmp_path, monkeypatch, arguments, redirection, said, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    folder = builders.write(tmp_path, builders.byte_level())
    done = shell(arguments.format(folder=folder), redirection)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
def test_messages_that_cannot_be_printed_stop_nothing_and_stay_out_of_the_results(tmp_path, redirection):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    (tmp_path / "x.txt").write_text("the cat")
    done = shell(f"count {folder} {tmp_path / 'x.txt'} --out {tmp_path / 'c.parquet'} --json", redirection)
    assert done.returncode == 0
    assert json.loads(done.stdout)["documents"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_nothing_unfinished_behind(tmp_path, number):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    (tmp_path / "spill").mkdir()
    command = [sys.executable, "-m", "tokengraft", "count", folder, "-", "--out", tmp_path / "out" / "c.parquet"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "spill")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A signal that this process ignores, as under nohup, would be ignored there too.
    listen = functools.partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen(command, env=environment, preexec_fn=listen, **pipes) as process:
        process.stdin.write(b"the cat sat\n" * 500_000)  # more than a pipe holds: when it is through, counting goes on
        process.stdin.flush()
        assert list((tmp_path / "spill").iterdir())
        process.send_signal(number)
        shown = b"".join(process.communicate())  # closes stdin: Python sees signals between reads that end
    assert process.returncode == 128 + number
    assert b"Traceback" not in shown
    assert list((tmp_path / "spill").iterdir()) == []
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_handlers_of_signals_are_put_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    cli.main(["inspect", str(builders.write(tmp_path, builders.byte_level()))])
    assert signal.getsignal(signal.SIGTERM) == before


def test_commands_import_no_slow_library_that_they_do_not_use(tmp_path):
    folder, text = builders.write(tmp_path, builders.byte_level()), tmp_path / "text.txt"
    text.write_text("the cat sat\n" * 50)
    learn = ["extend", folder, "--corpus", text, "--add", "2", "--min-count", "2", "--out", tmp_path / "new"]
    slow = {"torch", "transformers", "pyarrow", "numpy", "rich", "importlib.metadata", "tokengraft.counts"}
    for arguments, used in ((["inspect", folder], set()), (learn, {"numpy", "tokengraft.counts"})):
        code = f"import sys; from tokengraft import cli; cli.main({[*map(str, arguments)]!r}); print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert slow & {*done.stdout.splitlines()[-1].split()} == used
