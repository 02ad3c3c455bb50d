"""Mistakes that people make: one line per case."""

from making import Case, file, files, model, tarred, zipped

TABLE = file("a.tsv", "sentence\tlabel\n" + "".join(f"the cat {i}\tgood\nthe dog {i}\tbad\n" for i in range(10)))
CATS = file("cats.txt", "the cat sat on a mat . " * 200)
QUICK = "--train {it} --dev {it} --text 1 --label 2 --model {m} --epochs 1 --max-length 16"

CLUMSY = [
    Case("a misspelt command", "trian", 2, "No such command 'trian'.*train"),
    Case("no model there", "embed --model nowhere hello", 1, "no model folder nowhere"),
    Case("a file instead of a folder", "embed --model {it} hello", 1, "it is a file", it=file("x.txt", "x")),
    Case(
        "columns by number, out of range",
        "finetune classify --train {it} --text 9 --label 2",
        1,
        "no column '9'",
        it=TABLE,
    ),
    Case(
        "columns by number, with a header", f"finetune classify {QUICK}", 0, "taken as the header", it=TABLE, m=model()
    ),
    Case("a folder for a picture", "attention cat --out {it}", 1, "is a folder, expected a file", it=files()),
    Case("a slash after a picture", "attention cat --out new/", 1, "new/ is a folder, expected a file"),
    Case("a slash after a page", "attention cat --out a.html/", 1, "is a folder, expected a file"),
    Case("an unknown picture", "attention cat --out a.docx", 1, "a.docx ends in '.docx', which"),
    Case("labelled data into a folder", "data labelled --out {it}", 1, "sentiment is written as .tsv", it=files()),
    Case("labelled data of another type", "data labelled --kind tags --out a.tsv", 1, "tags is written as .conll"),
    Case("labelled data nowhere", "data labelled --out nowhere/a.tsv", 1, "there is no folder nowhere"),
    Case("an unknown kind of labelled data", "data labelled --kind x --out a.tsv", 1, "kind is 'x', expected one of"),
    Case("a zip of texts", "data show {it}", 0, "2 documents", it=zipped("a.zip", a__txt=b"One.", b__txt=b"Two.")),
    Case("a tar of texts", "data show {it}", 0, "2 documents", it=tarred("a.tar", a__txt=b"One.", b__txt=b"Two.")),
    Case("no word frequencies", "eval {m} --corpus {it}", 0, "no file with the word freq", it=CATS, m=model()),
    Case("a model that is not fine-tuned", "predict {it} cat", 1, "not fine-tuned for a task", it=model()),
    Case("a sound model", "embed --model {it} hello", 0, "", it=model()),
    Case("a folder with weights as architecture", "train --model {it}", 1, "trained weights.*config.json", it=model()),
    Case("as long as the universe", "train --minutes 1e300", 1, "minutes is 1e.300, expected at most 525,600"),
    Case("a negative time", "train --minutes -3", 1, "minutes is -3.0, expected a positive number"),
    Case("steps beyond eight digits", "train --steps 123456789", 1, "steps is 123456789, expected at most 99,999,999"),
]
