"""RocketMQ's two models of consumption."""

from __future__ import annotations

import enum

__all__ = ["MessageModel"]


class MessageModel(enum.Enum):
    """CLUSTERING shares the partitions among the members of a group; BROADCASTING gives all of them to each."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"
