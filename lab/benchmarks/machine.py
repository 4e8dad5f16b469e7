"""What a benchmark ran on. A figure without its machine, versions and input means nothing."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("tokengraft", "tokenizers", "transformers", "numpy", "pyarrow", "sentencepiece", "rustbpe", "torch")


def setting() -> dict[str, object]:
    """The machine and the versions of everything that takes part."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "load": os.getloadavg()[0],
        "versions": {"Python": platform.python_version()} | {name: version_of(name) for name in PACKAGES},
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
