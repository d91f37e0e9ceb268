"""`python -m vtlite` is `vtlite`."""

import sys

from vtlite.cli import main

sys.exit(main())
