"""Models of the objects that `--json` prints: a field too many, or one too few, is an error."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
LocalTime = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
]
Seconds = float
Params = dict[str, Any]
JobState = Literal[
    "blocked", "scheduled", "queued", "running", "retry_wait",
    "succeeded", "failed", "dead_letter", "skipped", "cancelled",
]  # fmt: skip


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Progress(Model):
    done: float
    total: float | None = None
    message: str | None = None


class Error(Model):
    type: str | None
    message: str
    traceback: str | None


class Job(Model):
    id: str
    seq: int
    type: str
    name: str
    params: Params
    queue: str
    delivery: Literal["lease", "linked", "once", "broadcast"]
    priority: int
    position: int
    max_attempts: int | None
    created_at: Moment
    available_at: Moment
    slot_at: Moment | None
    start_deadline: Moment | None
    retry_of: str | None
    root_id: str
    group_id: str | None
    template_id: str | None
    template_at: Moment | None
    schedule_id: str | None
    state: JobState
    reason: str | None
    token: int
    failures: int
    losses: int
    cancel_requested: bool
    holder: str | None
    boot_id: str | None
    started_at: Moment | None
    finished_at: Moment | None
    progress: Progress | None
    active_key: str | None
    headers: dict[str, str]
    tags: list[str]
    meta: dict[str, Any]


class Run(Model):
    run_id: str
    job_id: str
    token: int
    status: Literal["running", "succeeded", "failed", "lost", "released", "skipped", "cancelled"]
    reason: str | None
    holder: str
    boot_id: str
    started_at: Moment
    finished_at: Moment | None
    error: Error | None
    result: Any
    exit_code: int | None
    log_path: str | None
    artifacts: list[str]
    params_snapshot: Params
    template_id: str | None
    template_at: Moment | None
    progress: Progress | None


class Event(Model):
    id: int
    at: Moment
    job_id: str | None
    run_id: str | None
    kind: str
    token: int
    reason: str | None
    detail: str | None
    queue: str | None


class Refusals(Model):
    count: int
    since: Moment
    workers: list[str]


class ShownJob(Job):
    attempt: int
    kept_until: Moment | None
    result: Any
    error: Error | None
    runs: list[Run]
    events: list[Event]
    chain: list[str]
    refusals: Refusals | None
    log_lines: int


class JobCount(Model):
    queue: str
    state: JobState
    jobs: int
    capped: bool = False


class Enqueued(Model):
    id: str
    created: bool
    replaced: bool


class Id(Model):
    id: str


class Ended(Model):
    id: str
    state: JobState
    reason: str | None
    result: Any
    error: Error | None


class Cancelled(Model):
    id: str
    state: JobState


class Retried(Model):
    id: str
    new_id: str


class LogProgress(Model):
    run_id: str
    progress: Progress


class LogLine(Model):
    token: int
    number: int
    at: Moment
    level: str
    logger: str
    text: str
    omitted: int


class LogText(Model):
    run_id: str
    log: str


class Gate(Model):
    code: str
    is_open: bool
    text: str
    holder: str | None
    clears: str | None


class Explained(Model):
    id: str
    state: JobState
    at: Moment
    stop: Gate | None
    gates: list[Gate]


class Pause(Model):
    at: Moment
    reason: str | None
    until: Moment | None


class Queue(Model):
    name: str
    ordering: Literal["scheduled", "position"]
    gap: int
    concurrency: int | None
    pause: Pause | None


class DeclaredQueue(Model):
    name: str
    app: str
    settings: dict[str, str | int | None]


class ListedQueue(Model):
    queue: Queue
    declared: DeclaredQueue | None
    jobs: dict[JobState, int]
    capped: list[JobState] = []


class Renumbered(Model):
    name: str
    renumbered: int


class Rule(Model):
    cron: str | None
    every: Seconds | None
    timezone: str
    gap: Literal["skip", "run_after"]
    fold: Literal["first", "second", "both"]
    start: Moment | None
    end: Moment | None


class Blueprint(Model):
    type: str
    name: str
    delivery: str
    queue: str
    priority: int
    max_attempts: int | None
    headers: dict[str, str]
    tags: list[str]
    meta: dict[str, Any]


class Plan(Model):
    name: str
    rule: Rule
    making: Blueprint
    template: str | None
    params: Params
    job_name: str | None
    label: str | None
    coalesce: bool
    misfire_grace: Seconds
    max_instances: int | None
    jitter: Seconds
    enabled: bool
    declared: str | None
    declared_by: str | None
    disabled_reason: str | None


class Schedule(Model):
    id: str
    plan: Plan
    version: int
    created_at: Moment
    updated_at: Moment
    next_slot: Moment | None
    next_trigger_at: Moment | None
    last_triggered_at: Moment | None


class Upcoming(Model):
    at: Moment
    local: LocalTime
    wanted: str
    runs: bool
    note: str | None


class SlotChange(Model):
    at: Moment
    side: Literal["kept", "added", "removed"]


class SlotJob(Model):
    id: str
    slot: Moment


class Backfilled(Model):
    at: Moment
    was: str | None
    job_id: str | None
    runs: bool


class Slot(Model):
    series: str
    at: Moment


class SlotRecord(Model):
    slot: Slot
    outcome: str
    planned: Moment
    actual: Moment
    schedule_id: str | None
    job_id: str | None
    reason: str | None


class Template(Model):
    id: str
    name: str
    type: str
    params: Params
    queue: str | None
    priority: int | None
    max_attempts: int | None
    created_at: Moment
    updated_at: Moment


class Removed(Model):
    name: str
    removed: Literal[True]


class Group(Model):
    id: str
    seq: int
    name: str | None
    mode: Literal["parallel", "sequential"]
    on_failure: Literal["stop", "continue", "skip"]
    total: int
    created_at: Moment
    sealed_at: Moment | None
    closing: Literal["stop", "skip"] | None
    reason: str | None
    counts: dict[JobState, int]
    state: Literal["filling", "running", "succeeded", "failed", "cancelled"]
    done: int
    progress: float


class Worker(Model):
    instance_id: str
    boot_id: str
    host: str
    pid: int
    queues: list[str]
    types: list[str]
    concurrency: int
    processes: int
    topology: str
    version: str
    app: str
    schedules: list[str]
    started_at: Moment
    seen_at: Moment
    stopped_at: Moment | None
    is_alive: bool
    is_stopping: bool


class Backlog(Model):
    queue: str
    type: str
    state: JobState
    jobs: int
    due: int
    oldest: Moment


class Running(Model):
    queue: str
    type: str
    jobs: int
    lapsed: int


class Overview(Model):
    now: Moment
    span: Seconds
    backlog: list[Backlog]
    running: list[Running]
    ended: list[JobCount]


class Top(Model):
    overview: Overview
    workers: list[Worker]
    queues: list[Queue]
    running: list[Job]


class Finding(Model):
    check: str
    verdict: Literal["ok", "warn", "FAIL"]
    text: str
    fix: str | None


class Violation(Model):
    code: str
    what: str
    rows: list[str]
    job_id: str | None
    repair: str


class Deleted(Model):
    deleted: int


class Transfer(Model):
    stage: str
    other: str
    transfer_id: str
    until: Moment | None
    grace: Moment | None


class StoreStatus(Model):
    engine: str
    file: str
    schema_: str = Field(alias="schema")
    size: str
    journal: str
    transfer: Transfer


class Digest(Model):
    rows: int
    digest: str


class Copied(Model):
    source: str
    target: str
    digests: dict[str, Digest]
    sealed_for: Seconds
    seconds: Seconds


class Misfit(Model):
    what: Literal["job", "running_job", "schedule", "template"]
    type: str
    problem: str
    count: int
    examples: list[str]
