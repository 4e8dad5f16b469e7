"""What a benchmark ran on: printed first by each of them, for a figure without its machine means nothing."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def print_setting(*packages: str) -> None:
    """Prints machine and versions."""
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    print(f"machine   {os.cpu_count()} cores, {model}, {platform.system()} {platform.machine()}")
    print(f"versions  Python {platform.python_version()}, " + ", ".join(f"{p} {version(p)}" for p in packages))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
