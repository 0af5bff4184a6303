"""`reconsume chaos`: faults while messages flow, judged by the final contents of the topics."""
