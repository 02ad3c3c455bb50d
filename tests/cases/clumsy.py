"""Mistakes that people make: one line per case."""

from making import Case, file, model

CLUMSY = [
    Case("a misspelt command", "trian", 2, "No such command 'trian'.*train"),
    Case("no model there", "embed --model nowhere hello", 1, "no model folder nowhere"),
    Case("a file instead of a folder", "embed --model {it} hello", 1, "it is a file", it=file("x.txt", "x")),
    Case("a sound model", "embed --model {it} hello", 0, "", it=model()),
    Case("a folder with weights as architecture", "train --model {it}", 1, "trained weights.*config.json", it=model()),
    Case("as long as the universe", "train --minutes 1e300", 1, "minutes is 1e.300, expected at most 525,600"),
    Case("a negative time", "train --minutes -3", 1, "minutes is -3.0, expected a positive number"),
    Case("steps beyond eight digits", "train --steps 123456789", 1, "steps is 123456789, expected at most 99,999,999"),
]
