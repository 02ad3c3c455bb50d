"""An interactive attention page: one HTML file that opens from disk and loads nothing else.

The page is pages/attention.html, in plain HTML, CSS and JavaScript; this module inserts the data. User text is embedded
as JSON with <, > and & escaped, and the script only ever shows it as text, not as markup. A content security policy
forbids the page to load anything.
"""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.inside.attention_analysis import LIMITS, Analysis
from mini_bert.inside.attention_maps import about_columns, in_words, statistics_columns
from mini_bert.inside.attention_relations import MIN_COUNT, relation_rows
from mini_bert.plots.style import INK, PAPER, shades

TEMPLATE = Path(__file__).parent / "pages" / "attention.html"
DARK, LIGHT = (8.0, 0.0, -3.0), (92.0, -6.0, 14.0)  # ends of the colour scale in dark mode, in CIELAB
STEPS = 64  # of the colour scale
DIGITS = 6  # decimals: more than the page shows


def attention_page(analysis: Analysis) -> str:
    """The whole page as HTML."""
    if analysis.maps is None:
        raise ValueError("this analysis has no text, so there is nothing to show on a page; call analyse with a text")
    page = TEMPLATE.read_text(encoding="utf-8")
    title = html.escape(f"Attention: {' '.join(analysis.maps.tokens)}"[:80])
    return page.replace("@@TITLE@@", title).replace("@@DATA@@", _embedded(page_data(analysis)))


def page_data(analysis: Analysis) -> dict[str, Any]:
    """The data for the script of the page."""
    assert analysis.maps is not None
    L, A = analysis.maps.weights.shape[:2]
    data: dict[str, Any] = {
        "model": analysis.model,
        "tokens": analysis.maps.tokens,
        "roles": analysis.maps.roles,
        "layers": L,
        "heads": A,
        "chosen": analysis.heads[0],
        "weights": packed(analysis.maps.weights),
        "visible": _visible(analysis.maps.visible),
        "statistics": [_rounded(one._asdict()) for one in analysis.statistics],
        "words": [in_words(one, analysis.maps.marks) for one in analysis.statistics],
        "columns": list(statistics_columns(analysis.statistics, analysis.maps.marks).items()),
        "about": about_columns(analysis.statistics),
        "notes": analysis.notes,
        "saliency": [
            _rounded({**one._asdict(), "scores": np.round(one.scores.astype(float), DIGITS).tolist()})
            for one in analysis.saliency
        ],
        "limits": LIMITS,
        "shades": {"light": _hexadecimal(PAPER, INK), "dark": _hexadecimal(DARK, LIGHT)},
        "relations": None,
    }
    if analysis.relations is not None:
        title, columns, rows, notes = relation_rows(
            analysis.relations, analysis.treebank, MIN_COUNT, None, analysis.untrained
        )
        data["relations"] = {"caption": f"{title}. {' '.join(notes)}", "columns": columns, "rows": rows}
    return data


def _visible(visible: np.ndarray | None) -> list[str] | None:
    """For each layer, "1" where a token can attend to another and "0" where not, row by row; None: all can."""
    return None if visible is None else ["".join("01"[seen] for seen in own.ravel().tolist()) for own in visible]


def packed(weights: np.ndarray) -> str:
    """Weights from 0 to 1 as little-endian 16-bit integers from 0 to 65535, in base 64."""
    return base64.b64encode(np.round(weights.astype(float) * 65535).astype("<u2").tobytes()).decode()


def _embedded(data: dict[str, Any]) -> str:
    """JSON that cannot close the surrounding script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in values.items()}


def _hexadecimal(start: tuple[float, float, float], end: tuple[float, float, float]) -> list[str]:
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in shades(start, end, STEPS)]
