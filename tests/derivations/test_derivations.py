"""The derivations are complete, and their numbers are right: the library's layers compute the same."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from mini_bert.checks.gradcheck import CASES, MODELS
from tests.derivations.examples import EXAMPLES
from tests.derivations.paper import INDEX, PAGES, ROOT, agrees, arithmetic, calculate, lines, numbers, read, sections

SECTIONS = list(sections())
UNCHECKED = {"optimiser.md"}  # it changes weights, and has no gradient
every_section = pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)

# Files of layers without a formula of their own, and why
NO_DERIVATION = {
    "operation.py": "lets other objects than arrays answer",
    "__init__.py": "no code",
    "base.py": "the contract of all layers",
    "matrices.py": "sums and products",
    "erf.py": "a function for GELU",
    "initialisers.py": "the first values of weights",
    "faults.py": "mistakes on purpose, for the lab",
    "packed.py": "rounds what other layers keep; the formulas are theirs",
}


def problems(example: str, recompute) -> list[str]:
    """What is wrong with an example, given the function that computes it with the library."""
    shown, told = lines(example), []
    given = {line.name: read(line.value) for line in shown if line.name in inspect.signature(recompute).parameters}
    computed = recompute(**given)
    for missing in set(computed) - {line.name for line in shown}:
        told.append(f"{missing} is computed but not shown")
    for line in shown:
        if line.name in given:
            continue
        if line.name not in computed:
            told.append(f"{line.name} is shown but not computed")
            continue
        actual = np.asarray(computed[line.name])[line.place]
        shape, texts = numbers(line.value)
        if actual.shape != shape:
            told.append(f"{line.name} has the shape {actual.shape}, shown is {shape}")
        elif not all(agrees(text, number) for text, number in zip(texts, actual.ravel().tolist(), strict=True)):
            told.append(f"{line.name} = {line.value}, the library computes {actual.tolist()}")
        told += [
            f"{step} is {calculate(step)}, not {line.value}"
            for step in filter(arithmetic, line.steps)
            if not agrees(line.value, calculate(step), 1e-4 if re.search(r"\.\d{4}", step) else 0.5e-4)
        ]
    if not any(arithmetic(step) for line in shown for step in line.steps):
        told.append("no number is shown with the sum that gives it")
    return told


@every_section
def test_the_library_computes_every_example(section):
    """Each number of an example is what the layer computes; each sum in it is right."""
    (example,) = section.examples
    assert not problems(example, EXAMPLES[section.title])


@every_section
def test_a_section_links_its_code_and_names_its_rows(section):
    """After the formula. The lines are checked by test_source_links.py. Every row exists."""
    assert section.text.startswith("\n    ") and "**Code:**" in section.text and section.links
    assert section.page in UNCHECKED or section.rows
    assert set(section.rows) <= {case.name for case in CASES} | set(MODELS)


def test_every_row_of_gradcheck_has_a_derivation():
    """And no two sections have the same title, or the same example."""
    named = {name for section in SECTIONS for name in section.rows}
    assert not ({case.name for case in CASES} | set(MODELS)) - named
    assert sorted(section.title for section in SECTIONS) == sorted(EXAMPLES)


def test_every_layer_has_a_derivation():
    """The code of every layer, of every head and of every loss is linked from a section."""
    linked = {path for section in SECTIONS for path in re.findall(r"/mini_bert/([\w/]+\.py)#L", section.text)}
    folder = ROOT / "mini_bert"
    for path in (folder / "layers").glob("*.py"):
        assert path.name in NO_DERIVATION or f"layers/{path.name}" in linked, path.name
    for name in ("models/heads.py", "finetuning/heads.py", "objectives/distillation.py", "training/optim.py"):
        assert name in linked
    for path in folder.rglob("*.py"):  # classes with a backward of their own, outside of layers
        text = path.read_text(encoding="utf-8")
        if re.search(r"^class \w+\(.*Layer\):\n(?:.*\n)*?    def backward", text, re.M) and "checks" not in path.parts:
            inside = path.relative_to(folder).as_posix()
            assert inside in linked or path.name in NO_DERIVATION, inside


def test_every_derived_function_is_linked():
    """Each `…_backward` of a layer is linked, or the section of its file explains it with its layer."""
    text = "".join(section.text for section in SECTIONS)
    for path in (ROOT / "mini_bert" / "layers").glob("*.py"):
        if path.name in NO_DERIVATION:
            continue
        code = path.read_text(encoding="utf-8")
        classes = re.findall(r"^class (\w+)\(.*\):\n(?:(?!class ).*\n)*?    def backward", code, re.M)
        for name in classes:
            assert f"layers/{path.name}: {name}." in text, f"{path.name}: {name}"
        for name in re.findall(r"^def ((?!_)\w+_backward)\(", code, re.M):
            assert f"layers/{path.name}: {name}]" in text, f"{path.name}: {name}"


def test_the_index_lists_every_section():
    """docs/derivations.md has a link to each page and to each of its sections."""
    text = INDEX.read_text(encoding="utf-8")
    for path in PAGES:
        assert f"(derivations/{path.name})" in text, path.name
    for section in SECTIONS:
        assert f"[{section.title}](derivations/{section.page}#{anchor(section.title)})" in text, section.title


def anchor(heading: str) -> str:
    """GitHub's name for a heading: small letters; signs go, spaces become hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.name)
def test_links_between_sections_lead_somewhere(page):
    """A link to a heading of a derivation page names a heading that exists there."""
    for target, name in re.findall(r"\]\(([^)#:]*)#([^)L][^)]*)\)", page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        headings = re.findall(r"^#+ (.*)$", Path(path).read_text(encoding="utf-8"), re.M)
        assert name in [anchor(heading) for heading in headings], f"{target}#{name}"


GOOD = "x = [1 2; 3 4]\ny = 2 x = [2 4; 6 8]\ny_12 = 2·2 = 4\n"
WRONG = {
    "a digit": GOOD.replace("6 8", "6 9"),
    "a sum": GOOD.replace("2·2", "2·3"),
    "a rounded number": GOOD.replace("[2 4;", "[2.0001 4;"),
    "a shape": GOOD.replace("[2 4; 6 8]", "[2 4 6 8]"),
    "a number of the wrong place": GOOD.replace("y_12", "y_21"),
    "nothing computed": "x = [1 2; 3 4]\n",
    "an unknown name": GOOD + "z = 1\n",
    "no sum": "x = [1 2; 3 4]\ny = 2 x = [2 4; 6 8]\n",
    "a number that is almost exact": GOOD.replace("4;", "4.00;").replace("[2 ", "[2.1 "),
}


def test_a_wrong_digit_fails():
    """The check of an example finds each of these mistakes, and accepts the right one."""

    def double(x):
        return {"y": 2 * x}

    assert not problems(GOOD, double)
    for name, example in WRONG.items():
        assert problems(example, double), name
