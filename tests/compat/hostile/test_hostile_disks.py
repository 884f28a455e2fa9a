"""A real node whose disk is taken away."""

import shutil
import subprocess
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from nodes.ottla_node import OTTLA, PATIENCE_S, READY


def test_a_node_without_its_directory_ends_with_a_line_and_a_code(tmp_path: Path) -> None:
    """It used to stay up and answer errors; no supervisor could know that it should start it again."""
    data = tmp_path / "data"
    command = [str(OTTLA), "serve", "--data-dir", str(data), "--listener", "127.0.0.1:0"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        ready = READY.search(node.stdout.readline())
        assert ready is not None
        shutil.rmtree(data)
        data.touch()  # No directory can be made there again.
        failed: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            failed.append(error)

        producer = Producer({"bootstrap.servers": f"127.0.0.1:{ready[2]}", "message.timeout.ms": 5_000, "log_level": 0})
        producer.produce("t", b"value", on_delivery=delivered)
        producer.flush(PATIENCE_S)
        assert failed[0] is not None
        _, log = node.communicate(timeout=PATIENCE_S)
    finally:
        node.kill()
        node.wait()
    assert node.returncode == 1
    (line,) = [line for line in log.splitlines() if line.startswith("ottla: ")]
    assert line.startswith(f"ottla: node 1 ends: no log directory is left; {data} was the last")
    assert line.endswith("Repair the disk, then start it again")
    assert "Traceback" not in log
