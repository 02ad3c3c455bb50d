"""Labelled English made up by a grammar."""
