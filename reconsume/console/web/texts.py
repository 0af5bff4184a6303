"""The words of the pages, in English and Chinese."""

from __future__ import annotations

from typing import Final

from reconsume.console.web.texts_of_jobs import JOB_TEXTS
from reconsume.console.web.texts_of_letters import MORE_TEXTS

_TEXTS: Final[dict[str, tuple[str, str]]] = (
    JOB_TEXTS
    | MORE_TEXTS
    | {
        # every page
        "title": ("reconsume console", "reconsume 控制台"),
        "skip": ("Skip to content", "跳到正文"),
        "overview": ("Overview", "概览"),
        "language": ("Language", "语言"),
        "read_only": ("read-only", "只读"),
        "values_hidden": ("values hidden", "已隐藏内容"),
        "where": (
            "Kafka at {servers}, topics {prefix}*, reconsume {version}",
            "Kafka：{servers}，主题 {prefix}*，reconsume {version}",
        ),
        "signed_in_as": ("Signed in as {}", "已登录：{}"),
        "sign_out": ("Sign out", "退出登录"),
        "signed_out": ("Signed out", "已退出登录"),
        "sign_in_again": ("Sign in again", "重新登录"),
        "none": ("None.", "无。"),
        "unknown": ("unknown", "未知"),
        "units": ("d h m s", "天 小时 分 秒"),
        "from_now": ("in {}", "{}后"),
        "ago": ("{} ago", "{}前"),
        "bytes": ("{} bytes", "{} 字节"),
        "yes": ("yes", "是"),
        "no": ("no", "否"),
        "group": ("Group", "消费组"),
        "groups": ("Groups", "消费组"),
        "estimates": (
            (
                "~: estimated from offsets, because there are too many records to count. Offsets include the end "
                "marks of transactions."
            ),
            "~：记录过多，按位点估算，其中包含事务结束标记。",
        ),
        # overview
        "schedulers": ("scheduler workers alive", "在线调度器"),
        "lateness": ("longest overdue", "最长超期"),
        "waiting": ("waiting", "等待中"),
        "overdue": ("overdue", "已超期"),
        "next_due": ("next due", "下次到期"),
        "retry_lag": ("retries not consumed", "未消费的重试"),
        "dead_letters": ("dead letters kept", "保留的死信"),
        "quarantined": ("quarantined", "已隔离"),
        "quarantine_help": (
            "Records that the schedulers could not deliver wait in the quarantine.",
            "调度器无法投递的记录存放在隔离区。",
        ),
        "open_letters": ("open dead letters", "未处理的死信"),
        "new_in_hour": ("new in 1 h", "1 小时内新增"),
        "new_in_day": ("new in 24 h", "24 小时内新增"),
        "oldest_open": ("oldest open", "最早未处理"),
        "indexing": (
            (
                "The index of dead letters is being built: {left} records left. Until then, open dead letters are "
                "not counted."
            ),
            "死信索引正在建立，还剩 {left} 条记录。完成前不统计未处理的死信。",
        ),
        "delay_topics": ("Delay topics", "延迟主题"),
        "delay_topics_help": (
            (
                "Records wait here until they are due. If records are overdue, check the schedulers. DELAY.0s has "
                "no count of overdue records."
            ),
            "记录在此等待到期。如有超期记录，请检查调度器。DELAY.0s 不统计超期。",
        ),
        "topic": ("Topic", "主题"),
        "groups_help": ("Groups that need a person come first.", "需要人工处理的消费组排在最前。"),
        "filter": ("Filter", "过滤"),
        "filter_groups": ("Part of a group's name", "消费组名称的一部分"),
        "groups_shown": ("Groups: {shown} of {all}", "消费组：{all} 个中的 {shown} 个"),
        "groups_cut": ("The page shows the first {shown}. Narrow the filter.", "仅显示前 {shown} 个，请缩小过滤范围。"),
        "refresh_on": ("Update every 5 s", "每 5 秒更新"),
        "refresh_off": ("Stop updating", "停止更新"),
        "reload_on": ("Reload every 5 s", "每 5 秒重新加载"),
        "quarantine": ("Quarantine", "隔离区"),
        "as_of": ("As of", "截至"),
        "trouble": ("Kafka does not answer. These figures are old:", "Kafka 没有响应，以下为旧数据："),
        "pending_title": ("Just started", "刚刚启动"),
        "pending": ("The console reads the installation for the first time.", "控制台正在首次读取部署状态。"),
        "spark": ("New dead letters by hour, last 24 h", "最近 24 小时每小时新增死信"),
        "spark_of": ("{all} in 24 h, at most {most} in an hour", "24 小时共 {all} 条，单小时最多 {most} 条"),
        # group
        "settings": ("Settings", "配置"),
        "registered": ("Registered", "已注册"),
        "not_registered": (
            "This group is not registered and has the default settings. To register it, run reconsume groups set.",
            "该消费组未注册，使用默认配置。注册命令：reconsume groups set",
        ),
        "not_allowed": (
            "This group is not registered, and unknown groups are not served.",
            "该消费组未注册，且不为未知消费组提供服务。",
        ),
        "consume_enable": ("May consume (consumeEnable)", "允许消费（consumeEnable）"),
        "broadcast_enable": ("May broadcast (consumeBroadcastEnable)", "允许广播（consumeBroadcastEnable）"),
        "retry_queue_nums": ("Retry queues (retryQueueNums)", "重试队列数（retryQueueNums）"),
        "retry_max_times": ("Retries at most (retryMaxTimes)", "最大重试次数（retryMaxTimes）"),
        "policy": ("Retry policy", "重试策略"),
        "policy_table": ("the level table of all: {}", "公共级别表：{}"),
        "names": ("Topics", "主题"),
        "rocketmq_name": ("RocketMQ's name", "RocketMQ 名称"),
        "kafka_topic": ("Kafka topic", "Kafka 主题"),
        "ladder": ("Waits before each retry", "每次重试前的等待"),
        "ladder_help": ("The waits of a consumer that requests no level.", "消费者未指定级别时的等待时间。"),
        "ladder_cut": (
            "Each later retry waits as long as the last one shown.",
            "之后每次重试的等待时间与最后一行相同。",
        ),
        "retry": ("Retry", "重试"),
        "level": ("Level", "级别"),
        "wait": ("Wait", "等待"),
        "together": ("Together", "累计"),
        "causes": ("Causes of the newest dead letters", "最新死信的原因"),
        "causes_help": (
            "From the newest {looked_at} dead letters. Causes that differ only in numbers count as one.",
            "统计最新 {looked_at} 条死信；仅数字不同的原因视为同一原因。",
        ),
        "open_causes": ("Causes of open dead letters", "未处理死信的原因"),
        "open_causes_help": (
            "From {number} open dead letters. Causes that differ only in ids, numbers or host names count as one.",
            "统计 {number} 条未处理的死信；仅编号、数字或主机名不同的原因视为同一原因。",
        ),
        "share": ("Share", "占比"),
        "since_when": ("Since", "开始于"),
        "no_open_letters": ("This group has no open dead letters.", "该消费组没有未处理的死信。"),
        "filter_label": ("Cause", "原因"),
        "matches": ("{found} of {all} dead letters match.", "{all} 条死信中有 {found} 条符合条件。"),
        "in_causes": (
            "This searches causes, not stack traces. reconsume dlq list --text searches both.",
            "此处只查找原因，不查找堆栈；reconsume dlq list --text 两者都查。",
        ),
        "cause": ("Cause", "原因"),
        "count": ("Count", "数量"),
        "newest": ("Newest", "最新"),
        "no_cause": ("no cause", "无原因"),
        "no_dead_letters": ("This group has no dead letters.", "该消费组没有死信。"),
        "to_dead_letters": ("All its dead letters", "查看全部死信"),
        # dead letters
        "dead_letters_of": ("Dead letters", "死信"),
        "filter_text": ("In cause or stack trace", "原因或堆栈包含"),
        "filter_key": ("Key, exactly", "键（完全一致）"),
        "filter_message_id": ("Message id", "消息 ID"),
        "filter_since": ("Since", "起始时间"),
        "filter_until": ("Until", "截止时间"),
        "filter_moments": (
            "Times: 2026-11-22 10:00 (UTC), or an age such as 2h.",
            "时间：2026-11-22 10:00（UTC），或距今多久，如 2h。",
        ),
        "filter_apply": ("Filter", "过滤"),
        "filter_clear": ("Clear", "清除"),
        "looked_at": ("{shown} shown. {looked_at} read for this page.", "显示 {shown} 条；本页读取了 {looked_at} 条。"),
        "there_is_older": ("There are older ones.", "还有更早的死信。"),
        "no_older": ("This is the oldest.", "已到最早的死信。"),
        "older": ("Older", "更早"),
        "back_to_newest": ("Newest", "最新"),
        "choose": ("Select", "选择"),
        "place": ("Place", "位置"),
        "dead_since": ("Dead since", "成为死信时间"),
        "key": ("Key", "键"),
        "retries": ("Retries", "重试次数"),
        "replays": ("Resends", "重发次数"),
        "state": ("State", "状态"),
        "any_state": ("any", "全部"),
        "OPEN": ("open", "未处理"),
        "RESENT": ("resent", "已重发"),
        "RESOLVED": ("resolved", "已关闭"),
        "SUPERSEDED": ("superseded", "已被取代"),
        "why": ("Why no resend is needed", "无需重发的原因"),
        "resolve_chosen": ("Resolve selected", "关闭所选"),
        "resolve_one": ("Resolve", "关闭"),
        "reopen_one": ("Open again", "重新打开"),
        "resolved_by": ("By", "处理人"),
        "state_why": ("Why", "原因说明"),
        "state_job": ("Resend", "重发编号"),
        "state_newer": ("Newer dead letter", "更新的死信"),
        "resend_chosen": ("Resend selected…", "重发所选…"),
        "resend_shown": ("Resend all {} shown…", "重发本页全部 {} 条…"),
        "resend_one": ("Resend…", "重发…"),
        # one record
        "record": ("Dead letter", "死信"),
        "message_id": ("Message id", "消息 ID"),
        "origin": ("Origin topic", "来源主题"),
        "stands": ("Place", "所在位置"),
        "born": ("Written", "写入时间"),
        "first_failure": ("First failure", "首次失败"),
        "replay_id": ("Last resend", "上次重发编号"),
        "size": ("Size of key and value", "键与值的大小"),
        "malformed": ("Invalid headers", "无效的消息头"),
        "stacktrace": ("Stack trace", "堆栈"),
        "headers": ("Headers", "消息头"),
        "header": ("Header", "消息头"),
        "header_of": ("Written by", "写入者"),
        "of_reconsume": ("reconsume", "reconsume"),
        "of_user": ("the program", "用户程序"),
        "value": ("Value", "值"),
        "as_text": ("Text", "文本"),
        "as_hex": ("Hexadecimal", "十六进制"),
        "no_value": ("none (null)", "无（null）"),
        "empty": ("empty", "空"),
        "hidden": ("hidden, {} bytes", "已隐藏，{} 字节"),
        "not_utf8": ("not UTF-8, in hexadecimal", "不是 UTF-8，以十六进制显示"),
        "cut": ("Only the beginning is shown.", "仅显示开头部分。"),
        "dumped": ("The first {} bytes.", "前 {} 字节。"),
        "commands": ("The same in a terminal", "等价命令"),
        # resends and resolutions
        "resend_help": (
            (
                "The messages go to the retry topic of this group, with all attempts again. Other groups do not "
                "see them. The dead letters stay."
            ),
            "消息重新投递到该消费组的重试主题，重试次数重新计算，其他消费组不会收到；死信仍保留。",
        ),
        "resend_nothing": ("Nothing to do.", "没有可处理的死信。"),
        "what_happens": ("What would happen", "预计结果"),
        "what_happened": ("What happened", "结果"),
        "back": ("Back to the dead letters", "返回死信列表"),
        "plan_send": ("will be resent", "将重发"),
        "superseded": ("left out: the message has a newer dead letter", "不处理：该消息有更新的死信"),
        "replayed": ("left out: already resent", "不处理：已重发过"),
        "resolved": ("left out: already resolved", "不处理：已关闭"),
        "resolve_title": ("Resolved", "关闭结果"),
        "reopen_title": ("Opened again", "重新打开结果"),
        "changed_counts": ("{changed} of {all} changed.", "{all} 条中已变更 {changed} 条。"),
        "done_resolved": ("resolved", "已关闭"),
        "done_opened": ("open again", "已重新打开"),
        "capped": ("left out: resent the maximum number of times", "不处理：已达最大重发次数"),
        "damaged": ("left out: a header of its identity is invalid", "不处理：标识消息身份的消息头无效"),
        # errors
        "error_title": ("This did not work", "操作未成功"),
        "error_400": ("The request has an invalid value.", "请求中有无效的值。"),
        "error_401": ("Sign-in is needed.", "需要登录。"),
        "error_403": ("You may not do this.", "不允许此操作。"),
        "error_404": ("This does not exist.", "对象不存在。"),
        "error_405": ("This address does not accept this kind of request.", "该地址不接受这种请求。"),
        "error_413": ("The form is too large. Select fewer.", "表单过大，请减少选择。"),
        "error_421": ("This console does not answer to this name.", "本控制台不使用该名称提供服务。"),
        "error_500": ("Unexpected error. The console's log has the details.", "意外错误，详情见控制台日志。"),
        "error_503": ("Kafka did not answer. Wait, then reload this page.", "Kafka 没有响应，请稍候再刷新本页。"),
        "error_ending": ("The console is stopping. Try again when it is back.", "控制台正在停止，请稍后再试。"),
        "error_back": ("To the overview", "返回概览"),
    }
)

LANGUAGES: Final = ("en", "zh")
NAMES_OF_LANGUAGES: Final = {"en": "English", "zh": "中文"}
WORDS: Final = {
    language: {name: texts[number] for name, texts in _TEXTS.items()} for number, language in enumerate(LANGUAGES)
}
