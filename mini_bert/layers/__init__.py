"""The layers of BERT, one file each: formula, forward and backward side by side. Nothing here knows of models."""
