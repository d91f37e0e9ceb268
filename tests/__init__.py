"""Tests mirror vtlite/: tests/<room>/test_<file>.py."""
