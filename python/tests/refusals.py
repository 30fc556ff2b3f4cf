"""How calls end that may be refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any


class Told(logging.Handler):
    """Records how calls end, by their names. After an error: its class and its text. Otherwise ``ignored`` with the line of the log about
    an argument, or ``used``."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self._lines: list[str] = []
        logger = logging.getLogger("warpverbs")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def of(self, name: str, does: Callable[[], Any]) -> None:
        """Makes the call."""
        self._lines.clear()
        try:
            does()
        except Exception as error:
            self.texts[name] = [type(error).__name__, str(error)]
        else:
            about = [line for line in self._lines if " is ignored" in line or " is unknown" in line]
            self.texts[name] = ["ignored" if about else "used", " ".join(about)]

    def as_json(self) -> str:
        return json.dumps(self.texts)
