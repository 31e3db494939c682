"""Practice of the middle of a battle: where episodes begin, from moments and routes that were played.

Public names are in ``__init__.pyi``; each is imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
