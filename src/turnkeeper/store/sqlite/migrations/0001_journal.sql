-- The journal, and the tables that are projections of it.
--
-- Text columns hold no NUL and no lone surrogate (columns.py escapes them); BLOB columns hold JSON, or
-- bytes as given. Checks are spelled with OR, because SQLite builds a table for every IN of more than two,
-- each time. Large bodies stand once, in `event`; other tables name the event by its position.

CREATE TABLE event (
    position        INTEGER PRIMARY KEY,  -- order of the whole store, strictly growing
    conversation_id TEXT    NOT NULL,
    seq             INTEGER NOT NULL CHECK (seq > 0),
    at              REAL    NOT NULL,
    actor           TEXT    NOT NULL,
    turn_id         TEXT,
    attempt         INTEGER NOT NULL,
    kind            TEXT    NOT NULL,
    body            BLOB    NOT NULL,
    UNIQUE (conversation_id, seq)
) STRICT;

-- What changes with every event (newest seq, position, time) is read from `event`, where it stands
-- already: writing it here too would make every append dearer.
CREATE TABLE conversation (
    conversation_id TEXT    NOT NULL PRIMARY KEY,
    owner           TEXT    NOT NULL,
    agent           TEXT    NOT NULL,
    title           TEXT    NOT NULL,
    archived        INTEGER NOT NULL CHECK (archived IN (0, 1)),
    deleted_at      REAL,
    created_at      REAL    NOT NULL,
    lane_version    INTEGER NOT NULL CHECK (lane_version >= 0),
    paused          TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX conversation_of ON conversation (owner);

-- One row a turn; `position` and `seq` are those of its Submitted event, so that turns sort by age. Its
-- events stand between `seq` and `last_seq` (none until it has ended): an index of events by turn would
-- make every append dearer.
CREATE TABLE turn (
    position         INTEGER PRIMARY KEY,
    seq              INTEGER NOT NULL,
    last_seq         INTEGER,
    turn_id          TEXT    NOT NULL UNIQUE,
    conversation_id  TEXT    NOT NULL,
    submission_id    TEXT    NOT NULL,
    state            TEXT    NOT NULL
        CHECK (state = 'queued' OR state = 'running' OR state = 'parked'
            OR state = 'settled' OR state = 'failed' OR state = 'cancelled'),
    place            INTEGER NOT NULL,
    attempt          INTEGER NOT NULL CHECK (attempt >= 1),
    fence            INTEGER NOT NULL CHECK (fence >= 0),
    owner            TEXT,
    lease_until      REAL,
    rescues          INTEGER NOT NULL CHECK (rescues >= 0),
    mode             TEXT    NOT NULL CHECK (mode = 'queue' OR mode = 'steer' OR mode = 'interrupt'),
    reason           TEXT,
    failure          BLOB,
    needs            BLOB,
    parent           TEXT,
    resend_of        TEXT,
    receipt_state    TEXT    NOT NULL
        CHECK (receipt_state = 'queued' OR receipt_state = 'accepted' OR receipt_state = 'uncertain'
            OR receipt_state = 'confirmed' OR receipt_state = 'failed'),
    receipt_evidence BLOB,
    user_id          TEXT    NOT NULL,
    producer         TEXT    NOT NULL,
    agent            TEXT    NOT NULL,
    created_at       REAL    NOT NULL,
    started_at       REAL,
    ended_at         REAL,
    CHECK ((state = 'settled' OR state = 'failed' OR state = 'cancelled') = (ended_at IS NOT NULL)),
    CHECK (state <> 'failed' OR failure IS NOT NULL)
) STRICT;

-- A second running turn is impossible in the database itself; riders travel with the running one.
CREATE UNIQUE INDEX turn_one_running ON turn (conversation_id) WHERE state = 'running' AND parent IS NULL;
CREATE INDEX turn_open ON turn (conversation_id, place) WHERE ended_at IS NULL;
CREATE INDEX turn_of ON turn (conversation_id, position);

-- The request stands in the event at `position`; parts edited later in that at `edit_position`.
CREATE TABLE submission (
    position        INTEGER PRIMARY KEY,
    edit_position   INTEGER,
    submission_id   TEXT NOT NULL UNIQUE,
    conversation_id TEXT NOT NULL,
    turn_id         TEXT NOT NULL,
    user_id         TEXT NOT NULL,
    token_id        TEXT,
    key             TEXT NOT NULL,
    fingerprint     TEXT NOT NULL,
    created_at      REAL NOT NULL,
    UNIQUE (conversation_id, user_id, key)
) STRICT;

CREATE TABLE message (
    conversation_id TEXT    NOT NULL,
    seq             INTEGER NOT NULL,
    position        INTEGER NOT NULL,
    message_id      TEXT    NOT NULL,
    turn_id         TEXT,
    role            TEXT    NOT NULL,
    standing        TEXT    NOT NULL,
    display         INTEGER NOT NULL CHECK (display IN (0, 1)),
    replay          INTEGER NOT NULL CHECK (replay IN (0, 1)),
    PRIMARY KEY (conversation_id, seq),
    UNIQUE (conversation_id, message_id)
) STRICT, WITHOUT ROWID;

-- The effect ledger: intent before a tool runs, outcome after.
CREATE TABLE tool_call (
    turn_id          TEXT    NOT NULL,
    round            INTEGER NOT NULL,
    call_id          TEXT    NOT NULL,
    conversation_id  TEXT    NOT NULL,
    seq              INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    effect           TEXT    NOT NULL
        CHECK (effect = 'read_only' OR effect = 'idempotent'
            OR effect = 'acts' OR effect = 'destructive'),
    idempotency_key  TEXT    NOT NULL,
    disposition      TEXT    NOT NULL
        CHECK (disposition = 'intended' OR disposition = 'done' OR disposition = 'failed'
            OR disposition = 'unknown' OR disposition = 'refused'),
    intent_position  INTEGER NOT NULL,
    outcome_position INTEGER,
    PRIMARY KEY (turn_id, round, call_id),
    CHECK ((disposition = 'intended') = (outcome_position IS NULL))
) STRICT, WITHOUT ROWID;

-- What is known of each delivery, in order: the receipt events.
CREATE VIEW receipt AS
    SELECT turn_id, seq, position, at, body FROM event WHERE kind = 'ReceiptMoved';

CREATE TABLE "user" (
    user_id     TEXT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    created_at  REAL NOT NULL,
    disabled_at REAL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    token_id   TEXT NOT NULL PRIMARY KEY,
    user_id    TEXT NOT NULL,
    sha256     TEXT NOT NULL UNIQUE,
    scopes     BLOB NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    label      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE attachment (
    attachment_id TEXT    NOT NULL PRIMARY KEY,
    user_id       TEXT    NOT NULL,
    sha256        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    media_type    TEXT    NOT NULL,
    size_bytes    INTEGER NOT NULL CHECK (size_bytes >= 0),
    created_at    REAL    NOT NULL
) STRICT, WITHOUT ROWID;

-- Which conversations hold which attachments; it is served only through one that does.
CREATE TABLE attachment_link (
    conversation_id TEXT NOT NULL,
    attachment_id   TEXT NOT NULL,
    PRIMARY KEY (conversation_id, attachment_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    outbox_id       TEXT    NOT NULL PRIMARY KEY,
    conversation_id TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    body            BLOB    NOT NULL,
    due_at          REAL    NOT NULL,
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    done_at         REAL
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_due ON outbox (due_at, outbox_id) WHERE done_at IS NULL;

-- Small named values of the store itself, `epoch` among them.
CREATE TABLE value (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
