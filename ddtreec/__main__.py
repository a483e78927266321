"""`python -m ddtreec` is the `ddtreec` command."""

from ddtreec.cli.main import main

main(prog_name="ddtreec")
