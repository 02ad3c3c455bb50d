"""Probe each layer for parts of speech, on synthetic sentences or your own treebank. In this folder:

    python probe_pos.py --max_sentences 100

It is the command `mini-bert probe pos`; `probing/probe.py` explains what it does.
"""

from __future__ import annotations

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("probe pos")
