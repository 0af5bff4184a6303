"""What the listener and the consumer of each scenario were told; the names of the scenarios say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconsume.consumers import MessageModel
from reconsume.consumers.listener import ALL

__all__ = ["PLAYED", "Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the trace itself does not hold.

    Attributes:
        max_reconsume_times: of the consumer; None leaves it alone, so 16 holds.
        delay_level: `delay_level_when_next_consume`, set in every call.
        ack_index: set in every call but those of the last attempt, after which nothing was sent back.
        tags: of the subscription.
        unwanted_tag: one more message is published with this tag, which must never be delivered.
        orderly: the listener takes its messages in order.
    """

    max_reconsume_times: int | None = None
    delay_level: int = 0
    ack_index: int = ALL
    tags: str = "*"
    unwanted_tag: str | None = None
    orderly: bool = False
    message_model: MessageModel = MessageModel.CLUSTERING


PLAYED: Final = {
    "later_until_dlq_max3": Settings(max_reconsume_times=3),
    "level30_is_capped": Settings(delay_level=30),
    "max0_goes_to_dlq": Settings(max_reconsume_times=0),
    "batch_ack_index_1_of_4": Settings(ack_index=1),
    "tag_filter_with_retry": Settings(tags="TagA", unwanted_tag="TagB"),
    "batch_later_ignores_ack_index": Settings(ack_index=1),
    "null_means_retry": Settings(),
    "level5_fixed_then_success": Settings(delay_level=5),
    "two_topics_one_group": Settings(),
    "level_minus1_goes_to_dlq": Settings(delay_level=-1),
    "orderly_suspend_then_success": Settings(orderly=True),
    "orderly_max2_to_dlq": Settings(orderly=True, max_reconsume_times=2),
    "broadcasting_never_retries": Settings(message_model=MessageModel.BROADCASTING),
}
