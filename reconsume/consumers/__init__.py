"""The client side: consumers with RocketMQ's retry semantics."""

from reconsume.consumers.delay_producer import DelayProducer, MessageQueueSelector, SendResult
from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.push_consumer import PushConsumer

__all__ = [
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "DelayProducer",
    "Message",
    "MessageQueue",
    "MessageQueueSelector",
    "PushConsumer",
    "SendResult",
]
