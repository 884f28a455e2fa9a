"""Pipelines as texts, for tests: one that is right, and what is told of one that is not."""

from ottla.pipelines import InvalidPipeline, Pipeline
from ottla.pipelines.authoring.files import parse_toml

SHOP = """\
name = "orders-per-minute"
[source.orders]
topic = "orders"
parse = "json"
schema = "order_id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP"
[[step]]
name = "windows"
sql = '''
SELECT window(event_time, '1 minute') AS w, city, count(*) AS n
FROM orders
GROUP BY 1, 2
'''
watermark = { column = "event_time", delay = "2 minutes" }
[sink.per_minute]
topic = "orders-per-minute"
key = "city"
[errors]
dead_letter = "orders-dlq"
max_rate = 0.01
"""


def changed(old: str, new: str, text: str = SHOP) -> str:
    assert old in text
    return text.replace(old, new)


def parsed(text: str, path: str = "shop.toml") -> Pipeline:
    return parse_toml(text.encode(), path)


def mistakes(text: str, path: str = "shop.toml") -> list[str]:
    try:
        parsed(text, path)
    except InvalidPipeline as invalid:
        return [str(problem) for problem in invalid.problems]
    return []
