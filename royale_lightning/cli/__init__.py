"""The command line: our own tools and Lightning's subcommands behind one command."""

from .console import main as main
