"""`python -m ottla.cli` is `ottla`."""

import sys

from ottla.cli import main

if __name__ == "__main__":
    sys.exit(main())
