"""Errors: one class for each way to react, all under one base, also the built-in one where there is a fit."""

from __future__ import annotations

import pytest

from reconsume.delay_levels import errors
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import check_group
from reconsume.delay_levels.wire.send_back_copy import Position

FAMILY = {
    "IllegalSetting": ("ReconsumeError", "ValueError"),
    "IllegalDelayLevels": ("IllegalSetting",),
    "IllegalName": ("IllegalSetting",),
    "RecordNotFound": ("IllegalSetting",),
    "TopicNotAllowed": ("IllegalSetting",),
    "MalformedProperty": ("ReconsumeError", "ValueError"),
    "SubscriptionGroupNotExist": ("ReconsumeError", "LookupError"),
    "TopicNotReady": ("ReconsumeError",),
    "KafkaNotReachable": ("ReconsumeError",),
    "KafkaLoginFailed": ("KafkaNotReachable",),
    "GroupIsFull": ("SendBackFailed",),
    "KafkaRefused": ("ReconsumeError",),
    "RecordTooLarge": ("KafkaRefused",),
    "WriterReplaced": ("KafkaRefused",),
    "SendBackFailed": ("ReconsumeError",),
    "OffsetStoreUnusable": ("ReconsumeError",),
    "PartitionLost": ("ReconsumeError",),
    "WorkerFenced": ("ReconsumeError",),
}


@pytest.mark.parametrize(("name", "bases"), FAMILY.items())
def test_every_error_stands_where_the_tree_shows_it(name: str, bases: tuple[str, ...]) -> None:
    error = getattr(errors, name)
    assert tuple(base.__name__ for base in error.__bases__) == bases
    assert issubclass(error, ReconsumeError)
    assert error.__doc__


def test_the_tree_is_complete() -> None:
    assert set(errors.__all__) == {"ReconsumeError", *FAMILY}
    assert issubclass(ReconsumeError, Exception)


@pytest.mark.parametrize("name", sorted({"ReconsumeError", *FAMILY}))
def test_the_module_shows_every_error_in_its_tree(name: str) -> None:
    assert errors.__doc__ is not None
    assert name in errors.__doc__


def test_a_bad_setting_is_no_malformed_record_and_the_other_way_round() -> None:
    with pytest.raises(errors.IllegalSetting) as bad_table:
        DelayLevels.parse("never")
    with pytest.raises(errors.IllegalSetting) as bad_group:
        check_group("")
    with pytest.raises(errors.MalformedProperty) as bad_record:
        Position.parse("nowhere")
    assert not isinstance(bad_table.value, errors.IllegalName)
    assert not isinstance(bad_group.value, errors.IllegalDelayLevels)
    assert not isinstance(bad_record.value, errors.IllegalSetting)
