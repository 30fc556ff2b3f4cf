"""Events: what a stream has done so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["EventHandle", "EventOverlap"]


class EventHandle:
    """What torch's current stream has done until now. On the CPU, where calls have ended when they return, it is over at once."""

    def __init__(self) -> None:
        self._event: Any = None
        if torch.cuda.is_initialized():
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream())

    def current_stream_wait(self) -> None:
        """Makes torch's current stream wait for it."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)


class EventOverlap:
    """An event, or none, with the tensors that what it stands for uses. In a ``with`` block the current stream waits at its end."""

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple[Any, ...] | None = None) -> None:
        self.event = event
        #: Kept with this object until the event is released: `record_stream` cannot be captured, and a wait of one stream says nothing
        #: about another.
        self.extra_tensors = extra_tensors
        self.hook_after_wait: Callable[[], object] | None = None
        self._release_handle_by_call = False

    def current_stream_wait(self, release_handle: bool = False) -> None:
        """Makes torch's current stream wait for the event. With ``release_handle`` the event and its tensors are dropped then."""
        assert self.event is not None, "there is no event: the call was made without async_finish"
        self.event.current_stream_wait()
        hook, self.hook_after_wait = self.hook_after_wait, None
        if hook is not None:
            hook()
        if release_handle:
            self.event = self.extra_tensors = None

    def register_hook_after_wait(self, hook_after_wait: Callable[[], object]) -> None:
        """Calls ``hook_after_wait`` once, after :meth:`current_stream_wait`."""
        assert self.hook_after_wait is None, "a hook is registered already"
        self.hook_after_wait = hook_after_wait

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        """The same object, whose ``with`` block forgets the event at its end."""
        self._release_handle_by_call = release_handle
        return self

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: object) -> None:
        if self.event is not None:
            self.current_stream_wait(self._release_handle_by_call)
        self._release_handle_by_call = False
