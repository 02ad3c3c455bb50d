"""Generation writes what the whole model predicts, a token at a time, and passes on text as soon as it is settled."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.files.model_folder import read_tensors
from mini_bert.inference.generate import CONTEXT, GrowingText, Reader, generate, generate_ids
from mini_bert.inference.loading import load_model
from mini_bert.inference.sampling import Sampling, top_k, top_p
from mini_bert.layers.base import Run
from mini_bert.models.base import Inputs
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.mini import MiniBERT
from mini_bert.models.transformer_xl import TransformerXL, TransformerXLConfig
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

GOLDEN = Path(__file__).parent.parent / "golden" / "gpt2"
GREEDY = Sampling(temperature=0)
WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", "##s", "dog", "and", "ran", "far"]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
CONFIG = GPT2Config(len(TOKENIZER), 16, 12, 2, 3, tie_word_embeddings=False)  # tied, random weights repeat themselves


def writer(config=CONFIG, spread=0.4):
    model = GPT2(config, dtype=np.float64)
    model.flat.data[...] += spread * np.random.default_rng(0).normal(size=model.flat.data.size)
    return model


class Bytes:
    """Tokens are bytes, or pieces of several; a byte that is not UTF-8 is decoded as `errors` says."""

    def __init__(self, pieces=(), errors="replace"):
        self.pieces, self.errors = [bytes([i]) for i in range(256)] + list(pieces), errors

    def decode(self, ids):
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", self.errors)


# ---------------------------------------------------------------------- tokens


def test_greedy_is_what_transformers_wrote():
    """Stored: what `generate` of transformers wrote after two prompts, until all positions were used."""
    model, expected = load_model(GOLDEN, np.float64), read_tensors(GOLDEN / "expected.safetensors")
    for prompt, written in zip(expected["prompts"].tolist(), expected["written"].tolist(), strict=True):
        assert [*prompt, *generate_ids(model, prompt, 8, GREEDY)] == written


def test_each_token_is_chosen_from_the_scores_of_the_whole_text():
    """A token at a time with remembered keys and values, against one pass over everything so far."""
    model = writer()
    ids = [5, 9, 6]
    for token in generate_ids(model, ids, 12, GREEDY):
        output, _ = model.forward([ids])
        assert token == output.next_word[0, -1].argmax()
        ids = [*ids, token]
    assert len(ids) == 15


def test_when_the_window_is_full_it_slides_by_half():
    """The scores after more tokens than fit are those of a text that starts later."""
    model = writer()
    reader, ids = Reader(model), [int(i) for i in np.random.default_rng(1).integers(5, 17, 40)]
    starts, start = [], 0
    for place, token in enumerate(ids):
        scores = reader.read([token])
        if place - start == 16:
            start = place - 7  # the last 8, with this one
            starts.append(place)
        output, _ = model.forward([ids[start : place + 1]])
        np.testing.assert_allclose(scores, output.next_word[0, -1], rtol=1e-9, atol=1e-11)
    assert starts == [16, 25, 34]
    assert len(list(generate_ids(model, [5], 50, GREEDY))) == 50


def test_a_model_that_remembers_nothing_reads_everything_again():
    """The same text, from a causal model whose cache has no memory."""

    class Forgetful(GPT2):
        empty_memory = None

        def encode_inputs(self, inputs, run, chosen=None):
            assert inputs.memory is None
            return super().encode_inputs(inputs, run, chosen)

    model, twin = writer(), Forgetful(CONFIG, dtype=np.float64)
    twin.flat.data[...] = model.flat.data
    options = [5, 6], 30, Sampling(seed=3)
    assert list(generate_ids(twin, *options)) == list(generate_ids(model, *options))


@pytest.mark.parametrize("mem_len", [7, 0])
def test_transformer_xl(mem_len):
    """It has no limit. Tokens are read one by one with what it remembers; without a memory, all are read again."""
    config = TransformerXLConfig(
        vocab_size=17, cutoffs=(7,), d_model=12, d_embed=12, n_head=2, d_head=5, d_inner=13, n_layer=2, mem_len=mem_len,
        div_val=1, clamp_len=-1, same_length=False, tgt_len=8,
    )  # fmt: skip
    model = TransformerXL(config, dtype=np.float64)
    model.flat.data[...] += 0.3 * np.random.default_rng(0).normal(size=model.flat.data.size)
    reader, ids, memory = Reader(model), [int(i) for i in np.random.default_rng(1).integers(0, 17, 20)], None
    for place, token in enumerate(ids):
        inputs = Inputs(np.array([[token] if mem_len else ids[: place + 1]]), memory=memory)
        hidden, cache = model.encode_inputs(inputs, Run())
        memory = cache.memory
        expected, _ = model.next_word.forward(hidden[:, -1], Run())
        np.testing.assert_allclose(reader.read([token]), expected[0], rtol=1e-9, atol=1e-11)
    assert len(list(generate_ids(model, ids, 30, GREEDY))) == 30


def test_ends_and_banned_ids():
    """Writing stops before an end id, which is not part of the text; a banned id is never chosen."""
    model = writer()
    free = list(generate_ids(model, [5], 9, GREEDY))
    end = free[3]
    assert list(generate_ids(model, [5], 9, GREEDY, ends={end})) == free[: free.index(end)]
    banned = np.arange(CONFIG.vocab_size) == free[0]
    assert free[0] not in list(generate_ids(model, [5], 9, GREEDY, banned=banned))


def test_the_seed_decides():
    """The same seed gives the same text, another seed another one."""
    model = writer(spread=0.2)
    texts = [list(generate_ids(model, [5], 20, Sampling(seed=seed))) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


# ---------------------------------------------------------------------- choosing


def test_draws_have_the_probabilities():
    """10,000 draws from four tokens; each share is within 4 standard deviations."""
    scores = np.log(np.array([0.5, 0.25, 0.2, 0.05, 1e-300]))
    drawn = np.bincount([Sampling(seed=4).choose(scores, step) for step in range(10_000)], minlength=5) / 10_000
    wanted = np.exp(scores)
    assert (np.abs(drawn - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / 10_000) + 1e-12).all()


def test_temperature():
    """Scores are divided by it: near 0, only the best is left; far above 1, all are alike."""
    scores = np.array([2.0, 1.0, 0.0])
    p = Sampling(0.5).probabilities(scores)
    np.testing.assert_allclose(np.log(p[0] / p[1]), 2.0)  # twice the difference of the scores
    np.testing.assert_allclose(Sampling(1e-300).probabilities(scores), [1, 0, 0])
    assert Sampling(0.0).choose(np.array([1.0, 3.0, 3.0]), 0) == 1  # the first of equal ones
    np.testing.assert_allclose(Sampling(1e9).probabilities(scores), 1 / 3, rtol=1e-6)


def test_top_k_and_top_p():
    """k keeps the k best, p the fewest that have at least p together; p counts among those that k left."""
    x = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    np.testing.assert_array_equal(np.isfinite(top_k(x, 2)), [False, True, False, True])
    np.testing.assert_array_equal(top_k(x, 9), x)
    np.testing.assert_array_equal(np.isfinite(top_k(np.zeros(3), 1)), True)  # ties stay
    for p, kept in ((0.01, [1]), (0.4, [1]), (0.41, [1, 3]), (0.7, [1, 3]), (0.71, [1, 2, 3]), (1.0, [0, 1, 2, 3])):
        assert np.flatnonzero(np.isfinite(top_p(x, p))).tolist() == kept, p
    both = Sampling(top_k=3, top_p=0.5).probabilities(x)  # of the three that are left, two have more than half
    np.testing.assert_allclose(both, [0, 4 / 7, 0, 3 / 7])
    only = {Sampling(top_k=1, seed=seed).choose(x, 0) for seed in range(50)}
    assert only == {1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature is -1, expected a number of at least 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0, expected a whole number"),
        ({"top_p": 0}, "top_p is 0, expected a probability above 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    """The error names the setting and what was expected."""
    with pytest.raises(ValueError, match=message):
        generate(writer(), TOKENIZER, "the cat", sampling=Sampling(**settings))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_no_numbers(temperature):
    """NaN among the scores is an error, whether the best is taken or one is drawn."""
    with pytest.raises(ValueError, match="no token has a finite score"):
        Sampling(temperature).choose(np.array([1, np.nan, 3]), 0)


# ---------------------------------------------------------------------- text


@pytest.mark.parametrize("errors", ["replace", "surrogateescape"])
def test_characters_come_whole(errors):
    """Bytes of é, 東 and an emoji, one at a time: nothing is passed on until a character is complete."""
    text = "né 東 \N{GRINNING FACE}!"
    stream, pieces = GrowingText(Bytes(errors=errors), list(b"caf")), []
    for byte in text.encode():
        pieces.append(stream.add(byte))
    assert "".join(pieces) + stream.rest() == text
    assert all(piece in ("", *text) for piece in pieces)


@pytest.mark.parametrize("errors", ["replace", "surrogateescape"])
def test_bytes_that_are_no_text(errors):
    """An unfinished character at the end, and bytes that can never become one, appear as replacement characters."""
    stream = GrowingText(Bytes(errors=errors), [])
    shown = [stream.add(byte) for byte in b"a\xff\xff\xff\xff\xffb\xe6"]
    assert shown[0] == "a" and shown[6].endswith("b") and shown[7] == ""
    whole = "".join(shown) + stream.rest()
    assert whole == "a" + "\N{REPLACEMENT CHARACTER}" * 5 + "b\N{REPLACEMENT CHARACTER}"


def test_a_stop_string_ends_the_text_before_it():
    """It may span tokens: what may become one is held back, and passed on if it does not."""
    stream = GrowingText(Bytes([b"\n\nEND", b"\nE"]), list(b"Q:"), ["\nEND", "##"])
    assert [stream.add(i) for i in b"x\nEN "] == ["x", "", "", "", "\nEN "]
    assert stream.add(257) == "" and not stream.stopped  # "\nE"
    assert stream.add(ord("#")) == "\nE" and stream.add(ord("1")) == "#1"
    assert stream.add(256) == "\n" and stream.stopped and stream.rest() == ""


@pytest.mark.parametrize("stop", [[], ["\nEND"], ["x" * 300]])
def test_a_long_text_is_decoded_in_parts(stop):
    """However long a text is, only its last tokens are decoded for a new one, and the text is the same."""
    decoded = []

    class Counted(Bytes):
        def decode(self, ids, **options):
            decoded.append(len(ids))
            return super().decode(ids, **options)

    draw, prompt = np.random.default_rng(0), list("Überall: ".encode())
    text = "".join(draw.choice(list("ab \nEé東x\N{GRINNING FACE}"), 700))
    stream = GrowingText(Counted(), prompt, stop)
    pieces = [stream.add(byte) for byte in text.encode()]
    assert "".join(pieces) + stream.rest() == text
    assert max(decoded) <= 2 * CONTEXT + 1


def test_a_stop_string_in_the_prompt_does_not_count():
    """Only new text is searched for it."""
    stream = GrowingText(Bytes(), list(b"a.b"), ["."])
    assert stream.add(ord("c")) == "c" and not stream.stopped


def test_text_of_word_pieces():
    """What follows the prompt has its space; special tokens other than the end are never written."""
    model = writer()
    pieces = list(generate(model, TOKENIZER, "the cat", tokens=12, sampling=Sampling(seed=1)))
    assert "".join(pieces).startswith(" ") or pieces[0] in (".", "s")
    assert not any(token in "".join(pieces) for token in SPECIAL_TOKENS)
    alone = "".join(generate(model, TOKENIZER, "", tokens=12, sampling=GREEDY))
    first = next(generate_ids(model, [TOKENIZER.sep_id], 1, GREEDY, banned=np.arange(CONFIG.vocab_size) < 5))
    assert alone.startswith(TOKENIZER.decode([first]))  # without the separator, and without a space
    whole = "".join(pieces)
    stop = whole[len(whole) // 2 :][:2]
    stopped = "".join(generate(model, TOKENIZER, "the cat", 12, Sampling(seed=1), stop=[stop]))
    assert stopped == whole.partition(stop)[0]
    assert "".join(generate(model, TOKENIZER, TOKENIZER.ids(["the cat"])[0], 12, Sampling(seed=1))) == whole


def test_a_text_says_whether_it_ended_at_a_stop_string():
    def ended_at(stop):
        pieces = generate(writer(), TOKENIZER, "the cat", 12, GREEDY, [stop])
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value

    assert ended_at(" ") is True and ended_at("no such words") is False


def test_the_end_of_a_document_ends_the_text():
    """That is the separator of the tokenizer, and what the config names."""
    free = "".join(generate(writer(), TOKENIZER, "the", 12, GREEDY)).split()
    fourth = TOKENIZER.vocab[free[3]]
    text = "".join(generate(writer(replace(CONFIG, eos_token_id=[fourth, 16])), TOKENIZER, "the", 12, GREEDY))
    assert text.split() == free[: free.index(free[3])]
    model = writer()
    model.next_word.w.data[:, TOKENIZER.sep_id] = 1e3 * model.next_word.w.data[:, fourth]
    assert "".join(generate(model, TOKENIZER, "the", 12, GREEDY)) == ""


def test_a_long_prompt_keeps_its_end(caplog):
    """What does not fit is cut at the beginning, with a warning; the text is that of the end alone."""
    model = writer()
    long = " ".join(["dog"] * 30 + ["the", "cat"])
    text = "".join(generate(model, TOKENIZER, long, tokens=4, sampling=GREEDY))
    assert "the prompt has 32 tokens, but this model reads at most 16 at once; only the last 12 are used" in caplog.text
    short = " ".join(["dog"] * 10 + ["the", "cat"])
    assert "".join(generate(model, TOKENIZER, short, tokens=4, sampling=GREEDY)) == text


def test_models_that_cannot_write():
    """A model without a head for the next word is refused; so are stop strings that match everywhere."""
    with pytest.raises(ValueError, match=r"this MiniBERT cannot write: it fills gaps.*fill-mask.*train --model gpt2"):
        generate(MiniBERT(), TOKENIZER, "the cat")
    with pytest.raises(ValueError, match="no head for the next word"):
        generate(GPT2(CONFIG, output_heads=()), TOKENIZER, "the cat")
    with pytest.raises(ValueError, match="stop is 'x', expected a list"):
        generate(writer(), TOKENIZER, "the cat", stop="x")
    with pytest.raises(ValueError, match="at least one character"):
        generate(writer(), TOKENIZER, "the cat", stop=[""])


# ---------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path):
    model = writer()
    model.save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    return tmp_path


def test_the_command_without_a_model_says_how_to_get_one(capsys):
    """The bundled model cannot write. The remedy is the first thing that a user can copy, also in --help."""
    remedy = "mini-bert train --model gpt2 --out runs/gpt2"
    with pytest.raises(SystemExit, match=f"cannot write.*`{remedy}` and add --model runs/gpt2"):
        main(["generate", "Once upon a time"])
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    assert remedy in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match=remedy):
        generate(MiniBERT(), TOKENIZER, "the cat")


def test_the_command(folder, capsys):
    """It prints prompt and text, the same for the same seed, as JSON, too, and ends before a stop string."""
    options = ["--model", str(folder), "--tokens", "9", "--seed", "5", "--top-k", "8", "--temperature", "0.7"]
    texts = []
    for more in ([], [], ["--json"], ["--stop", "nd"], ["--stop", "nd", "--json"]):
        with pytest.raises(SystemExit) as end:
            main(["generate", "the cat", *options, *more])
        assert not end.value.code
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].startswith("the cat") and texts[0].endswith("\n")
    assert "the cat" + json.loads(texts[2])["text"] + "\n" == texts[0]
    assert texts[3] == texts[0].partition("nd")[0] + "\n" and "nd" in texts[0]
    whole, stopped = json.loads(texts[2]), json.loads(texts[4])
    assert whole.items() >= {"tokens": 9, "seed": 5, "finish_reason": "length"}.items()
    assert stopped["finish_reason"] == "stop" and 0 < stopped["tokens"] < 9


def test_a_stop_string_in_the_last_token_is_the_reason_of_the_end(folder, capsys):
    """All tokens are written, but the text does not end because they are used up."""

    def written(tokens, *more):
        options = ["--model", str(folder), "--tokens", str(tokens), "--seed", "5", "--top-k", "8", "--json", *more]
        with pytest.raises(SystemExit):
            main(["generate", "the cat", *options])
        return json.loads(capsys.readouterr().out)

    texts = [written(tokens)["text"] for tokens in range(1, 9)]
    at, stop = next(
        (tokens, after[len(before) :])
        for tokens, (before, after) in enumerate(itertools.pairwise(texts), 2)
        if after[len(before) :].strip() and after[len(before) :] not in before
    )
    assert written(at, "--stop", stop).items() >= {"tokens": at, "finish_reason": "stop"}.items()
    assert written(at)["finish_reason"] == "length"


def test_the_command_says_why_not(folder):
    """The error names the model or the option."""
    for words, message in (
        (["the cat", "--model", "mini-bert"], "mini-bert is a MiniBERT, which cannot write"),
        (["the cat", "--model", str(folder), "--top-p", "2"], "top_p is 2.0, expected a probability"),
        (["the cat", "--model", str(folder), "--stop", ""], "at least one character"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(["generate", *words])


# ---------------------------------------------------------------------- transformers


@pytest.mark.peers
def test_steps_are_those_of_transformers():
    """Temperature, top-k and top-p give the probabilities of its logits processors, alone and together."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = 4 * rng.normal(size=97)
        tau, k, p = rng.uniform(0.2, 3), int(rng.integers(1, 97)), rng.uniform(0.05, 1)
        steps = [
            transformers.TemperatureLogitsWarper(float(tau)), transformers.TopKLogitsWarper(k),
            transformers.TopPLogitsWarper(float(p)),
        ]  # fmt: skip
        for chosen, ours in (
            (steps[:1], Sampling(tau)),
            (steps[1:2], Sampling(top_k=k)),
            (steps[2:], Sampling(top_p=p)),
            (steps, Sampling(tau, k, p)),
        ):
            theirs = torch.tensor(scores)[None]
            for step in chosen:
                theirs = step(None, theirs)
            np.testing.assert_allclose(ours.probabilities(scores), theirs.softmax(-1)[0].numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.peers
def test_greedy_text_of_real_weights():
    """60 tokens of a published GPT-2, token by token as transformers writes them with its own cache."""
    from tests.models.test_bert import package_folder

    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = package_folder("iglm", "pytorch_model.bin", "IgLM-S")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    model = load_model(folder)
    for seed in range(3):
        prompt = np.random.default_rng(seed).integers(5, 33, 6).tolist()
        wanted = theirs.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, 6), max_new_tokens=60, do_sample=False, pad_token_id=0
        )
        assert [*prompt, *generate_ids(model, prompt, 60, GREEDY)] == wanted[0].tolist()
