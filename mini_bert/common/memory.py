"""Memory: how much we have, and how to keep it.

`keep_freed_memory`: what is freed is kept for the next array, instead of going back to the system and being asked for
again. NumPy makes a fresh array for every result. On Linux the C library hands large ones back to the system as soon
as they are freed, and each new one is then hundreds of pages that the system must find, clear and map on first touch.
32 sentences through a published BERT of six layers spend a fifth of their time on that: 218 ms of one core, 169
without.

Only glibc has this dial. Elsewhere nothing is changed, and nothing need be.
"""

from __future__ import annotations

import sys
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # of <malloc.h>: M_TRIM_THRESHOLD, …
KEPT = 512 << 20  # bytes that may lie free before some are given back
LARGEST = 32 << 20  # an array above this is mapped by itself; glibc allows no more


def keep_freed_memory() -> bool:
    """For the rest of the process -> whether this system has the dial; may be called again."""
    # Both: to set either ends glibc's own adjusting of the other.
    return _set(TRIM_THRESHOLD, KEPT) and _set(MMAP_THRESHOLD, LARGEST)


def share_memory_among_threads() -> bool:
    """Call before threads start -> whether this system has the dial.

    Otherwise every thread gets a store of freed memory of its own, and what one has freed the others cannot use.
    """
    return _set(ARENA_MAX, 1)


def memory_mb() -> float | None:
    """Memory of our own now (Linux: RssAnon, mapped files are the system's), elsewhere the most of all that there was.

    In MB; None where the system does not say (Windows).
    """
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return round(int(line.split()[1]) / 1000, 1)
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, elsewhere kilobytes
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


def _set(dial: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(dial, value))
