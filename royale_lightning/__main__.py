"""``python -m royale_lightning`` is the same as ``royale-lightning``."""

import sys

from .cli.console import main

if __name__ == "__main__":
    sys.exit(main())
