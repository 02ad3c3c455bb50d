"""gradient_check accepts correct gradients and rejects wrong ones."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import mini_bert.checks.gradcheck
from mini_bert.checks.gradients import TOLERANCE, Checked, central_difference, clip, global_norm, gradient_check
from mini_bert.cli.main import app
from mini_bert.layers.layer_norm import LayerNorm


def test_central_difference_of_a_known_function():
    """d/dx x³ = 3x², and x is restored exactly."""
    x = np.array([2.0, 5.0])
    assert central_difference(lambda: x[0] ** 3, x, (0,), 1e-5) == pytest.approx(12, rel=1e-9)
    assert x.tolist() == [2.0, 5.0]


def test_right_gradients_pass_and_wrong_ones_fail():
    """An error of one part in 100,000 in a single number is found."""
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(5, 3)), rng.normal(size=3)
    right = 2 * a.T @ (a @ x)
    (row,) = gradient_check(lambda: np.sum((a @ x) ** 2), {"x": x}, {"x": right})
    assert row.error < 1e-8 and row.entries == 3 and row.passed()
    wrong = right.copy()
    wrong[np.abs(right).argmax()] *= 1 + 1e-5
    (row,) = gradient_check(lambda: np.sum((a @ x) ** 2), {"x": x}, {"x": wrong})
    assert row.error > TOLERANCE and not row.passed()


def test_corners_do_not_count_but_mistakes_near_them_do():
    """Where a difference crosses ReLU's kink, a smaller step is used. A wrong slope is still found."""
    x = np.array([3e-6])
    (row,) = gradient_check(lambda: max(x[0], 0.0), {"x": x}, {"x": np.array([1.0])})
    assert row.error < TOLERANCE
    (row,) = gradient_check(lambda: max(x[0], 0.0), {"x": x}, {"x": np.array([0.5])})
    assert not row.passed()


def test_large_tensors_are_sampled_where_it_matters():
    """In a large table, the check samples rows that were used and some that were not."""
    table = np.random.default_rng(0).normal(size=(500, 7))
    gradient = np.zeros_like(table)
    gradient[123] = 2 * table[123]
    (row,) = gradient_check(lambda: np.sum(table[123] ** 2), {"t": table}, {"t": gradient}, entries=20)
    assert row.entries <= 20 and row.error < 1e-8
    gradient[123, np.abs(gradient[123]).argmax()] *= 1.01
    (row,) = gradient_check(lambda: np.sum(table[123] ** 2), {"t": table}, {"t": gradient}, entries=20)
    assert not row.passed()


def test_nan_never_passes():
    """A gradient or a loss that is NaN fails the check."""
    x = np.array([1.0])
    (row,) = gradient_check(lambda: x[0], {"x": x}, {"x": np.array([np.nan])})
    assert not row.passed()
    (row,) = gradient_check(lambda: float("nan"), {"x": x}, {"x": np.array([1.0])})
    assert not row.passed()
    assert not Checked("x", (1,), 1, float("nan")).passed()


def test_float32_is_refused():
    """Rounding in float32 would hide errors of the size we look for."""
    with pytest.raises(TypeError, match="needs float64"):
        gradient_check(lambda: 0.0, {"x": np.ones(1, np.float32)}, {"x": np.ones(1)})


def test_a_broken_layer_is_found(monkeypatch):
    """`mini-bert gradcheck` exits with 1 and names the tensor when a backward is wrong."""
    right = LayerNorm.backward

    def wrong(self, dy, cache, run):
        return right(self, dy, cache, run) + 1e-4 * dy

    monkeypatch.setattr(LayerNorm, "backward", wrong)
    monkeypatch.setattr(mini_bert.checks.gradcheck, "MODELS", {})
    monkeypatch.setattr(
        mini_bert.checks.gradcheck,
        "CASES",
        [c for c in mini_bert.checks.gradcheck.CASES if c.name in ("linear", "layer norm")],
    )
    result = CliRunner().invoke(app, ["gradcheck", "--tensors"])
    out = result.stdout
    assert result.exit_code == 1
    assert "layer norm: input 0" in out and "WRONG" in out and "linear: " not in out


def test_one_row_of_gradcheck():
    """A name chooses its row, or else the rows that contain it, and shows the two numbers that are compared."""
    one = CliRunner().invoke(app, ["gradcheck", "linear"])
    assert one.exit_code == 0 and "tied linear" not in one.stdout
    found = re.findall(r"w\[\d+, \d+\] +backward (\S+) +\(loss\(\+h\) − loss\(−h\)\) / 2h (\S+)", one.stdout)
    assert len(found) == 1 and found[0][0] == found[0][1] and abs(float(found[0][0])) > 0.1
    some = CliRunner().invoke(app, ["gradcheck", "Tied lin"]).stdout
    assert "tied linear without bias" in some and "layer norm" not in some
    lost = CliRunner().invoke(app, ["gradcheck", "lineer"])
    assert "no row of gradcheck contains 'lineer'; did you mean linear?" in str(lost.exception)


def test_clipping_shortens_and_keeps_the_direction():
    """A gradient longer than the limit is scaled to it in place; a shorter one stays unchanged. The original norm is
    returned."""
    g = np.array([3.0, 4.0], np.float32)
    assert clip(g, 10) == pytest.approx(5) and g.tolist() == [3, 4]
    assert clip(g, 1) == pytest.approx(5)
    np.testing.assert_allclose(g, [0.6, 0.8], rtol=1e-6)
    assert global_norm(g) == pytest.approx(1, rel=1e-6)
    with pytest.raises(ValueError, match="clipping limit is 0"):
        clip(g, 0)


def test_long_norms_do_not_drift_and_broken_ones_are_left():
    """The norm of millions of equal float32 values is exact to 1e-6; an infinite gradient is reported, not zeroed."""
    assert global_norm(np.full(20_000_000, 1e-3, np.float32)) == pytest.approx(1e-3 * 20_000_000**0.5, rel=1e-6)
    g = np.array([np.inf, 1.0], np.float32)
    assert clip(g, 1.0) == np.inf and g.tolist() == [np.inf, 1.0]
    g = np.array([np.nan, 1.0], np.float32)
    assert np.isnan(clip(g, 1.0)) and g[1] == 1.0
