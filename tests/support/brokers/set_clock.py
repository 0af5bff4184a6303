"""A broker whose clock tests set: a preloaded library shifts what its JVM is told of the time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.chaos.cluster.worker import set_ahead
from tests.support.brokers.kafka import local_kafka

__all__ = ["kafka_with_clock"]

_SHIFTED: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*right)(clockid_t, struct timespec *);
static const volatile double *ahead;

__attribute__((constructor)) static void begin(void) {
    right = dlsym(RTLD_NEXT, "clock_gettime");
    int file = open(getenv("CLOCK_OF_BROKER"), O_RDONLY);
    void *mapped = file < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    ahead = mapped == MAP_FAILED ? 0 : mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = right(clock, now);
    if (!failed && ahead && clock == CLOCK_REALTIME)
        now->tv_sec += (time_t)*ahead;
    return failed;
}
"""


@contextmanager
def kafka_with_clock(folder: Path, ahead: float = 0) -> Iterator[tuple[LocalKafka, Path]]:
    """A broker, and the file by which `set_ahead` sets its clock, in whole seconds.

    Args:
        folder: for the library and the file.
        ahead: of this machine's clock at first, in whole seconds; after a step back a broker's own requests may wait.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the library that sets a broker's clock")
    library, clock = folder / "shifted.so", folder / "clock"
    compiling = [compiler, "-shared", "-fPIC", "-o", str(library), "-x", "c", "-", "-ldl"]
    subprocess.run(compiling, input=_SHIFTED, text=True, check=True)
    set_ahead(clock, ahead)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        patch.setenv("CLOCK_OF_BROKER", str(clock))
        with local_kafka() as kafka:
            patch.undo()
            yield kafka, clock
