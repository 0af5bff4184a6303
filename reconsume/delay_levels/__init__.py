"""The rules of RocketMQ's retries as pure functions and values; standard library only."""
