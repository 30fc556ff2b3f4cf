"""Helpers that programs import beside the buffer."""

from __future__ import annotations

from . import envs, event, math, testing
from .event import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap", "envs", "event", "math", "testing"]
