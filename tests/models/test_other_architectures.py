"""An architecture unlike BERT is one file: everything that works for BERT works for the one below, unchanged.

It has what architectures to come will need: norms before sublayers, factorised embeddings, blocks that are used more
than once, a different mask in some blocks, an input with a gradient that all blocks share, a head without a bias, and
attention that cannot work in tiles.
"""

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from mini_bert.checks.gradcheck import check_model
from mini_bert.checks.info import architecture
from mini_bert.evaluation.embedding_quality import neighbours
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.model import lr_multipliers, save, with_task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.inside.saliency import gradient_times_input, word_log_probability
from mini_bert.layers.attention import AttentionCache, MultiHeadAttention, named_arrays
from mini_bert.layers.base import Layer, Run
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder, Recompute
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.linear import Linear
from mini_bert.layers.packed import Packed
from mini_bert.models import registry
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.cache import EncodeCache
from mini_bert.models.sizes import Kept, Shape, Sizes
from mini_bert.objectives.masked_words import Batch, MaskedWords
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.training.parallel import Team
from mini_bert.training.plan import Choice, caches, predicted_peak
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import applied, apply


class OddSizes(Sizes):
    """One norm before attention, no feed-forward network; all tokens are queries in every block."""

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        BT, H = shape.B * shape.T, self.width
        return Kept(6 * BT * H + BT * self.heads * shape.T + BT * (H + 1))

    def embedding_cache(self, shape: Shape) -> Kept:
        return Kept(shape.B * shape.T * self.intermediate)


@dataclass(frozen=True)
class OddConfig:
    vocab_size: int = 29
    width: int = 10
    depth: int = 3
    heads: int = 2
    max_length: int = 11
    embedding: int = 6
    dropout: float = 0.0
    name: ClassVar[str] = "Odd"

    def with_dropout(self, p: float) -> "OddConfig":
        return replace(self, dropout=p)

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": "odd", **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "OddConfig":
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def sizes(self) -> Sizes:
        V, H, T, E = self.vocab_size, self.width, self.max_length, self.embedding
        parameters = (V + T) * E + E * H + T * H + 2 * (4 * H * H + 2 * H) + 2 * H + H * V
        return OddSizes("Odd", V, H, self.depth, self.heads, E, T, parameters, False, False, False,
                        False, 0, 0, 2)  # fmt: skip


class OddBlockCache(NamedTuple):
    input: np.ndarray
    norm: LayerNormCache
    attention: AttentionCache
    rows: Any

    @property
    def attention_weights(self):
        return self.attention.attended.probs

    def named(self):
        return {"attention_norm": self.norm.x_hat, **named_arrays(self.attention)}


class OddBlock(Layer):
    """y = x + Attention(LayerNorm(x) + r)        r (T,H): the same in all blocks"""

    def __init__(self, config):
        self.norm = LayerNorm(config.width)
        self.attention = MultiHeadAttention(config.width, config.heads, bias=False)

    def forward(self, x, relative, run, mask=None, chosen=None):
        h, norm = self.norm.forward(x, run)
        a, attention = self.attention.forward(h + relative, run, mask)
        y, rows = x + a, None
        if chosen is not None:
            y, rows = choose_rows(y, chosen)
        return y, OddBlockCache(x, norm, attention, rows)

    def backward(self, dy, cache, run):
        if cache.rows is not None:
            dy = choose_rows_backward(dy, cache.rows)
        dh = self.attention.backward(dy, cache.attention, run)
        return dy + self.norm.backward(dh, cache.norm, run), dh.sum(0)


class OddEncoder(Encoder):
    """Two blocks in turn; the second sees only neighbours. Keeps the table that all blocks add."""

    def __init__(self, config):
        pair = [OddBlock(config), OddBlock(config)]
        super().__init__([pair[index % 2] for index in range(config.depth)])
        self.relative = Embedding(config.max_length, config.width, std=1.0)

    def block_inputs(self, index, inputs):
        return inputs | {"mask": inputs["mask"] & inputs["near"]} if index % 2 else inputs

    def forward(self, x, run, chosen=None, **inputs):
        relative, positions = self.relative.forward(np.arange(x.shape[1]), run)
        near = np.abs(positions[:, None] - positions) <= 1
        outputs = []
        for index, block in enumerate(self.blocks):
            given = self.block_inputs(index, inputs | {"near": near})
            last = chosen if index == len(self.blocks) - 1 else None
            x, cache = block.forward(x, relative, run.fork(index), mask=given["mask"], chosen=last)
            outputs.append(cache)
        return x, outputs

    def backward(self, dy, caches, run):
        self.check(caches)
        total = 0
        for block in reversed(self.blocks):
            dy, drelative = block.backward(dy, caches.pop(), run)
            total = total + drelative
        self.relative.backward(total, np.arange(dy.shape[1]), run)
        return dy


class Odd(Model):
    model_type, config_class, family = "odd", OddConfig, "Odd"
    embedding_parts = ("tokens", "positions", "widen")
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    task_heads: ClassVar = {"ForSequenceClassification": {"dense": "score.dense", "linear": "score.out"}}
    head_prefixes = ("score.",)
    prefix = "odd."

    def __init__(self, config, output_heads=(MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float64):
        self.config = config
        self.tokens = Embedding(config.vocab_size, config.embedding, std=1.0)
        self.positions = PositionEmbedding(config.max_length, config.embedding)
        self.widen = Linear(config.embedding, config.width, bias=False)
        self.encoder = OddEncoder(config)
        self.final_norm = LayerNorm(config.width)
        if MASKED_WORDS in output_heads:
            self.masked_words = Linear(config.width, config.vocab_size, bias=False)
        self._own_memory(seed, dtype)

    def embed(self, inputs, run):
        x, _ = self.tokens.forward(inputs.ids, run)
        x, length = self.positions.forward(x, run)
        y, summed = self.widen.forward(x, run)
        return y, (length, summed)

    def embed_backward(self, dx, inputs, cache, run):
        length, summed = cache
        dx = self.widen.backward(dx, summed, run)  # (B,T,E)
        self.positions.backward(dx, length, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    def encoder_inputs(self, inputs):
        return {"mask": np.ones((1, 1, 1, inputs.ids.shape[1]), bool) if inputs.mask is None else inputs.mask}

    def finish(self, x, run):
        return self.final_norm.forward(x, run)

    def finish_backward(self, dy, cache, run):
        return self.final_norm.backward(dy, cache, run)

    def more_arrays(self, embedding, final):
        return {"final_norm": final.x_hat}

    def names(self):
        return [entry for entry in super().names() if not entry.ours.startswith("task.")]

    @classmethod
    def canonical(cls, name):
        return name.removeprefix("odd.")

    @classmethod
    def heads_in(cls, values, tensors):
        return [MASKED_WORDS] if "masked_words.w" in tensors else []


CONFIG = OddConfig()
IDS, ROWS, TARGETS = np.arange(21).reshape(3, 7) + 5, np.array([1, 4, 9, 20]), np.array([3, 7, 8, 9])
MASK = np.arange(7) < np.array([[7], [5], [6]])
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwx"])


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(registry.MODELS, "odd", (__name__, "Odd"))
    monkeypatch.setattr(registry, "import_module", lambda name: type("module", (), {"Odd": Odd}))


@pytest.mark.parametrize("checkpointing", [False, True, (1,)])
def test_every_gradient(checkpointing):
    """Those of the shared blocks are sums, and the shared input gets its own; recomputed or not."""
    model = Odd(CONFIG)
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing))
    checks = check_model(model, lambda: model.loss(IDS, ROWS, TARGETS, MASK, run=Run()), 16)
    assert {check.name for check in checks} == set(model.named_params())
    assert all(check.passed() for check in checks), checks


def test_recomputed_and_packed_blocks_compute_the_same():
    found = []
    for checkpointing, activations in ((False, "float32"), (True, "float32"), ((0,), "bfloat16")):
        model = Odd(replace(CONFIG, width=120), dtype=np.float32)
        with applied(model, TrainingConfig(steps=1, checkpointing=checkpointing, activations=activations)):
            wrappers = {type(block) for block in model.encoder.blocks}
            assert (Packed in wrappers) == (activations != "float32") and (Recompute in wrappers) == bool(checkpointing)
            _, cache = model.loss(IDS, ROWS, TARGETS, MASK)
            model.loss_backward(cache)
        found.append(model.flat.grad)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[2], found[0], atol=0.02 * np.abs(found[0]).max())


def test_the_states_are_the_inputs_of_the_blocks():
    """Not the inputs of attention, which follow a norm here."""
    model = Odd(CONFIG)
    hidden, cache = model.encode(IDS, MASK)
    assert isinstance(cache, EncodeCache)
    states = cache.hidden_states()
    np.testing.assert_array_equal(states[0], cache["embeddings"])
    relative = model.encoder.relative.table.data[:7]
    near = np.abs(np.arange(7)[:, None] - np.arange(7)) <= 1
    for index, block in enumerate(model.encoder.blocks):
        mask = MASK[:, None, None] & near if index % 2 else MASK[:, None, None]
        after, _ = block.forward(states[index], relative, Run(), mask=mask)
        if index == 2:
            after = model.final_norm.forward(after, Run())[0]
        np.testing.assert_allclose(states[index + 1], after, rtol=1e-12)
        np.testing.assert_array_equal(cache[f"block_input_{index}"], states[index])
        assert not np.allclose(cache[f"attention_input_{index}"], states[index])
    assert [weights.shape for weights in cache.attention_weights()] == [(3, 2, 7, 7)] * 3
    assert not (cache["attention_weights_1"][:, :, 0, 2:]).any() and cache["attention_weights_0"][0, 0, 0, 2:].all()
    np.testing.assert_array_equal(hidden, cache["hidden"])


def test_saliency_is_the_derivative_along_the_token_vectors():
    """These have another width than the model."""
    scalar, ends = word_log_probability([7]), []
    _, scores = gradient_times_input(Odd(CONFIG), IDS[:1], scalar, chosen=np.array([2]))
    for step in (1e-5, -1e-5):
        scaled = Odd(CONFIG)
        scaled.tokens.table.data *= 1 + step
        ends.append(gradient_times_input(scaled, IDS[:1], scalar, chosen=np.array([2]))[0][0])
    assert scores.sum() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
    assert neighbours(Odd(CONFIG), TOKENIZER, "a", 3).nearest


def test_a_block_used_twice_is_as_high_as_the_mean_of_its_places():
    heights = Odd(CONFIG).heights()
    assert heights["tokens.table"] == heights["widen.w"] == heights["encoder.relative.table"] == 0
    assert heights["encoder.blocks.0.norm.gamma"] == 2  # blocks 1 and 3
    assert heights["encoder.blocks.1.norm.gamma"] == 2
    assert heights["final_norm.gamma"] == 3 and heights["masked_words.w"] == 4
    tuned = with_task(Odd(CONFIG), Classify(["a", "b"]))
    shares = [share for _, share in lr_multipliers(tuned, 0.5)]
    assert len(shares) == len(tuned.named_params()) and set(shares) == {0.0625, 0.25, 0.5, 1.0}


def test_info_shows_its_parts():
    rows = {name.strip(): (shape, weights) for name, shape, weights in architecture(Odd(CONFIG))}
    assert rows["embeddings: widen"][1] == "w (6,10)" and rows["encoder: relative"] == ("", "table (11,10)")
    assert rows["block 2: the same as block 0"] == ("(B,11,10)", "")
    assert rows["attention, 2 heads of 5"][1] == "qkv.w (10,30)  output.w (10,10)"
    assert rows["masked_words"] == ("(B,11,29)", "w (10,29)")
    counts = Odd(CONFIG).get_parameter_count(by_component=True)
    assert counts["encoder.relative"] == 110 and "encoder.blocks.2" not in counts
    assert sum(counts.values()) == Odd(CONFIG).get_parameter_count() == CONFIG.sizes().parameters


def test_a_folder_comes_back(tmp_path):
    """With and without a head for a task, which has the names that the class gives it."""
    model = Odd(CONFIG, dtype=np.float32)
    model.save_pretrained(tmp_path / "odd")
    np.testing.assert_array_equal(Odd.from_pretrained(tmp_path / "odd").flat.data, model.flat.data)
    task = Classify(["no", "yes"], ["cls"], dense=True)
    tuned = with_task(model, task)
    save(tmp_path / "tuned", tuned, task, TOKENIZER, 11)
    again = load_tuned(tmp_path / "tuned")
    np.testing.assert_array_equal(again.model.flat.data, tuned.flat.data)
    config = json.loads((tmp_path / "tuned/config.json").read_text())
    assert config["architectures"] == ["OddForSequenceClassification"]
    for name in ("fine_tuning", "id2label", "label2id"):
        del config[name]
    (tmp_path / "tuned/config.json").write_text(json.dumps(config))
    published = load_tuned(tmp_path / "tuned")  # as another library would have written it
    assert published.task.labels == ["LABEL_0", "LABEL_1"] and published.task.dense
    np.testing.assert_array_equal(published.model.flat.data, tuned.flat.data)


def test_two_threads_give_its_gradient():
    parts = [Batch(IDS, ROWS, TARGETS, MASK), Batch(IDS[:, ::-1], ROWS, TARGETS)]
    found = []
    for threads in (1, 2):
        model = Odd(CONFIG)
        with Team(model, threads) as team:
            team.gradient(parts, objective=MaskedWords())
        found.append(model.flat.grad.copy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def test_a_head_without_a_bias_starts_as_it_is():
    model = Odd(CONFIG)
    before = model.flat.data.copy()
    MaskedWords().start(model, np.ones(29))
    np.testing.assert_array_equal(model.flat.data, before)


def test_a_switch_that_its_blocks_lack_is_refused():
    model = Odd(CONFIG)
    with pytest.raises(ValueError, match="attention is 'lean', but layer 0 of this Odd, a OddBlock, does not support"):
        apply(model, TrainingConfig(steps=1, attention="lean"))
    assert all(type(block) is OddBlock for block in model.encoder.blocks)


def test_the_plan_counts_its_own_arrays():
    model, shape = Odd(CONFIG, dtype=np.float32), Shape(3, 7, 4, 2)
    _, cache = model.loss(IDS, ROWS, TARGETS)
    embeddings, *blocks, _ = caches(CONFIG.sizes(), shape, Choice(3))
    seen: set[int] = set()

    def floats(item) -> int:
        if isinstance(item, tuple):
            return sum(map(floats, item))
        while getattr(item, "base", None) is not None:
            item = item.base
        if not isinstance(item, np.ndarray) or item.dtype != np.float32 or id(item) in seen:
            return 0
        seen.add(id(item))
        return item.size

    assert floats(cache.encoded.embedding) == embeddings.floats
    assert [floats(tuple(block)) for block in cache.encoded.blocks] == [kept.floats for kept in blocks]
    assert predicted_peak(CONFIG.sizes(), Choice(8)) > 0
