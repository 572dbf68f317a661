"""Native transcripts: what a coding CLI wrote about itself, read and never written.

Every CLI keeps a record of its own in a shape of its own, and none of them is a list of messages. One
module per format answers three questions in this order and hands on one schema (`record`):

- *selection*: which rows are live, which were rewound (superseded), which belong to another agent;
- *classification*: who speaks in a row: a person, the final answer, progress, a notice, nobody;
- *folding*: several rows that are one message become one record.

A transcript is evidence (G6): it proves deliveries, ends of turns and answers that our own journal has
not seen. `history.reconcile` merges it. All formats have the same names:

    read(path)         the whole transcript as a Reading
    tail(path, cursor) what changed since a cursor, at the cost of the change
    locate(...)        where a CLI keeps the session of a native id

`formats` holds the table of them, `find` lists the sessions of a machine, `follow` watches one.
The order of records is the order of the file (or of the database's rows), never a clock.
"""

from __future__ import annotations
