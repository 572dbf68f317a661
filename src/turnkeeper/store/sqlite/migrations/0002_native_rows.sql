-- Messages that a CLI's own transcript had and we had not: which of its rows a message is, and, where a
-- message stands elsewhere in history than its seq says, behind which message (empty: before all others).

ALTER TABLE message ADD COLUMN native_id TEXT;
ALTER TABLE message ADD COLUMN placed_after TEXT;

CREATE INDEX message_placed ON message (conversation_id, seq) WHERE placed_after IS NOT NULL;
