"""The error tree, whole.

Each class's docstring is the sentence a person reads; `{facts}` in it are filled from the attributes
given when it is raised. `code` is stable and machine-readable, `status` is the HTTP answer, `retryable`
tells whether sending the same thing again can help.

    TurnkeeperError
    ├── BadInput                     400  what was sent cannot be used
    │   ├── KeyMissing  KeyMalformed  PartInvalid  NothingToSend  CursorInvalid
    │   ├── TextTooLong  BodyTooLarge  413
    │   ├── HeadersTooLarge          431
    ├── Unauthorized                 401
    │   ├── SignInUsed
    ├── Forbidden                    403
    │   ├── HostRefused  OriginRefused  AddressRefused
    ├── NotFound                     404  (a foreign id answers exactly like an unknown one)
    ├── MethodNotAllowed             405
    ├── Conflict                     409
    │   ├── KeyInFlight  TurnDecided  NotPossible  ApprovalDecided  OutOfPlace  NotWaiting
    │   ├── NotAnswered
    ├── ConnectInvalid               400  (a sign-in at a tool's server)
    ├── ConnectFailed                502
    ├── Gone                         410
    ├── KeyReused                    422
    ├── TranscriberMissing           501  (recordings are kept, and not written down)
    ├── NotARecording                415
    ├── RecordingTooLong             413
    ├── TranscriberFailed            502
    ├── ReadsAsCommand               422
    ├── QueueFull                    429
    ├── Unavailable                  503
    │   ├── StoreBusy  StoreFull  Stopping  Starting
    ├── Fenced                       409  (a runner that lost its lease)
    ├── LaneMoved                    409  (internal: another writer stepped this lane first)
    ├── ConfigError                  a file or flag cannot be used; exit code 2
    │   ├── AgentsFileInvalid  ScriptInvalid  SettingInvalid
    ├── TerminalError                503  a pane cannot be used; an answer of its own for each cause
    │   ├── TerminalMissing  CannotStart  PaneDead  PaneGone  NotTaken  TerminalTrouble
    └── StoreError                   a store cannot be opened; exit code 2
        ├── StoreNewer  StoreInUse  StoreUnsafeMount  StoreDamaged
"""

from __future__ import annotations

from typing import Any, ClassVar


class TurnkeeperError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None, **facts: Any) -> None:
        self.detail = detail
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """What a person reads: the given detail, or this class's docstring with the facts filled in."""
        if self.detail is not None:
            return self.detail
        text = " ".join((type(self).__doc__ or "").split())
        try:
            return text.format(**self.facts)
        except (KeyError, IndexError, AttributeError):
            return text

    @property
    def title(self) -> str:
        """The kind of error in words: `QueueFull` -> "Queue full"."""
        name = type(self).__name__
        words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
        return words.capitalize()


class BadInput(TurnkeeperError):
    """The request cannot be used: {why}."""

    code = "bad_input"
    status = 400


class KeyMissing(BadInput):
    """The header Idempotency-Key is missing. Send a new random value with every new message, and the same value when you repeat one."""

    code = "key_missing"


class KeyMalformed(BadInput):
    """The Idempotency-Key must be 1 to {max_chars} visible ASCII characters."""

    code = "key_malformed"


class TextTooLong(BadInput):
    """The message is {size_bytes} bytes long; the limit (text_bytes_max) is {limit_bytes}. Send it as an attachment or in parts."""

    code = "text_too_long"
    status = 413


class PartInvalid(BadInput):
    """Part {index} of the message cannot be used: {why}."""

    code = "part_invalid"


class NothingToSend(BadInput):
    """The message is empty. Give it text, or at least one part."""

    code = "nothing_to_send"


class CursorInvalid(BadInput):
    """The cursor {cursor!r} is not one that this server gave out."""

    code = "cursor_invalid"


class BodyTooLarge(BadInput):
    """The request body is larger than {limit_bytes} bytes, the limit `{setting}`."""

    code = "body_too_large"
    status = 413


class HeadersTooLarge(BadInput):
    """The request's address and headers are larger than {limit_bytes} bytes, the limit `header_bytes_max`."""

    code = "headers_too_large"
    status = 431


class TranscriberMissing(TurnkeeperError):
    """No transcriber is set up (`transcriber_url`): recordings are kept and sent as files."""

    code = "transcriber_missing"
    status = 501


class NotARecording(TurnkeeperError):
    """The file is no recording: its bytes show {media_type}."""

    code = "not_a_recording"
    status = 415


class RecordingTooLong(TurnkeeperError):
    """The recording has {size_bytes} bytes; the limit (transcriber_bytes_max) is {limit_bytes}. It is kept as a file."""

    code = "recording_too_long"
    status = 413


class TranscriberFailed(TurnkeeperError):
    """The recording is kept, but it could not be written down: {why}."""

    code = "transcriber_failed"
    status = 502
    retryable = True


class Unauthorized(TurnkeeperError):
    """No valid token or sign-in came with the request. Open the address that the server printed, or send a bearer token."""

    code = "unauthorized"
    status = 401


class SignInUsed(Unauthorized):
    """This address was used before or is too old: it works once. `turnkeeper token link` prints a new one."""

    code = "sign_in_used"


class Forbidden(TurnkeeperError):
    """This sign-in does not have the right {right!r}."""

    code = "forbidden"
    status = 403


class HostRefused(Forbidden):
    """This server does not answer under the name {host!r}. Add it to allowed_hosts if it is yours."""

    code = "host_refused"


class OriginRefused(Forbidden):
    """A page of {origin!r} may not call this server. Add it to allowed_origins if it is yours."""

    code = "origin_refused"


class AddressRefused(Forbidden):
    """The address {url} may not be reached: {why}. List it in private_addresses_allowed if it is yours."""

    code = "address_refused"


class NotFound(TurnkeeperError):
    """There is no such {what}."""

    code = "not_found"
    status = 404


class MethodNotAllowed(TurnkeeperError):
    """This address does not take {method}; it takes {allowed}."""

    code = "method_not_allowed"
    status = 405


class Conflict(TurnkeeperError):
    """That is not possible in the present state."""

    code = "conflict"
    status = 409


class KeyInFlight(Conflict):
    """A request with this Idempotency-Key is still being stored. Repeat it in a moment to get its answer."""

    code = "key_in_flight"
    retryable = True


class TurnDecided(Conflict):
    """The turn is already {state}; this can no longer be changed."""

    code = "turn_decided"


class NotPossible(Conflict):
    """{why}"""

    code = "not_possible"


class OutOfPlace(Conflict):
    """{input} does not fit a lane that is {phase}."""

    code = "out_of_place"


class NotWaiting(Conflict):
    """The turn {turn_id} is not where this can be done to it."""

    code = "not_waiting"


class ApprovalDecided(Conflict):
    """This question is already {state}."""

    code = "approval_decided"


class NotAnswered(Conflict):
    """The turn is {state} and has no answer: {reason}"""

    code = "not_answered"


class ConnectInvalid(TurnkeeperError):
    """This sign-in cannot be finished: {why}. Nothing was connected; begin it again."""

    code = "connect_invalid"
    status = 400


class ConnectFailed(TurnkeeperError):
    """Signing in at {server} does not work now: {why}. Nothing was connected."""

    code = "connect_failed"
    status = 502
    retryable = True


class Gone(TurnkeeperError):
    """The {what} was deleted."""

    code = "gone"
    status = 410


class KeyReused(TurnkeeperError):
    """This Idempotency-Key was used before with another message. Use a new key for a new message."""

    code = "key_reused"
    status = 422


class ReadsAsCommand(TurnkeeperError):
    """The agent {agent} would read this text as a command. Send it with as_command, or change its first character."""

    code = "reads_as_command"
    status = 422


class QueueFull(TurnkeeperError):
    """{cap} messages are already waiting in this conversation (queue_cap). Nothing was stored; try again when one has run."""

    code = "queue_full"
    status = 429
    retryable = True
    retry_after_seconds: int = 5


class Unavailable(TurnkeeperError):
    """The server cannot take this now. Nothing was stored; try again."""

    code = "unavailable"
    status = 503
    retryable = True
    retry_after_seconds: int = 1


class StoreBusy(Unavailable):
    """Another program holds the database locked. Nothing was stored; try again in a few seconds."""

    code = "store_busy"


class StoreFull(Unavailable):
    """The disk that holds the database is full. Nothing was stored; free some space and try again."""

    code = "store_full"
    status = 507
    retry_after_seconds = 10


class Stopping(Unavailable):
    """The server is stopping. Nothing was stored; send it again when the server is back."""

    code = "stopping"
    retry_after_seconds = 3


class Starting(Unavailable):
    """The server is starting: it takes up what was interrupted. Nothing was stored; try again in a moment."""

    code = "starting"


class Fenced(TurnkeeperError):
    """This attempt no longer holds the lane of turn {turn_id}; what it wrote was refused."""

    code = "fenced"
    status = 409


class LaneMoved(TurnkeeperError):
    """The lane of {conversation_id} was changed by another writer first."""

    code = "lane_moved"
    status = 409
    retryable = True


class ConfigError(TurnkeeperError):
    """The configuration cannot be used: {why}."""

    code = "config"


class AgentsFileInvalid(ConfigError):
    """The agents file {path} cannot be used: {why}."""

    code = "agents_file_invalid"


class ScriptInvalid(ConfigError):
    """The script {path} cannot be used: {why}."""

    code = "script_invalid"


class SettingInvalid(ConfigError):
    """The setting {name} cannot be used: {why}."""

    code = "setting_invalid"


class TerminalError(TurnkeeperError):
    """The terminal cannot be used: {why}."""

    code = "terminal"
    status = 503


class TerminalMissing(TerminalError):
    """Command-line agents need tmux {needed} or newer: {why}. Install it (Debian: apt-get install tmux; macOS: brew install tmux)."""

    code = "terminal_missing"


class CannotStart(TerminalError):
    """The program could not be started: {why}."""

    code = "cannot_start"
    status = 409


class PaneDead(TerminalError):
    """The program in the terminal has ended: {why}."""

    code = "pane_dead"


class PaneGone(TerminalError):
    """The terminal is gone: {why}."""

    code = "pane_gone"


class NotTaken(TerminalError):
    """The CLI did not take the text: {why}."""

    code = "not_taken"
    status = 409
    retryable = True


class TerminalTrouble(TerminalError):
    """The terminal did not do what it was asked to: {why}. What became of the program is not known."""

    code = "terminal_trouble"
    retryable = True


class StoreError(TurnkeeperError):
    """The store {path} cannot be opened: {why}."""

    code = "store"


class StoreNewer(StoreError):
    """The store {path} was written by a newer Turnkeeper (schema {found}; this one knows {known}). Upgrade Turnkeeper; nothing was changed."""

    code = "store_newer"


class StoreInUse(StoreError):
    """Another server (process {pid}) already uses the store {path}. Stop it first, or choose another --data folder."""

    code = "store_in_use"


class StoreUnsafeMount(StoreError):
    """The folder {path} is on a {kind} mount, where SQLite's write-ahead log gets damaged. Put --data on a local disk, or use PostgreSQL with --database."""

    code = "store_unsafe_mount"


class StoreDamaged(StoreError):
    """The store {path} is damaged or is not a Turnkeeper store ({why}). Nothing was changed; restore a backup, or try `turnkeeper doctor {path}`."""

    code = "store_damaged"
