"""ddtreec: the compiler from YAML specs to a specialised engine bundle.

Importing this package starts nothing and imports neither torch nor numpy.
"""

__version__ = "0.1.0"
