"""The models that are served, by name, and their replacement while serving.

Once a second, the files of each model folder are looked at. If they have changed, and then stayed as they are for
another second, the new model is loaded beside the old one, which goes on serving meanwhile, and takes its place. If it
cannot be loaded, the old one stays, and /health says what is wrong with the new one. Each model has its own queue; that
of the old one is closed when no request can be waiting for it any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from mini_bert.files.model_folder import locate
from mini_bert.serving.batching import Batcher
from mini_bert.serving.failures import Failure
from mini_bert.serving.served import Served

EVERY = 1.0  # seconds between looks
logger = logging.getLogger(__name__)
Stamp = tuple[tuple[str, int, int, int], ...]


class Entry:
    """A model that is served: where it comes from, its queue, and what is wrong with its replacement, if anything is"""

    def __init__(self, source: str, served: Served, batcher: Batcher, stamp: Stamp):
        self.source, self.served, self.batcher = source, served, batcher
        self.stamp = self.seen = stamp  # of the files that were loaded, or could not be; of the last look
        self.replacement: str | None = None  # what is wrong with it, for clients: without paths

    async def problem(self, limit: float) -> str | None:
        """What is wrong with the model that serves. After an error, one row shows whether it works again."""
        waited = self.batcher.oldest()
        if waited > limit:
            return f"an input has been waiting for {waited:.0f} seconds"
        if self.batcher.failed is None:
            return None
        try:
            rows = self.served.trial()
            async with asyncio.timeout(limit):
                await self.batcher.run(self.served.vectors, rows, self.served.lengths(rows))
        except TimeoutError:
            return f"it cannot compute a single token within {limit:g} seconds"
        except Exception as error:
            return f"it cannot compute: {error}"
        return None


class Shelf:
    """load(name, source) and queue(name) make a model and its queue; on_reload(name, result): after a replacement"""

    def __init__(
        self,
        sources: dict[str, str],
        load: Callable[[str, str], Served],
        queue: Callable[[str], Batcher],
        on_reload: Callable[[str, str], None] = lambda name, result: None,
        linger: float = 60.0,
    ):
        self.load, self.queue, self.on_reload, self.linger = load, queue, on_reload, linger
        self.entries: dict[str, Entry] = {}
        for name, source in sources.items():
            stamp = stamp_of(source)
            self.entries[name] = Entry(source, load(name, source), queue(name), stamp)

    def find(self, name: object) -> Entry:
        """The model that a request names, or the first if it names none. If there is only one, it goes by any name, as
        clients of other servers call it."""
        if not isinstance(name, str) or len(self.entries) == 1:
            return next(iter(self.entries.values()))
        return self.named(name)

    def named(self, name: str) -> Entry:
        if name not in self.entries:
            raise Failure("NotFound", f"there is no model {name!r:.80}; there are {', '.join(self.entries)}")
        return self.entries[name]

    async def watch(self) -> None:
        """Replace models whose folders change, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            for name in self.entries:
                try:
                    await self.reload_if_changed(name)
                except Exception:  # the next look may go well
                    logger.exception("%s: its folder could not be looked at", name)

    async def reload_if_changed(self, name: str) -> None:
        entry = self.entries[name]
        stamp = await asyncio.to_thread(stamp_of, entry.source)
        settled, entry.seen = stamp == entry.seen, stamp
        if not settled or stamp == entry.stamp:
            return
        entry.stamp = stamp
        try:
            served = await asyncio.to_thread(self.load, name, entry.source)
        except Exception as error:
            entry.replacement = "the folder has changed, but cannot be loaded; the server's log says why"
            sentence = "%s: %s has changed, but cannot be loaded: %s; the model that was loaded before goes on serving"
            logger.error(sentence, name, entry.source, error)
            self.on_reload(name, "failed")
            return
        new = Entry(entry.source, served, self.queue(name), stamp)
        self.entries[name] = new
        asyncio.get_running_loop().call_later(self.linger, entry.batcher.close)
        logger.warning("%s: %s has changed and was loaded again", name, entry.source)
        self.on_reload(name, "replaced")

    def close(self) -> None:
        for entry in self.entries.values():
            entry.batcher.close()


def stamp_of(source: str) -> Stamp:
    """The names, sizes, times and places on disk of all files of a model folder; empty if there is none"""
    try:
        files = sorted(path for path in locate(source, quiet=True).rglob("*") if path.is_file())
        return tuple(
            (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino) for path in files for stat in [path.stat()]
        )
    except OSError:  # it is being replaced
        return ()


def named(models: Sequence[str]) -> dict[str, str]:
    """The sources of models by name: "runs/first" is called first, and "mine=runs/first" mine."""
    sources: dict[str, str] = {}
    for word in models:
        name, equals, source = word.partition("=")
        if not equals or not name or "/" in name:
            name, source = Path(word).resolve().name, word
        if name in sources:
            raise ValueError(f"two models are called {name}; give one another name: NAME={source}")
        sources[name] = source
    return sources
