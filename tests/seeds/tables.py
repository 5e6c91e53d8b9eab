"""What the tests of S2 on DynamoDB share: the table as an outsider with boto3 sees it."""

from datetime import datetime
from typing import Any, Final

import boto3
from boto3.dynamodb.conditions import Key

REGION: Final = "eu-central-1"
FIXED: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
"""S2's time: UTC, of one width."""

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

Item = dict[str, Any]


class Outsider:
    """Somebody who knows S2 and nothing of us: `outsider.due(now)` is S2's own query."""

    def __init__(self, endpoint: str, name: str) -> None:
        session = boto3.session.Session()
        self.resource = session.resource("dynamodb", region_name=REGION, endpoint_url=endpoint)
        self.table = self.resource.Table(name)

    def due(self, now: datetime) -> list[Item]:
        """`PK = job AND SK <= scheduled#now`, what is due just now included."""
        last = f"scheduled#{text_of(now)}#\uffff"
        return self._query(Key("PK").eq("job") & Key("SK").lte(last))

    def jobs(self) -> list[Item]:
        return self._query(Key("PK").eq("job"))

    def job(self, job_id: str) -> Item:
        """The one item of that job: there is never another."""
        [item] = [each for each in self.jobs() if each["SK"].endswith(f"#{job_id}")]
        return item

    def get(self, pk: str, sk: str) -> Item | None:
        found = self.table.get_item(Key={"PK": pk, "SK": sk}, ConsistentRead=True)
        item: Item | None = found.get("Item")
        return item

    def set(self, item: Item, **fields: Any) -> None:
        """Write some fields of an item by hand."""
        names = {f"#{name}": name for name in fields}
        values = {f":{name}": value for name, value in fields.items()}
        self.table.update_item(
            Key={"PK": item["PK"], "SK": item["SK"]},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in fields),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )

    def delete(self, item: Item) -> None:
        self.table.delete_item(Key={"PK": item["PK"], "SK": item["SK"]})

    def _query(self, condition: Any) -> list[Item]:
        answer = self.table.query(KeyConditionExpression=condition, ConsistentRead=True)
        assert "LastEvaluatedKey" not in answer, "more than a page"
        items: list[Item] = answer["Items"]
        return items


def text_of(moment: datetime) -> str:
    """Written apart from the code under test."""
    assert moment.utcoffset() is not None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}Z"
