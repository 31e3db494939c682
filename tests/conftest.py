"""Fixtures that several folders share, and how the property tests draw."""

from hypothesis import settings

pytest_plugins = ["tests.support.battles", "tests.support.bots"]

# A commit passes or fails the same everywhere: examples are drawn from the test itself. `--hypothesis-profile search`
# draws others, to look for what these miss.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("same")
