"""`reconsume chaos`: faults while messages flow, judged by what the topics hold in the end."""
