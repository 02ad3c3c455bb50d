"""Mistakes that people make with the architectures, objectives and tokenizers of the family: one line per case."""
# One line per case, however long:
# ruff: noqa: E501

from __future__ import annotations

import json
import shutil

from making import PIECES, Case, file, files, gzipped
from making_clumsy import CLASSES, PROSE, SCORES, TREE, empty
from making_family import KINDS, config_file, of, runs_on, stopped

MASKED = ("bert", "roberta", "distilbert", "albert", "deberta", "deberta-v2", "modernbert", "xlnet")
CAUSAL = ("gpt2", "transfo-xl")
SENTENCES = "The cat sat on a mat. A dog ran. The film was good.\n\nThe dog was bad. A cat ran on a mat.\n\n"
TEXT = file("prose.txt", SENTENCES * 100)
WRITE = "generate --model {it} --tokens 4 "
TRAIN = "train --corpus {text} --steps 1 --threads 1 --held-out 0 --quiet --out r "
INIT = TRAIN + "--init {it} "
STUDENT = TRAIN + "--model {student} --teacher {it} "
PAIRS = "eval {it} --pairs {data} "
PAIR = '{"sentence_good": "the cat sat", "sentence_bad": "the cat on", "UID": "verbs"}\n'
EN_LARGE = file("config.json", json.dumps({"model_type": "distilbert", **KINDS["distilbert"], "vocab_size": 8192}))
OTHER_WORDS = "\n".join([*PIECES[:-1], "zebra"]) + "\n"
# fmt: off


def pairs(content, name="pairs.jsonl"):
    return {"it": of("bert"), "data": file(name, content)}


USING = [
    *(Case(f"embed with {kind}", "embed --model {it} 'the cat' 'a dog'", 0, "closest", it=of(kind)) for kind in KINDS),
    *(Case(f"fill-mask with {kind}", "fill-mask --model {it} 'the [MASK] sat'", 0, "%", it=of(kind)) for kind in MASKED),
    *(Case(f"fill-mask with {kind}", "fill-mask --model {it} 'the [MASK] sat'", 1, "no head for masked words.*mini-bert generate", it=of(kind)) for kind in CAUSAL),
    Case("fill-mask with a discriminator", "fill-mask --model {it} 'the [MASK] sat'", 0, "generator|%", it=of("electra")),
    Case("fill-mask with a generator without a tokenizer", "fill-mask --model {it}/generator 'the [MASK] sat'", 1, "no tokenizer .tokenizer.json.*spiece.model.*copy the one that it was trained with", it=of("electra")),
    Case("fill-mask with a discriminator that lost its generator", "fill-mask --model {it} 'the [MASK] sat'", 1, "no head for masked words.*generator", it=lambda folder: _without_generator(of("electra")(folder))),
    *(Case(f"fill-mask with an encoder of {kind}", "fill-mask --model {it} 'the [MASK] sat'", 1, "no head for (masked )?words", it=of(kind, bare=True)) for kind in ("bert", "roberta", "albert", "deberta-v2", "xlnet", "modernbert")),
    *(Case(f"generate with {kind}", WRITE + "cat", 1, "cannot write.*fill-mask.*--model", it=of(kind)) for kind in MASKED),
    Case("generate with ELECTRA", WRITE + "cat", 1, "cannot write: it reads a whole text", it=of("electra")),
    *(Case(f"generate with {kind}", WRITE + "cat", 0, "cat", it=of(kind)) for kind in CAUSAL),
    Case("generate with an encoder of GPT-2", WRITE + "cat", 1, "no head for the next word", it=of("gpt2", bare=True)),
    *(Case(f"eval --text with {kind}", "eval {it} --text 'the cat sat'", 0, "perplexity|replaced", it=of(kind)) for kind in KINDS),
    *(Case(f"eval --corpus with {kind}", "eval {it} --corpus {text} --max-batches 1", 0, "loss", it=of(kind), text=TEXT) for kind in KINDS),
    *(Case(f"minimal pairs with {kind}", PAIRS, 0, "1 minimal pair right|of 1 minimal pair", it=of(kind), data=file("pairs.jsonl", PAIR)) for kind in KINDS),
    *(Case(f"export of {kind}", "export {it} --out x", 0, "weights in 16 bits", it=of(kind)) for kind in KINDS),
    *(Case(f"attention of {kind}", "attention --model {it} 'the cat sat' --no-relations", 0, "layer|head", it=of(kind)) for kind in KINDS),
    *(Case(f"finetune {kind}", "finetune classify --model {it} --train {data} --dev {data} --epochs 1 --threads 1 --quiet --out t", 0, "accuracy", it=of(kind), data=file("c.tsv", CLASSES)) for kind in KINDS),
    *(Case(f"info of {kind}", "info --model {it}/config.json", 0, "total", it=of(kind)) for kind in KINDS),
    *(Case(f"plan of {kind}", "plan --init {it}", 0, "default settings fit", it=of(kind)) for kind in KINDS),
    Case("a probe of XLNet", "probe pos --model {it} --train {data} --dev {data} --threads 1", 0, "layer", it=of("xlnet"), data=file("t.conllu", TREE * 6)),
    Case("similarity with GPT-2", "eval {it} --pairs {data}", 0, "Spearman|spearman", it=of("gpt2"), data=file("s.tsv", SCORES)),
    Case("predict with a GPT-2 that is not fine-tuned", "predict {it} cat", 1, "not fine-tuned for a task", it=of("gpt2")),
    Case("embed a text longer than XLNet's segments", "embed --model {it} '" + "cat " * 60 + "'", 0, "cut 1 of 1 text", it=of("xlnet")),
    Case("embed with one position", "embed --model {it} cat", 1, "reads at most 2 tokens at once, and the special tokens around a text are 2", it=of("modernbert", config={"max_position_embeddings": 2})),
]

WRITING = [
    Case("temperature 0", WRITE + "cat --temperature 0", 0, "^cat ", it=of("gpt2")),
    Case("temperature 1e308", WRITE + "cat --temperature 1e308", 0, "cat", it=of("gpt2")),
    Case("temperature 1e-308", WRITE + "cat --temperature 1e-308", 0, "cat", it=of("gpt2")),
    Case("temperature inf", WRITE + "cat --temperature inf", 1, "temperature is inf", it=of("gpt2")),
    Case("temperature in words", WRITE + "cat --temperature hot", 2, "--temperature.*valid number", it=of("gpt2")),
    Case("top-k 0", WRITE + "cat --top-k 0", 2, "--top-k.*greater than or equal to 1", it=of("gpt2")),
    Case("top-k of 10**30", WRITE + "cat --top-k 1" + "0" * 30, 0, "cat", it=of("gpt2")),
    Case("top-p 0", WRITE + "cat --top-p 0", 1, "top_p is 0.0, expected a probability above 0", it=of("gpt2")),
    Case("top-p 1.5", WRITE + "cat --top-p 1.5", 1, "top_p is 1.5", it=of("gpt2")),
    Case("top-p nan", WRITE + "cat --top-p nan", 1, "top_p is nan", it=of("gpt2")),
    Case("top-p 1e-300", WRITE + "cat --top-p 1e-300", 0, "cat", it=of("gpt2")),
    Case("an empty prompt", WRITE + "''", 0, "", it=of("gpt2")),
    Case("a prompt of spaces", WRITE + "'   '", 0, "", it=of("gpt2")),
    Case("an empty prompt for Transformer-XL", WRITE + "''", 0, "", it=of("transfo-xl")),
    Case("a prompt of control characters", WRITE + "'cat\x07\x1b[31m\x08 dog'", 0, r"cat\\x07\\x1b\[31m\\x08 dog", it=of("gpt2")),
    Case("a prompt of special tokens", WRITE + "'[CLS] [SEP] [MASK]'", 0, "", it=of("gpt2")),
    Case("a prompt of unknown words", WRITE + "'日本 🐈'", 0, "日本", it=of("gpt2")),
    Case("a prompt that is not Unicode", WRITE + "'cat \udcff'", 1, "surrogate", it=of("gpt2")),
    Case("a prompt of 120,000 characters", WRITE + "'" + "cat " * 30_000 + "'", 0, "prompt has 30,000 tokens.*only the last 12 are used", it=of("gpt2")),
    Case("a prompt of 120,000 characters for Transformer-XL", WRITE + "'" + "cat " * 30_000 + "'", 0, "cat", it=of("transfo-xl")),
    Case("two prompts", WRITE + "cat dog", 2, "unexpected extra argument", it=of("gpt2")),
    Case("-1 tokens", "generate --model {it} --tokens -1 cat", 2, "--tokens.*greater than or equal to 1", it=of("gpt2")),
    Case("3,000 tokens", "generate --model {it} --tokens 3000 --temperature 0 cat", 0, "cat", it=of("gpt2")),
    Case("3,000 tokens of Transformer-XL", "generate --model {it} --tokens 3000 --temperature 0 cat", 0, "cat", it=of("transfo-xl")),
    Case("3,000 tokens without a memory", "generate --model {it} --tokens 3000 --temperature 0 cat", 0, "cat", it=of("transfo-xl", config={"mem_len": 0})),
    Case("a stop of 10,000 characters", WRITE + "cat --stop '" + "cat " * 2500 + "'", 0, "cat", it=of("gpt2")),
    Case("a stop that is the prompt", WRITE + "cat --stop cat", 0, "^cat", it=of("gpt2")),
    Case("an empty stop among others", WRITE + "cat --stop . --stop ''", 1, "stop is .*at least one character", it=of("gpt2")),
    Case("a seed of -1", WRITE + "cat --seed -1", 0, "cat", it=of("gpt2")),
    Case("a seed of 10**40", WRITE + "cat --seed 1" + "0" * 40, 0, "cat", it=of("gpt2")),
    Case("a seed in words", WRITE + "cat --seed lucky", 2, "--seed.*valid integer", it=of("gpt2")),
    Case("the text as JSON", WRITE + "'cat \x1b' --json", 0, '"prompt": "cat .u001b"', it=of("gpt2")),
    Case("an end that the vocabulary lacks", WRITE + "cat", 0, "cat", it=of("gpt2", config={"eos_token_id": 50256})),
]

MINIMAL = [
    Case("a pair without sentence_bad", PAIRS, 1, "line 1: sentence_bad is None, expected a sentence", **pairs('{"sentence_good": "the cat sat"}\n')),
    Case("a pair with other names", PAIRS, 1, "sentence_good|column|score", **pairs('{"good": "the cat sat", "bad": "cat the"}\n')),
    Case("a pair of numbers", PAIRS, 1, "sentence_good is 1, expected a sentence", **pairs('{"sentence_good": 1, "sentence_bad": 2}\n')),
    Case("a pair of spaces", PAIRS, 1, "sentence_bad is ' ', expected a sentence", **pairs('{"sentence_good": "the cat", "sentence_bad": " "}\n')),
    Case("a pair twice the same", PAIRS, 0, r"50\.0% of 1 minimal pair", **pairs('{"sentence_good": "the cat", "sentence_bad": "the cat"}\n')),
    Case("a pair of unknown words", PAIRS, 0, "1 minimal pair", **pairs('{"sentence_good": "the cat ☃", "sentence_bad": "the ☃"}\n')),
    Case("a pair without a known word", PAIRS, 1, "no word in the model's vocabulary", **pairs('{"sentence_good": "[CLS]", "sentence_bad": "the cat"}\n')),
    Case("a pair too long", PAIRS, 1, "tokens, .*at most 16; give one sentence at a time", **pairs(json.dumps({"sentence_good": "cat " * 50, "sentence_bad": "the cat"}) + "\n")),
    Case("pairs, and a line that is no JSON", PAIRS, 1, "line 2 is not JSON", **pairs(PAIR + "the cat\n")),
    Case("pairs, and a line nested 100,000 deep", PAIRS, 1, "line 2 is not JSON", **pairs(PAIR + "[" * 100_000 + "\n")),
    Case("pairs, and a line that is a list", PAIRS, 1, "line 2: sentence_good is None", **pairs(PAIR + "[1, 2]\n")),
    Case("pairs with empty lines", PAIRS, 0, "2 minimal pairs", **pairs(PAIR + "\n\n" + PAIR.replace("on", "the"))),
    Case("an empty file of pairs", PAIRS, 1, "pairs.jsonl", **pairs("")),
    Case("pairs in UTF-16", PAIRS, 0, "1 minimal pair", **pairs(PAIR.encode("utf-16"))),
    Case("pairs with a BOM", PAIRS, 0, "1 minimal pair", **pairs(b"\xef\xbb\xbf" + PAIR.encode())),
    Case("pairs of bytes", PAIRS, 1, "pairs.jsonl", **pairs(bytes(range(256)))),
    Case("pairs that are compressed", PAIRS, 0, "1 minimal pair", it=of("bert"), data=gzipped("pairs.jsonl.gz", PAIR.encode())),
    Case("half of a compressed file of pairs", PAIRS, 1, "pairs.jsonl.gz", it=of("bert"), data=lambda folder: _half(gzipped("pairs.jsonl.gz", PAIR.encode() * 99)(folder))),
    Case("pairs whose paradigm has escape codes", PAIRS, 0, r"\\x1b\[31m", **pairs(PAIR.replace("verbs", "\\u001b[31m"))),
    Case("pairs whose paradigm is an object", PAIRS, 0, "1 minimal pair", **pairs(PAIR.replace('"verbs"', '{"a": []}'))),
    Case("an empty folder of pairs", PAIRS, 1, "has no .jsonl file", it=of("bert"), data=empty()),
    Case("a folder of texts as pairs", PAIRS, 1, "has no .jsonl file", it=of("bert"), data=files("texts", a__txt="the cat")),
    Case("a folder of pairs", PAIRS, 0, "2 minimal pairs.*2 paradigms", it=of("gpt2"), data=files("blimp", a__jsonl=PAIR, b__jsonl=PAIR.replace("verbs", "nouns"))),
    Case("the first 0 pairs", PAIRS + "--max-pairs 0", 2, "--max-pairs.*greater than or equal to 1", **pairs(PAIR)),
    Case("the first pair", PAIRS + "--max-pairs 1", 0, "1 minimal pair", **pairs(PAIR * 5)),
    Case("pairs as JSON", PAIRS + "--json", 0, '"accuracy":', **pairs(PAIR)),
    Case("pairs, and an encoder that predicts nothing", PAIRS, 1, "no head for masked words", it=of("bert", bare=True), data=file("pairs.jsonl", PAIR)),
    Case("minimal pairs and similar pairs at once", PAIRS + "--pairs {more}", 0, "1 minimal pair", more=file("s.tsv", SCORES), **pairs(PAIR)),
]

LEARNING = [
    *(Case(f"continue with {kind}", INIT, 0, "", it=of(kind), text=TEXT) for kind in KINDS),
    *(Case(f"{kind} cannot learn {objective}", INIT + f"--objective {objective}", 1, f"cannot be trained with the objective {objective}: it has no .*with these, --objective can be|the objective {objective} needs 2.*[cC]hoose --objective", it=of(kind), text=TEXT)
      for kind, objective in (("bert", "next_word"), ("bert", "permutation"), ("bert", "masked_words_and_sentence_order"), ("roberta", "masked_words_and_next_sentence"), ("albert", "masked_words_and_next_sentence"), ("gpt2", "masked_words"), ("gpt2", "next_word_with_memory"), ("gpt2", "replaced_tokens"), ("xlnet", "next_word"), ("transfo-xl", "permutation"), ("modernbert", "replaced_tokens"), ("deberta", "replaced_tokens"), ("electra", "permutation"), ("distilbert", "masked_words_and_sentence_order"))),
    Case("distillation without a teacher", INIT + "--objective distillation", 1, "needs a teacher: add --teacher", it=of("bert"), text=TEXT),
    Case("an objective that is none", INIT + "--objective mlm", 1, "objective is 'mlm', expected one of 'masked_words'", it=of("bert"), text=TEXT),
    Case("an empty objective", INIT + "--objective ''", 1, "objective is '', expected one of", it=of("bert"), text=TEXT),
    Case("an objective with hyphens", INIT + "--objective masked-words", 0, "", it=of("bert"), text=TEXT),
    Case("two objectives", INIT + "--objective masked_words --next-sentence", 1, "ask for different objectives", it=of("bert"), text=TEXT),
    Case("next sentence for ALBERT", INIT + "--next-sentence", 1, "ALBERT cannot be trained.*no head next_sentence", it=of("albert"), text=TEXT),
    Case("masking for GPT-2", INIT + "--masking span", 1, "--masking has no effect on the objective next_word", it=of("gpt2"), text=TEXT),
    Case("a share of masks for GPT-2", INIT + "--mask-prob 0.3", 1, "--mask-prob has no effect", it=of("gpt2"), text=TEXT),
    Case("an unknown masking", INIT + "--masking words", 1, "--masking is 'words', expected one of pieces, whole-word, span", it=of("bert"), text=TEXT),
    Case("15 % of masks", INIT + "--mask-prob 15", 1, "mask_prob is 15.0, expected more than 0 and at most 1", it=of("bert"), text=TEXT),
    Case("no masks", INIT + "--mask-prob 0", 1, "mask_prob is 0.0", it=of("xlnet"), text=TEXT),
    Case("masks of NaN", INIT + "--mask-prob nan", 1, "mask_prob is nan", it=of("electra"), text=TEXT),
    Case("a temperature without a teacher", INIT + "--temperature 2", 1, "--temperature has no effect on the objective masked_words", it=of("bert"), text=TEXT),
    Case("lean attention for XLNet", INIT + "--attention lean", 1, "'lean', but layer 0 of this XLNet.*does not support", it=of("xlnet"), text=TEXT),
    Case("sequences longer than Transformer-XL's", INIT + "--length 64", 1, "length is 64, expected 3 to 16, from tgt_len in the config of this Transformer-XL", it=of("transfo-xl"), text=TEXT),
    Case("a batch larger than the text has lanes", INIT + "--batch-size 10000", 1, "too few for a batch of 10000.*use more text", it=of("transfo-xl"), text=TEXT),
    Case("pairs of sentences from single sentences", INIT, 1, "no pairs", it=of("albert"), text=file("x.txt", "the cat sat .\n\n" * 300)),
    Case("--init and another --model", INIT + "--model roberta", 1, "has a config of its own, which is not that of --model roberta", it=of("bert"), text=TEXT),
    Case("--init and its own --model", INIT + "--model {it}/config.json", 0, "", it=of("bert"), text=TEXT),
    Case("--init that is not there", TRAIN + "--init bert-base-uncased", 1, "no model folder bert-base-uncased", text=TEXT),
    Case("--init that is empty", TRAIN + "--init ''", 1, "the name of the model folder is empty", text=TEXT),
    Case("--init that is a text", TRAIN + "--init {text}", 1, "it is a file", text=TEXT),
    Case("--init and another tokenizer", INIT + "--tokenizer 8k", 1, "has its own tokenizer.*leave out --tokenizer", it=of("gpt2"), text=TEXT),
    Case("--init without a tokenizer", INIT, 1, "has no tokenizer .*, and no bundled tokenizer for a GPT-2 has its 21 tokens.*--tokenizer FOLDER", it=of("gpt2", drop=("tokenizer.json", "vocab.txt", "tokenizer_config.json")), text=TEXT),
    Case("--init, and a tokenizer that is larger", INIT + "--tokenizer 8k", 1, "8,192.*21", it=of("gpt2", drop=("tokenizer.json", "vocab.txt", "tokenizer_config.json")), text=TEXT),
    Case("--init --tie-head", INIT + "--tie-head", 1, "has a head with a matrix of its own", it=of("gpt2", config={"tie_word_embeddings": False}, weights=lambda arrays: arrays.update({"lm_head.weight": arrays["transformer.wte.weight"] + 1})), text=TEXT),
    Case("--init of a RoBERTa with another id for padding", INIT, 1, r"\[PAD\] has the id 0 in its tokenizer, but pad_token_id is 1", it=of("roberta", config={"pad_token_id": 1}), text=TEXT),
    Case("--model with weights", TRAIN + "--model {it}", 1, "has trained weights, but --model starts from random weights.*--init", it=of("deberta-v2"), text=TEXT),
    Case("a preset in capitals", TRAIN + "--model ELECTRA", 1, "'ELECTRA' is neither a preset.*electra", text=TEXT),
    Case("a preset that is none", TRAIN + "--model llama", 1, "'llama' is neither a preset .*gpt2", text=TEXT),
    Case("a discriminator that lost its generator", INIT, 0, "", it=lambda folder: _without_generator(of("electra")(folder)), text=TEXT),
    Case("a teacher", STUDENT, 0, "", it=of("bert"), student=config_file("distilbert"), text=TEXT),
    Case("a teacher that writes", STUDENT, 1, "cannot be a teacher: its GPT2 does not predict masked words", it=of("gpt2"), student=config_file("distilbert"), text=TEXT),
    Case("a teacher that discriminates", STUDENT, 1, "cannot be a teacher: its Electra does not predict masked words", it=of("electra"), student=config_file("distilbert"), text=TEXT),
    Case("a teacher that is an encoder", STUDENT, 1, "cannot be a teacher.*output heads are", it=of("bert", bare=True), student=config_file("distilbert"), text=TEXT),
    Case("a teacher that is not there", TRAIN + "--model {student} --teacher nowhere", 1, "no model folder nowhere", student=config_file("distilbert"), text=TEXT),
    Case("a teacher that is empty", TRAIN + "--model {student} --teacher ''", 1, "the name of the model folder is empty", student=config_file("distilbert"), text=TEXT),
    Case("a teacher that is damaged", STUDENT, 1, "not a complete safetensors file", it=of("bert", write={"model.safetensors": b"x" * 99}), student=config_file("distilbert"), text=TEXT),
    Case("a teacher of an unknown architecture", STUDENT, 1, "config.json.*model_type is 'llama'", it=of("bert", config={"model_type": "llama"}), student=config_file("distilbert"), text=TEXT),
    Case("a teacher without a tokenizer", STUDENT, 1, "--teacher .* has no tokenizer", it=of("bert", drop=("tokenizer.json", "vocab.txt", "tokenizer_config.json")), student=config_file("distilbert"), text=TEXT),
    Case("a teacher with another tokenizer than --init", INIT + "--teacher {teacher}", 1, "has its own tokenizer.*choose models with the same vocabulary", it=of("distilbert"), teacher=of("bert", write={"vocab.txt": OTHER_WORDS}, drop=("tokenizer.json",)), text=TEXT),
    Case("a teacher with another tokenizer than --tokenizer", STUDENT + "--tokenizer 8k", 1, "has its own tokenizer.*leave out --tokenizer", it=of("bert"), student=config_file("distilbert"), text=TEXT),
    Case("a teacher with more words than --init", INIT + "--teacher mini-bert", 1, "8,192|tokenizer", it=of("distilbert"), text=TEXT),
    Case("a teacher and masked words", STUDENT + "--objective masked_words", 1, "--objective .masked_words. and --teacher .distillation. ask for different", it=of("bert"), student=config_file("distilbert"), text=TEXT),
    Case("a temperature of 0", STUDENT + "--temperature 0", 1, "temperature is 0.0, expected a positive number", it=of("bert"), student=config_file("distilbert"), text=TEXT),
    Case("a teacher's temperature of 1e308", STUDENT + "--temperature 1e308", 1, r"temperature is 1e\+308, expected from 0.01", it=of("bert"), student=config_file("distilbert"), text=TEXT),
    Case("a teacher's temperature of 1e-300", STUDENT + "--temperature 1e-300", 1, "temperature is 1e-300, expected from 0.01", it=of("bert"), student=config_file("distilbert"), text=TEXT),
    Case("layers of no teacher", TRAIN + "--model {student} --init-from-teacher", 1, "--init-from-teacher needs --teacher", student=config_file("distilbert"), text=TEXT),
    Case("layers of a teacher, and --init", INIT + "--teacher {it} --init-from-teacher", 1, "--init-from-teacher needs --teacher, and no --init", it=of("bert"), text=TEXT),
    Case("more layers than the teacher", STUDENT + "--init-from-teacher", 1, "student has 3 layers, more than the 2 of its teacher.*leave out --init-from-teacher.*at most 2 layers", it=of("bert"), student=config_file("distilbert", n_layers=3), text=TEXT),
    Case("layers of another width than the teacher's", STUDENT + "--init-from-teacher", 1, "blocks of a DistilBert of width 16 cannot start with those of its teacher.*leave out --init-from-teacher", it=of("bert"), student=config_file("distilbert", dim=16), text=TEXT),
]

STOPPED = [
    *(Case(f"resume a killed run of {objective}", "train --resume --out run --quiet", 0, "", check=runs_on(kind, objective), it=stopped(kind, objective))
      for kind, objective in (("bert", "masked_words"), ("bert", "masked_words_and_next_sentence"), ("albert", "masked_words_and_sentence_order"), ("electra", "replaced_tokens"), ("xlnet", "permutation"), ("gpt2", "next_word"), ("transfo-xl", "next_word_with_memory"), ("distilbert", "distillation"))),
    Case("resume with a teacher that changed", "train --resume --out run --quiet", 1, "teacher", it=stopped("distilbert", "distillation", lambda run: _halve(run.parent / "teacher"))),
    Case("resume with a teacher that is gone", "train --resume --out run --quiet", 1, "no longer in .*teacher; put it back there", it=stopped("distilbert", "distillation", lambda run: shutil.rmtree(run.parent / "teacher"))),
    Case("resume another objective", "train --resume --out run --quiet", 1, "", it=stopped("bert", "masked_words", lambda run: _edit(run / "config.json", objective="next_word"))),
    Case("resume an objective that is none", "train --resume --out run --quiet", 1, "objective is 'x', expected one of", it=stopped("bert", "masked_words", lambda run: _edit(run / "config.json", objective="x"))),
    Case("resume an objective of 5", "train --resume --out run --quiet", 1, "objective", it=stopped("bert", "masked_words", lambda run: _edit(run / "config.json", objective=5))),
    Case("resume with options of another objective", "train --resume --out run --quiet", 1, "objective_options is .*teacher.*masked_words has no such options|teacher of this run is no longer in x", it=stopped("bert", "masked_words", lambda run: _edit(run / "config.json", objective_options={"teacher": "x"}))),
    Case("resume a model of another architecture", "train --resume --out run --quiet", 1, "lacks|fit|missing|shape", it=stopped("bert", "masked_words", lambda run: _edit(run / "config.json", model={"model_type": "roberta", **KINDS["roberta"]}))),
    Case("resume a memory of another length", "train --resume --out run --quiet", 1, "memory|mem_len|fit|shape", it=stopped("transfo-xl", "next_word_with_memory", lambda run: _edit(run / "config.json", model=json.loads((run / "config.json").read_text())["model"] | {"mem_len": 7}))),
    Case("a doctor for a killed ELECTRA", "doctor run", 0, "step", it=stopped("electra", "replaced_tokens")),
    Case("write with a killed run", "generate --model run --tokens 3 cat", 0, "no best model yet; using its newest checkpoint", it=stopped("gpt2", "next_word")),
    Case("fill masks with a killed ELECTRA", "fill-mask --model run 'the [MASK]'", 0, "", it=stopped("electra", "replaced_tokens")),
]

LISTING = [
    Case("the story of ALBERT", "family albert", 0, "ALBERT"),
    Case("the story of a stranger", "family llama", 1, "llama.*albert"),
    Case("a misspelt story", "family roberta2", 1, "roberta2.*roberta"),
    Case("two stories", "family albert electra", 2, "unexpected extra argument"),
    Case("the family as JSON", "family --no-timing --json", 0, '"parameters"|"name"'),
    Case("an empty story", "family ''", 1, "expected|family"),
]

VOCABULARIES = [
    Case("an unknown kind of tokenizer", "tokenizer train {it} --kind sentencepiece", 1, "--kind is 'sentencepiece', expected one of wordpiece, bpe, unigram", it=TEXT),
    *(Case(f"{kind} of an empty text", "tokenizer train {it} --kind " + kind, 1, "no text", it=file("e.txt", "")) for kind in ("bpe", "unigram")),
    *(Case(f"{kind} of spaces", "tokenizer train {it} --kind " + kind, 1, "no text|no words", it=file("e.txt", "  \n\n ")) for kind in ("bpe", "unigram")),
    *(Case(f"{kind} of one letter", "tokenizer train {it} --kind " + kind + " --vocab-size 300 --out t", 0, "Saved in t", it=file("e.txt", "a a a\n\n" * 50)) for kind in ("bpe", "unigram")),
    *(Case(f"{kind} of {size} pieces", "tokenizer train {it} --kind " + f"{kind} --vocab-size={size}", 1, "vocab.size", it=TEXT) for kind in ("bpe", "unigram") for size in ("0", "-1", "3", "1" + "0" * 30)),
    Case("BPE with its own case", "tokenizer train {it} --kind bpe --cased --vocab-size 300 --out t", 0, "Learnt", it=TEXT),
    Case("BPE with a limit of letters", "tokenizer train {it} --kind bpe --limit-alphabet 5", 1, "limit.alphabet", it=TEXT),
    Case("BPE like BERT", "tokenizer train {it} --kind bpe --like bert", 1, "like.*roberta.*gpt2", it=TEXT),
    Case("WordPiece like GPT-2", "tokenizer train {it} --kind wordpiece --like gpt2", 1, "--like", it=TEXT),
    Case("BPE onto a tokenizer", "tokenizer train {it} --kind bpe --out {out}", 1, "already has a tokenizer.*--force", it=TEXT, out=of("bert")),
    Case("Unigram of control characters", "tokenizer train {it} --kind unigram --vocab-size 60 --out t", 0, "Saved in t", it=file("x.txt", PROSE + "\x00\x07\u200b\u202e\ufffd\n\n" * 9)),
    Case("BPE of bytes that are not UTF-8", "tokenizer train {it} --kind bpe --vocab-size 300 --out t", 0, "Saved in t", it=file("x.txt", PROSE.encode() + b"caf\xe9 \xff\xfe\n\n")),
    Case("GPT-2 with the tokenizer of BERT", "generate --model {it} --tokens 3 cat", 0, "cat", it=of("gpt2")),
    Case("a tokenizer with more words than the model", "embed --model {it} cat", 1, "its tokenizer has 23 tokens, but its model has only 21 ids.*replace it", it=of("xlnet", write={"vocab.txt": "\n".join([*PIECES, "x", "y"]) + "\n"}, drop=("tokenizer.json",))),
    Case("a tokenizer with fewer words than the model", "fill-mask --model {it} 'the [MASK]'", 0, "%", it=of("bert", write={"vocab.txt": "\n".join(PIECES[:-2]) + "\n"}, drop=("tokenizer.json",))),
    Case("no tokenizer beside an XLNet", "embed --model {it} cat", 1, "no tokenizer .tokenizer.json.*copy the one", it=of("xlnet", drop=("tokenizer.json", "vocab.txt", "tokenizer_config.json"))),
]

FAMILY_CLUMSY = [*USING, *WRITING, *MINIMAL, *LEARNING, *STOPPED, *LISTING, *VOCABULARIES]


def _half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def _halve(folder):
    """The weights of a model are multiplied by 1/2."""
    from safetensors.numpy import load_file, save_file

    arrays = load_file(folder / "model.safetensors")
    save_file({name: array / 2 for name, array in arrays.items()}, folder / "model.safetensors")


def _edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _without_generator(folder):
    shutil.rmtree(folder / "generator")
    return folder
