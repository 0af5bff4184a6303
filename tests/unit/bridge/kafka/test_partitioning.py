"""Keys go where a Java client would put them."""

from __future__ import annotations

import pytest

from reconsume.bridge.kafka.partitioning import choose_partition

JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Values of `org.apache.kafka.common.utils.Utils.murmur2`, as Kafka's own UtilsTest has them."""


@pytest.mark.rule("BR-05")
@pytest.mark.parametrize("key", JAVA_MURMUR2)
@pytest.mark.parametrize("partitions", [1, 2, 7, 100])
def test_a_key_has_the_partition_of_javas_default_partitioner(key: bytes, partitions: int) -> None:
    assert choose_partition(key, partitions) == (JAVA_MURMUR2[key] & 0x7FFFFFFF) % partitions


def test_without_a_key_any_partition_may_be_taken() -> None:
    assert {choose_partition(None, 3) for _ in range(200)} == {0, 1, 2}
    assert choose_partition(b"", 3) == choose_partition(b"", 3)
