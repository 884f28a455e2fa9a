"""Who looks at what, made up: the same numbers are the same views.

Rule 1: every customer has a taste, one of TASTES, and looks at products of it nine times out of ten. What a customer
        is recommended should be of that taste: so a person, or a test, can see whether it works.
Rule 2: every view says when it happened; every BROKEN_EVERY-th record is broken.

`python -m examples.recommendations.views` prints them, for `ottla produce`.
"""

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

TASTES: Final = 4
PRODUCTS_PER_TASTE: Final = 60
CUSTOMERS: Final = 100
OWN_TASTE: Final = 0.9
BROKEN_EVERY: Final = 500
OPENS: Final = datetime(2026, 3, 2, 11, 0, tzinfo=UTC)


def taste_of_customer(customer: int) -> int:
    return customer % TASTES


def taste_of_product(product: int) -> int:
    return product // PRODUCTS_PER_TASTE


def views(count: int, customers: int = CUSTOMERS, seed: int = 7) -> Iterator[bytes]:
    """JSON, in the order in which they happen, one a second."""
    random = Random(seed)
    for number in range(count):
        customer = random.randrange(customers)
        taste = taste_of_customer(customer) if random.random() < OWN_TASTE else random.randrange(TASTES)
        product = taste * PRODUCTS_PER_TASTE + random.randrange(PRODUCTS_PER_TASTE)
        moment = (OPENS + timedelta(seconds=number)).isoformat()
        view = json.dumps({"customer": customer, "product": product, "event_time": moment})
        yield (view[:20] if number % BROKEN_EVERY == BROKEN_EVERY // 2 else view).encode()


def _print() -> None:
    parser = argparse.ArgumentParser(description="Print views of products, a line each.")
    parser.add_argument("--views", type=int, default=5_000, help="how many; default 5000")
    parser.add_argument("--customers", type=int, default=CUSTOMERS, help=f"of how many; default {CUSTOMERS}")
    parser.add_argument("--seed", type=int, default=7, help="other numbers are other views; default 7")
    given = parser.parse_args()
    for view in views(given.views, given.customers, given.seed):
        print(view.decode())


if __name__ == "__main__":
    _print()
