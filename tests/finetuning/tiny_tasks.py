"""A language of forty words, with labelled examples for every task, which a tiny model learns in a second."""

from __future__ import annotations

import json
import random
from pathlib import Path

from mini_bert.data.labelled.readers import Labelled, Question, Scored, Tagged
from mini_bert.models.base import Model
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

GOOD, BAD, NAMES, PLACES = ["good", "fine", "great"], ["bad", "dull", "awful"], ["ada", "ben", "cleo"], ["rome", "oslo"]
COLOURS, THINGS = ["red", "blue", "green"], ["cat", "film", "house", "book"]
WORDS = [*GOOD, *BAD, *NAMES, *PLACES, *COLOURS, *THINGS, "the", "a", "was", "is", "in", "lives", "what", "colour",
         "and", "very", "old", "un", "##known", "##s", ".", "?"]  # fmt: skip
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
MINI = MiniBertConfig(len(TOKENIZER), 24, 2, 3, 40, 24)
BERT = BertConfig(
    vocab_size=len(TOKENIZER), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=24, initializer_range=0.2,
)  # fmt: skip


def encoder(kind: str = "mini", seed: int = 3) -> Model:
    return MiniBERT(MINI, seed=seed) if kind == "mini" else Bert(BERT, seed=seed)


def saved(folder: Path, kind: str = "mini") -> Path:
    encoder(kind).save_pretrained(folder)
    TOKENIZER.save(folder)
    return folder


def labelled(count: int, seed: int = 0) -> list[Labelled]:
    rng = random.Random(seed)
    found = []
    for line in range(count):
        label, adjectives = rng.choice([("pos", GOOD), ("neg", BAD)])
        text = f"the {rng.choice(THINGS)} was {rng.choice(['', 'very '])}{rng.choice(adjectives)} ."
        found.append(Labelled(text, None, label, line + 2))
    return found


def tagged(count: int, seed: int = 0) -> list[Tagged]:
    rng = random.Random(seed)
    found = []
    for line in range(count):
        name, place = rng.choice(NAMES), rng.choice(PLACES)
        words, tags = ["old"] * rng.randint(0, 1) + [name, "lives", "in", place, "."], []
        for word in words:
            tags.append("B-PER" if word == name else "B-LOC" if word == place else "O")
        found.append(Tagged(words, tags, line + 1))
    return found


def questions(count: int, seed: int = 0, longest: int = 3) -> list[Question]:
    rng = random.Random(seed)
    found = []
    for line in range(count):
        colour = rng.choice(COLOURS)
        sentences = [f"the {rng.choice(THINGS)} is old ." for _ in range(rng.randint(0, longest))]
        sentences.insert(rng.randint(0, len(sentences)), f"a {rng.choice(THINGS)} is {colour} .")
        context = " ".join(sentences)
        found.append(Question(f"q{line}", "what colour ?", context, [colour], [context.index(colour)], line + 1))
    return found


def scored(count: int, seed: int = 0) -> list[Scored]:
    """5 if both texts are about the same thing, else 0"""
    rng = random.Random(seed)
    found = []
    for line in range(count):
        thing = rng.choice(THINGS[:2])
        other = thing if rng.random() < 0.5 else next(name for name in THINGS[:2] if name != thing)
        found.append(Scored(f"the {thing} was old .", f"a {other} is old", 5.0 * (thing == other), line + 2))
    return found


def write(folder: Path, name: str, examples) -> str:
    """A file in a usual format"""
    path = folder / name
    first = examples[0]
    if isinstance(first, Labelled):
        path.write_text("sentence\tlabel\n" + "".join(f"{one.text}\t{one.label}\n" for one in examples))
    elif isinstance(first, Scored):
        rows = (f"{one.score}\t{one.first}\t{one.second}\n" for one in examples)
        path.write_text("score\tsentence1\tsentence2\n" + "".join(rows))
    elif isinstance(first, Tagged):
        path.write_text("\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(one.words, one.tags, strict=True))
                                  for one in examples))  # fmt: skip
    else:
        rows = [
            {"id": one.id, "question": one.question, "context": one.context,
             "answers": [{"text": one.answers[0], "answer_start": one.starts[0]}]} for one in examples
        ]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
