"""The JSON shapes of requests, and of those answers that are no view of `turnkeeper.projection.view`."""

from __future__ import annotations

from typing import Any

import msgspec

from turnkeeper.app.drafts import DraftFile
from turnkeeper.conversation.turns import Mode
from turnkeeper.projection.view import ConversationView, MessageView, TurnView


class TextPart(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """Words."""

    text: str


class AttachmentPart(msgspec.Struct, frozen=True, tag="attachment", tag_field="type"):
    """A file that was uploaded before."""

    attachment_id: str


SentPart = TextPart | AttachmentPart


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says: `text`, or `parts` where there is more than text."""

    text: str | None = None
    parts: list[SentPart] | None = None


class SubmitBody(Words, frozen=True, kw_only=True):
    """A new message."""

    mode: Mode = Mode.QUEUE
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    resend_of: str | None = None
    """The cancelled turn whose words are sent again."""
    as_command: bool = False
    """To a command-line agent: the text is one of its commands (from a list), not words for its model."""


class DraftBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is written and not sent: it takes the place of what was kept before."""

    text: str = ""
    files: list[DraftFile] = []


class CreateBody(msgspec.Struct, frozen=True, kw_only=True):
    """A new conversation."""

    agent: str
    title: str = ""


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be another: a title, the archive."""

    title: str | None = None
    archived: bool | None = None


class CancelBody(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the queue behind a stopped turn: pause | continue."""

    queue: str = "pause"


class ReconcileBody(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to merge: `format:native_id` as `turnkeeper transcript find` lists it; null is the conversation's own."""

    session: str | None = None


class MoveBody(msgspec.Struct, frozen=True, kw_only=True):
    """The queued turn to stand before; null is the end of the queue."""

    before: str | None = None


class SendNowBody(msgspec.Struct, frozen=True, kw_only=True):
    """How a queued message goes at once: steer | interrupt."""

    mode: Mode = Mode.STEER


class TokenBody(msgspec.Struct, frozen=True, kw_only=True):
    """A new token."""

    user: str = "owner"
    scopes: list[str] | None = None
    """None: what a person needs (read, write, approve); for the owner everything."""
    label: str = ""
    expires_seconds: float | None = None


class TokenMade(msgspec.Struct, frozen=True, kw_only=True):
    """A new token; its secret is shown this once."""

    token: str
    token_id: str
    user_id: str
    scopes: list[str]
    expires_at: str | None


class SignInMade(msgspec.Struct, frozen=True, kw_only=True):
    """An address that signs one browser in, once."""

    url: str
    expires_seconds: float


class VaultView(msgspec.Struct, frozen=True, kw_only=True):
    """How many keys are kept; the newest seals."""

    keys: int


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who is signed in."""

    user_id: str
    scopes: list[str]
    kind: str


class ConversationList(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations, newest activity first."""

    conversations: list[ConversationView]
    next: str | None


class MessageList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of history in ascending seq; `next` is the `before` of the page before it."""

    messages: list[MessageView]
    next: int | None


class TurnList(msgspec.Struct, frozen=True, kw_only=True):
    """Turns, newest first."""

    turns: list[TurnView]
    next: str | None


class DeletedView(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that can be brought back for so long."""

    conversation_id: str
    undo_seconds: float


class AttachmentView(msgspec.Struct, frozen=True, kw_only=True):
    """An upload. `media_type` comes from its bytes."""

    attachment_id: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str


class TranscriptView(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a recording."""

    transcript: str


class PushKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser's push subscription is tied to: base64url."""

    public_key: str


class PushKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a browser's push subscription: base64url."""

    p256dh: str
    auth: str


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A browser's push subscription, as the browser gives it."""

    endpoint: str
    keys: PushKeys


class PushEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Which subscription."""

    endpoint: str


class PushView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this browser is told."""

    subscribed: bool


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server works. Further members may follow."""

    ok: bool
    ready: bool


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the whole server. Further members may follow."""


class EvidenceView(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of evidence: everything that was journaled of a turn, in order, and its effect ledger."""

    turn: TurnView
    chain: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]


class ApprovalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`decision` approve | deny."""

    decision: str


class ChoiceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`choice`: one of what the turn's needs offer, or give_up."""

    choice: str


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a decision: `{approval_id, kind, turn_id, conversation_id, name, arguments, expires_at, ...}`."""

    approvals: list[dict[str, Any]]
    next: str | None


class ConnectionList(msgspec.Struct, frozen=True, kw_only=True):
    """Servers of tools: `{server, url, state: connected|not_connected|revoked, why, since, scope, waiting, connect}`.

    why: moved (the server has another address now than when you signed in) or null.
    """

    connections: list[dict[str, Any]]
    next: str | None


class ConnectLink(msgspec.Struct, frozen=True, kw_only=True):
    """`url` to open in a browser; `plain_url` is for a browser that is signed in here already."""

    server: str
    url: str
    plain_url: str


class ReleasedView(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns went on, or ended, with a decision about a server."""

    server: str
    outcome: str
    turns: int


class DecidedView(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was made."""

    approval_id: str
    decision: str
    by: str
    turn_id: str | None
    """Null for a menu of a CLI that stands there between turns."""
    state: str


class FeedView(msgspec.Struct, frozen=True, kw_only=True):
    """The feed as `turnkeeper feed` prints it. `request` is null when nothing may be sent."""

    provider: str
    feed: list[dict[str, Any]]
    incoming: str
    changes: list[dict[str, Any]]
    request: dict[str, Any] | None
    display: list[dict[str, Any]]


class AgentList(msgspec.Struct, frozen=True, kw_only=True):
    """Agents: `{name, runner, provider, model}`."""

    agents: list[dict[str, Any]]
    next: str | None


class TakeOverBody(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the keyboard: `force` takes it from another person."""

    force: bool = False


class KeysBody(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to type, as base64."""

    data: str


class AdoptBody(msgspec.Struct, frozen=True, kw_only=True):
    """A CLI that was started by hand: a pane (%5) of this user's tmux, or a native session to resume."""

    pane: str | None = None
    socket_name: str | None = None
    """The tmux server's name (tmux -L NAME); the default one if absent."""
    session_id: str | None = None


class TerminalView(msgspec.Struct, frozen=True, kw_only=True):
    """A CLI in a pane. `state`: none | starting | idle | busy | blocked | ended | unknown."""

    conversation_id: str
    agent: str
    cli: str
    state: str
    blocked_by: dict[str, Any] | None = None
    busy_source: str | None = None
    native_session: str | None = None
    sessions: list[str] = msgspec.field(default_factory=list)
    why: str | None = None
    """Resumed or new, and why."""
    pid: int | None = None
    pane: str | None = None
    turn_id: str | None = None
    idle_since: str | None = None
    taken_over_by: str | None = None
    trouble: str | None = None
    """Why what the CLI wrote between turns could not be read or stored just now."""
    exit: str | None = None
    memory_bytes: int | None = None
    interrupted: bool | None = None


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of CLIs."""

    sessions: list[TerminalView]
    next: str | None
