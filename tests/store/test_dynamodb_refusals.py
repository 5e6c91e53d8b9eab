"""What DynamoDB refuses is told in one line that says what to do; nothing of it was written."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from outlast.core.run import Lease
from outlast.errors import (
    OutlastError,
    PayloadTooLarge,
    StoreBusy,
    StoreCorrupt,
    StoreMissing,
    StoreReadOnly,
    StoreUnavailable,
)
from outlast.store.contract import Store
from outlast.store.keyvalue.engine import Key, Write
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine
from outlast.store.keyvalue.pacing import RequestPace
from outlast.store.open import open_store
from outlast.testing.conformance.factories import job_of, put, started
from outlast.testing.servers import dynamodb as local
from outlast.testing.servers.server_process import free_ports
from support.servers.dynamodb_proxy import dynamodb_proxy

pytestmark = pytest.mark.slow

LARGE = "x" * 500_000
"""Over what one item may have."""


@contextmanager
def _refusing(code: str, reported: str) -> Iterator[str]:
    """The endpoint of a server that refuses everything in DynamoDB's way."""

    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"__type": f"com.amazonaws#{code}", "message": reported}).encode()
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is to be said."""

    with _served(Refusal) as endpoint:
        yield endpoint


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in local.CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    ("code", "reported", "error", "line"),
    [
        (
            "AccessDeniedException",
            "User is not authorized to perform: dynamodb:DescribeTable",
            StoreReadOnly,
            "DynamoDB refuses access to table jobs: User is not .* grant the permissions",
        ),
        (
            "ExpiredTokenException",
            "The security token included in the request is expired",
            StoreReadOnly,
            "table jobs: The security token .* is expired .* renew the credentials",
        ),
        (
            "UnrecognizedClientException",
            "The security token included in the request is invalid",
            StoreReadOnly,
            "table jobs: .* is invalid .* renew the credentials",
        ),
        ("ValidationException", "something else", StoreCorrupt, "table jobs: something else"),
    ],
)
async def test_refusal_is_one_line_with_what_to_do(
    code: str, reported: str, error: type[OutlastError], line: str
) -> None:
    with _refusing(code, reported) as endpoint:
        store = open_store(local.url(endpoint, "jobs"))

        with pytest.raises(error, match=line) as caught:
            await store.open()
        await store.close()

    assert "\n" not in str(caught.value)


THROTTLING = [
    ({"__type": "x#ThrottlingException", "message": "Rate exceeded"}, 400),
    ({"__type": "x#ProvisionedThroughputExceededException", "message": "too much"}, 400),
    ({"__type": "x#RequestLimitExceeded", "message": "too much"}, 400),
    ({"__type": "x#TransactionInProgressException", "message": "wait"}, 400),
    ({"__type": "x#SomethingNew", "message": "slower"}, 429),
    (
        {
            "__type": "x#TransactionCanceledException",
            "message": "Transaction cancelled",
            "CancellationReasons": [
                {"Code": "None"},
                {"Code": "ThrottlingError", "Message": "Throughput exceeds the current capacity"},
            ],
        },
        400,
    ),
    (
        {
            "__type": "x#TransactionCanceledException",
            "message": "Transaction cancelled",
            "CancellationReasons": [
                {"Code": "TransactionConflict"},
                {"Code": "ProvisionedThroughputExceeded"},
            ],
        },
        400,
    ),
]
FAILING = [
    ({"__type": "x#InternalServerError", "message": "Internal server error"}, 500),
    ({"__type": "x#InternalServerError", "message": "told with another status"}, 400),
    ({"__type": "x#ServiceUnavailable", "message": "later"}, 503),
    ({"__type": "x#SomethingNew", "message": ""}, 502),
]


@contextmanager
def _answering(body: dict[str, object], status: int) -> Iterator[tuple[DynamoDBEngine, list[str]]]:
    """An engine whose server answers so, and the requests that it got."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.headers["X-Amz-Target"].partition(".")[2])
            told = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Nothing is to be said."""

    async def no_pause(_: float) -> None:
        """The tries come one after the other."""

    with _served(Answer) as endpoint, ThreadPoolExecutor(1) as threads:
        pace = RequestPace(sleep=no_pause)
        region = "eu-central-1"
        engine = DynamoDBEngine(
            "jobs", region=region, endpoint=endpoint, threads=threads, pace=pace
        )
        engine._threads = threads  # as `open` does, which asks for the table first
        yield engine, asked


WRITES = [Write(Key("a", name), {"n": 1}) for name in "xy"]


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(("body", "status"), THROTTLING)
async def test_throttling_of_any_form_is_busy_after_six_tries(
    body: dict[str, object], status: int
) -> None:
    with _answering(body, status) as (engine, asked):
        with pytest.raises(StoreBusy, match=r"DynamoDB throttles table jobs: .* sent 6 times"):
            await engine.transact({}, WRITES)

        assert asked == ["TransactWriteItems"] * 6


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(("body", "status"), FAILING)
async def test_server_error_of_any_form_is_unavailable_after_six_tries(
    body: dict[str, object], status: int
) -> None:
    with _answering(body, status) as (engine, asked):
        with pytest.raises(StoreUnavailable, match=r"DynamoDB fails at table jobs: .* try again"):
            await engine.transact({}, WRITES)

        assert asked == ["TransactWriteItems"] * 6


@pytest.mark.usefixtures("credentials")
async def test_keys_that_stay_unprocessed_are_throttling() -> None:
    keys = [{"PK": {"S": "a"}, "SK": {"S": name}} for name in "xy"]
    body = {"Responses": {}, "UnprocessedKeys": {"jobs": {"Keys": keys}}}
    with _answering(body, 200) as (engine, asked):
        with pytest.raises(StoreBusy, match="every key was left unprocessed"):
            await engine.get([write.key for write in WRITES])

        assert asked == ["BatchGetItem"] * 6


@pytest.mark.usefixtures("credentials")
async def test_conflict_without_end_is_busy_and_not_a_failed_condition() -> None:
    reasons = [{"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}]
    body = {
        "__type": "x#TransactionCanceledException",
        "message": "Transaction cancelled",
        "CancellationReasons": reasons,
    }
    deletes = [Write(write.key, None) for write in WRITES]  # none is read afterwards
    with _answering(body, 400) as (engine, asked):
        with pytest.raises(StoreBusy, match="wrote the same items of table jobs 12 times"):
            await engine.transact({}, deletes)

        assert asked == ["TransactWriteItems"] * 12


@pytest.mark.usefixtures("credentials")
async def test_server_that_is_not_there_is_unavailable() -> None:
    [port] = free_ports(1)
    store = open_store(local.url(f"http://127.0.0.1:{port}", "jobs"))

    with pytest.raises(StoreUnavailable, match="table jobs cannot be reached"):
        await store.open()
    await store.close()


async def test_missing_credentials_are_named(dynamodb: str, tmp_path: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in local.CREDENTIALS:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
        patch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
        # A region of its own: clients are kept by region, with the credentials they were made with.
        url = local.url(dynamodb, "jobs").replace("eu-central-1", "sa-east-1")

        with pytest.raises(StoreReadOnly, match="no credentials for table jobs"):
            open_store(url).exists()


async def test_credentials_replaced_in_their_file_cost_no_caller_an_error(
    dynamodb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in local.CREDENTIALS:
        monkeypatch.delenv(name)
    lines = "[default]\naws_access_key_id = {}\naws_secret_access_key = secret\n"
    with dynamodb_proxy(dynamodb) as proxy:
        store = open_store(local.url(proxy.endpoint, f"test-{secrets.token_hex(6)}"))
        for key in ("first", "second"):
            proxy.key = key
            file.write_text(lines.format(key))
            await store.open()
            await put(store)
        await store.close()

    assert proxy.refused, "the first key was never refused"


async def test_table_of_another_region_is_missing_and_the_line_names_both_ways_out(
    dynamodb: str,
) -> None:
    name = f"test-{secrets.token_hex(6)}"
    here = open_store(local.url(dynamodb, name))
    await here.open()
    await here.close()
    elsewhere = open_store(local.url(dynamodb, name).replace("eu-central-1", "eu-west-1"))

    assert here.exists()
    assert not elsewhere.exists()


@pytest.fixture
async def store(dynamodb: str) -> AsyncIterator[Store]:
    url = f"{local.url(dynamodb, 'tests')}&prefix=refusal-{secrets.token_hex(4)}:"
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


async def test_item_that_grows_over_400_kb_is_refused_and_its_job_goes_on(store: Store) -> None:
    claim = await started(store)
    lease = Lease(claim.job_id, claim.token)

    with pytest.raises(PayloadTooLarge, match="over 400 KB"):
        await store.attach(lease, [LARGE])

    assert await store.attach(lease, ["small.txt"])
    assert [run.artifacts for run in await store.runs(claim.job_id)] == [("small.txt",)]


async def test_missing_table_while_at_work_is_named_and_found_again(dynamodb: str) -> None:
    import boto3  # noqa: PLC0415 - only here

    name = f"test-{secrets.token_hex(6)}"
    opened = open_store(local.url(dynamodb, name))
    await opened.open()
    client = boto3.session.Session().client(
        "dynamodb", region_name="eu-central-1", endpoint_url=dynamodb
    )
    client.delete_table(TableName=name)

    with pytest.raises(StoreMissing, match=f"there is no table {name} in this region"):
        await put(opened)
    await open_store(local.url(dynamodb, name)).open()

    assert (await job_of(opened, await put(opened))).queue == "default"
    await opened.close()
