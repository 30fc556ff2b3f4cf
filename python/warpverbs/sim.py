"""``python -m warpverbs.sim -- COMMAND``: runs COMMAND with software HCAs in place of real ones. It is ``wv sim``, with its options."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Programs, libraries and headers that the wheel carries.
PREFIX = Path(__file__).parent / "_prefix"


def main() -> None:
    """Takes the place of this process by ``wv sim``."""
    wv = PREFIX / "bin" / "wv"
    if not wv.is_file():
        sys.exit(f"warpverbs.sim: {wv} is missing; install the wheel of warpverbs that ./x wheel makes")
    os.execv(wv, [str(wv), "sim", *sys.argv[1:]])


if __name__ == "__main__":
    main()
