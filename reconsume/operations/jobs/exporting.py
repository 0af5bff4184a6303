"""The export of a job: a file in the runner's folder, with every letter once, also after a kill."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.letter_files import TextLetters, csv_writer, json_line_writer, letter_file
from reconsume.operations.jobs.letters import LetterWindow
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.work import LetterOutcome


class Exporting:
    """Writes letters to a file.

    Guarantees: the progress has the size of the file, and everything after that is cut off, so the next run continues
    with the next letter. Test: tests/integration/test_jobs.py.

    Args:
        job: the job.
        folder: the folder for the files of all jobs.

    Attributes:
        is_anew: whether the file restarts, because it is missing, or is a Parquet file, which has its index at its
            end.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._form = job.spec.form
        self._final = folder / f"{job.name}.{self._form}"
        self._path = folder / f".{job.name}.{self._form}.part"
        self._out: TextIO | None = None
        written = job.progress.written
        size = self._path.stat().st_size if self._path.exists() else 0
        self.is_anew = self._form == "parquet" or not written or size < written
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            if self._form == "parquet":
                self._file = letter_file(self._form, None, self._path)
                return
            os.truncate(self._path, 0 if self.is_anew else written)
            self._out = self._path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise IllegalSetting(f"file {self._path} cannot be written: {error.strerror}; check its folder") from None
        csv = self._form == "csv"
        self._file = TextLetters(csv_writer(self._out, with_head=self.is_anew) if csv else json_line_writer(self._out))

    def decide(self, window: LetterWindow, one: DeadLetterRecord) -> LetterOutcome:
        """Export every letter."""
        del window
        return LetterOutcome(one.place, one.letter.origin_message_id, "exported")

    def before_commit(self, letters: Sequence[DeadLetterRecord]) -> int:
        """Flush these to the disk."""
        for one in letters:
            self._file.write(one)
        if self._out is None:
            return 0
        self._out.flush()
        os.fsync(self._out.fileno())
        return self._out.tell()

    def close(self, *, is_done: bool) -> str:
        """Rename the complete file to its final name."""
        self._file.close()
        if self._out is not None:
            self._out.close()
        if is_done:
            self._path.replace(self._final)
        return str(self._final) if is_done else ""
