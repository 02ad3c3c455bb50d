"""Draws the pictures of learn/visual_guide.md from the bundled Mini-BERT on one sentence.

python learn/draw.py                    all pictures, into learn/pictures/
python learn/draw.py big_picture        only those whose name contains this
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # the pictures' modules, and mini_bert without an installation

from drawing import (  # noqa: E402
    attention_pictures,
    card_pictures,
    model_pictures,
    operation_pictures,
    training_pictures,
)

PICTURES = {
    "1_big_picture": model_pictures.big_picture,
    "2_batch": model_pictures.batch,
    "2_shapes": model_pictures.shapes,
    "3_heads": attention_pictures.heads,
    "3_one_query": attention_pictures.one_query,
    "4_one_head": attention_pictures.one_head,
    "4_all_heads": attention_pictures.all_heads,
    "5_feed_forward": operation_pictures.feed_forward,
    "5_units": operation_pictures.units,
    "6_masking": training_pictures.masking,
    "6_gradient_flow": training_pictures.gradient_flow,
    "7_matrix_product": operation_pictures.matrix_product,
    "7_softmax": operation_pictures.softmax,
    "7_layer_norm": operation_pictures.layer_norm,
    "8_parameters": card_pictures.parameters,
    "8_memory": card_pictures.memory,
    "9_card": card_pictures.card,
    "10_block": training_pictures.block_pattern,
    "10_training_loop": training_pictures.training_loop,
}


def main(wanted: list[str]) -> None:
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        if not wanted or any(part in name for part in wanted):
            picture = draw()
            path = folder / f"{name}.svg"
            path.write_text(picture.svg(), encoding="utf-8", newline="\n")
            print(f"{path.name}: {path.stat().st_size:,} bytes")
            for problem in picture.misplaced():
                print("  ", problem)


if __name__ == "__main__":
    main(sys.argv[1:])
