"""`python -m mini_bert` is the `mini-bert` command."""

from mini_bert.cli.main import main

main()
