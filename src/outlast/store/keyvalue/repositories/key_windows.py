"""Key window repository: a record is never written without its entry by end."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from outlast.clock import to_micros
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import DamagedValue, Key, Value
from outlast.store.keyvalue.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """The holder of a key, and when (in microseconds) its window ends or may be deleted."""

    scope: str
    key: str
    bucket: str
    job_id: str
    until: int

    @property
    def place(self) -> Key:
        """Where the record is."""
        return key_layout.window_key(self.scope, self.key, self.bucket)

    @property
    def entry(self) -> Key:
        """Where it is listed by its end."""
        name = hashlib.sha256(f"{self.place.part}\0{self.place.sort}".encode()).hexdigest()
        return Key(key_layout.WINDOW_END, f"{key_layout.number(self.until)}.{name}")

    def is_over(self, now: datetime) -> bool:
        """Return whether the time has passed."""
        return self.until <= to_micros(now)


def from_value(value: Value) -> WindowRecord:
    """Return the record of a stored value."""
    return WindowRecord(
        **{name: value[name] for name in ("scope", "key", "bucket", "job_id", "until")}
    )


async def load(unit: UnitOfWork, place: Key) -> WindowRecord | None:
    """Return the record at that key; None if there is none, or a damaged one."""
    value = await unit.get(place)
    return None if value is None or isinstance(value, DamagedValue) else from_value(value)


def save(unit: UnitOfWork, old: WindowRecord | None, new: WindowRecord | None) -> None:
    """Write the record with its entry; None as `new` deletes both."""
    if old is not None and (new is None or new.entry != old.entry):
        unit.delete(old.entry)
    if new is not None:
        names = {"scope": new.scope, "key": new.key, "bucket": new.bucket}
        unit.put(new.place, {**names, "job_id": new.job_id, "until": new.until})
        unit.put(new.entry, names)
    elif old is not None:
        unit.delete(old.place)


def place_of(value: Value) -> Key:
    """Return where the record of an entry, or of a value, is."""
    return key_layout.window_key(value["scope"], value["key"], value["bucket"])
