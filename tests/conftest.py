"""Fixtures that several folders share."""

pytest_plugins = ["tests.support.battles", "tests.support.bots"]
