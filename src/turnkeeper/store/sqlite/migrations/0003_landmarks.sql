-- Events that a timeline draws between messages although they are none: found without reading all the others.
-- The terms are those of the query `landmarks`; other events cost this index nothing.

CREATE INDEX event_landmark ON event (conversation_id, seq)
    WHERE kind = 'AutoResumed' OR kind = 'SessionBound';
