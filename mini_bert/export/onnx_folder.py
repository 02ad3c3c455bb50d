"""Model folders with an ONNX graph, which optimum, transformers.js and sentence-transformers open.

    $ mini-bert export runs/run-1 --onnx --out my-model

    my-model/onnx/model.onnx                the graph, float32: the numbers of model.safetensors
    my-model/onnx/model_quantized.onnx      instead of it with --int8: the graph of the model in 8 bits
    my-model/config.json, model.safetensors, tokenizer.json, tokenizer_config.json, README.md       as without --onnx
    my-model/modules.json, 1_Pooling/config.json, sentence_bert_config.json     for graphs that give vectors

The graph has the head of the model: a fine-tuned one gives the scores of its task, a pretrained one those of words, and
with `encoder` each gives the vectors of its tokens. All graphs are traced before the first file is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.atomic import write_atomic
from mini_bert.common.json_values import read_json, read_object
from mini_bert.export.folder import GRAPH_HEADING, export, export_tuned, pooling_beside, stored_as
from mini_bert.export.names import HIDDEN
from mini_bert.export.recording import Recording, own_head, record, vectors
from mini_bert.export.task_heads import task_head
from mini_bert.files.model_folder import CARD
from mini_bert.finetuning.model import FineTuned
from mini_bert.inference.embed import FOLDER_POOLING
from mini_bert.models.base import Model
from mini_bert.models.memory import INT8
from mini_bert.text.base import Tokenizer

GRAPH, INT8_GRAPH = "onnx/model.onnx", "onnx/model_quantized.onnx"
PROMPTS = "config_sentence_transformers.json"
TRANSFORMERS_JS = {"transformers.js_config": {"dtype": "q8"}}  # in config.json: the graph that it opens by default


class Exported(NamedTuple):
    path: Path  # of the graph
    size: int  # bytes of the graph
    inputs: list[str]
    outputs: list[str]


def export_onnx(
    model: Model,
    tokenizer: Tokenizer,
    folder: str | os.PathLike[str],
    weights: str = "float32",
    card: Path | None = None,
    encoder: bool = False,
    past: bool = False,
) -> Exported:
    """Write a pretrained model: a folder as `export` does, and the graph.

    weights: of the safetensors file. The graph is traced from the same, rounded numbers, in float32, or int8 if they
    are; past: the graph takes and returns keys and values (recording.py)
    """
    int8 = weights == INT8
    model = stored_as(model, weights)
    models: Any = model.folders()
    parts = {name: record(part, vectors if encoder else own_head(part), past) for name, part in models.items()}
    graphs = {name: recording.to_onnx().SerializeToString() for name, recording in parts.items()}
    more: dict[str, Any] = TRANSFORMERS_JS if int8 else {}
    pooling = pooling_beside(card) or "mean"
    if HIDDEN in parts[""].outputs:
        more = {FOLDER_POOLING: pooling, **more}
    export(model, tokenizer, folder, weights, card, **more)
    for name, recording in parts.items():
        _add_graph(Path(folder) / name, graphs[name], recording, int8)
        if HIDDEN in recording.outputs:
            add_sentence_transformer(Path(folder) / name, models[name], [pooling], source=card and card.parent)
    return _summary(Path(folder), int8, graphs[""], parts[""])


def export_tuned_onnx(
    tuned: FineTuned,
    folder: str | os.PathLike[str],
    weights: str = "float32",
    card: Path | None = None,
    encoder: bool = False,
) -> Exported:
    """Write a fine-tuned model, and the graph with the head of its task."""
    int8 = weights == INT8
    tuned = tuned._replace(model=stored_as(tuned.model, weights))
    recording = record(tuned.model, vectors if encoder else task_head(tuned))
    graph = recording.to_onnx().SerializeToString()
    export_tuned(tuned, folder, weights, card, **(TRANSFORMERS_JS if int8 else {}))
    _add_graph(Path(folder), graph, recording, int8)
    if HIDDEN in recording.outputs:
        add_sentence_transformer(Path(folder), tuned.model, getattr(tuned.task, "pooling", ["mean"]), tuned.length)
    return _summary(Path(folder), int8, graph, recording)


def _summary(folder: Path, int8: bool, graph: bytes, recording: Recording) -> Exported:
    names = families(recording.input_names), families(recording.outputs)
    return Exported(folder / _name(int8), len(graph), *names)


def _name(int8: bool) -> str:
    return INT8_GRAPH if int8 else GRAPH


def families(names: Iterable[str]) -> list[str]:
    """Names without what follows a dot, each once: past_key_values for past_key_values.0.key, …"""
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _add_graph(folder: Path, graph: bytes, recording: Recording, int8: bool) -> None:
    path = folder / _name(int8)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, graph)
    card = folder / CARD
    if card.is_file() and GRAPH_HEADING not in (text := card.read_text(encoding="utf-8")):
        write_atomic(card, f"{text.rstrip()}\n\n{_about(recording, int8)}".encode())


def _about(recording: Recording, int8: bool) -> str:
    """The section of the model card on the graph"""
    names = families(recording.input_names), families(recording.outputs)
    inputs, outputs = (", ".join(f"`{name}`" for name in some) for some in names)
    bits = "with products of 8-bit integers" if int8 else "in float32"
    return (
        f"{GRAPH_HEADING}\n\n`{_name(int8)}` computes {outputs} from {inputs}, {bits}. Ids and masks are int64.\n"
        "ONNX Runtime runs it; `optimum` and transformers.js do if they have this architecture.\n"
    )


def add_sentence_transformer(
    folder: Path, model: Any, pooling: Sequence[str], length: int | None = None, source: Path | None = None
) -> None:
    """The files with which sentence-transformers turns a folder into a model of sentences.

    Its mean is over all tokens but padding, special ones included: what `mini-bert embed --pooling all` computes.
    source: the folder that the model comes from; vectors of length 1, and prompts, are kept
    """
    kinds = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kinds}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kinds}.Pooling"},
    ]
    if source is not None and _normalizes(source):
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{kinds}.Normalize"})
    modes = {
        "pooling_mode_cls_token": "cls" in pooling and not model.reads_forward,
        "pooling_mode_mean_tokens": bool({"mean", "all"} & {*pooling}),
        "pooling_mode_max_tokens": "max" in pooling,
        "pooling_mode_lasttoken": "cls" in pooling and model.reads_forward,
    }
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": model.width, **modes},
        "sentence_bert_config.json": {"max_seq_length": length or model.max_length, "do_lower_case": False},
    }
    if source is not None and (source / PROMPTS).is_file():
        files[PROMPTS] = read_object(source / PROMPTS)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomic(folder / name, (json.dumps(content, indent=2) + "\n").encode())


def _normalizes(source: Path) -> bool:
    """Whether sentence-transformers scales the vectors of this folder to length 1"""
    path = source / "modules.json"
    if not path.is_file():
        return False
    modules = read_json(path)
    return isinstance(modules, list) and any(
        isinstance(one, dict) and str(one.get("type", "")).endswith(".Normalize") for one in modules
    )
