"""The texts of the report, in English and Chinese."""

from __future__ import annotations

from typing import Final

_TEXTS: Final = {
    "title": ("Reconciliation of retries", "重试对账"),
    "ok": ("Every failed message ended in exactly one state.", "每条失败消息都恰好处于一种状态。"),
    "findings_verdict": ("{count} findings: something is wrong.", "发现 {count} 个问题。"),
    "findings_verdict_1": ("1 finding: something is wrong.", "发现 1 个问题。"),
    "beside_QUARANTINED": (
        "Quarantined records: {count}. To see them, run: reconsume quarantine list",
        "隔离区中的记录：{count}。查看命令：reconsume quarantine list",
    ),
    "beside_EXPIRED": (
        "Attempts not judged: {count}. Retention may have deleted their send-back or their delivery.",
        "未作判断的重试：{count}。其退回或投递记录可能已过保留期。",
    ),
    "empty": ("Nothing was sent back; there is nothing to reconcile.", "没有被退回的消息，无需对账。"),
    "window": ("Send-backs from {since} to {until}", "退回时间：{since} 至 {until}"),
    "ever": ("the beginning", "最早"),
    "where": ("Kafka at {servers}, topics {prefix}*", "Kafka：{servers}，主题 {prefix}*"),
    "sent_back": ("sent back", "退回"),
    "waiting": ("waiting", "等待中"),
    "moved": ("delivered again", "已重新投递"),
    "dead": ("dead letters", "死信"),
    "quarantined": ("quarantined", "已隔离"),
    "dropped": ("dropped", "已丢弃"),
    "expired": ("expired", "已过期"),
    "lost": ("missing", "缺失"),
    "consumed": ("consumed", "已消费"),
    "unread": ("unread", "未消费"),
    "group": ("group", "消费组"),
    "balance": ("balance", "平衡"),
    "balanced": ("balanced", "平衡"),
    "conservation": ("Conservation", "守恒"),
    "conservation_text": (
        (
            "For each group: sent back = waiting + delivered again + dead letters + quarantined + "
            "dropped + expired. The difference is missing."
        ),
        "每个消费组：退回 = 等待中 + 已重新投递 + 死信 + 已隔离 + 已丢弃 + 已过期；差额即为缺失。",
    ),
    "consumed_text": (
        "The group's committed offsets tell which delivered retries were consumed.",
        "根据消费组提交的位点判断，已投递的重试中哪些已被消费。",
    ),
    "times": ("Send-backs and dead letters over time", "退回与死信随时间的变化"),
    "times_text": ("By the time (UTC) at which they were sent back.", "按退回时间统计（UTC）。"),
    "retries_series": ("to be tried again", "将重试"),
    "dead_series": ("to the dead-letter topic", "进入死信主题"),
    "lateness": ("How late deliveries were", "投递延误分布"),
    "lateness_text": (
        "Delivered minus due, for each delay. A bar counts deliveries up to the time below it.",
        "实际投递时间减去到期时间，按延时级别统计；柱高为延误不超过下方时间的投递数。",
    ),
    "delay": ("delay", "延时"),
    "more": ("more", "更多"),
    "tries": ("Retries until success", "成功前的重试次数"),
    "tries_text": (
        "Messages by the number of their retries, if they were not sent back again.",
        "重试若干次后未再被退回的消息数。",
    ),
    "retries": ("{count} retries", "重试 {count} 次"),
    "retries_1": ("1 retry", "重试 1 次"),
    "causes": ("Most frequent causes of dead letters", "死信的主要原因"),
    "none": ("None.", "无。"),
    "findings": ("Findings", "问题"),
    "notes": ("Notes", "提示"),
    "attempt": ("attempt", "次数"),
    "appended": ("sent back", "退回"),
    "asked": ("requested", "请求"),
    "due": ("due", "到期"),
    "delivered": ("delivered", "投递"),
    "late_by": ("late by", "延误"),
    "damage": ("damaged", "损坏"),
    "cause": ("cause", "原因"),
    "commands": ("Show the records", "查看记录的命令"),
    "shown": (
        "{shown} of {count} are shown; the others are in the table of findings.",
        "显示 {count} 个中的 {shown} 个，其余见问题表。",
    ),
    "count": ("count", "数量"),
    "made": ("Made by reconsume {version} on {now}.", "由 reconsume {version} 于 {now} 生成。"),
    "LOST": (
        "The scheduler has passed its offset, and no topic has its delivery.",
        "调度器的位点已越过它，但任何主题中都没有它的投递记录。",
    ),
    "DUPLICATE": ("Delivered more often than it was sent back.", "投递次数多于退回次数。"),
    "EARLY": ("Delivered before it was due.", "在到期之前被投递。"),
    "LATE": ("Delivered long after it was due.", "到期很久之后才被投递。"),
    "WRONG_LEVEL": (
        "Waited another time than its level says, or was delivered with another level.",
        "等待时间与其级别不符，或投递时级别不同。",
    ),
    "WRONG_GROUP": ("Delivered to another group than the one that sent it back.", "投递到了其他消费组。"),
    "WRONG_TOPIC": (
        "A retry among the dead letters, or a dead letter among the retries.",
        "重试消息进入了死信主题，或死信进入了重试主题。",
    ),
    "WRONG_COUNT": (
        "Its delivery has another count, or its dead letter reports fewer deliveries.",
        "投递记录或死信中的次数与实际不符。",
    ),
    "ORPHAN": ("Delivered without a send-back.", "被投递，但从未被退回。"),
    "OVERDUE": (
        "Still waits long after its due time. Check that the schedulers run.",
        "早已到期仍在等待：请检查调度器是否在运行。",
    ),
    "DAMAGED": ("A header has an illegal value.", "某个消息头的值非法。"),
    "NOT_RESENT": (
        "Its dead letter is marked as resent, and DELAY.0s has no resend of it.",
        "死信被标记为已重发，但 DELAY.0s 中没有它的重发记录。",
    ),
    "REPEATED": (
        "Sent back twice, as after the death of a consumer; delivered as often.",
        "被退回两次（例如消费者崩溃之后），投递次数相同。",
    ),
    "EXPIRED": (
        "Retention or a person may have deleted its send-back or its delivery, so it was not judged.",
        "对应的退回或投递记录可能已被删除（过保留期或手动），未作判断。",
    ),
    "PRODUCERS_TIME": (
        (
            "A topic has the timestamps of producers (CreateTime), so early, late and overdue were not judged; "
            "set message.timestamp.type=LogAppendTime."
        ),
        "主题使用生产者时间戳（CreateTime），无法判断提前、延误和超期；请设置 message.timestamp.type=LogAppendTime。",
    ),
    "QUARANTINED": (
        "The schedulers could not deliver it. A person decides about it.",
        "调度器无法投递，等待人工处理。",
    ),
    "DROPPED": ("Its group has retries switched off.", "该消费组已关闭重试。"),
    "MAYBE_DROPPED": (
        "It left the inbox without a delivery, and its group may have had retries switched off then.",
        "已离开收件主题但没有投递；当时该消费组可能已关闭重试。",
    ),
    "ORIGIN_GONE": (
        "Its first copy is no longer on the topic: compaction or retention has deleted it.",
        "首份消息已不在来源主题：被日志压缩清理，或已过保留期。",
    ),
}

LANGUAGES: Final = ("en", "zh")
WORDS: Final = {
    language: {name: texts[number] for name, texts in _TEXTS.items()} for number, language in enumerate(LANGUAGES)
}
