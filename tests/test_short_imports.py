"""Inside the folder mini_bert/, as in the user's guide, any mixture of short and full imports gives the same classes.

Each session runs in its own process, in that folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mini_bert

PACKAGE = Path(mini_bert.__file__).parent

SESSIONS = {
    "a config and a model": """
from config import MiniBertConfig
from model import MiniBERT
assert MiniBERT(MiniBertConfig(num_layers=2)).depth == 2
""",
    "every class once": """
import config, data, gradients, metrics, mlm, model, tokenizer, train
import mini_bert.data.generator, mini_bert.models.config, mini_bert.models.mini_bert, mini_bert.text.wordpiece
assert config.MiniBertConfig is mini_bert.MiniBertConfig is mini_bert.models.config.MiniBertConfig
assert model.MiniBERT is mini_bert.MiniBERT is mini_bert.models.mini_bert.MiniBERT
assert tokenizer.WordPieceTokenizer is mini_bert.WordPieceTokenizer is mini_bert.text.wordpiece.WordPieceTokenizer
assert data.MLMDataGenerator is mini_bert.MLMDataGenerator is mini_bert.data.generator.MLMDataGenerator
assert mlm.mask_tokens is mini_bert.mask_tokens and gradients.gradient_check is mini_bert.gradient_check
""",
    "subpackages by their short names, before anything else": """
from layers.base import Param, bind
from layers.linear import Linear
from training.optim import Adam
import mini_bert.layers.base, mini_bert.layers.linear, mini_bert.training.optim
assert Param is mini_bert.layers.base.Param and Linear is mini_bert.layers.linear.Linear
assert Adam is mini_bert.training.optim.Adam
layer = Linear(3, 2)
flat = bind(layer, seed=0)
flat.grad[...] = 1
before = flat.data.copy()
Adam(flat).step()
assert (flat.data != before).all()
import layers.base as again
assert again is mini_bert.layers.base and again.__spec__.name == "mini_bert.layers.base"
""",
    "published BERT": """
from models.bert import Bert, BertConfig
from mini_bert import Bert as Same, load_model
assert Bert is Same
import tempfile
with tempfile.TemporaryDirectory() as folder:
    Bert(BertConfig(11, 8, 1, 2, 8, max_position_embeddings=9)).save_pretrained(folder)
    assert type(load_model(folder)) is Bert
""",
    "evaluate": """
import numpy as np
from model import MiniBERT
from config import MiniBertConfig
from evaluation.evaluate import evaluate
from data import Batch
model = MiniBERT(MiniBertConfig(11, 8, 1, 2, 8, 9))
found = evaluate(model, [Batch(np.array([[2, 4, 3]]), np.array([1]), np.array([7]))])
assert found.targets == 1
""",
    "embed and fill-mask": """
from model import MiniBERT
from tokenizer import WordPieceTokenizer
from inference.embed import embed
from inference.fill_mask import fill_mask
model, tokenizer = MiniBERT.from_pretrained("mini-bert"), WordPieceTokenizer.load("8k")
assert embed(model, tokenizer, ["A cat."]).shape == (1, 192)
assert fill_mask(model, tokenizer, "She opened the [MASK] and went in.").text
""",
    "probes and attention": """
from model import MiniBERT
from tokenizer import WordPieceTokenizer
from inside.attention_analysis import analyse
from inside.layer_statistics import text_statistics
from probing.probe import probe
from mini_bert.data.synthetic.dataset import parsed
model, tokenizer = MiniBERT.from_pretrained("mini-bert"), WordPieceTokenizer.load("8k")
analysis = analyse(model, tokenizer, "The cat sat.", relations=False)
assert analysis.maps.weights.shape[:2] == (3, 4) and len(analysis.saliency) == 1
assert text_statistics(model, tokenizer, ["The cat sat."])[1] == 6
assert probe(model, tokenizer, "pos", parsed(9), parsed(9), layers=[3])
""",
}


@pytest.mark.parametrize("code", SESSIONS.values(), ids=SESSIONS)
def test_a_session_inside_the_folder(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_package_of_the_readers_own_is_left_alone(tmp_path):
    """Another package called `layers` on the path is not affected."""
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "__init__.py").write_text("")
    (tmp_path / "layers" / "base.py").write_text("mine = True\n")
    code = "import mini_bert; from layers.base import mine; assert mine"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
