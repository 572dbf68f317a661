-- Every statement of the SQLite store, by name. A statement that ends in `VALUES (?, ...)` is repeated
-- for many rows at once (sql.py); the others run as they stand.

-- insert_event --
INSERT INTO event (position, conversation_id, seq, at, actor, turn_id, attempt, kind, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- upsert_conversation --
INSERT INTO conversation (conversation_id, owner, agent, title, archived, deleted_at, created_at,
    lane_version, paused)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation_id) DO UPDATE SET
    title = excluded.title, archived = excluded.archived, deleted_at = excluded.deleted_at,
    lane_version = excluded.lane_version, paused = excluded.paused

-- insert_turn --
INSERT INTO turn (position, seq, last_seq, turn_id, conversation_id, submission_id, state, place, attempt,
    fence, owner, lease_until, rescues, mode, reason, failure, needs, parent, resend_of, receipt_state,
    receipt_evidence, user_id, producer, agent, created_at, started_at, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- update_turn --
INSERT INTO turn (position, seq, last_seq, turn_id, conversation_id, submission_id, state, place, attempt,
    fence, owner, lease_until, rescues, mode, reason, failure, needs, parent, resend_of, receipt_state,
    receipt_evidence, user_id, producer, agent, created_at, started_at, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (position) DO UPDATE SET
    last_seq = excluded.last_seq, state = excluded.state, place = excluded.place,
    attempt = excluded.attempt, fence = excluded.fence,
    owner = excluded.owner, lease_until = excluded.lease_until, rescues = excluded.rescues,
    mode = excluded.mode, reason = excluded.reason, failure = excluded.failure, needs = excluded.needs,
    parent = excluded.parent, receipt_state = excluded.receipt_state,
    receipt_evidence = excluded.receipt_evidence, started_at = excluded.started_at,
    ended_at = excluded.ended_at

-- insert_submission --
INSERT INTO submission (position, edit_position, submission_id, conversation_id, turn_id, user_id, token_id,
    key, fingerprint, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- edit_submission --
UPDATE submission SET edit_position = ? WHERE position = (SELECT position FROM turn WHERE turn_id = ?)

-- insert_message --
INSERT INTO message (conversation_id, seq, position, message_id, turn_id, role, standing, display, replay,
    native_id, placed_after)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- mark_message --
UPDATE message SET
    standing = coalesce(?, standing), display = coalesce(?, display), replay = coalesce(?, replay),
    native_id = coalesce(?, native_id)
WHERE conversation_id = ? AND message_id = ? AND position < ?

-- intend_call --
INSERT INTO tool_call (turn_id, round, call_id, conversation_id, seq, attempt, effect, idempotency_key,
    disposition, intent_position, outcome_position)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (turn_id, round, call_id) DO UPDATE SET
    attempt = excluded.attempt, effect = excluded.effect, idempotency_key = excluded.idempotency_key,
    disposition = excluded.disposition, intent_position = excluded.intent_position,
    outcome_position = excluded.outcome_position

-- decide_call --
UPDATE tool_call SET disposition = ?, outcome_position = ?
WHERE (turn_id, round, call_id) = (
    SELECT turn_id, round, call_id FROM tool_call
    WHERE turn_id = ? AND call_id = ? ORDER BY intent_position DESC LIMIT 1
)

-- insert_link --
INSERT INTO attachment_link (conversation_id, attachment_id)
VALUES (?, ?)
ON CONFLICT DO NOTHING

-- put_user --
INSERT INTO "user" (user_id, name, created_at, disabled_at)
VALUES (?, ?, ?, ?)
ON CONFLICT (user_id) DO UPDATE SET
    name = excluded.name, created_at = excluded.created_at, disabled_at = excluded.disabled_at

-- put_token --
INSERT INTO token (token_id, user_id, sha256, scopes, created_at, expires_at, revoked_at, label)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (token_id) DO UPDATE SET
    user_id = excluded.user_id, sha256 = excluded.sha256, scopes = excluded.scopes,
    created_at = excluded.created_at, expires_at = excluded.expires_at, revoked_at = excluded.revoked_at,
    label = excluded.label

-- put_attachment --
INSERT INTO attachment (attachment_id, user_id, sha256, name, media_type, size_bytes, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (attachment_id) DO UPDATE SET
    user_id = excluded.user_id, sha256 = excluded.sha256, name = excluded.name,
    media_type = excluded.media_type, size_bytes = excluded.size_bytes, created_at = excluded.created_at

-- put_outbox --
INSERT INTO outbox (outbox_id, conversation_id, kind, body, due_at, attempts, done_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (outbox_id) DO UPDATE SET
    conversation_id = excluded.conversation_id, kind = excluded.kind, body = excluded.body,
    due_at = excluded.due_at, attempts = excluded.attempts, done_at = excluded.done_at

-- put_value --
INSERT INTO value (name, value)
VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- last_position --
SELECT coalesce(max(position), 0) FROM event

-- conversation --
SELECT c.*, e.seq, e.position, e.at
FROM conversation c JOIN event e ON e.position = (
    SELECT position FROM event WHERE conversation_id = c.conversation_id ORDER BY seq DESC LIMIT 1)
WHERE c.conversation_id = ?

-- conversations --
WITH n AS (
    SELECT c.*, (
        SELECT position FROM event WHERE conversation_id = c.conversation_id ORDER BY seq DESC LIMIT 1
    ) AS activity
    FROM conversation c WHERE owner = ? AND archived = ? AND deleted_at IS NULL
)
SELECT n.conversation_id, n.owner, n.agent, n.title, n.archived, n.deleted_at, n.created_at, n.lane_version,
    n.paused, e.seq, e.position, e.at
FROM n JOIN event e ON e.position = n.activity
WHERE n.activity < ? ORDER BY n.activity DESC LIMIT ?

-- turn --
SELECT * FROM turn WHERE turn_id = ?

-- lane_turns --
SELECT * FROM turn
WHERE conversation_id = ? AND ended_at IS NULL
ORDER BY place, position

-- open_lanes --
SELECT DISTINCT conversation_id FROM turn
WHERE ended_at IS NULL AND state <> 'parked'
ORDER BY conversation_id

-- turn_position --
SELECT position FROM turn WHERE turn_id = ?

-- turns --
SELECT * FROM turn WHERE conversation_id = ? AND position < ? ORDER BY position DESC LIMIT ?

-- turns_of_states --
SELECT * FROM turn
WHERE conversation_id = ? AND position < ? AND state IN (SELECT value FROM json_each(?))
ORDER BY position DESC LIMIT ?

-- turns_open --
SELECT * FROM turn INDEXED BY turn_open
WHERE ended_at IS NULL AND state IN (SELECT value FROM json_each(?))
ORDER BY position LIMIT ?

-- turns_in --
SELECT * FROM turn WHERE state IN (SELECT value FROM json_each(?)) ORDER BY position LIMIT ?

-- submission --
SELECT s.*, e.body, x.body
FROM submission s JOIN event e ON e.position = s.position LEFT JOIN event x ON x.position = s.edit_position
WHERE s.submission_id = ?

-- submission_by_key --
SELECT s.*, e.body, x.body
FROM submission s JOIN event e ON e.position = s.position LEFT JOIN event x ON x.position = s.edit_position
WHERE s.conversation_id = ? AND s.user_id = ? AND s.key = ?

-- events --
SELECT position, conversation_id, seq, at, actor, turn_id, attempt, kind, body FROM event
WHERE conversation_id = ? AND seq > ?
ORDER BY seq LIMIT ?

-- landmarks --
SELECT position, conversation_id, seq, at, actor, turn_id, attempt, kind, body FROM event
WHERE conversation_id = ? AND seq >= ? AND seq < ? AND (kind = 'AutoResumed' OR kind = 'SessionBound')
ORDER BY seq

-- turn_span --
SELECT seq, last_seq FROM turn WHERE turn_id = ? AND conversation_id = ?

-- events_of_turn --
SELECT position, conversation_id, seq, at, actor, turn_id, attempt, kind, body FROM event
WHERE conversation_id = ? AND seq > ? AND seq <= ? AND turn_id = ?
ORDER BY seq LIMIT ?

-- messages_before --
SELECT m.seq, m.standing, m.display, m.replay, m.native_id, e.body
FROM message m JOIN event e ON e.position = m.position
WHERE m.conversation_id = ? AND m.seq < ? AND m.placed_after IS NULL
ORDER BY m.seq DESC LIMIT ?

-- messages_placed --
SELECT m.seq, m.standing, m.display, m.replay, m.native_id, e.body
FROM message m INDEXED BY message_placed JOIN event e ON e.position = m.position
WHERE m.conversation_id = ? AND m.placed_after IS NOT NULL
ORDER BY m.seq

-- messages_after --
SELECT m.seq, m.standing, m.display, m.replay, m.native_id, e.body
FROM message m JOIN event e ON e.position = m.position
WHERE m.conversation_id = ? AND m.seq > ?
ORDER BY m.seq LIMIT ?

-- tool_calls --
SELECT c.*, i.at, i.body, o.at, o.body
FROM tool_call c JOIN event i ON i.position = c.intent_position
    LEFT JOIN event o ON o.position = c.outcome_position
WHERE c.turn_id = ?
ORDER BY c.seq

-- user --
SELECT user_id, name, created_at, disabled_at FROM "user" WHERE user_id = ?

-- token --
SELECT token_id, user_id, sha256, scopes, created_at, expires_at, revoked_at, label FROM token
WHERE token_id = ?

-- token_by_hash --
SELECT token_id, user_id, sha256, scopes, created_at, expires_at, revoked_at, label FROM token
WHERE sha256 = ?

-- attachment --
SELECT attachment_id, user_id, sha256, name, media_type, size_bytes, created_at FROM attachment
WHERE attachment_id = ?

-- attachment_in --
SELECT 1 FROM attachment_link WHERE conversation_id = ? AND attachment_id = ?

-- outbox_due --
SELECT outbox_id, conversation_id, kind, body, due_at, attempts, done_at FROM outbox
WHERE done_at IS NULL AND due_at <= ?
ORDER BY due_at, outbox_id LIMIT ?

-- value --
SELECT value FROM value WHERE name = ?

-- all_events --
SELECT position, conversation_id, seq, at, actor, turn_id, attempt, kind, body FROM event
WHERE position > ? ORDER BY position LIMIT ?

-- all_conversations --
SELECT c.*, e.seq, e.position, e.at
FROM conversation c JOIN event e ON e.position = (
    SELECT position FROM event WHERE conversation_id = c.conversation_id ORDER BY seq DESC LIMIT 1)
ORDER BY c.conversation_id

-- all_turns --
SELECT * FROM turn ORDER BY position

-- all_submissions --
SELECT * FROM submission ORDER BY position

-- all_messages --
SELECT * FROM message ORDER BY position

-- all_calls --
SELECT * FROM tool_call ORDER BY turn_id, seq

-- all_links --
SELECT * FROM attachment_link ORDER BY conversation_id, attachment_id

-- check_seq --
SELECT conversation_id FROM event GROUP BY conversation_id HAVING min(seq) <> 1 OR max(seq) <> count(*)

-- check_conversation --
SELECT coalesce(c.conversation_id, e.conversation_id)
FROM conversation c FULL JOIN (SELECT DISTINCT conversation_id FROM event) e
    ON e.conversation_id = c.conversation_id
WHERE c.conversation_id IS NULL OR e.conversation_id IS NULL

-- check_message --
SELECT m.message_id
FROM message m LEFT JOIN event e ON e.position = m.position
WHERE e.position IS NULL OR e.kind <> 'MessageAppended' OR e.conversation_id <> m.conversation_id
    OR e.seq <> m.seq

-- check_turn --
SELECT t.turn_id
FROM turn t LEFT JOIN submission s ON s.position = t.position LEFT JOIN event e ON e.position = t.position
WHERE s.turn_id IS NULL OR s.turn_id <> t.turn_id OR e.kind IS NULL OR e.kind <> 'Submitted'

-- check_call --
SELECT c.call_id
FROM tool_call c LEFT JOIN event i ON i.position = c.intent_position
    LEFT JOIN event o ON o.position = c.outcome_position
WHERE i.kind IS NULL OR i.kind <> 'ToolIntended'
    OR (c.outcome_position IS NOT NULL AND (o.kind IS NULL OR o.kind <> 'ToolReturned'))
