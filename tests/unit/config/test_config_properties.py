"""Java's .properties files, as Java reads them."""

import pytest

from ottla.config import BadProperties, Config, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\t=\tb", {"a": "b"}),
        ("  a=b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("# a=b\n! c=d\n  #e=f\n\n   \ng=h", {"g": "h"}),
        ("a=b # c", {"a": "b # c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\n#y", {"a": "x#y"}),
        ("#c\\\na=b", {"a": "b"}),
        ("a=x\\", {"a": "x"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        (r"a=\t\n\r\f\q\\\"", {"a": '\t\n\r\fq\\"'}),
        (r"a=\u00e9\uD83D\uDE00", {"a": "é😀"}),
        ("path=C\\:\\\\logs", {"path": "C:\\logs"}),
        ("=b", {"": "b"}),
        ("", {}),
        ("\\", {}),
    ],
)
def test_notation(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_broken_escape_is_refused_with_its_line() -> None:
    with pytest.raises(BadProperties, match="line 3"):
        parse_properties("a=b\n\nc=\\u00g0")


def test_kafka_file_with_its_own_habits_makes_a_config() -> None:
    text = """
    ############################# Log Basics #############################
    log.dirs=/var/lib/a,\\
             /var/lib/b
    num.partitions=1
    log.retention.hours=168
    #log.retention.bytes=1073741824
    """
    config = Config.of(broker=parse_properties(text))
    assert config.unknown == ()
