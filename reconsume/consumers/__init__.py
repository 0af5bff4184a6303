"""The client side: consumers with RocketMQ's retry semantics."""

from reconsume.consumers.consume_settings import MessageModel
from reconsume.consumers.delayed.delay_producer import DelayProducer, MessageQueueSelector, SendResult
from reconsume.consumers.drop_in.aio_consumer import AIOConsumer
from reconsume.consumers.drop_in.consumer import Consumer
from reconsume.consumers.drop_in.retry_message import RetryMessage, origin, polled_from, reconsume_times
from reconsume.consumers.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
)
from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker, CircuitChange, CircuitState
from reconsume.consumers.listeners.circuit_metrics import CircuitMetrics
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.observing.hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeReturnType,
    SendBackTarget,
    SendMessageBackContext,
)
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere
from reconsume.consumers.push_consumer import PushConsumer

__all__ = [
    "AIOConsumer",
    "CircuitBreaker",
    "CircuitChange",
    "CircuitMetrics",
    "CircuitState",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ConsumeReturnType",
    "Consumer",
    "DelayProducer",
    "Message",
    "MessageModel",
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
