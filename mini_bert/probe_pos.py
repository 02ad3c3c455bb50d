"""Parts of speech, layer by layer, on synthetic sentences or a treebank of yours: the command `mini-bert probe pos`.

    python probe_pos.py --max_sentences 100

in this folder. `probing/probe.py` says what it does.
"""

from __future__ import annotations

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("probe pos")
