"""The process in which the lab trains: what `mini-bert train` does, until its standard input is closed.

    python -m mini_bert.lab.training_process '{"corpus": ["builtin"], "out": "runs/run-1", "minutes": 4}'
    python -m mini_bert.lab.training_process '{"out": "runs/run-1", "resume": true}'

The lab holds the other end of the standard input. When it closes it, to pause or to end, and also when the lab itself
is killed, this process gets the same as from Ctrl-C: it finishes its step, saves a checkpoint and ends. The same
happens after `at_most` seconds, whatever the run itself was meant to take. Records of tensors are more frequent than
usual, because someone is watching.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

MOST_SECONDS = 1800  # of a run at a time, also of one that is resumed
WATCHED: dict[str, Any] = {"log_every": 10, "tensors_every": 25}  # steps


def end_with(descriptor: int) -> None:
    """Interrupt the main thread when this file ends. (Not through sys.stdin: a thread that waits in there when the
    process ends would hold its lock.) What a shell starts in the background ignores interruptions, and so would we."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        _thread.interrupt_main()

    threading.Thread(target=wait, daemon=True).start()


def end_after(seconds: float) -> None:
    """Interrupt the main thread after so many seconds."""
    timer = threading.Timer(seconds, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


def main(words: list[str]) -> int:
    from mini_bert.training.pretraining import pretrain, resume

    options: dict[str, Any] = json.loads(words[0])
    out = Path(options.pop("out"))
    end_with(sys.stdin.fileno())
    end_after(options.pop("at_most", MOST_SECONDS))
    try:
        if options.pop("resume", False):
            state = resume(out, quiet=True, **options)
        else:
            state = pretrain(out=out, quiet=True, **WATCHED, **options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, MemoryError) as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0 if state.stopped in ("done", "interrupted") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
