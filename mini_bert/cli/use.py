"""Commands that use or measure a model: `mini-bert fill-mask`, `embed`, `eval`, `metrics` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_bert.cli.words import ENGINE, MODELS, SOURCES, in_options

COMPARED = 10  # texts that `embed` compares in a table; more do not fit on a screen


def fill_mask(
    text: Annotated[str, typer.Argument(help="a text with one or more [MASK] in it")],
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    top: Annotated[int, typer.Option(min=1, help="number of guesses for each mask")] = 5,
    engine: Annotated[str, typer.Option(help=ENGINE)] = "numpy",
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Guess the masked words in a text.

    For example:  mini-bert fill-mask "The cat sat on the [MASK]."
    """
    from threadpoolctl import threadpool_limits

    from mini_bert.common.json_values import as_json
    from mini_bert.export.engine import with_engine
    from mini_bert.inference import fill_mask as library
    from mini_bert.inference.loading import for_masked_words, load
    from mini_bert.inference.unknown_words import warn_about_unknown

    loaded, tokenizer = load(model)
    warn_about_unknown(tokenizer, [text])
    words = for_masked_words(loaded, model)
    if words is not loaded:
        print(f"{model} finds replaced words; these are the guesses of its generator:", file=sys.stderr)
    loaded = with_engine(words, engine, threads=1)
    with threadpool_limits(1, "blas"):  # a second thread is no faster for one sentence, and slower on a busy machine
        filled = library.fill_mask(loaded, tokenizer, text, top)
    if json:
        print(as_json({"model": model, "text": text, "masks": filled.gaps, "filled": filled.text}))
    else:
        print(library.report(filled))


def generate(
    prompt: Annotated[str, typer.Argument(help="the beginning of a text; empty: the beginning of a document")],
    model: Annotated[
        str | None,
        typer.Option(
            help="the folder of a model that predicts the next word: of a run, or a published GPT-2; no such "
            "model is bundled"
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="maximum number of new tokens; the model may end earlier")] = 50,
    temperature: Annotated[
        float, typer.Option(help="below 1: safer words; above: more surprising ones; 0: always the likeliest")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="draw from this many of the likeliest tokens only")] = None,
    top_p: Annotated[
        float, typer.Option(help="draw from the fewest tokens that have this probability together; 1: from all")
    ] = 0.9,
    seed: Annotated[int, typer.Option(help="of the random numbers; the same seed gives the same text")] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="end before this text; can be given several times")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON at the end")] = False,
) -> None:
    """Write on from a prompt, one token at a time.

    It needs a model that predicts the next word. The bundled one fills gaps, so train one first, with `mini-bert train
    --model gpt2 --out runs/gpt2`, or name the folder of a published GPT-2.

    When the tokens that the model can read at once are used up, it reads the last half of them again and goes on.

    For example:  mini-bert generate "Once upon a time" --model runs/gpt2 --temperature 0.8
    """
    from threadpoolctl import threadpool_limits

    from mini_bert.common.json_values import as_json
    from mini_bert.inference import generate as library
    from mini_bert.inference.loading import load
    from mini_bert.inference.sampling import Sampling
    from mini_bert.inference.unknown_words import warn_about_unknown

    sampling = Sampling(temperature, top_k, top_p, seed)
    sampling.check()
    library.check_stop(stop or ())
    if model is None:
        raise ValueError(
            "there is no --model, and the bundled mini-bert cannot write, because it fills gaps; train a model that "
            f"predicts the next word with {library.TRAIN_ONE} and add --model runs/gpt2, or name a published GPT-2"
        )
    loaded, tokenizer = load(model)
    library.check_causal(loaded, model)
    warn_about_unknown(tokenizer, [prompt])
    with threadpool_limits(1, "blas"):
        counts = [0]
        pieces = library.generate(loaded, tokenizer, prompt, tokens, sampling, stop or (), counts.append)
        if json:
            text, stopped = library.whole(pieces)
            ended = "stop" if stopped or counts[-1] < tokens else "length"  # fewer: the model ended the document
            about = {"text": text, "tokens": counts[-1], "finish_reason": ended, "seed": seed}
            print(as_json({"model": model, "prompt": prompt, **about}))
            return
        print(prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()


def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="sentences; or use --file")] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[str | None, typer.Option(help="a file with one text per line; - for standard input")] = None,
    out: Annotated[str | None, typer.Option(help="a .npy or .jsonl file to write; - prints JSON lines")] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="mean: average the words' vectors; all: include special tokens; cls: only [CLS]'s vector; default: as "
            "the model's folder says, else mean"
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch-size", "--batch", min=1, help="texts per batch")] = 32,
    threads: Annotated[int, typer.Option(min=1, help="number of threads")] = 2,
    engine: Annotated[str, typer.Option(help=ENGINE)] = "numpy",
) -> None:
    """Turn sentences into vectors.

    The vector of a single text is printed as JSON (on a terminal, only its first numbers), two to ten texts are
    compared in a table of cosines, and the vectors of more are printed as JSON lines.

    For example:  mini-bert embed "A cat sat down." "A dog lay down." "Prices rose."
    """
    from threadpoolctl import threadpool_limits

    from mini_bert.common.memory import keep_freed_memory
    from mini_bert.common.progress import counted, showing
    from mini_bert.export.engine import with_engine
    from mini_bert.files.model_folder import locate
    from mini_bert.finetuning.model import is_tuned
    from mini_bert.inference import embed as library
    from mini_bert.inference.loading import load
    from mini_bert.inference.unknown_words import warn_about_unknown

    if out not in (None, "-"):
        library.check_vector_file(str(out))
        if file not in (None, "-") and Path(str(out)).exists() and Path(str(out)).samefile(str(file)):
            raise ValueError(f"--out {out} is also --file, and would replace the texts; choose another name")
    if texts and file is not None:
        raise ValueError("give either texts or --file, not both")
    if not texts:
        if file is None and sys.stdin.isatty():
            raise ValueError('no text given; give some, such as "The cat sat." "A cat sat.", or --file, or a pipe')
        texts = library.read_lines("-" if file is None else file)
    total = len(texts)
    keep_freed_memory()
    loaded, tokenizer = load(model)
    warn_about_unknown(tokenizer, texts)
    if pooling is None:
        folder = locate(model)
        pooling = (None if is_tuned(folder) else library.pooling_in(folder)) or "mean"
    loaded = with_engine(loaded, engine, threads=1)  # batches run side by side
    with threadpool_limits(1, "blas"), showing(total > 20 * batch) as show:

        def after_each(done: int) -> None:
            show("embedding", f"{done:,} of {counted(total, 'text')}", done, total)

        vectors = library.embed(loaded, tokenizer, texts, pooling, batch, threads, after_each)
    if out not in (None, "-"):
        library.save_vectors(str(out), texts, vectors)
        print(f"{out}: {counted(total, 'vector')} of width {vectors.shape[1]}", file=sys.stderr)
    elif out is None and 2 <= total <= COMPARED:
        print(library.similarity_table(texts, vectors))
    elif out is None and total == 1 and sys.stdout.isatty():
        print(library.first_numbers(texts[0], vectors[0]))
    else:
        for line in library.json_lines(texts, vectors):
            print(line)


def evaluate(
    model: Annotated[str, typer.Argument(help=MODELS)],
    corpus: Annotated[list[str] | None, typer.Option(help=SOURCES)] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="a sentence: how well does the model predict each of its tokens?")
    ] = None,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="with --text: also mask the rest of the token's word")
    ] = False,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            help="a table of two sentences and a similarity score: do the vectors agree with the scores? Or minimal "
            "pairs such as BLiMP's, .jsonl files with sentence_good and sentence_bad, or a folder of these: which of "
            "the two is more likely?"
        ),
    ] = None,
    max_pairs: Annotated[
        int | None, typer.Option(min=1, help="at most this many minimal pairs of each paradigm; default: all")
    ] = None,
    neighbours: Annotated[list[str] | None, typer.Option(help="a word: which token vectors are nearest?")] = None,
    held_out: Annotated[
        float,
        typer.Option(
            help="with --corpus: measure only the documents that `train` with this --held-out did not train on (see "
            "the run's config.json); 0: measure all"
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="seed of the masks")] = 0,
    batch: Annotated[int, typer.Option("--batch-size", "--batch", min=1, help="sequences per batch")] = 32,
    max_batches: Annotated[int | None, typer.Option(min=1, help="stop after this many batches")] = None,
    threads: Annotated[int, typer.Option(min=1, help="number of threads")] = 2,
    length: Annotated[
        int | None, typer.Option(min=3, help="tokens per sequence; default: the model's maximum, at most 128")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure a model on texts, sentence pairs or words.

    Loss, perplexity, accuracy and calibration (--corpus); pseudo-perplexity (--text); agreement of sentence vectors
    with people's similarity scores, or grammar in minimal pairs (--pairs); nearest token vectors (--neighbours).

    For example:  mini-bert eval mini-bert --corpus my_text.txt --text "The cat sat on the mat."
    """
    from threadpoolctl import threadpool_limits

    from mini_bert.common.json_values import as_json
    from mini_bert.common.memory import keep_freed_memory
    from mini_bert.common.progress import counted, showing
    from mini_bert.evaluation import corpus as corpora
    from mini_bert.evaluation import embedding_quality, likelihood, minimal_pairs, pseudo_perplexity
    from mini_bert.evaluation.word_frequencies import read_frequencies
    from mini_bert.inference.loading import load, with_generator

    if not (corpus or text or pairs or neighbours):
        raise ValueError(
            "nothing to measure; give --corpus FILE (loss and accuracy on masked words), --text SENTENCE "
            "(pseudo-perplexity), --pairs FILE (sentence similarity, or minimal pairs) or --neighbours WORD"
        )
    minimal = [path for path in pairs or () if minimal_pairs.are_minimal_pairs(path)]
    similar = [path for path in pairs or () if path not in minimal]
    contrasts = [
        minimal_pairs.read_pairs(path, max_pairs) for path in minimal
    ]  # a bad file is reported before any work
    scored = [embedding_quality.read_pairs(path) for path in similar]
    keep_freed_memory()
    loaded, tokenizer = load(model)
    if corpus:
        loaded = with_generator(loaded, model)
        corpora.question_for(loaded)  # raises an error for a model that predicts nothing
    if text or minimal:
        likelihood.way_of(loaded)  # raises an error for a model that predicts nothing
    results: dict[str, Any] = {"model": model}
    reports = []
    with threadpool_limits(1, "blas"):
        if text:
            judged = [pseudo_perplexity.pseudo_perplexity(loaded, tokenizer, one, whole_words, batch) for one in text]
            results["texts"] = [pseudo_perplexity.content(one) for one in judged]
            reports.append(pseudo_perplexity.report(judged))
        if neighbours:
            nearest = [embedding_quality.neighbours(loaded, tokenizer, word) for word in neighbours]
            table = embedding_quality.isotropy(embedding_quality.word_table(loaded, tokenizer)[1])
            results |= {"neighbours": nearest, "token_table": table}
            reports.append(embedding_quality.report_neighbours(nearest, table))
    if minimal:
        judgements = []
        with threadpool_limits(1, "blas"), showing() as show:
            for path, examples in zip(minimal, contrasts, strict=True):

                def judged_so_far(done: int, total: int, path: str = path) -> None:
                    show(f"reading {path}", f"{done:,} of {counted(total, 'sentence')}", done, total)

                judgements.append(minimal_pairs.minimal_pairs(loaded, tokenizer, examples, threads, judged_so_far))
        results["minimal_pairs"] = [
            {"file": path, **one._asdict()} for path, one in zip(minimal, judgements, strict=True)
        ]
        reports += [minimal_pairs.report(path, one) for path, one in zip(minimal, judgements, strict=True)]
    if similar:
        agreements = []
        with showing() as show:
            for path, rated in zip(similar, scored, strict=True):

                def after_each(done: int, total: int, path: str = path) -> None:
                    show(f"embedding {path}", f"{done:,} of {counted(total, 'sentence')}", done, total)

                agreements.append(
                    embedding_quality.agreement(loaded, tokenizer, rated, "mean", batch, threads, after_each)
                )
        results["pairs"] = [{"file": path, **one._asdict()} for path, one in zip(similar, agreements, strict=True)]
        reports.append(embedding_quality.report_pairs([Path(path).name for path in similar], agreements))
    if corpus:
        known = read_frequencies(model)
        given = (held_out, length, seed, batch, max_batches, threads, known)
        with in_options(("held_out", "batch_size"), max_seq_length="length"):
            rows = [corpora.measure_corpus(loaded, tokenizer, one, *given) for one in corpus]
        results["results"] = corpora.content(rows)
        reports.append(corpora.report(model, rows))
        if held_out:
            reports[-1] += f"\nEvaluated only on documents that `train --held-out {held_out:g}` does not train on."
    print(as_json(results) if json else "\n\n".join(reports))


def metrics(
    test: Annotated[
        bool, typer.Option("--test", help="compute each metric on a small case with a known answer")
    ] = False,
) -> None:
    """List every metric with its formula. With --test, compute each on a small case with a known answer.

    --test exits with 1 if a value differs from the known one.
    """
    from mini_bert.evaluation.known_cases import cases, formulas, report

    if not test:
        print(formulas())
        return
    computed = cases()
    print(report(computed))
    raise typer.Exit(0 if all(case.passed for case in computed) else 1)


def export(
    model: Annotated[str, typer.Argument(help=MODELS)],
    out: Annotated[Path, typer.Option(help="the folder to write")],
    full: Annotated[
        bool, typer.Option("--full", help="32 bits per weight instead of 16; with --onnx, the default")
    ] = False,
    bfloat16: Annotated[
        bool, typer.Option("--bfloat16", help="16 bits with the range of float32, and fewer digits than float16")
    ] = False,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="8 bits per weight; with --onnx: write onnx/model_quantized.onnx instead"),
    ] = False,
    onnx: Annotated[
        bool,
        typer.Option(
            "--onnx",
            help="also write onnx/model.onnx, with the model's head (extra `onnx`); weights have 32 bits by default",
        ),
    ] = False,
    encoder: Annotated[
        bool, typer.Option("--encoder", help="with --onnx: the vectors of the tokens instead of the head's scores")
    ] = False,
    past: Annotated[
        bool, typer.Option("--past", help="with --onnx: past_key_values in and out, for GPT-2 to write token by token")
    ] = False,
) -> None:
    """Write a model folder to share. It contains the config, 16-bit weights, tokenizer and model card.

    For example:  mini-bert export mini-bert --out my-model
    Or for ONNX:  mini-bert export mini-bert --onnx --out my-model
    """
    kinds = [name for name, wanted in (("float32", full), ("bfloat16", bfloat16), ("int8", int8)) if wanted]
    if len(kinds) > 1:
        raise ValueError("--full, --bfloat16 and --int8 are different weights; choose one of them")
    if (encoder or past) and not onnx:
        raise ValueError("--encoder and --past say what the ONNX graph computes; add --onnx")
    from mini_bert.export import folder, onnx_folder
    from mini_bert.files.model_folder import CARD
    from mini_bert.finetuning import model as finetuning
    from mini_bert.inference.loading import load, with_generator

    weights = kinds[0] if kinds else "float32" if onnx else "float16"
    source = folder.source_of(model, out)
    write: Callable[..., Any]
    as_graph: Callable[..., Any]
    if finetuning.is_tuned(source):
        if past:
            raise ValueError(f"{model} was fine-tuned for a task, and writes no text; export it without --past")
        tuned = finetuning.load(source)
        loaded = tuned.model
        as_graph, write = partial(onnx_folder.export_tuned_onnx, tuned), partial(folder.export_tuned, tuned)
    else:
        loaded, tokenizer = load(source)
        loaded = with_generator(loaded, source)
        as_graph = partial(onnx_folder.export_onnx, loaded, tokenizer, past=past)
        write = partial(folder.export, loaded, tokenizer)
    if onnx:
        graph = as_graph(out, weights, source / CARD, encoder=encoder)
        names = f"{', '.join(graph.inputs)} -> {', '.join(graph.outputs)}"
        print(f"{graph.path}: {graph.size / 1e6:.1f} MB, {names}")
        return
    size = write(out, weights, source / CARD)
    bits = {"float32": 32, "int8": 8}.get(weights, 16)
    print(f"{out}: {loaded.get_parameter_count():,} weights in {bits} bits, {size / 1e6:.1f} MB")
