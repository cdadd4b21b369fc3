"""The rows "different on purpose" of docs/from-mongodb.md: each is shown by commands. Arguments: the server's address, the page.

The server keeps a mebibyte of a statement in memory.
"""

import datetime
import math
import re
import sys

import pymongo
from bson import Decimal128, Int64, ObjectId
from pymongo.errors import BulkWriteError, OperationFailure

client = pymongo.MongoClient(sys.argv[1])
db = client["differences"]
UTC = datetime.timezone.utc
START = datetime.datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds):
    return START + datetime.timedelta(seconds=seconds)


def series(name, rows, **options):
    db.drop_collection(name)
    db.create_collection(name, timeseries={"timeField": "t", "metaField": "m", **options})
    db[name].insert_many(rows)
    return db[name]


def plain(name, rows):
    db.drop_collection(name)
    db[name].insert_many(rows)
    return db[name]


def refused(code, action, words=""):
    """Fails with this code, and names what is refused."""
    try:
        action()
    except OperationFailure as error:
        assert error.code == code and words in str(error), (code, words, error)
        return
    raise AssertionError(f"{code} {words} was expected")


def creates_collections():
    db.drop_collection("fresh")
    db.fresh.insert_one({"a": 1})
    assert [(c["name"], c["type"]) for c in db.list_collections(filter={"name": "fresh"})] == [("fresh", "collection")]


def atomic_inserts():
    weather = series("weather", [{"t": at(0), "v": 1}])
    try:
        weather.insert_many([{"t": at(1), "v": 2}, {"t": at(2), "v": "text"}, {"t": at(3), "v": 4}])
        raise AssertionError("a text in a field of numbers")
    except BulkWriteError as error:
        assert error.details["nInserted"] == 0 and [e["index"] for e in error.details["writeErrors"]] == [1]
    assert weather.count_documents({}) == 1
    try:
        weather.insert_many([{"t": at(1), "v": 2}, {"t": at(2), "v": "text"}, {"t": at(3), "v": 4}], ordered=False)
        raise AssertionError("a text in a field of numbers")
    except BulkWriteError as error:
        assert error.details["nInserted"] == 2 and [e["index"] for e in error.details["writeErrors"]] == [1]


def object_ids():
    assert list(series("weather", [{"t": at(0), "v": 1}]).find()) == [{"t": at(0).replace(tzinfo=None), "v": 1}]
    kept = series("weather", [{"t": at(0), "_id": ObjectId("65a0b1c2d3e4f5061728394a")}], ids="keep")
    assert kept.find_one()["_id"] == "65a0b1c2d3e4f5061728394a"
    assert series("weather", [{"t": at(0), "_id": 7}]).find_one()["_id"] == 7


def whole_numbers():
    found = series("weather", [{"t": at(0), "a": Int64(5), "b": 2**40}]).find_one()
    assert type(found["a"]) is int and type(found["b"]) is Int64, found
    assert type(plain("things", [{"a": Int64(5)}]).find_one()["a"]) is Int64


def order_of_time():
    weather = series("weather", [{"t": at(s), "m": s % 2} for s in (5, 3, 9, 1)])
    assert [d["t"] for d in weather.find()] == [at(s).replace(tzinfo=None) for s in (1, 3, 5, 9)]


def order_of_groups():
    things = plain("things", [{"a": a} for a in (3, "x", 1, None, 2.5)])
    assert [d["_id"] for d in things.aggregate([{"$group": {"_id": "$a"}}])] == [None, 1, 2.5, 3, "x"]


def sums_of_doubles():
    values = [(i * 37 % 101) / 10 for i in range(5000)]
    weather = series("weather", [{"t": at(i), "m": i % 7, "v": v} for i, v in enumerate(values)])
    [found] = weather.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$v"}, "avg": {"$avg": "$v"}}}])
    assert math.isclose(found["sum"], math.fsum(values), rel_tol=1e-14)
    assert math.isclose(found["avg"], math.fsum(values) / len(values), rel_tol=1e-14)


def hints():
    things = plain("things", [{"a": i, "b": i} for i in range(10)])
    things.create_index("a")
    things.create_index("b")
    refused(2, lambda: list(things.find({"a": 3}).hint("nobody")), "hint")
    assert [d["a"] for d in things.find({"a": 3}).hint("b_1")] == [3]
    assert "a_1" in str(things.find({"a": 3}).hint("b_1").explain()["queryPlanner"]["winningPlan"])
    assert len(list(things.find({"a": {"$gte": 0}}).hint([("$natural", 1)]))) == 10
    refused(2, lambda: list(things.find().hint([("$natural", -1)])), "$natural")


def explain_of_measurements():
    now = datetime.datetime.now(UTC)
    db.drop_collection("weather")
    db.create_collection("weather", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=3600)
    hours = [now - datetime.timedelta(hours=h) for h in (0, 5)]
    db.weather.insert_many([{"t": t, "m": m} for t in hours for m in ("a", "b")])
    plan = db.command("explain", {"find": "weather", "filter": {"m": "a"}}, verbosity="executionStats")
    text = str(plan)
    for name in ("TS_SCAN", "bucketsExamined", "bucketsSkipped", "bucketsHidden", "rowsHidden"):
        assert name in text, (name, plan)


def percentiles():
    things = plain("things", [{"v": v} for v in range(1, 1002)])
    group = {"_id": None, "p": {"$percentile": {"input": "$v", "p": [0.5, 0.999], "method": "approximate"}},
             "m": {"$median": {"input": "$v", "method": "approximate"}}}
    assert list(things.aggregate([{"$group": group}])) == [{"_id": None, "p": [501.0, 1000.0], "m": 501.0}]


def merges():
    things = plain("things", [{"_id": 1, "a": 1}])
    plain("into", [{"_id": 1, "b": 2}, {"_id": 2}])
    list(things.aggregate([{"$merge": "into"}]))
    assert list(db.into.find()) == [{"_id": 1, "b": 2, "a": 1}, {"_id": 2}]
    refused(51183, lambda: list(things.aggregate([{"$merge": {"into": "into", "on": "a"}}])), "_id")
    matched = {"into": "into", "whenMatched": [{"$set": {"c": 1}}]}
    refused(115, lambda: list(things.aggregate([{"$merge": matched}])), "whenMatched")


def outputs():
    things = plain("things", [{"_id": i, "a": i} for i in range(5)])
    plain("out", [{"_id": "old"}])
    list(things.aggregate([{"$match": {"a": {"$gt": 2}}}, {"$out": "out"}]))
    assert list(db.out.find()) == [{"_id": 3, "a": 3}, {"_id": 4, "a": 4}]
    assert not [name for name in db.list_collection_names() if "agg_out" in name]
    refused(73, lambda: db.create_collection("tmp.agg_out.0"), "tmp.agg_out")
    refused(73, lambda: db["tmp.agg_out.0"].insert_one({}), "tmp.agg_out")


def sources():
    things = plain("things", [{"_id": 1, "a": 1}])
    stats = [{"$collStats": {}}]
    for stage in ({"$lookup": {"from": "things", "pipeline": stats, "as": "r"}}, {"$unionWith": {"coll": "things", "pipeline": stats}}):
        refused(115, lambda: list(things.aggregate([stage])), "$collStats")


def buckets():
    things = plain("things", [{"_id": 1, "a": 1}])
    refused(115, lambda: list(things.aggregate([{"$bucketAuto": {"groupBy": "$a", "buckets": 2, "granularity": "R5"}}])), "granularity")


def instants():
    plain("others", [{"_id": n} for n in range(1000)])
    things = plain("things", [{"_id": n} for n in range(1000)])
    cursor = things.aggregate([{"$unionWith": "others"}], batchSize=10)
    db.others.delete_many({})
    assert len(list(cursor)) == 2000


def lookups():
    things = plain("things", [{"_id": 1, "a": 1}])
    plain("large", [{"text": "x" * 1000} for _ in range(2000)])
    joined = {"from": "large", "localField": "a", "foreignField": "a", "as": "r"}
    refused(146, lambda: list(things.aggregate([{"$lookup": joined}])), "$lookup")
    graph = {"from": "large", "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "r"}
    refused(146, lambda: list(things.aggregate([{"$graphLookup": graph}])), "$graphLookup")
    [found] = things.aggregate([{"$graphLookup": {**graph, "restrictSearchWithMatch": {"_id": 0}}}])
    assert found["r"] == [], found


def graphs():
    things = plain("things", [{"_id": i, "n": i, "to": [i + 2, i + 1]} for i in range(5)])
    graph = {"from": "things", "startWith": 0, "connectFromField": "to", "connectToField": "n", "as": "r"}
    found = next(things.aggregate([{"$graphLookup": graph}]))
    assert [thing["_id"] for thing in found["r"]] == [0, 1, 2, 3, 4]
    series("weather", [{"t": at(0), "m": "a", "v": 1}, {"t": at(1), "m": "a", "v": 2}])
    of_weather = {"from": "weather", "startWith": "a", "connectFromField": "next", "connectToField": "m", "as": "r"}
    assert [found["v"] for found in next(things.aggregate([{"$graphLookup": of_weather}]))["r"]] == [1, 2]


def last_batches():
    plain("things", [{"_id": i} for i in range(4)])
    first = db.command({"find": "things", "batchSize": 2})["cursor"]
    last = db.command({"getMore": Int64(first["id"]), "collection": "things", "batchSize": 2})["cursor"]
    assert first["id"] != 0 and last["id"] == 0 and len(last["nextBatch"]) == 2


def memory():
    large = plain("large", [{"k": i, "text": "x" * 1000} for i in range(2000)])
    for stage in ({"$sort": {"text": 1}}, {"$group": {"_id": None, "all": {"$push": "$text"}}},
                  {"$setWindowFields": {"sortBy": {"k": 1}, "output": {"n": {"$sum": "$k"}}}}):
        refused(146, lambda: list(large.aggregate([stage], allowDiskUse=True)), "memory")
    assert [d["k"] for d in large.aggregate([{"$sort": {"k": -1}}, {"$limit": 1}])] == [1999]


def searches():
    texts = plain("texts", [{"_id": 1, "s": "aab"}])
    for operator in ("$regexMatch", "$regexFind", "$regexFindAll"):
        search = lambda regex: list(texts.aggregate([{"$project": {"_id": 0, "r": {operator: {"input": "$s", "regex": regex}}}}]))
        found = {"match": "aab", "idx": 0, "captures": ["b"]}
        assert search("a*(b)") == [{"r": {"$regexMatch": True, "$regexFind": found, "$regexFindAll": [found]}[operator]}]
        for regex in ("a(?=b)", r"(a)\1", "(?>a)", "a*+"):
            refused(51111, lambda: search(regex))


def decimals():
    things = plain("things", [{"_id": 1, "d": Decimal128("1.10")}, {"_id": 2, "d": Decimal128("2.20")}])
    computed = {"sum": {"$add": ["$d", 1]}, "product": {"$multiply": ["$d", "$d"]}}
    first = next(things.aggregate([{"$sort": {"_id": 1}}, {"$project": computed}]))
    assert first == {"_id": 1, "sum": Decimal128("2.10"), "product": Decimal128("1.2100")}
    [total] = things.aggregate([{"$group": {"_id": None, "s": {"$sum": "$d"}, "m": {"$max": "$d"}}}])
    assert total == {"_id": None, "s": Decimal128("3.30"), "m": Decimal128("2.20")}
    computed = {"a": {"$divide": ["$d", 4]}, "b": {"$mod": ["$d", 1]}, "c": {"$round": ["$d", 1]}, "d": {"$floor": "$d"}}
    first = next(things.aggregate([{"$sort": {"_id": 1}}, {"$project": computed}]))
    assert first == {"_id": 1, "a": Decimal128("0.275"), "b": Decimal128("0.10"), "c": Decimal128("1.1"), "d": Decimal128("1")}
    [mean] = things.aggregate([{"$group": {"_id": None, "m": {"$avg": "$d"}}}])
    assert mean == {"_id": None, "m": Decimal128("1.65")}
    angle = next(things.aggregate([{"$sort": {"_id": 1}}, {"$project": {"r": {"$degreesToRadians": {"$multiply": ["$d", 0]}}}}]))
    assert angle["r"].to_decimal() == 0
    for expression in ({"$pow": ["$d", 2]}, {"$sqrt": "$d"}, {"$exp": "$d"}, {"$ln": "$d"}, {"$log10": "$d"}, {"$log": ["$d", 2]}, {"$sin": "$d"},
                       {"$acosh": "$d"}, {"$atan2": [1, "$d"]}):
        refused(115, lambda: list(things.aggregate([{"$project": {"r": expression}}])), next(iter(expression)))


def what_is_not_here():
    things = plain("things", [{"_id": 1, "l": [1]}])
    refused(115, lambda: list(things.find({}, collation={"locale": "de"})), "collation")
    assert len(list(things.find({}, collation={"locale": "simple"}))) == 1
    for option in ({"min": {"_id": 1}}, {"max": {"_id": 1}}, {"returnKey": True}, {"showRecordId": True}):
        refused(115, lambda: db.command("find", "things", **option), next(iter(option)))
    refused(2, lambda: list(things.find({"l": 1}, {"l.$": 1})), "$elemMatch")
    refused(115, lambda: db.command("update", "things", updates=[], let={"a": 1}), "let")
    refused(115, lambda: db.command("find", "things", tailable=True), "tailable")
    changed = {"q": {}, "u": {"$set": {"l.$[e]": 2}}, "arrayFilters": [{"e": 1}]}
    reply = db.command("update", "things", updates=[changed])
    assert reply["n"] == 0 and "arrayFilters" in reply["writeErrors"][0]["errmsg"], reply
    with client.start_session() as session:
        def transaction():
            with session.start_transaction():
                things.insert_one({"_id": 2}, session=session)
        refused(20, transaction, "transaction")


def profiles():
    things = plain("things", [{"_id": 1}])
    assert db.command("profile", 2)["was"] == 0
    things.find_one({"_id": 1})
    assert db.command("profile", 0)["was"] == 2
    assert db["system.profile"].find_one({"op": "query", "ns": things.full_name})["nreturned"] == 1
    assert "system.profile" not in db.list_collection_names()
    refused(73, lambda: db["system.profile"].insert_one({}), "system.profile")
    db["system.profile"].drop()


def updates_of_measurements():
    weather = series("weather", [{"t": at(0), "m": "a"}])
    refused(72, lambda: weather.update_many({"m": "a"}, {"$set": {"m": "b"}}), "update")
    refused(72, lambda: weather.find_one_and_delete({"m": "a"}), "findAndModify")


def deletes_of_measurements():
    weather = series("weather", [{"t": at(0), "m": "a"}, {"t": at(1), "m": "b"}])
    refused(2, lambda: weather.delete_many({"m": {"$regex": "^a"}}), "$regex")
    assert weather.delete_many({"$nor": [{"m": {"$ne": "a"}}]}).deleted_count == 1


def indexes_of_measurements():
    weather = series("weather", [{"t": at(0), "m": "a"}])
    refused(67, lambda: weather.create_index([("m", 1), ("t", -1)]), "partial TTL indexes")
    refused(72, lambda: weather.create_index("m"), "partial TTL indexes")
    assert weather.create_index("t", expireAfterSeconds=1 << 30, partialFilterExpression={"m": "a"}) == "t_1"


def tops():
    things = plain("things", [{"_id": 1, "l": [5, 1]}, {"_id": 2, "l": 3}, {"_id": 3, "l": []}, {"_id": 4}])
    top = {"$topN": {"n": 9, "sortBy": {"l": 1, "_id": 1}, "output": "$_id"}}
    assert next(things.aggregate([{"$group": {"_id": None, "ids": top}}]))["ids"] == [3, 4, 1, 2]


# The beginning of each row, and what shows it.
ROWS = {
    "a write to a collection that does not exist": creates_collections,
    "an insert of several measurements is atomic": atomic_inserts,
    "`update` and `findAndModify` of measurements": updates_of_measurements,
    "the filter of a delete on measurements": deletes_of_measurements,
    "measurements have partial TTL indexes alone": indexes_of_measurements,
    "an ObjectId as `_id` of a measurement": object_ids,
    "whole numbers of measurements": whole_numbers,
    "measurements come in the order of time": order_of_time,
    "`$group` returns groups in the order": order_of_groups,
    "sums and averages of doubles": sums_of_doubles,
    "`hint` must name an index": hints,
    "`explain` of measurements": explain_of_measurements,
    "`$percentile` and `$median` are exact": percentiles,
    "`$top`, `$topN`, `$bottom` and `$bottomN`": tops,
    "`$merge` finds documents by `_id`": merges,
    "`$out` fills a collection": outputs,
    "`$lookup` keeps the other collection in memory": lookups,
    "`$graphLookup` lists documents": graphs,
    "the batch that takes the last document": last_batches,
    "in the pipelines of `$lookup` and `$unionWith`": sources,
    "`granularity` of `$bucketAuto`": buckets,
    "all collections of a pipeline": instants,
    "what a statement keeps in memory": memory,
    "`system.profile` is in memory": profiles,
    "powers, roots, exponentials, logarithms and trigonometry of decimal128": decimals,
    "`$regexMatch`, `$regexFind` and `$regexFindAll`": searches,
    "a command that asks for what is not here": what_is_not_here,
}

# What diagnostics.py shows.
ELSEWHERE = ("one record of the profiler for each command", "`currentOp` shows commands that run", "`killOp` ends a command")

with open(sys.argv[2], encoding="utf-8") as file:
    table = file.read().split("| different on purpose | in MongoDB |\n| --- | --- |\n")[1].split("\n\n")[0]
rows = [re.split(r"(?<!\\) \| ", line)[0].removeprefix("| ") for line in table.splitlines()]
elsewhere = [row for row in rows if row.startswith(ELSEWHERE)]
assert len(elsewhere) == len(ELSEWHERE), elsewhere
rows = [row for row in rows if row not in elsewhere]
shown = [next((begin for begin in ROWS if row.startswith(begin)), None) for row in rows]
assert None not in shown, f"nothing shows the row: {rows[shown.index(None)]}"
assert sorted(shown) == sorted(ROWS), f"not on the page: {set(ROWS) - set(shown)}"
for row in shown:
    try:
        ROWS[row]()
    except Exception as error:
        raise AssertionError(f"not as the page says: {row}") from error
print("every difference is as the page says")
