"""`from mini_bert.gradients import gradient_check`: finite differences are in checks/gradients.py."""

from mini_bert.checks.gradients import gradient_check

__all__ = ["gradient_check"]
