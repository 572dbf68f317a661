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
from turnkeeper.failpoint import Failed, failpoint
from turnkeeper.port.store import KeyTaken
from turnkeeper.store.sqlite import columns
from turnkeeper.store.sqlite.faults import translated
from turnkeeper.store.sqlite.sql import QUERIES
from turnkeeper.store.sqlite.stored import StoredRows
from turnkeeper.store.sqlite.tables import write_unit
from turnkeeper.store.unit import Unit

T = TypeVar("T")

GROUP_MAX: Final = 256
"""Most jobs that share a transaction."""
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

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self.path = path
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
            jobs: list[Job] = []
            job = self._queue.get()
            while job is not None:
                jobs.append(job)
                if len(jobs) == GROUP_MAX:
                    break
                try:
                    job = self._queue.get_nowait()
                except Empty:
                    break
            else:
                open_ = False
            if jobs:
                self._group(jobs)
                self._after_commit(jobs)
                self._answer(jobs)
                self._checkpoint()
        self._cursor.close()
        self._connection.close()

    def _group(self, jobs: Sequence[Job]) -> None:
        """Store `jobs` together if possible; leave result or error in each."""
        ways = (self._together, self._with_savepoints)
        for way in ways if all(job.work is None for job in jobs) else ways[:1]:
            try:
                way(jobs)
            except apsw.ConstraintError as error:
                problem: Exception = error
                self._undo()
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
                problem = translated(error, self.path, self._connection)
                self._undo()
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
        self._cursor.execute("BEGIN IMMEDIATE")
        self._stored.refresh()
        unit = Unit(self._stored)
        for job in jobs:
            if job.work is None:
                self._apply(job, unit)
                continue
            write_unit(self._cursor, unit)
            self._stored.keep(unit)
            job.error = None
            job.work(self._cursor, self._stored)
            unit = Unit(self._stored)
        write_unit(self._cursor, unit)
        self._commit()
        self._stored.keep(unit)

    def _with_savepoints(self, jobs: Sequence[Job]) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")
        self._stored.refresh()
        for job in jobs:
            unit = Unit(self._stored)
            self._apply(job, unit)
            if job.error is not None:
                continue
            self._cursor.execute("SAVEPOINT job")
            try:
                write_unit(self._cursor, unit)
            except apsw.ConstraintError as error:
                self._cursor.execute("ROLLBACK TO job")
                job.error = self._refused(error, unit)
            else:
                self._stored.keep(unit)
            self._cursor.execute("RELEASE job")
        self._commit()

    def _commit(self) -> None:
        failpoint("store.before_commit")
        self._cursor.execute("COMMIT")

    def _undo(self) -> None:
        self._stored.forget()
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    @staticmethod
    def _apply(job: Job, unit: Unit) -> None:
        job.error = None
        upper = Unit(unit)
        try:
            job.result = job.change(upper)
            unit.absorb(upper)
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
    def _after_commit(jobs: Iterable[Job]) -> None:
        try:
            failpoint("store.after_commit")
        except Failed as error:
            for job in jobs:
                job.error = error

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
        except (apsw.BusyError, apsw.FullError, apsw.IOError):
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
