"""Labelled files, read and checked line by line."""
