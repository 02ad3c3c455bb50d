"""Every exercise: the right answer passes, and typical wrong ones get the explanation that fits them."""

from __future__ import annotations

import linecache
import runpy
from pathlib import Path

import numpy as np
import pytest

from mini_bert.learning.comparing import compare
from mini_bert.learning.course import PHASES, exercises, find, phase_of
from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function, explain
from mini_bert.learning.runner import judge

ANSWERS = {}
for file in sorted(Path(__file__).parent.glob("answers_*.py")):
    ANSWERS |= runpy.run_path(str(file))["ANSWERS"]
IMPORT = "import numpy as np\n"


def told(exercise_id: str, source: str, folder: Path) -> str | None:
    path = folder / "my_answer.py"
    path.write_text(IMPORT + source, encoding="utf-8")
    return judge(find(exercise_id), path)


def test_every_exercise_has_answers():
    """Four to eight exercises in each phase, numbered; each has a right answer and at least three wrong ones."""
    assert set(ANSWERS) == {exercise.id for exercise in exercises()}
    for phase in PHASES:
        ids = [exercise.id for exercise in phase.exercises]
        assert ids == [f"{phase.number}.{index}" for index in range(1, len(ids) + 1)] and 4 <= len(ids) <= 8
    for exercise in exercises():
        _, wrong = ANSWERS[exercise.id]
        assert len(set(wrong.values())) >= 3, exercise.id


@pytest.mark.parametrize("exercise_id", ANSWERS)
def test_the_right_answer_passes(exercise_id, tmp_path):
    assert told(exercise_id, ANSWERS[exercise_id][0], tmp_path) is None


@pytest.mark.parametrize(
    ("exercise_id", "source", "part"),
    [(exercise_id, source, part) for exercise_id, (_, wrong) in ANSWERS.items() for source, part in wrong.items()],
    ids=lambda value: value if len(value) == 3 else "",
)
def test_a_wrong_answer_is_explained(exercise_id, source, part, tmp_path):
    """The explanation is that of this mistake, in whole sentences."""
    explanation = told(exercise_id, source, tmp_path)
    assert explanation is not None and part in explanation
    assert explanation.splitlines()[0].endswith((".", "?", "…", " with"))


# ------------------------------------------------------------------ what all exercises have in common


def check_double(answer: Answer) -> str | None:
    wrong = [Mistake(lambda x: x + 2, "You add 2.")]
    return check_function(answer, "my_double", lambda x: 2 * x, [(np.array([1.0, 3.0, 5.0]),)], wrong)


SQUARE = np.array([[0.0, 1.0], [2.0, 3.0]])
DOUBLE = Exercise("0.1", "Double", "my_double(x): 2 x", check_double)


@pytest.mark.parametrize(
    ("names", "part"),
    [
        ({"my_double": lambda x: x + x}, None),
        ({"my_double": lambda x: [2.0, 6.0, 10.0]}, None),
        ({"my_double": lambda x: x + 2}, "You add 2."),
        (
            {"my_double": lambda x: 3 * x},
            "Your result[0] is 3, expected 2. It was called as my_double(x) with\nx =",
        ),
        ({"my_double": lambda x: x[:2]}, "has shape (2,), expected (3,)"),
        ({"my_double": lambda x: "six"}, "is 'six', expected an array of shape (3,)"),
        ({"my_double": lambda x: [[1], [2, 3]]}, "is a list of 2, expected"),
        ({"my_double": lambda x: None}, "returns None"),
        ({"my_double": lambda x: np.log(x - 1) * 0}, "[0] is nan, expected 2"),
        ({"my_double": 6}, "`my_double` is 6, expected a function"),
        ({"my_duble": 6}, "You have not defined `my_double`; did you mean my_duble?"),
        ({}, "You have not defined `my_double`."),
        ({"my_double": lambda: 1}, "called with 1 arguments, but yours is my_double()"),
        (
            {"my_double": lambda x: x.nothing},
            "has no attribute 'nothing'. It was called as my_double(x) with\nx = [1.0, 3.0, 5.0]",
        ),
        ({"my_double": lambda *x: 1 / 0}, "ZeroDivisionError"),
    ],
)
def test_common_mistakes_are_explained_for_every_exercise(names, part):
    """A missing name, a wrong shape, None, NaN, a wrong number of parameters, an exception, no number at all."""
    explanation = explain(DOUBLE, names)
    assert explanation == part if part is None else part in explanation


def test_a_function_may_not_change_its_arguments():
    """`x *= 2` gives the right result, but changes the caller's array."""

    def my_double(x):
        x *= 2
        return x

    assert "changes its argument x" in explain(DOUBLE, {"my_double": my_double})


def test_values_and_pairs():
    """A value is compared like a result; of several results, the wrong one is named."""
    assert compare(7, 7, "n") is None
    assert compare(8, 7, "n", [Mistake(8, "One too many.")]) == ("One too many.", "mistake")
    assert compare(9, 7, "n") == ("n is 9, expected 7.", "number")
    pair = (np.ones(2), np.zeros(3))
    assert compare((np.ones(2), np.zeros(3)), pair, "n") is None
    assert compare([np.ones(2), np.ones(3)], pair, "n") == ("n[1][0] is 1, expected 0.", "number")
    assert "expected 2 results" in compare(3, pair, "n").text


@pytest.mark.parametrize(
    "result", [np.array([1j]), np.array([{}]), np.array(["2.0"]), np.array([[1], [2, 3]], object), {1: 2}, object]
)
def test_what_is_no_number_is_said_to_be_none(result):
    """Complex numbers, objects and text in an array end in a sentence, not in a traceback."""
    assert "expected an array of shape (3,)." in explain(DOUBLE, {"my_double": lambda x: result})


def test_an_error_says_more_than_a_wrong_number():
    """If no mistake fits in the first case, an error or a wrong shape in a later one is told."""

    def check(answer):
        return check_function(answer, "f", lambda x: x - x.mean(-1, keepdims=True), [(SQUARE,), (np.ones((3, 2)),)])

    exercise = Exercise("0.2", "Centre", "f(x)", check)
    assert "[0, 0] is -1.5, expected -0.5." in explain(exercise, {"f": lambda x: x - x.mean()})
    assert "keepdims=True keeps the axis" in explain(exercise, {"f": lambda x: x - x.mean(-1)})
    assert "shape (3,), expected (3, 2)" in explain(exercise, {"f": lambda x: x[:, 0] if len(x) == 3 else x})


def test_hints_fit_the_line():
    """keepdims helps only where an axis was lost; np must be imported; max() is not for arrays."""
    wrong = {
        "def my_double(x): return x + np.ones(2)": "NumPy compares shapes from the right",
        "def my_double(x): return x / np.ones((3, 3)).sum(-1, keepdims=True)[:2, 0]": "keepdims=True keeps the axis",
        "def my_double(x): return max(x, 0)": "there are np.maximum, np.minimum and np.where",
    }
    for source, part in wrong.items():
        linecache.cache["answer"] = (len(source), None, [source], "answer")
        names = {"np": np}
        exec(compile(source, "answer", "exec"), names)
        assert part in explain(DOUBLE, names)
    names = {}
    exec("def my_double(x): return np.add(x, x)", names)
    assert "Put `import numpy as np` into the first line." in explain(DOUBLE, names)


def test_how_to_copy_an_argument():
    """An array, a list and a list of lists are copied in different ways."""

    def check(argument):
        return lambda answer: check_function(answer, "f", len, [(argument,)])

    def f(x):
        x[0] = x[-1]
        return 2

    for argument, copy in ((np.arange(2), "x.copy()"), ([1, 2], "list(x)"), ([[1], [2]], "[list(row) for row in x]")):
        assert f"begin with x = {copy}." in explain(Exercise("0.3", "", "", check(argument)), {"f": f})


def test_an_unknown_exercise_is_refused():
    with pytest.raises(ValueError, match=r"no exercise '9\.9'; `mini-bert learn` lists all"):
        find("9.9")
    assert phase_of(find("2.3")).page == "2_attention.md"
