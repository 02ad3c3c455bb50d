"""`python simple_test.py` is `mini-bert simple-test`: a tour of every part (checks/simple_test.py)."""

from mini_bert.checks.simple_test import tour

__all__ = ["tour"]

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("simple-test")
