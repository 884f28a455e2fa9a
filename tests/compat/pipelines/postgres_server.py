"""The PostgreSQL of the tests is the one that the demo runs."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))

from examples.postgres_server import NoPostgres, Postgres, running_postgres

__all__ = ["NoPostgres", "Postgres", "running_postgres"]
