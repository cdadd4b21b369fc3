"""Pipelines over a time-series collection and an ordinary one with the same documents give the same results."""

import datetime
import math
import sys

import pymongo
from pymongo.errors import OperationFailure

client = pymongo.MongoClient(sys.argv[1], serverSelectionTimeoutMS=10000)
db = client["weather"]
base = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) - datetime.timedelta(hours=12)
rows = [
    {"t": base + datetime.timedelta(seconds=7 * i), "m": {"site": f"s{i % 5}", "floor": i % 2}, "temp": (i * 37 % 400) / 10, "n": i}
    for i in range(3000)
]
db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
db.series.insert_many([dict(row) for row in rows])
db.plain.insert_many([dict(row) for row in rows])


def same(a, b):
    """Sums of doubles depend on the order of additions in their last digits."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return math.isclose(a, b, rel_tol=1e-12) if isinstance(a, float) and isinstance(b, float) else a == b


pipelines = [
    [{"$match": {"m.site": "s1"}}, {"$count": "n"}],
    [{"$match": {"m.site": {"$in": ["s1", "s4"]}, "t": {"$gte": base + datetime.timedelta(hours=1)}}},
     {"$group": {"_id": {"hour": {"$dateTrunc": {"date": "$t", "unit": "hour"}}, "site": "$m.site"},
                 "avg": {"$avg": "$temp"}, "min": {"$min": "$temp"}, "max": {"$max": "$temp"}, "n": {"$sum": 1}}},
     {"$sort": {"_id": 1}}],
    [{"$group": {"_id": "$m", "sum": {"$sum": "$n"}, "first": {"$first": "$n"}}}, {"$sort": {"sum": -1}}, {"$limit": 3}],
    [{"$sort": {"temp": -1, "n": 1}}, {"$limit": 20}, {"$project": {"_id": 0, "n": 1, "f": {"$add": [{"$multiply": ["$temp", 1.8]}, 32]}}}],
    [{"$match": {"n": {"$regex": "x"}}}, {"$count": "n"}],
    [{"$sortByCount": {"$mod": ["$n", 4]}}],
    [{"$match": {"$expr": {"$gt": ["$temp", {"$multiply": ["$n", 0.1]}]}}}, {"$group": {"_id": None, "n": {"$sum": 1}}}],
    [{"$project": {"_id": 0, "n": 1}}, {"$skip": 10}, {"$limit": 1500}],
]
for pipeline in pipelines:
    series, plain = (list(c.aggregate(pipeline, batchSize=100)) for c in (db.series, db.plain))
    assert same(series, plain), (pipeline, series[:3], plain[:3])
assert db.series.count_documents({"m.site": "s2"}) == db.plain.count_documents({"m.site": "s2"}) == 600
assert db.plain.count_documents({}) == 3000 and db.nothing.count_documents({}) == 0
assert next(db.series.aggregate([{"$collStats": {"count": {}, "storageStats": {}}}]))["count"] == 3000
assert [op["ns"] for op in client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.aggregate": 1}}])] == ["admin.$cmd.aggregate"]
for code, pipeline in [(40324, [{"$frob": {}}]), (31325, [{"$project": {"a": {"$frob": 1}}}]), (40323, [{}])]:
    try:
        db.plain.aggregate(pipeline)
        raise AssertionError(pipeline)
    except OperationFailure as error:
        assert error.code == code, error
print("all as expected")
