"""The `mini-bert` command: a table from name to function. A command's arguments are its function's signature."""

from __future__ import annotations

import io
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import mini_bert
from mini_bert.cli_finetune import (
    finetune_classify,
    finetune_qa,
    finetune_similarity,
    finetune_sst2,
    finetune_tag,
    predict,
)
from mini_bert.gradients import TOLERANCE
from mini_bert.processes import HelperError

SOURCES = "files, folders, patterns, - for standard input, builtin, or the name of a data set"
MODELS = "mini-bert (the bundled one), or the folder of a run, a checkpoint, a Mini-BERT or a published BERT"
CHECKPOINTING = "keep only the input of these layers, and run them again in backward: all, or numbers such as 0,2,4"
COLUMN = "the text column of .jsonl, .csv, .parquet, or of a table on standard input"


def config() -> None:
    """Show every number of the configuration and the reason for it."""
    from mini_bert.config import main

    main()


def info(
    model: Annotated[str, typer.Option(help="mini, larger, or the path of a Mini-BERT config.json")] = "mini",
    batch: Annotated[int, typer.Option(min=1, help="sequences in one micro-batch")] = 16,
    threads: Annotated[int, typer.Option(min=1, help="threads that train side by side")] = 2,
) -> None:
    """Print the architecture with shapes, the parameters by component, and the memory that training needs.

    For example:  mini-bert info --model larger --batch 4
    """
    from mini_bert.config import load_config
    from mini_bert.info import main

    main(
        load_config(model),
        {"mini": "Mini-BERT", "larger": "Larger-BERT"}.get(model, Path(model).name),
        batch,
        threads,
    )


def gradcheck(
    tolerance: Annotated[float, typer.Option(help="largest relative error that passes")] = TOLERANCE,
    tensors: Annotated[bool, typer.Option("--tensors", help="a line for every tensor")] = False,
) -> None:
    """Check every hand-written gradient against finite differences, layer by layer and for whole models.

    Exits with 1 if any error is above the tolerance. Takes about half a minute.
    """
    from mini_bert.gradcheck import main

    with _one_blas_thread():
        raise typer.Exit(main(tolerance, tensors))


def simple_test() -> None:
    """The one-minute tour: config, parameters, forward, loss, backward, one step, memory, gradient check."""
    from mini_bert.simple_test import main

    with _one_blas_thread():
        raise typer.Exit(main())


def demo(
    layer: Annotated[
        str, typer.Argument(help="linear, embedding, attention, block, … ; without a name: the list")
    ] = "",
) -> None:
    """Run a layer's own small demonstration: numbers in, numbers out, gradients.

    For example:  mini-bert demo attention
    """
    import mini_bert.layers

    folder = Path(mini_bert.layers.__file__).parent
    demos = sorted(path.stem for path in folder.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))
    if not layer:
        print("layers that show themselves:", ", ".join(demos))
    elif layer in demos:
        runpy.run_path(str(folder / f"{layer}.py"), run_name="__main__")
    else:
        raise ValueError(f"there is no demonstration of {layer!r}; there are {', '.join(demos)}")


def data_list() -> None:
    """List the data sets that can be fetched by name: size, licence, whether they are here."""
    from mini_bert.downloads import list_command

    list_command()


def data_get(
    names: Annotated[list[str], typer.Argument(help="names from `mini-bert data list`")],
    force: Annotated[bool, typer.Option("--force", help="fetch again what is here")] = False,
) -> None:
    """Fetch data sets from their publishers into the cache folder; a broken download goes on where it stopped.

    For example:  mini-bert data get wikitext-2 ud-ewt
    """
    from mini_bert.downloads import get_command

    get_command(names, force)


def data_show(
    source: Annotated[list[str] | None, typer.Argument(help=SOURCES, show_default="builtin")] = None,
    samples: Annotated[int, typer.Option(min=0, help="passages to show")] = 3,
    column: Annotated[str | None, typer.Option(help=COLUMN)] = None,
) -> None:
    """Read text from end to end and say what it holds, what had to be repaired, and how it reads.

    Without a source it is the built-in corpus: the English that every Python installation carries.
    """
    from mini_bert.corpora import corpus_command

    corpus_command(source or "builtin", samples, column)


def tokenizer_train(
    corpus: Annotated[list[str] | None, typer.Argument(help=SOURCES, show_default="builtin")] = None,
    column: Annotated[str | None, typer.Option(help=COLUMN)] = None,
    vocab_size: Annotated[int, typer.Option(help="pieces to learn, special tokens included")] = 8192,
    out: Annotated[Path, typer.Option(help="the folder to write")] = Path("tokenizer"),
    cased: Annotated[bool, typer.Option("--cased", help="keep upper case and accents")] = False,
    limit_alphabet: Annotated[
        int, typer.Option(min=1, help="different characters to keep, the most frequent; words with others are [UNK]")
    ] = 1000,
    processes: Annotated[
        int | None, typer.Option(min=1, help="processes that count words", show_default="one a core, up to 3")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a tokenizer that is in the folder")] = False,
) -> None:
    """Learn a WordPiece vocabulary from text and save it as files that others can read.

    For example:  mini-bert tokenizer train my_texts/ --vocab-size 16000 --out my_tokenizer
    """
    from mini_bert.vocabulary import train_command

    train_command(
        corpus or ["builtin"],
        vocab_size,
        out,
        cased,
        limit_alphabet=limit_alphabet,
        processes=processes,
        force=force,
        column=column,
    )


def tokenizer_show(
    text: Annotated[str, typer.Argument(help="any text")],
    tokenizer: Annotated[str, typer.Option(help="8k, 50k, a model folder, a tokenizer.json or a vocab.txt")] = "8k",
) -> None:
    """Show what a tokenizer makes of a text: pieces, ids, words, and where each comes from.

    For example:  mini-bert tokenizer show "Unaffable zebras"
    """
    from mini_bert.tokenizer import WordPieceTokenizer

    print(WordPieceTokenizer.load(tokenizer).explain(text))


def train(
    corpus: Annotated[
        list[str] | None, typer.Option(help=f"{SOURCES}; default: text in ./data, or else builtin")
    ] = None,
    model: Annotated[str, typer.Option(help="mini, larger, or the path of a config.json")] = "mini",
    out: Annotated[Path | None, typer.Option(help="the run folder; default: a new one in ./runs")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="stop after so many changes of the weights")] = None,
    minutes: Annotated[float | None, typer.Option(help="or after so much time; default: 4")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in --out (default: the newest in ./runs)")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="default: all cores, at most 8")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="decides first weights, order of the text, masks; default: 0")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="sequences for one change of the weights")] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="sequences at once in a thread; default: up to 16, so that all have work")
    ] = None,
    checkpointing: Annotated[str | None, typer.Option(help=CHECKPOINTING, show_default="none")] = None,
    attention: Annotated[str | None, typer.Option(help="plain, lean (tile by tile), auto: lean if long")] = None,
    moments: Annotated[str | None, typer.Option(help="Adam's: float32, bfloat16 or float16")] = None,
    activations: Annotated[str | None, typer.Option(help="what is held for backward: likewise")] = None,
    weights: Annotated[str | None, typer.Option(help="the weights: likewise")] = None,
    tie_head: Annotated[
        bool, typer.Option("--tie-head", help="the head uses the token table: V·H fewer weights")
    ] = False,
    learning_rate: Annotated[
        float | None, typer.Option(help="at its peak; default: 1e-3, for wider models less")
    ] = None,
    warmup: Annotated[
        float | None, typer.Option(help="share of the run in which it rises; default: a minute's worth")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="8k, 50k or a path; default: the one of the model")] = None,
    held_out: Annotated[float | None, typer.Option(help="share of the documents kept for validation")] = None,
    eval_every: Annotated[int | None, typer.Option(min=1, help="steps between measurements on held-out text")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="steps between checkpoints")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="write its files, too (extra)")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="show nothing while it runs, only what must be said")] = False,
) -> None:
    """Train a Mini-BERT to fill gaps in text: live display, checkpoints, a model folder at the end.

    Without options: four minutes on the built-in corpus. Ctrl-C saves and says how to go on. What a larger model needs
    of memory, and which of --micro-batch, --checkpointing, --moments, --activations help, says `mini-bert plan`.

    For example:  mini-bert train --corpus my_texts/ --minutes 60 --out runs/mine
    """
    from mini_bert.pretraining import train_command
    from mini_bert.switches import parse_checkpointing

    layers = None if checkpointing is None else parse_checkpointing(checkpointing)
    state = train_command(
        corpus, model, tokenizer, out, steps, minutes, held_out, resume, tensorboard, quiet, tie_head, threads=threads,
        seed=seed, batch_size=batch_size, micro_batch=micro_batch, checkpointing=layers, moments=moments,
        attention=attention,        activations=activations, weights=weights, learning_rate=learning_rate,
        warmup=warmup, eval_every=eval_every, save_every=save_every,
    )  # fmt: skip
    if state.stopped != "done":
        raise typer.Exit(130 if state.stopped == "interrupted" else 1)


def doctor(run: Annotated[str, typer.Argument(help="the folder of a training run")]) -> None:
    """Say in words what is wrong with a training run, and what to try."""
    from mini_bert.doctor import doctor_command

    raise typer.Exit(doctor_command(run))


def plot(
    runs: Annotated[list[Path], typer.Argument(help="run folders, to be drawn side by side")],
    out: Annotated[Path | None, typer.Option(help="the picture: .png, .svg or .pdf")] = None,
) -> None:
    """Draw the loss, accuracy and gradients of a run, or of several side by side (needs the extra `plots`)."""
    from mini_bert.plots import plot_command

    plot_command(runs, out)


def fill_mask(
    text: Annotated[str, typer.Argument(help="a text with one or more [MASK] in it")],
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    top: Annotated[int, typer.Option(min=1, help="guesses for each gap")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Guess what stands in a gap.

    For example:  mini-bert fill-mask "The cat sat on the [MASK]."
    """
    from mini_bert.fill_mask import fill_mask_command

    fill_mask_command(text, model, top, as_json)


def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="sentences; or use --file")] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[str | None, typer.Option(help="a text a line; - for standard input")] = None,
    out: Annotated[str | None, typer.Option(help="a .npy or .jsonl file, or - for JSON lines")] = None,
    pooling: Annotated[
        str, typer.Option(help="mean of the words' vectors; all: special tokens too; cls: that of [CLS]")
    ] = "mean",
    batch: Annotated[int, typer.Option(min=1, help="texts at a time")] = 32,
    threads: Annotated[int, typer.Option(min=1, help="threads that work side by side")] = 2,
) -> None:
    """Turn sentences into vectors; two to ten of them are compared in a table.

    For example:  mini-bert embed "A cat sat down." "A dog lay down." "Prices rose."
    """
    from mini_bert.embed import embed_command

    embed_command(texts, model, file, out, pooling, batch, threads)


def evaluate(
    model: Annotated[str, typer.Argument(help=MODELS)],
    corpus: Annotated[list[str] | None, typer.Option(help=SOURCES)] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="a sentence: how surprised is the model at each token?")
    ] = None,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="with --text: hide the pieces behind, too, as far as the word goes")
    ] = False,
    pairs: Annotated[
        list[str] | None, typer.Option(help="a table of two sentences and a score: do their vectors agree with it?")
    ] = None,
    neighbours: Annotated[list[str] | None, typer.Option(help="a word: which tokens lie next to it?")] = None,
    held_out: Annotated[float, typer.Option(help="measure only the share that training with it keeps aside")] = 0.0,
    seed: Annotated[int, typer.Option(help="decides the masks")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="sequences at a time")] = 32,
    max_batches: Annotated[int | None, typer.Option(min=1, help="stop after so many")] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads that work side by side")] = 2,
    length: Annotated[int | None, typer.Option(min=3, help="tokens a sequence; default: what the model knows")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Measure a model: on text with words hidden, on sentences token by token, on pairs of sentences, on words.

    Loss, perplexity, accuracy and calibration (--corpus); pseudo-perplexity (--text); agreement with what people call
    alike, and isotropy (--pairs, --neighbours).

    For example:  mini-bert eval mini-bert --corpus my_text.txt --text "The cat sat on the mat."
    """
    from mini_bert.evaluate import eval_command

    eval_command(
        model,
        corpus,
        held_out,
        seed,
        batch,
        max_batches,
        threads,
        length,
        as_json,
        text,
        whole_words,
        pairs,
        neighbours,
    )


def metrics(
    test: Annotated[bool, typer.Option("--test", help="compute each on a small case whose answer is known")] = False,
) -> None:
    """List every metric with its formula; with --test, each on a small case beside the value it must have.

    Exits with 1 if one differs.
    """
    from mini_bert.known_cases import metrics_command

    raise typer.Exit(metrics_command(test))


def export(
    model: Annotated[str, typer.Argument(help=MODELS)],
    out: Annotated[Path, typer.Option(help="the folder to write")],
    full: Annotated[bool, typer.Option("--full", help="32 bits a weight")] = False,
) -> None:
    """Write a model as a folder for others: config, weights in 16 bits, tokenizer, card.

    For example:  mini-bert export runs/first --out my-model
    """
    from mini_bert.export import export_command

    export_command(model, out, full)


def data_labelled(
    kind: Annotated[
        str, typer.Option(help="sentiment, tags (entities), parsed (parts of speech, trees), similarity, questions")
    ] = "sentiment",
    count: Annotated[int, typer.Option(min=1, help="examples to show")] = 5,
    seed: Annotated[int, typer.Option(help="decides which")] = 0,
    split: Annotated[str, typer.Option(help="train, or dev: half of the names never occur in train")] = "train",
) -> None:
    """Show the synthetic labelled English that probes and fine-tuning use where no file is given.

    For example:  mini-bert data labelled --kind parsed --count 2
    """
    from mini_bert.synthetic import labelled_command

    labelled_command(kind, count, seed, split)


# What the three probe commands share; a function with all of it would hide their signatures.
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


def probe_pos(
    train: ProbeTrain = None,
    dev: ProbeDev = None,
    model: ProbeModel = "mini-bert",
    layers: ProbeLayers = None,
    seeds: ProbeSeeds = 1,
    max_sentences: ProbeMaxSentences = None,
    pooling: ProbePooling = "mean",
    l2: ProbePenalty = None,
    column: ProbeColumn = -1,
    threads: ProbeThreads = 2,
    out: ProbeOut = None,
    as_json: ProbeJson = False,
) -> None:
    """Can parts of speech be read from the layers? A linear probe on each, with control task and random weights.

    For example:  mini-bert probe pos --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out probes
    """
    from mini_bert.probing import probe_command

    probe_command("pos", train, dev, model, layers, seeds, max_sentences, pooling, l2, column, threads, out, as_json)


def probe_dep(
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
    """Can syntax be read from the layers? Two linear probes on each: a word's relation to its head, and its head.

    For example:  mini-bert probe dep --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out probes
    """
    from mini_bert.probing import probe_command

    probe_command("dep", train, dev, model, layers, seeds, max_sentences, pooling, l2, -1, threads, out, as_json)


def probe_ner(
    train: ProbeTrain = None,
    dev: ProbeDev = None,
    model: ProbeModel = "mini-bert",
    layers: ProbeLayers = None,
    seeds: ProbeSeeds = 1,
    max_sentences: ProbeMaxSentences = None,
    pooling: ProbePooling = "mean",
    l2: ProbePenalty = None,
    column: ProbeColumn = -1,
    threads: ProbeThreads = 2,
    out: ProbeOut = None,
    as_json: ProbeJson = False,
) -> None:
    """Can entities be read from the layers? A linear probe on each for BIO tags, scored by tag and by entity.

    For example:  mini-bert probe ner --train train.conll --dev dev.conll --out probes
    """
    from mini_bert.probing import probe_command

    probe_command("ner", train, dev, model, layers, seeds, max_sentences, pooling, l2, column, threads, out, as_json)


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
    """Show where the heads of a model look in a text, what each does, and which words a guess depends on.

    Prints a table of heads (entropy, mean distance, shares on [CLS], [SEP], neighbours), gradient × input saliency of
    one hidden word (or of a label, if the model is fine-tuned to classify), and the heads that follow a dependency
    relation better than a fixed offset. With --out it draws: all heads, or with --layer and --head one map large enough
    to read every token; or one HTML file that opens from disk.

    For example:  mini-bert attention "The cat sat on the mat because it was tired." --out cat.html

    Or one head:  mini-bert attention "The cat sat on the mat." --layer 0 --head 1 --out head.png
    """
    from mini_bert.attention_analysis import attention_command

    attention_command(text, model, second, layer, head, word, out, treebank, relations, as_json, label)


def plot_activations(
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[
        str | None, typer.Option(help="a text a line, - for standard input; default: synthetic sentences")
    ] = None,
    out: Annotated[str, typer.Option(help="the picture: .png, .svg or .pdf")] = "activations.png",
) -> None:
    """Draw the numbers inside a model while it reads: mean, deviation, percentiles, dead ReLU units, layer by layer.

    The same is printed as a table. A dead unit lets nothing through for any token, and no gradient reaches it.

    For example:  mini-bert plot-model activations --model runs/run-1 --file my_sentences.txt
    """
    from mini_bert.plots_model import activations_command

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
    """Draw vectors as points on a plane: the two directions in which they differ most (principal components).

    The axes say how much of all variance they hold. Without texts: sentences of our synthetic English by sentiment, or
    with --of tokens its words by part of speech.

    For example:  mini-bert plot-model embeddings "A cat sat." "A dog lay down." "Prices rose." --out plane.svg

    Or words:  mini-bert plot-model embeddings --of tokens "one two three red blue green run eat sleep"
    """
    from mini_bert.plots_model import embeddings_command

    embeddings_command(texts, model, file, of, out)


def plan(
    model: Annotated[str, typer.Option(help="mini, larger, or the path of a Mini-BERT config.json")] = "mini",
    batch: Annotated[int, typer.Option(min=1, help="sequences for one change of the weights")] = 32,
    memory: Annotated[str, typer.Option(help="what there is, such as 1GB, 900MB, 1.5GiB")] = "1GB",
    threads: Annotated[int | None, typer.Option(min=1, help="at most; default: all cores, up to 8")] = None,
    tie_head: Annotated[bool, typer.Option("--tie-head", help="the head uses the token table")] = False,
) -> None:
    """Say before training what fits: memory by purpose, and the switches to train with. Exits with 1 if nothing does.

    For example:  mini-bert plan --model larger --batch 8 --memory 1GB
    """
    from mini_bert.plan import plan_command

    raise typer.Exit(plan_command(model, batch, memory, threads, tie_head))


def _one_blas_thread():
    """Small products gain nothing from a second BLAS thread, and lose much on a busy machine."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(mini_bert.__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and stop")
    ] = False,
) -> None:
    """A complete BERT in pure Python and NumPy: look inside, check, train."""


COMMANDS: dict[str, Callable[..., None]] = {
    "info": info,
    "config": config,
    "simple-test": simple_test,
    "gradcheck": gradcheck,
    "demo": demo,
    "tokenizer show": tokenizer_show,
    "tokenizer train": tokenizer_train,
    "data list": data_list,
    "data get": data_get,
    "data show": data_show,
    "train": train,
    "doctor": doctor,
    "plot": plot,
    "fill-mask": fill_mask,
    "embed": embed,
    "eval": evaluate,
    "export": export,
    "finetune classify": finetune_classify,
    "finetune tag": finetune_tag,
    "finetune qa": finetune_qa,
    "finetune similarity": finetune_similarity,
    "finetune sst2": finetune_sst2,
    "predict": predict,
    "data labelled": data_labelled,
    "metrics": metrics,
    "probe pos": probe_pos,
    "probe dep": probe_dep,
    "probe ner": probe_ner,
    "attention": attention,
    "plot-model activations": plot_activations,
    "plot-model embeddings": plot_embeddings,
    "plan": plan,
}

GROUPS = {
    "tokenizer": "Text to ids: look at it, or learn a vocabulary.",
    "data": "Text to train on, labelled examples: fetch, look at them.",
    "finetune": "Teach a trained model a task: classes, tags, answers, similarity.",
    "probe": "What can be read from each layer: parts of speech, dependencies, entities.",
    "plot-model": "Pictures of what is inside a model (needs the extra `plots`); of runs: plot; of heads: attention.",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(_options)
groups = {name: typer.Typer(help=text, no_args_is_help=True) for name, text in GROUPS.items()}
for name, group in groups.items():
    app.add_typer(group, name=name)
for name, function in COMMANDS.items():
    *group_name, command = name.split()
    (groups[group_name[0]] if group_name else app).command(command)(function)


def main(words: list[str] | None = None) -> None:
    """Run a command; what the user got wrong is one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a pipe on Windows may not know Greek: then a ?, not a crash
            stream.reconfigure(errors="replace")
    try:
        app(_spelled_out(sys.argv[1:] if words is None else words))
    except FileNotFoundError as error:
        if error.filename is None:  # one of ours, which says all
            raise SystemExit(f"mini-bert: {error}") from None
        raise SystemExit(f"mini-bert: there is no file {error.filename}; is the path right, seen from here?") from None
    except (ValueError, OSError, HelperError) as error:
        raise SystemExit(f"mini-bert: {error}") from None


def _spelled_out(words: list[str]) -> list[str]:
    """`--checkpointing` alone means all layers; the parser wants to read that."""
    behind = [*words[1:], "--"]
    return (
        [
            "--checkpointing=all" if word == "--checkpointing" and following.startswith("-") else word
            for word, following in zip(words, behind, strict=True)
        ]
        if words
        else []
    )


def script(name: str) -> None:
    """`python NAME.py` inside the package folder is the command of that name."""
    main([*name.split(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
