"""Programs of others that tests start."""

from __future__ import annotations

import shutil
from pathlib import Path


def etcd() -> str | None:
    """The server, unpacked by ``./x test`` or installed."""
    unpacked = Path(__file__).resolve().parents[2] / ".tools/etcd/usr/bin/etcd"
    return str(unpacked) if unpacked.exists() else shutil.which("etcd")
