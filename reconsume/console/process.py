"""The console process: the pages and the management port."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

import reconsume
from reconsume.bridge.http.management import LogLevel, ManagementServer
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.metrics.catalogue import metric
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.ports import CONSOLE_MANAGEMENT
from reconsume.console.app import make_app
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.metrics import ConsoleMetrics
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.web.server import PageServer
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.current import index_file
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.jobs.runner import JOB_THREAD, JobRunner

_JOBS_SECONDS: Final = 3.0


class Console:
    """The process of `reconsume console`. The constructor binds the address; `run` serves the pages.

    Args:
        settings: the settings of the process.
        on_start: called with the addresses of the pages and the management port as soon as both answer.
        log_level: serves `/loglevel` of the management port; None omits that path.
        cluster: the source of the pages; None uses Kafka.
        clock: returns milliseconds.

    Raises:
        IllegalSetting: an address or the token cannot be used.
    """

    def __init__(
        self,
        settings: ConsoleProcessSettings,
        on_start: Callable[[str, str], None] = lambda _pages, _management: None,
        log_level: LogLevel | None = None,
        cluster: ConsoleCluster | None = None,
        clock: Clock = now_ms,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_start = on_start
        self._log_level = log_level
        self._metrics = ConsoleMetrics(CollectorRegistry())
        ProcessCollector(registry=self._metrics.registry)
        metric("reconsume_build_info").gauge(self._metrics.registry).labels(reconsume.__version__).set(1)
        self._index = make_index(settings) if cluster is None else None
        self._cluster = cluster or ConsoleCluster(settings, self._index, clock)
        app = make_app(settings, self._cluster, self._metrics, clock)
        self._server = PageServer(app, settings.console.listen)

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop. A running resend ends with its transaction; repeating the form continues it.

        Raises:
            IllegalSetting: the management address cannot be used.
        """
        management = self._settings.management
        jobs: threading.Thread | None = None
        try:
            watch = ManagementServer(
                *(management.host, management.port, self._metrics.registry, self._server, self._log_level),
                default_port=CONSOLE_MANAGEMENT,
            )
            try:
                self._server.start()
                threading.Thread(
                    target=self._cluster.snapshots.run, args=(stop,), name="reconsume-snapshots", daemon=True
                ).start()
                if self._index is not None:
                    self._follow(self._index, stop)
                    if not self._settings.console.read_only:
                        runner = JobRunner(Cluster(self._settings), told=self._metrics.count_outcomes).run
                        jobs = threading.Thread(target=runner, args=(stop,), name="reconsume-jobs", daemon=True)
                        jobs.start()
                self._on_start(self._server.address, watch.address)
                stop.wait()
            finally:
                watch.close()
                if jobs is not None and _job_is_at_work():
                    # A job commits its current transaction; the next runner does the rest.
                    jobs.join(_JOBS_SECONDS)
        finally:
            self._server.close()

    def _follow(self, index: DeadLetterIndex, stop: threading.Event) -> None:
        """Follow dead letters in a daemon thread, so that the end of the process does not wait for Kafka."""

        def looked() -> None:
            # No figure while the index cannot follow: alerts take the smallest one of all consoles.
            letters = self._cluster.open_letters() or {}
            self._metrics.tell_oldest_open({group: one.oldest_ms for group, one in letters.items()})

        threading.Thread(target=index.run, args=(stop, looked), name="reconsume-dead-letters", daemon=True).start()


def _job_is_at_work() -> bool:
    """Return whether a thread runs a job; a runner that only waits for Kafka does not count."""
    return any(one.name.startswith(JOB_THREAD) for one in threading.enumerate())


def make_index(settings: ConsoleProcessSettings) -> DeadLetterIndex:
    """Open the index of dead letters; running it fills it."""
    console = settings.console
    labels = CauseLabels(console.cause_labels)
    store = DeadLetterStore(index_file(settings, console.index_folder), console.index_mib, labels.fingerprint)
    return DeadLetterIndex(Cluster(settings), store, labels)
