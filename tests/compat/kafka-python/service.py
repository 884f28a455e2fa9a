"""What the suite's fixtures need of a server that others started; its source distribution lacks the file.

Copied into the suite as `test/service.py`.
"""


class ExternalService:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """It runs already."""

    def close(self) -> None:
        """Who started it stops it."""

    def stop(self) -> None:
        """Who started it stops it."""

    def dump_logs(self) -> None:
        """Its log is kept by who started it."""


class SpawnedService:
    def __init__(self, *_args: object, **_settings: object) -> None:
        raise NotImplementedError("this suite runs against a server that is there already: set KAFKA_URI")
