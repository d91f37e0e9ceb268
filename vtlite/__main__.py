"""`python -m vtlite` is `vtlite`."""

from vtlite.cli import console

console()
