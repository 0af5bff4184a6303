"""Reads the dead letters of a job in windows, with their states and histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import JobSpec
from reconsume.operations.dead_letter_states import StatesReader
from reconsume.operations.dead_letters import DeadLetterRecord, record_of
from reconsume.operations.jobs.selection import Selection
from reconsume.operations.resend import Histories, ResendVerdict, judge


class LetterWindow:
    """A window of a partition, with its letters in order.

    Args:
        cluster: the installation.
        spec: the definition of the job.
        selection: the selection of the job.
        partition: the partition of the dead-letter topic.
        start: the first offset.
        end: the offset behind the last.
        to_the_last: wait for the end of open transactions.
        alive: called repeatedly during the read.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: JobSpec,
        selection: Selection,
        partition: int,
        start: int,
        end: int,
        *,
        to_the_last: bool,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._spec, self._selection, self._alive = cluster, spec, selection, alive
        self.partition, self.start, self.end = partition, start, end
        self._states = StatesReader(cluster, to_the_last=to_the_last, wanted=self._holds, alive=alive)
        self._histories: Histories | None = None
        if spec.kind == "resend":
            self._histories = Histories(cluster, spec.group, to_the_last=to_the_last)
            for one in self._read():
                if selection.takes(one):
                    self._histories.add(one)
            self._histories.read(alive)

    def _holds(self, key: DeadLetterKey) -> bool:
        return key.topic == self._spec.topic and key.partition == self.partition and self.start <= key.offset < self.end

    def catch_up(self) -> None:
        """Read new records of other writers."""
        self._states.catch_up()
        if self._histories is not None:
            self._histories.read(self._alive)

    def letters(self) -> Iterator[DeadLetterRecord]:
        """Yield the letters of the job with their states."""
        for one in self._read():
            if self._selection.takes(one):
                found = replace(one, state=self._states.of(one.key_of_state))
                if self._selection.takes_state(found.state):
                    yield found

    def state(self, one: DeadLetterRecord) -> DeadLetterState | None:
        """Return the state of a letter, as known now."""
        return self._states.of(one.key_of_state)

    def verdict(self, one: DeadLetterRecord) -> ResendVerdict:
        """Return the verdict on a letter to resend, as known now."""
        assert self._histories is not None
        return judge(one, self._histories.of(one), self._states.of(one.key_of_state), self._spec.max_replays)

    def _read(self) -> Iterator[DeadLetterRecord]:
        where = self._spec.topic, self.partition
        [start] = self._cluster.admin.end_offsets([where], earliest=True).values()
        with RangeReader(self._cluster.base, f"{self._cluster.names.prefix}dlq") as reader:
            for read in reader.records({where: (max(start, self.start), max(start, self.end))}):
                self._alive()
                yield record_of(self._spec.group, read)
