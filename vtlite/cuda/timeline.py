"""Where the time of a step goes: an event after every launch, also inside a graph."""

from vtlite.cuda.driver import check, cu


class Timeline:
    """Events of the launches made in `device.timeline()`. In a captured graph they are nodes, which cost about a microsecond
    each and are recorded anew at every replay."""

    def __init__(self, stream):
        self._stream = stream
        self._events: list = []
        self._names: list[str] = []

    def start(self) -> None:
        """Time begins here; call it once, before the first launch."""
        self._record()

    def mark(self, name: str) -> None:
        """A launch of the kernel `name` was queued."""
        self._names.append(name)
        self._record()

    def read(self) -> list[tuple[str, float]]:
        """(kernel, microseconds since the launch before it) of every launch, once all of them are done."""
        check(cu.cuEventSynchronize(self._events[-1]), "running kernels")
        return [(name, check(cu.cuEventElapsedTime(before, after)) * 1e3)
                for name, before, after in zip(self._names, self._events, self._events[1:])]

    def _record(self) -> None:
        event = check(cu.cuEventCreate(0))
        self._events.append(event)
        capturing = check(cu.cuStreamIsCapturing(self._stream)) != cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        external = cu.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL if capturing else cu.CUevent_record_flags.CU_EVENT_RECORD_DEFAULT
        check(cu.cuEventRecordWithFlags(event, self._stream, int(external)))

    def __del__(self):
        for event in self._events:
            cu.cuEventDestroy(event)
