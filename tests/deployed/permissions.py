"""IAM: what a request needs, and what a role allows."""

import fnmatch
import json
import urllib.parse
from collections import namedtuple

# One action on one table, and the partition keys that the request names.
Need = namedtuple("Need", "action table keys")

PARTIQL = {"INSERT": "dynamodb:PartiQLInsert", "UPDATE": "dynamodb:PartiQLUpdate"}
SINGLE = {"PutItem": "Item", "UpdateItem": "Key", "GetItem": "Key"}
ACTION = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def needs(request):
    """The actions that DynamoDB checks for a request. A batch of statements is checked statement by statement."""
    if request.operation in SINGLE:
        item = request.body[SINGLE[request.operation]]
        yield Need(f"dynamodb:{request.operation}", request.body["TableName"], keys_of(item))
    elif request.operation == "TransactWriteItems":
        for kind, action in request.actions():
            yield Need(f"dynamodb:{ACTION[kind]}", action["TableName"], keys_of(action.get("Item") or action["Key"]))
    elif request.operation in ("Scan", "DescribeTable"):
        yield Need(f"dynamodb:{request.operation}", request.body["TableName"], ())
    elif request.operation == "Query":
        # IAM names an index as `table/…/index/name`; `allowed` keeps the last part.
        yield Need("dynamodb:Query", request.body.get("IndexName", request.body["TableName"]), ())
    elif request.operation == "BatchGetItem":
        for table, wanted in request.body["RequestItems"].items():
            keys = tuple(key for item in wanted["Keys"] for key in keys_of(item))
            yield Need("dynamodb:BatchGetItem", table, keys)
    elif request.operation == "BatchExecuteStatement":
        for statement, (verb, table, parameters) in zip(request.body["Statements"], request.statements(), strict=True):
            yield Need(PARTIQL[verb], table, (key_parameter(statement["Statement"], parameters),))
    else:
        raise ValueError(f"which IAM action does {request.operation} need?")


def keys_of(item):
    return tuple(item[name]["S"] for name in ("id", "order_id", "entry_id", "payout_id") if name in item)[:1]


def key_parameter(statement, parameters):
    """The parameter that stands for the partition key."""
    for marker in ("'id':?", '"id"=?'):
        before, found, _ = statement.partition(marker)
        if found:
            return parameters[before.count("?")]["S"]
    raise ValueError(f"no key in: {statement}")


def allowed(iam, role):
    """What the role's own policies allow on tables: (action, table, patterns of leading keys or None)."""
    documents = []
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        arn = attached["PolicyArn"]
        if arn.startswith("arn:aws:iam::aws:"):
            continue  # AWS's own: logs, traces, the queue
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        documents.append(iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"])
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        documents.append(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
    for document in documents:
        if isinstance(document, str):
            document = json.loads(urllib.parse.unquote(document))
        for statement in many(document["Statement"]):
            if statement["Effect"] != "Allow":
                raise ValueError(f"a statement that this test doesn't understand: {statement}")
            condition = statement.get("Condition", {})
            patterns = condition.get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys")
            for action in many(statement["Action"]):
                if not action.startswith("dynamodb:"):
                    continue  # the wire sees tables only
                for resource in many(statement["Resource"]):
                    yield action, resource.rpartition("/")[2], patterns and tuple(many(patterns))


def lets(patterns, keys):
    """Whether a statement with these patterns of leading keys lets a request on these keys pass."""
    if patterns is None:
        return True
    return bool(keys) and all(any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns) for key in keys)


def many(one_or_more):
    return one_or_more if isinstance(one_or_more, list) else [one_or_more]
