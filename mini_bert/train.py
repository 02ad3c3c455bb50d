"""`python train.py` is `mini-bert train`; the loop is in training/loop.py."""

from mini_bert.training.loop import train

__all__ = ["train"]

if __name__ == "__main__":
    from mini_bert.cli.main import script

    script("train")
