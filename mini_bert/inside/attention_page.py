"""Attention as a page to play with: one HTML file that opens from disk, with nothing to load and nothing to install.

pages/attention.html is the page, in plain HTML, CSS and JavaScript; here its data is put into it. What a user wrote
reaches the page as JSON in which <, > and & are written as numbers, and the script shows it as text only, never as
markup. A content security policy forbids the page to fetch anything at all.
"""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_bert.plots.style import INK, PAPER, shades

if TYPE_CHECKING:
    from mini_bert.inside.attention_analysis import Analysis

TEMPLATE = Path(__file__).parent / "pages" / "attention.html"
NIGHT, LAMP = (8.0, 0.0, -3.0), (92.0, -6.0, 14.0)  # the ends of the shades on a dark page, in CIELAB
STEPS = 64  # shades
DIGITS = 6  # behind the point: more than is ever shown, so that nothing is rounded twice in sight


def attention_page(found: Analysis) -> str:
    """The whole page"""
    if found.look is None:
        raise ValueError("there is no text in this analysis, so there is nothing to show on a page")
    page = TEMPLATE.read_text(encoding="utf-8")
    title = html.escape(f"Attention: {' '.join(found.look.tokens)}"[:80])
    return page.replace("@@TITLE@@", title).replace("@@DATA@@", _embedded(page_data(found)))


def page_data(found: Analysis) -> dict[str, Any]:
    """What the script of the page reads"""
    from mini_bert.inside.attention_analysis import LEAST, LIMITS
    from mini_bert.inside.attention_relations import report_rows

    assert found.look is not None
    L, A = found.look.weights.shape[:2]
    data: dict[str, Any] = {
        "model": found.model,
        "tokens": found.look.tokens,
        "layers": L,
        "heads": A,
        "chosen": found.heads[0],
        "weights": packed(found.look.weights),
        "statistics": [_rounded({**one._asdict(), "habit": one.habit}) for one in found.statistics],
        "saliency": [
            _rounded({**one._asdict(), "scores": np.round(one.scores.astype(float), DIGITS).tolist()})
            for one in found.saliency
        ],
        "limits": LIMITS,
        "shades": {"light": _hexadecimal(PAPER, INK), "dark": _hexadecimal(NIGHT, LAMP)},
        "relations": None,
    }
    if found.relations is not None:
        title, columns, rows, notes = report_rows(found.relations, found.treebank, LEAST, None, found.untrained)
        data["relations"] = {"caption": f"{title}. {' '.join(notes)}", "columns": columns, "rows": rows}
    return data


def packed(weights: np.ndarray) -> str:
    """Weights from 0 to 1 as whole numbers from 0 to 65535, two bytes each, the lower first; in base 64"""
    return base64.b64encode(np.round(weights.astype(float) * 65535).astype("<u2").tobytes()).decode()


def _embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in"""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in values.items()}


def _hexadecimal(start: tuple[float, float, float], end: tuple[float, float, float]) -> list[str]:
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in shades(start, end, STEPS)]
