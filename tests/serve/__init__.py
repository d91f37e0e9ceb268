"""Tests of vtlite/serve, most of them against a live server."""
