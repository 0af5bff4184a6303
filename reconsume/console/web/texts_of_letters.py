"""Texts of pages about one record, a group and its pause, and reports, in English and Chinese."""

from __future__ import annotations

from typing import Final

MORE_TEXTS: Final[dict[str, tuple[str, str]]] = {
    # one record, decoded and edited
    "as_json": ("JSON", "JSON（缩进）"),
    "as_avro": ("Avro, shown as JSON", "Avro（以 JSON 显示）"),
    "as_protobuf": ("Protobuf, shown as JSON", "Protobuf（以 JSON 显示）"),
    "as_json_schema": ("JSON Schema", "JSON（按 JSON Schema）"),
    "schema_id": ("schema {}", "Schema 编号 {}"),
    "not_decoded": ("Not decoded:", "未解码："),
    "edit_one": ("Edit and resend…", "编辑并重发…"),
    "edit_title": ("Edit a dead letter", "编辑死信"),
    "edit_help": (
        (
            "The resent message gets the new value and headers, and the header REPLAY_EDITED. The dead letter "
            "keeps the original."
        ),
        "重发的消息使用新的值和消息头，并带有消息头 REPLAY_EDITED；死信保留原内容。",
    ),
    "edit_no_value": (
        "A form cannot carry this value unchanged: it is binary, has invisible characters, or is too long. Use",
        "表单无法原样传递该值（二进制、含不可见字符或过长），请使用命令：",
    ),
    "edit_kept": ("These headers stay as they are:", "以下消息头保持不变："),
    "edit_next": ("Check the changes…", "检查更改…"),
    "edit_back": ("Back to the dead letter", "返回死信"),
    "new_header": ("New header", "新消息头"),
    "remove": ("Remove", "删除"),
    "removed": ("removed", "已删除"),
    "edited": ("Edited", "已编辑"),
    "edited_help": ("The dead letter keeps the original.", "死信保留原内容。"),
    "value_before": ("Before", "修改前"),
    "value_after": ("After", "修改后"),
    "job_chosen": ("Resend selected dead letters", "重发所选死信"),
    "error_job": (
        (
            "The console does not know whether the job exists. Check Jobs before you send the form again. A "
            "second job would send nothing twice."
        ),
        "不确定任务是否已创建。再次提交前请查看任务列表；即使重复创建，也不会重复发送。",
    ),
    # pause of a group, retries by hour
    "paused": ("paused", "已暂停"),
    "paused_groups": ("paused groups", "已暂停的消费组"),
    "parked": ("due, held by a pause", "已到期，因暂停未投递"),
    "paused_help": (
        "The retries of this group are paused. Due records wait until you resume them.",
        "该消费组的重试已暂停，到期记录将等待恢复。",
    ),
    "resend_paused": (
        "The retries of this group are paused, so resent messages wait too.",
        "该消费组的重试已暂停，重发的消息也会等待。",
    ),
    "retry_paused": ("Retries paused (retryPaused)", "暂停重试（retryPaused）"),
    "pause_retries": ("Pause retries", "暂停重试"),
    "resume_retries": ("Resume retries", "恢复重试"),
    "pause_help": (
        "Due records of this group then wait. Other groups are not affected.",
        "暂停后，该消费组的到期记录会等待，其他消费组不受影响。",
    ),
    "retry_chart": ("Retries by hour", "每小时重试"),
    "retry_chart_help": (
        "Each send-back is a retry when its wait is over.",
        "每次退回的消息在等待结束后成为一次重试。",
    ),
    "retry_chart_of": (
        "{hours} hours. Retries delivered: {all}, at most {most} in an hour.",
        "{hours} 小时：投递了 {all} 次重试，单小时最多 {most} 次。",
    ),
    "retries_kept_since": ("The retry topic goes back to", "重试主题中最早的记录："),
    "no_retries": ("The retry topic has no records.", "重试主题没有记录。"),
    "count_retries": ("Count retries by hour", "统计每小时重试"),
    # reports of reconcile
    "reports": ("Reconcile reports", "对账报告"),
    "report": ("Report", "报告"),
    "reports_help": (
        "reconsume reconcile accounts for every failed message. The newest report comes first.",
        "reconsume reconcile 核对每条失败消息的去向。最新的报告排在最前。",
    ),
    "no_reports": ("The folder has no reports.", "文件夹中没有报告。"),
    "written": ("Written", "写入时间"),
    "verdict": ("Findings", "问题"),
    "verdict_ok": ("none", "无"),
    "send_backs": ("Send-backs", "退回次数"),
    "window": ("Period", "时间范围"),
    "window_ever": ("beginning", "最早"),
}
