"""The commands that look inside a model: `mini-bert probe ...`, `attention`, `plot-model ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_bert.cli.words import MODELS, sharing

DIGITS = 4  # of the number of a layer, at most
MANY = 500  # training sentences of a probe from which on progress is shown
PICTURE = "the picture: .png, .svg or .pdf"
COLUMN = Annotated[
    int, typer.Option(help="column of the tags, counted from 0; default: the last one; in CoNLL-U, the UPOS")
]


def layer_numbers(text: str | None) -> list[int] | None:
    """The value of --layers as indices of hidden states: 0 for the embeddings, l + 1 for the output of layer l.

    >>> layer_numbers("embeddings,0,2-4"), layer_numbers(None)
    ([0, 1, 3, 4, 5], None)
    """
    if text is None:
        return None
    numbers: list[int] = []
    for part in map(str.strip, text.split(",")):
        first, dash, last = part.partition("-")
        if part == "embeddings":
            numbers.append(0)
            continue
        if not all(end.isdecimal() and len(end) < 5 for end in ([first, last] if dash else [first])):
            raise ValueError(f"--layers is {text!r}, expected numbers from 0, such as 0,2 or 1-3, or embeddings")
        if len(first) > DIGITS or len(last) > DIGITS:  # a range of a billion would fill the memory
            raise ValueError(f"--layers is {text!r}, but no model has so many layers; expected such as 0,2 or 1-3")
        numbers += range(int(first) + 1, int(last or first) + 2)
    if not numbers:
        raise ValueError(f"--layers {text!r} selects no layer; write the smaller number first, such as 1-3")
    return sorted(set(numbers))


def probe(
    task: str,
    train: Annotated[
        str | None,
        typer.Option(
            help="training sentences; pos, ner: CoNLL-U, or a word and its tag per line; dep: CoNLL-U; default: "
            "synthetic sentences"
        ),
    ] = None,
    dev: Annotated[str | None, typer.Option(help="sentences to measure on, in the same format")] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    layers: Annotated[
        str | None, typer.Option(help="such as embeddings,0 or 1-3; the first is 0; default: all")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="number of seeds; several give a mean and a standard deviation")
    ] = 1,
    max_sentences: Annotated[int | None, typer.Option(min=1, help="use at most N sentences of each file")] = None,
    pooling: Annotated[
        str, typer.Option(help="how to combine the vectors of a word's pieces: mean, first or last")
    ] = "mean",
    l2: Annotated[
        float | None,
        typer.Option(help="penalty on large weights", show_default="10; for syntactic heads 10000"),
    ] = None,
    column: COLUMN = -1,
    threads: Annotated[int, typer.Option(min=1, help="number of threads")] = 2,
    out: Annotated[Path | None, typer.Option(help="a folder for the results as JSON and as a picture")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Probe the layers of a model and print the results; the commands below are this function with a fixed task."""
    from mini_bert.common.atomic import write_atomic
    from mini_bert.common.extras import MissingExtra
    from mini_bert.common.memory import keep_freed_memory
    from mini_bert.common.progress import showing
    from mini_bert.data.synthetic.dataset import SYNTHETIC
    from mini_bert.inference.loading import load
    from mini_bert.plots.style import save
    from mini_bert.probing.data import read
    from mini_bert.probing.figures import probe_results
    from mini_bert.probing.probe import FORWARD
    from mini_bert.probing.probe import probe as fit_probes
    from mini_bert.probing.report import Setting, report, report_json

    chosen = layer_numbers(layers)
    if out is not None:  # before the work, so that an error costs no time
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file, expected a folder")
        out.mkdir(parents=True, exist_ok=True)
    data = read(task, train, dev, column, max_sentences)
    keep_freed_memory()
    loaded, tokenizer = load(model)
    if chosen and chosen[-1] > loaded.depth:
        has = f"there is no layer {chosen[-1] - 1}: {model} has layers 0 to {loaded.depth - 1}"
        raise ValueError(f"--layers is {layers!r}, but {has}; choose some of these, or embeddings, which layer 0 reads")
    options: dict[str, Any] = {"layers": chosen, "pooling": pooling, "l2": l2, "threads": threads}
    with showing(len(data.train) > MANY) as show:
        results = fit_probes(
            loaded, tokenizer, task, data.train, data.dev, data.classes, range(seeds), show=show, **options
        )
    notes = [*data.notes, *([FORWARD] if loaded.reads_forward else [])]
    setting = Setting(task, model, train or SYNTHETIC, dev or SYNTHETIC, train is None, seeds, pooling, notes)
    print(report_json(setting, results) if as_json else report(setting, results))
    if out is not None:
        table, picture = out / f"probe_{task}.json", out / f"probe_{task}.png"
        write_atomic(table, f"{report_json(setting, results)}\n".encode())
        print(table, file=sys.stderr)
        try:
            save(probe_results(setting, results), picture)
            print(picture, file=sys.stderr)
        except MissingExtra as error:
            print(f"no picture: {error}", file=sys.stderr)


def _task(task: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    """`probe` as a command for this task; the decorated function has the options that not all tasks have"""
    return sharing(probe, 8, lambda own, given: probe(task, **own, **given), without=("task", "column"))


@_task("pos")
def probe_pos(column: COLUMN = -1) -> dict[str, Any]:
    """Can parts of speech be read from the layers?

    Fits a linear probe to each layer, and compares with a control task and with random weights.

    For example:  mini-bert probe pos --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out probes
    """
    return {"column": column}


@_task("dep")
def probe_dep() -> dict[str, Any]:
    """Can syntax be read from the layers?

    Fits two linear probes to each layer: one predicts the relation of a word to its syntactic head, one predicts which
    word that is.

    For example:  mini-bert probe dep --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out probes
    """
    return {}


@_task("ner")
def probe_ner(column: COLUMN = -1) -> dict[str, Any]:
    """Can entities be read from the layers?

    Fits a linear probe for BIO tags to each layer, and scores tags and whole entities.

    For example:  mini-bert probe ner --train train.conll --dev dev.conll --out probes
    """
    return {"column": column}


def attention(
    text: Annotated[
        str | None, typer.Argument(help="any text; without one, heads are scored on --treebank only")
    ] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    second: Annotated[str | None, typer.Option(help="a second text, for a pair: [CLS] text [SEP] second [SEP]")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="only this layer; the first is 0")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="only this head of each layer; the first is 0")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="the word to mask and explain, or its number; default: [MASK], else the last word"),
    ] = None,
    out: Annotated[str | None, typer.Option(help="a picture (.png, .svg, .pdf) or an interactive page (.html)")] = None,
    treebank: Annotated[
        str | None,
        typer.Option(help="score heads on this CoNLL-U file instead of synthetic sentences"),
    ] = None,
    relations: Annotated[bool, typer.Option("--relations/--no-relations", help="which heads follow grammar")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, with all weights")] = False,
    label: Annotated[
        str | None,
        typer.Option(help="for a model fine-tuned to classify: the label to explain; default: the predicted one"),
    ] = None,
    stream: Annotated[
        str, typer.Option(help="for an XLNet: content, which reads the words, or query, which predicts hidden ones")
    ] = "content",
) -> None:
    """Show what each attention head does in a text.

    Prints which heads have a simple pattern, a table of all heads (entropy, mean distance, shares on [CLS], [SEP] and
    neighbours), and the gradient × input saliency of one masked word (or of a label, if the model is fine-tuned to
    classify). With --relations or --treebank, also the heads that follow a dependency relation better than a fixed
    offset does. --out draws all heads; with --layer and --head, one map with
    all tokens labelled; or an interactive HTML page in a single file.

    For example:  mini-bert attention "The cat sat on the mat because it was tired." --out cat.html

    Or one head:  mini-bert attention "The cat sat on the mat." --layer 0 --head 1 --out head.png
    """
    from threadpoolctl import threadpool_limits

    from mini_bert.inference.loading import load_for_gradients
    from mini_bert.inside.attention_analysis import analyse, load_classifier
    from mini_bert.inside.report import PAGES, checked_path, draw, report, report_json

    if text is None and treebank is None:
        raise ValueError(
            'there is no text; give one, such as "The cat sat on the mat.", or a --treebank to score heads on'
        )
    if text is None and out is not None:
        raise ValueError(f"there is no text to draw into {out}; give one")
    path = None if out is None else checked_path(out)
    tuned = load_classifier(model)
    if label is not None and tuned is None:
        raise ValueError(f"--label needs a model that is fine-tuned to classify, which {model} is not; leave it out")
    loaded, tokenizer = (tuned.model.widened(), tuned.tokenizer) if tuned else load_for_gradients(model)
    every_word = path is not None and path.suffix.lower() in PAGES
    with threadpool_limits(1, "blas"):  # a second thread gains nothing for one sentence
        analysis = analyse(
            loaded,
            tokenizer,
            text,
            second,
            layer,
            head,
            word,
            every_word,
            treebank,
            relations,
            model,
            tuned,
            label,
            stream,
        )
    if path is not None:
        draw(analysis, path)
    print(report_json(analysis) if as_json else report(analysis))
    if path is not None:
        print(path, file=sys.stderr if as_json else sys.stdout)


def plot_activations(
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[
        str | None, typer.Option(help="one text per line, - for standard input; default: synthetic sentences")
    ] = None,
    out: Annotated[str, typer.Option(help=PICTURE)] = "activations.png",
) -> None:
    """Draw and print statistics of a model's activations.

    For each layer: mean, standard deviation, percentiles, and dead ReLU units. A dead unit is 0 for every token, and no
    gradient reaches it.

    For example:  mini-bert plot-model activations --model runs/run-1 --file my_sentences.txt
    """
    from threadpoolctl import threadpool_limits

    from mini_bert.common.progress import counted
    from mini_bert.inference.loading import load
    from mini_bert.inside.inputs import texts_of
    from mini_bert.inside.layer_statistics import text_statistics
    from mini_bert.inside.model_figures import activation_statistics
    from mini_bert.inside.report import activation_table
    from mini_bert.plots import style

    path = style.picture_path(out)
    texts, source = texts_of(file)
    loaded, tokenizer = load(model)
    with threadpool_limits(1, "blas"):
        statistics, tokens = text_statistics(loaded, tokenizer, texts)
    title = f"{counted(tokens, 'token')}: {source}"
    style.save(activation_statistics(statistics, f"{model} on {title}"), path)
    print(title, activation_table(statistics), path, sep="\n")


def plot_embeddings(
    texts: Annotated[list[str] | None, typer.Argument(help="sentences; with --of tokens, words; or use --file")] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[
        str | None, typer.Option(help="one text per line; a .tsv, .csv or .jsonl with labels is coloured by label")
    ] = None,
    of: Annotated[
        str, typer.Option(help="sentences: vectors of whole texts; tokens: rows of the embedding table")
    ] = "sentences",
    out: Annotated[str, typer.Option(help=PICTURE)] = "embeddings.png",
) -> None:
    """Draw vectors as points on a plane.

    The plane is spanned by the first two principal components; the axis labels give their shares of the variance.
    Without texts, it shows synthetic sentences by sentiment, or with --of tokens their words by part of speech.

    For example:  mini-bert plot-model embeddings "A cat sat." "A dog lay down." "Prices rose." --out plane.svg

    Or words:  mini-bert plot-model embeddings --of tokens "one two three red blue green run eat sleep"
    """
    from mini_bert.common.progress import counted
    from mini_bert.inference.embed import embed
    from mini_bert.inference.loading import load_for_gradients
    from mini_bert.inside.inputs import sentences_of, words_of
    from mini_bert.inside.model_figures import embedding_pca
    from mini_bert.plots import style

    if of not in ("tokens", "sentences"):
        raise ValueError(f"--of is {of!r}, expected tokens or sentences")
    if texts and file is not None:
        raise ValueError("give either texts or --file, not both")
    path = style.picture_path(out)
    loaded, tokenizer = load_for_gradients(model)
    if of == "tokens":
        words, tags, source = words_of(texts, file)
        pieces = [tokenizer.tokenize(tokenizer.space + word) for word in words]
        single = [(word, tag) for word, tag, row in zip(words, tags, pieces, strict=True) if len(row) == 1]
        if len(single) < 2:
            raise ValueError(
                f"of {counted(len(words), 'word')}, {len(single)} are single tokens of this vocabulary; give at least "
                "two that are (`mini-bert tokenizer show` lists them)"
            )
        names, groups = [word for word, _ in single], [tag for _, tag in single]
        vectors = loaded.embed_tokens([tokenizer.ids([tokenizer.space + word])[0][0] for word in names])
        title = f"{model}: {counted(len(names), 'token')} of the embedding table, {source}"
    else:
        names, groups, source = sentences_of(texts, file)
        if len(names) < 2:
            raise ValueError("one sentence is not enough for a plane; give at least two")
        vectors = embed(loaded, tokenizer, names)
        title = f"{model}: {counted(len(names), 'sentence')}, {source}"
    style.save(embedding_pca(vectors, names, groups if any(groups) else None, title), path)
    print(path)
