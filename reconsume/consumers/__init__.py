"""The client side: consumers with RocketMQ's retry semantics."""

from reconsume.consumers.aio_consumer import AIOConsumer
from reconsume.consumers.consumer import Consumer
from reconsume.consumers.delay_producer import DelayProducer, MessageQueueSelector, SendResult
from reconsume.consumers.hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeReturnType,
    SendBackTarget,
    SendMessageBackContext,
)
from reconsume.consumers.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
)
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.push_consumer import PushConsumer
from reconsume.consumers.retry_message import RetryMessage, origin, polled_from, reconsume_times

__all__ = [
    "AIOConsumer",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ConsumeReturnType",
    "Consumer",
    "DelayProducer",
    "Message",
    "MessageQueue",
    "MessageQueueSelector",
    "PushConsumer",
    "RetryMessage",
    "SendBackTarget",
    "SendMessageBackContext",
    "SendResult",
    "origin",
    "polled_from",
    "reconsume_times",
]
