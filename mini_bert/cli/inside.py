"""The options of the commands that look inside a model: `mini-bert probe ...`, `attention`, `plot-model ...`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_bert.cli.words import MODELS, sharing

PROBE_FILES = "for pos and ner a word and its tag a line, or CoNLL-U; for dep CoNLL-U; default: synthetic sentences"
ProbeTrain = Annotated[str | None, typer.Option(help=f"sentences to learn from: {PROBE_FILES}")]
ProbeDev = Annotated[str | None, typer.Option(help="sentences to measure on")]
ProbeModel = Annotated[str, typer.Option(help=MODELS)]
ProbeLayers = Annotated[str | None, typer.Option(help="such as 0,2 or 1-3; 0 are the embeddings; default: all")]
ProbeSeeds = Annotated[int, typer.Option(min=1, help="how many; more give mean and spread")]
ProbeMaxSentences = Annotated[
    int | None, typer.Option("--max-sentences", "--max_sentences", min=1, help="take at most so many of each file")
]
ProbePooling = Annotated[str, typer.Option(help="a word's vector of its pieces': mean, first or last")]
ProbePenalty = Annotated[
    float | None, typer.Option(help="how much large weights cost", show_default="10, to find heads 10000")
]
ProbeColumn = Annotated[int, typer.Option(help="that of the tags, from 0; default: the last, of CoNLL-U the UPOS")]
ProbeThreads = Annotated[int, typer.Option(min=1, help="threads that work side by side")]
ProbeOut = Annotated[Path | None, typer.Option(help="a folder for the table as JSON and the picture")]
ProbeJson = Annotated[bool, typer.Option("--json", help="for programs")]


def _shared_by_probes(
    train: ProbeTrain = None,
    dev: ProbeDev = None,
    model: ProbeModel = "mini-bert",
    layers: ProbeLayers = None,
    seeds: ProbeSeeds = 1,
    max_sentences: ProbeMaxSentences = None,
    pooling: ProbePooling = "mean",
    l2: ProbePenalty = None,
    threads: ProbeThreads = 2,
    out: ProbeOut = None,
    as_json: ProbeJson = False,
) -> None:
    """The options that all probes have"""


FIRST = 8  # of them stand before a probe's own in --help


def _probe(kind: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    def act(special: dict[str, Any], given: dict[str, Any]) -> None:
        from mini_bert.probing.probe import probe_command

        probe_command(kind, **given, **special)

    return sharing(_shared_by_probes, FIRST, act)


@_probe("pos")
def probe_pos(column: ProbeColumn = -1) -> dict[str, Any]:
    """Can parts of speech be read from the layers?

    A linear probe on each, with control task and random weights.

    For example:  mini-bert probe pos --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out probes
    """
    return {"column": column}


@_probe("dep")
def probe_dep() -> dict[str, Any]:
    """Can syntax be read from the layers?

    Two linear probes on each: a word's relation to its head, and its head.

    For example:  mini-bert probe dep --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out probes
    """
    return {}


@_probe("ner")
def probe_ner(column: ProbeColumn = -1) -> dict[str, Any]:
    """Can entities be read from the layers?

    A linear probe on each for BIO tags, scored by tag and by entity.

    For example:  mini-bert probe ner --train train.conll --dev dev.conll --out probes
    """
    return {"column": column}


def attention(
    text: Annotated[
        str | None, typer.Argument(help="any text; without one, heads are only scored on --treebank")
    ] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    second: Annotated[str | None, typer.Option(help="a second text, for a pair: [CLS] text [SEP] second [SEP]")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="only this layer; the first is 0")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="only this head of each layer; the first is 0")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="whose guess saliency explains: a word, or its number; default: [MASK], else the last word"),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="a picture (.png, .svg, .pdf), or a page to play with (.html)")
    ] = None,
    treebank: Annotated[
        str | None, typer.Option(help="score heads on this CoNLL-U file; default: synthetic sentences")
    ] = None,
    relations: Annotated[bool, typer.Option("--relations/--no-relations", help="score heads on a treebank")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="for programs; with all weights")] = False,
    label: Annotated[
        str | None, typer.Option(help="of a model fine-tuned to classify: the label to explain; default: its answer")
    ] = None,
) -> None:
    """Show where the heads of a model look in a text. What each does, and which words a guess depends on.

    Prints a table of heads (entropy, mean distance, shares on [CLS], [SEP], neighbours), gradient × input saliency of
    one hidden word (or of a label, if the model is fine-tuned to classify), and the heads that follow a dependency
    relation better than a fixed offset. With --out it draws: all heads, or with --layer and --head one map large enough
    to read every token; or one HTML file that opens from disk.

    For example:  mini-bert attention "The cat sat on the mat because it was tired." --out cat.html

    Or one head:  mini-bert attention "The cat sat on the mat." --layer 0 --head 1 --out head.png
    """
    from mini_bert.inside.attention_analysis import attention_command

    attention_command(text, model, second, layer, head, word, out, treebank, relations, as_json, label)


def plot_activations(
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[
        str | None, typer.Option(help="a text a line, - for standard input; default: synthetic sentences")
    ] = None,
    out: Annotated[str, typer.Option(help="the picture: .png, .svg or .pdf")] = "activations.png",
) -> None:
    """Draw the numbers inside a model while it reads.

    Mean, deviation, percentiles, dead ReLU units, layer by layer. The same is printed as a table. A dead unit lets
    nothing through for any token, and no gradient reaches it.

    For example:  mini-bert plot-model activations --model runs/run-1 --file my_sentences.txt
    """
    from mini_bert.inside.model_figures import activations_command

    activations_command(model, file, out)


def plot_embeddings(
    texts: Annotated[
        list[str] | None, typer.Argument(help="sentences, or with --of tokens words; or use --file")
    ] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[
        str | None, typer.Option(help="a text a line; a .tsv, .csv or .jsonl with labels is coloured by label")
    ] = None,
    of: Annotated[
        str, typer.Option(help="sentences: vectors of whole texts; tokens: rows of the table of embeddings")
    ] = "sentences",
    out: Annotated[str, typer.Option(help="the picture: .png, .svg or .pdf")] = "embeddings.png",
) -> None:
    """Draw vectors as points on a plane.

    It is that of the two directions in which they differ most (principal components). The axes say how much of all
    variance they hold. Without texts: sentences of our synthetic English by sentiment, or with --of tokens its words by
    part of speech.

    For example:  mini-bert plot-model embeddings "A cat sat." "A dog lay down." "Prices rose." --out plane.svg

    Or words:  mini-bert plot-model embeddings --of tokens "one two three red blue green run eat sleep"
    """
    from mini_bert.inside.model_figures import embeddings_command

    embeddings_command(texts, model, file, of, out)
