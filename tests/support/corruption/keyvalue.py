"""Corrupt a key-value store by its records."""

from collections.abc import Sequence
from dataclasses import replace

from outlast.core.ids import JobId
from outlast.core.job import Slot
from outlast.core.reservation import ReservationId
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Key, KeyRange, Write
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations
from outlast.store.keyvalue.repositories.bodies import BodyReference
from outlast.store.keyvalue.repositories.job_codec import JobRecord, indexes, to_value
from outlast.store.keyvalue.unit_of_work import UnitOfWork


class KeyValueCorruption:
    """Corrupts the records of an engine, also while a store has it open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def detach(self, job_id: JobId, *, runs: bool = True) -> None:
        record = await self._load(job_id)
        detached = replace(record, is_detached=True)
        gone = [Write(key, None) for key in indexes(record).keys() - indexes(detached).keys()]
        value = {name: v for name, v in to_value(record).items() if name != "state"}
        once = [Write(Key(key_layout.ONCE, record.job.name), None)] if record.is_open else []
        await self._write([*gone, *once, Write(key_layout.job_key(record.job), value)])
        if not runs:
            await self._delete_runs(job_id)

    async def drop_successor(self, job_id: JobId) -> None:
        record = await self._load(job_id)
        assert record.successor is not None
        after = await self._load(record.successor)
        unit = UnitOfWork(self._engine)
        alone = replace(record, successor=None, is_followed=False, active_key=after.active_key)
        job_repository.save(unit, after, None)
        job_repository.save(unit, record, alone)
        if after.active_key is not None:
            key = key_layout.active_key(after.active_key)
            held = {"job_id": job_id, "root_id": record.job.root_id, "key": after.active_key}
            unit.put(key, held)
        assert await unit.commit()

    async def orphan(self, job_id: JobId) -> None:
        record = await self._load(job_id)
        reported = await self._engine.range(key_layout.of_job(key_layout.EVENT, job_id), limit=1000)
        gone = [
            key_layout.job_key(record.job),
            *indexes(record),
            *(entry.key for entry in reported),
        ]
        gone += [key_layout.stream_key(entry.value["id"]) for entry in reported]
        if isinstance(record.job.params, BodyReference):
            gone.append(record.job.params.key)
        await self._write([Write(key, None) for key in gone])

    async def replace_params(self, job_id: JobId, params: str) -> None:
        unit = UnitOfWork(self._engine)
        record = await job_repository.load(unit, job_id)
        assert record is not None
        job_repository.save(unit, record, replace(record, job=replace(record.job, params=params)))
        assert await unit.commit()

    async def retarget_reservation(self, reservation_id: ReservationId, job_id: JobId) -> None:
        unit = UnitOfWork(self._engine)
        record = await reservations.find(unit, reservation_id)
        assert record is not None
        held = replace(record.reservation, job_id=job_id)
        reservations.save(unit, replace(record, reservation=held))
        queue = await queues.load(unit, held.queue)
        queues.save(unit, replace(queue, reserved_for=job_id))
        assert await unit.commit()

    async def drop_slot_row(self, job_id: JobId) -> None:
        record = await self._load(job_id)
        assert record.series is not None
        assert record.job.slot_at is not None
        slot = Slot(series=record.series, at=record.job.slot_at)
        await self._write([Write(key_layout.slot_key(slot), None)])

    async def drop_active_key(self, key: str) -> None:
        await self._write([Write(key_layout.active_key(key), None)])

    async def _load(self, job_id: str) -> JobRecord:
        record = await job_repository.load(UnitOfWork(self._engine), job_id)
        assert record is not None
        return record

    async def _delete_runs(self, job_id: str) -> None:
        spans: Sequence[KeyRange] = [
            key_layout.of_job(p, job_id) for p in (key_layout.RUN, key_layout.ARTIFACTS)
        ]
        found = [e for span in spans for e in await self._engine.range(span, limit=1000)]
        await self._write([Write(entry.key, None) for entry in found])

    async def _write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            assert await self._engine.transact({}, [write])
