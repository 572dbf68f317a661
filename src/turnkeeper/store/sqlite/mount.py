"""Which kind of file system a folder lies on, as far as SQLite's write-ahead log cares.

The log needs shared memory and locks that are the same for every process. Network and virtual-machine
mounts give neither: the database gets damaged within minutes (delivery case BD138).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

UNSAFE_KINDS: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "fakeowner",
        "fuse",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "gfs2",
        "osxfs",
        "prl_fs",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
    }
)
"""Network, cluster and virtual-machine mounts, as /proc/self/mountinfo names them."""

SAFE_FUSE_KINDS: Final = frozenset({"fuse.fuse-overlayfs", "fuse.bindfs", "fuse.gocryptfs", "fuse.encfs"})
"""File systems in user space that lie on a local disk of the same machine."""

MOUNTS: Final = Path("/proc/self/mountinfo")


def is_unsafe(kind: str) -> bool:
    """Whether the write-ahead log gets damaged on a mount of this kind."""
    return kind in UNSAFE_KINDS or (kind.startswith("fuse.") and kind not in SAFE_FUSE_KINDS)


def kind_of(folder: Path, mountinfo: str) -> str:
    """The kind of the mount that holds `folder` (an absolute path without links); "" if none is listed.

    `mountinfo` is the text of /proc/self/mountinfo; a later mount hides an earlier one at the same place.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4]))
        depth = len(point.parts)
        if folder.is_relative_to(point) and depth >= best:
            best, kind = depth, right.split(" ")[0]
    return kind


def fs_kind(folder: Path) -> str:
    """The kind of file system that `folder` lies on; TURNKEEPER_FS_KIND overrides it, "" is unknown."""
    override = os.environ.get("TURNKEEPER_FS_KIND")
    if override:
        return override
    try:
        text = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return kind_of(folder.resolve(), text)
