"""The one writer: a thread that stores every waiting change in one transaction (group commit).

It takes all jobs that wait, applies each to a unit of work in memory (which is where a batch is refused
if it was fenced or its lane moved), writes the changed rows of all of them with few statements, commits
once, and only then answers everybody. If the engine refuses the group (a key that another process or
batch took, a full disk), the group is stored again with a savepoint around each job, so that only the
one at fault fails. Why so: docs/adr/0012.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import apsw

from turnkeeper.errors import Conflict, LaneMoved, Stopping, StoreBusy
from turnkeeper.failpoint import failpoint
from turnkeeper.port.store import KeyTaken
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.faults import translated
from turnkeeper.store.sqlite.sql import QUERIES
from turnkeeper.store.sqlite.stored import StoredRows
from turnkeeper.store.sqlite.tables import write_unit
from turnkeeper.store.unit import Overlap, Unit

T = TypeVar("T")

GROUP_MAX: Final = 256
"""Most jobs that share a transaction, unless it is said otherwise."""
CHECKPOINT_PAGES: Final = 4_000
"""Size of the write-ahead log, in pages, from which it is copied into the database."""


Change = Callable[[Unit], T]
"""Changes rows in a unit of work."""
Work = Callable[[apsw.Cursor, StoredRows], None]
"""Works on the tables themselves."""


class Job:
    """A change that waits to be stored, and who waits for it."""

    __slots__ = ("change", "error", "future", "loop", "result", "work")

    def __init__(self, loop: asyncio.AbstractEventLoop, change: Change[Any], work: Work | None) -> None:
        self.change = change
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None


class Writer:
    """Owns the only connection that writes, and the thread that uses it."""

    def __init__(self, connection: apsw.Connection, path: str, group_max: int = GROUP_MAX) -> None:
        self.path = path
        self._group_max = group_max
        self._connection = connection
        self._cursor = connection.cursor()
        self._stored = StoredRows(self._cursor)
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._wal_pages = 0
        connection.set_wal_hook(self._note_wal)
        self._thread = threading.Thread(target=self._run, name="turnkeeper-writer", daemon=True)
        self._thread.start()

    # -- from outside

    async def store(self, change: Change[T]) -> T:
        """Apply `change` in the next transaction; return its result when that is durable."""
        result: T = await self._put(change, None)
        return result

    async def _put(self, change: Change[T], work: Work | None) -> T:
        job = Job(asyncio.get_running_loop(), change, work)
        with self._gate:
            if self._closed:
                raise Stopping
            self._queue.put(job)
        result: T = await job.future
        return result

    async def run(self, work: Work) -> None:
        """Do `work` in the next transaction; return when it is durable."""
        await self._put(lambda _: None, work)

    def close(self) -> None:
        """Store what waits, then end the thread and close the connection."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    # -- in the thread

    def _run(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._take()
            try:
                self._group(jobs)
                failpoint("store.after_commit")
            except Exception as error:  # noqa: BLE001 - the thread must live, and who waits must hear of it
                for job in jobs:
                    job.error = error
            self._answer(jobs)
            self._checkpoint()
        self._cursor.close()
        self._connection.close()

    def _take(self) -> tuple[list[Job], bool]:
        """All jobs that wait, at least one; and whether more may come."""
        jobs: list[Job] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == self._group_max:
                return jobs, True
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, True
        return jobs, False

    def _group(self, jobs: Sequence[Job]) -> None:
        """Store `jobs` together if possible; leave result or error in each."""
        problem: Exception | None = None
        for way in (self._together, self._with_savepoints):
            try:
                way(jobs)
            except (apsw.ConstraintError, Overlap) as error:
                problem = self._undo(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
                problem = self._undo(error)
                if len(jobs) > 1 and type(problem) is not StoreBusy:
                    for job in jobs:
                        self._group([job])
                    return
                break
            else:
                return
        for job in jobs:
            job.error = problem

    def _together(self, jobs: Sequence[Job]) -> None:
        """One transaction, one unit of work, few statements."""
        self._cursor.execute("BEGIN IMMEDIATE")
        self._stored.refresh()
        unit = Unit(self._stored)
        for job in jobs:
            if job.work is not None:
                self._write(unit)
                job.work(self._cursor, self._stored)
                unit = Unit(self._stored)
            elif unit.empty:
                unit = self._first(job)
            else:
                self._apply(job, unit)
        self._write(unit)
        self._commit()

    def _with_savepoints(self, jobs: Sequence[Job]) -> None:
        """One transaction, and a unit of work for each job, so that one at fault is undone alone."""
        self._cursor.execute("BEGIN IMMEDIATE")
        self._stored.refresh()
        for job in jobs:
            self._cursor.execute("SAVEPOINT job")
            unit = Unit(self._stored)
            try:
                if job.work is None:
                    unit = self._first(job)
                    self._write(unit)
                else:
                    job.work(self._cursor, self._stored)
            except apsw.ConstraintError as error:
                self._cursor.execute("ROLLBACK TO job")
                job.error = self._refused(error, unit)
            self._cursor.execute("RELEASE job")
        self._commit()

    def _write(self, unit: Unit) -> None:
        write_unit(self._cursor, unit)
        self._stored.keep(unit)

    def _commit(self) -> None:
        failpoint("store.before_commit")
        self._cursor.execute("COMMIT")

    def _undo(self, error: Exception) -> Exception:
        """Leave the transaction and forget its rows; return what `error` means to who asked."""
        found = translated(error, self.path, self._connection)
        self._stored.forget()
        if self._connection.in_transaction:
            try:
                self._cursor.execute("ROLLBACK")
            except apsw.Error as again:
                found.add_note(f"The transaction could not be left either: {again}")
        return found

    def _first(self, job: Job) -> Unit:
        """The unit of a job that has no other below it."""
        job.error = None
        unit = Unit(self._stored)
        try:
            job.result = job.change(unit)
        except Exception as error:  # noqa: BLE001 - a batch that cannot be applied fails alone
            job.error = error
            return Unit(self._stored)
        return unit

    @staticmethod
    def _apply(job: Job, unit: Unit) -> None:
        """Let the job change `unit`; if it fails, `unit` is as it was."""
        job.error = None
        upper = Unit(unit)
        try:
            job.result = job.change(upper)
            unit.absorb(upper)
        except Overlap:
            raise
        except Exception as error:  # noqa: BLE001 - a batch that cannot be applied fails alone
            job.error = error

    def _refused(self, error: apsw.ConstraintError, unit: Unit) -> Exception:
        """What a broken invariant means to the batch that broke it."""
        for row in unit.submissions.values():
            key = (
                columns.text_in(row.conversation_id),
                columns.text_in(row.user_id),
                columns.text_in(row.key),
            )
            found = self._cursor.execute(QUERIES["submission_by_key"], key).fetchall()
            if found:
                return KeyTaken(columns.submission_out(found[0]))
        if "turn.conversation_id" in str(error):
            return LaneMoved(conversation_id=next(iter(unit.conversations)))
        return Conflict(f"That is stored already, or breaks a rule of the store ({error}).")

    # -- afterwards

    @staticmethod
    def _answer(jobs: Iterable[Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, theirs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, theirs)
            except RuntimeError:
                """The loop was closed: nobody waits any more, and what was stored is stored."""

    def _note_wal(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        if self._wal_pages < CHECKPOINT_PAGES:
            return
        if not self._queue.empty() and self._wal_pages < 4 * CHECKPOINT_PAGES:
            return
        try:
            left, done = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            """The log stays as it is, whole; the next commit tries again, and meets the same fault itself."""
            return
        self._wal_pages = left - done


def _resolve(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.future.cancelled():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
