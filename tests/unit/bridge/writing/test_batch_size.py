"""The size of batches follows the time that they take."""

from __future__ import annotations

from collections.abc import Callable

from reconsume.bridge.writing.batch_size import BatchSize


def work(
    size: BatchSize, took_ms: Callable[[int], float], batches: int, fails_after_ms: float
) -> tuple[list[int], int]:
    """Full batches one after the other: their sizes, and how many failed."""
    sizes, failed = list[int](), 0
    for _ in range(batches):
        sizes.append(size.records)
        took = took_ms(size.records)
        failed += took > fails_after_ms
        size.took(size.records, size.records, min(took, fails_after_ms), committed=took <= fails_after_ms)
    return sizes, failed


def test_on_a_narrow_link_batches_shrink_below_what_fails_and_stay_there() -> None:
    size = BatchSize(5_000)
    _, failed = work(size, lambda records: records * 5.0, 10, 10_000)
    assert failed <= 2
    sizes, failed = work(size, lambda records: records * 5.0, 100, 10_000)
    assert failed == 0
    assert min(sizes) >= 200


def test_where_transactions_are_short_batches_stay_below_what_fails_too() -> None:
    size = BatchSize(5_000, transaction_ms=3_000)
    work(size, lambda records: records * 5.0, 10, 2_000)
    sizes, failed = work(size, lambda records: records * 5.0, 100, 2_000)
    assert failed == 0
    assert min(sizes) >= 50


def test_after_an_outage_batches_are_full_again_within_a_dozen() -> None:
    size = BatchSize(5_000)
    work(size, lambda _: 10_000.0, 50, 5_000)
    assert size.records == 1
    work(size, lambda _: 5.0, 13, 5_000)
    assert size.records == 5_000


def test_a_batch_that_fails_at_once_says_nothing_of_its_size() -> None:
    size = BatchSize(5_000)
    size.took(5_000, 5_000, 100, committed=False)
    assert size.records == 5_000
    size.took(5_000, 5_000, 1_000, committed=False)
    assert size.records == 2_500


def test_long_round_trips_do_not_keep_batches_small() -> None:
    size = BatchSize(5_000)
    work(size, lambda _: 3_000.0, 5, 5_000)
    assert size.records < 500
    work(size, lambda _: 1_500.0, 40, 5_000)
    assert size.records == 5_000


def test_a_small_batch_does_not_prove_that_a_large_one_is_taken() -> None:
    size = BatchSize(5_000)
    size.took(5_000, 5_000, 5_000, committed=False)
    for _ in range(50):
        size.took(10, 10, 5, committed=True)
    assert size.records == 2_500


def test_few_large_records_count_by_their_bytes() -> None:
    size = BatchSize(5_000, 4_000)
    size.took(4, 4_000, 9_000, committed=False)
    assert size.bytes == 2_000


def test_a_refusal_halves_down_to_one_record() -> None:
    for most in range(1, 400):
        size, records = BatchSize(most), most
        while records > 1:
            size.halve(records)
            assert size.records == max(1, records // 2)
            records = size.records
