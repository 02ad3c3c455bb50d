"""Mistakes that people make: one line per case."""

from making import Case, file, model

CLUMSY = [
    Case("a misspelt command", "trian", 2, "No such command 'trian'.*train"),
    Case("no model there", "embed --model nowhere hello", 1, "no model folder nowhere"),
    Case("a file instead of a folder", "embed --model {it} hello", 1, "it is a file", it=file("x.txt", "x")),
    Case("a sound model", "embed --model {it} hello", 0, "", it=model()),
]
