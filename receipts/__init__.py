"""Durable receipts of contained jobs: one private file a job, old or new after any crash, never torn or lost.

Standard library only, and nothing of `contain`: receipts outlive the program that wrote them.
`receipts.store` states what is promised; `receipts.place` says where.
"""

from receipts import jsontext
from receipts.batch import Batch
from receipts.codec import Unreadable, decode, decode_proof, dumps, encode, loads
from receipts.disk import Unwritable
from receipts.facts import (
    CAUSES,
    EXITED,
    HELD,
    KERNEL,
    MOUNTED,
    PREPARED,
    RELEASED,
    RUNNING,
    STATES,
    VERSION,
    Anchor,
    Blocker,
    Fact,
    Held,
    Leftovers,
    LimitsInForce,
    NamespaceInit,
    Outcome,
    Proof,
    Receipt,
    Usage,
)
from receipts.ground import Unsafe
from receipts.lock import Busy, Lock, take
from receipts.names import check_id
from receipts.place import Place, default_root, open_place
from receipts.record import Record, fields
from receipts.store import Duplicate, Store

__all__ = [
    "CAUSES",
    "EXITED",
    "HELD",
    "KERNEL",
    "MOUNTED",
    "PREPARED",
    "RELEASED",
    "RUNNING",
    "STATES",
    "VERSION",
    "Anchor",
    "Batch",
    "Blocker",
    "Busy",
    "Duplicate",
    "Fact",
    "Held",
    "Leftovers",
    "LimitsInForce",
    "Lock",
    "NamespaceInit",
    "Outcome",
    "Place",
    "Proof",
    "Receipt",
    "Record",
    "Store",
    "Unreadable",
    "Unsafe",
    "Unwritable",
    "Usage",
    "check_id",
    "decode",
    "decode_proof",
    "default_root",
    "dumps",
    "encode",
    "fields",
    "jsontext",
    "loads",
    "open_place",
    "take",
]
