"""Commands of MongoDB's Python driver against a server whose address is the first argument."""

import datetime
import sys
import uuid

import pymongo
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions
from pymongo import InsertOne, ReplaceOne, UpdateOne, DeleteMany
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

UTC = datetime.timezone.utc
client = pymongo.MongoClient(sys.argv[1], serverSelectionTimeoutMS=10000)
aware = CodecOptions(tz_aware=True)
db = client.get_database("shop", codec_options=aware)


def fails(code, action, kind=OperationFailure):
    try:
        action()
    except kind as error:
        assert error.code == code, (error.code, code, error)
        return error
    raise AssertionError(f"no error {code}")


# The server introduces itself.
assert client.admin.command("ping")["ok"] == 1.0
hello = client.admin.command("hello")
assert hello["maxWireVersion"] == 25 and hello["isWritablePrimary"], hello
assert client.server_info()["versionArray"][0] == 8
assert client.list_database_names() == []

# Ordinary collections come into being with the first write, and keep types and order.
everything = {
    "_id": "all", "i": 1, "l": Int64(2), "d": 1.5, "dec": Decimal128("1.10"), "s": "ü", "b": b"\x00\x01",
    "u": Binary(uuid.UUID(int=5).bytes, 4), "o": ObjectId(), "t": True, "n": None, "date": datetime.datetime(1969, 5, 1, tzinfo=UTC),
    "ts": Timestamp(5, 6), "re": Regex("^a", "i"), "list": [1, [2], {"x": 3}], "min": MinKey(), "max": MaxKey(), "e": {},
}
assert db.things.insert_one(dict(everything)).inserted_id == "all"
found = db.things.find_one({"_id": "all"})
assert found == everything and list(found) == list(everything), found
assert isinstance(found["l"], Int64) and not isinstance(found["i"], Int64)
assert client.list_database_names() == ["shop"]
assert db.list_collection_names() == ["things"]

# Writes and their errors.
error = fails(11000, lambda: db.things.insert_one({"_id": "all"}), DuplicateKeyError)
assert error.details["index"] == 0, error.details
try:
    db.things.insert_many([{"_id": 1}, {"_id": 1}, {"_id": 2}])
    raise AssertionError("a duplicate was inserted")
except BulkWriteError as error:
    assert error.details["nInserted"] == 1 and error.details["writeErrors"][0]["index"] == 1, error.details
try:
    db.things.insert_many([{"_id": 2}, {"_id": 1}, {"_id": 3}], ordered=False)
    raise AssertionError("a duplicate was inserted")
except BulkWriteError as error:
    assert error.details["nInserted"] == 2, error.details
updated = db.things.update_one({"_id": 1}, {"$set": {"a": 5}, "$push": {"l": 1}})
assert (updated.matched_count, updated.modified_count) == (1, 1)
upserted = db.things.update_one({"_id": 9}, {"$inc": {"n": 2}}, upsert=True)
assert upserted.upserted_id == 9 and db.things.find_one({"_id": 9}) == {"_id": 9, "n": 2}
assert db.things.update_many({"n": {"$exists": True}}, {"$set": {"m": 1}}).modified_count == 2
fails(9, lambda: db.things.update_one({}, {"$sett": {"a": 1}}), WriteError)
fails(66, lambda: db.things.update_one({"_id": 1}, {"$set": {"_id": 2}}), WriteError)
assert db.things.replace_one({"_id": 2}, {"x": 1}).modified_count == 1
assert db.things.find_one_and_update({"_id": 2}, {"$inc": {"x": 1}}, return_document=True) == {"_id": 2, "x": 2}
assert db.things.find_one_and_update({"_id": 77}, {"$inc": {"x": 1}}) is None
assert db.things.find_one_and_delete({"_id": 3}) == {"_id": 3}
assert db.things.delete_one({"_id": 2}).deleted_count == 1
assert db.things.delete_many({"_id": {"$type": "number"}}).deleted_count == 2
assert db.nothing.delete_many({}).deleted_count == 0
assert db.nothing.update_one({}, {"$set": {"a": 1}}).matched_count == 0
assert db.nothing.find_one() is None and db.nothing.estimated_document_count() == 0
assert db.list_collection_names() == ["things"]
bulk = db.things.bulk_write([
    InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"a": 1}}), ReplaceOne({"_id": 5}, {"b": 1}, upsert=True),
    DeleteMany({"_id": 1}),
])
assert (bulk.inserted_count, bulk.modified_count, bulk.upserted_count, bulk.deleted_count) == (1, 1, 1, 1)
# Unacknowledged: no reply, and still done.
quiet = db.get_collection("things", write_concern=pymongo.WriteConcern(w=0))
quiet.insert_one({"_id": "quiet"})
assert db.things.find_one({"_id": "quiet"})

# Cursors.
db.many.insert_many([{"_id": i, "r": i % 7, "s": str(i)} for i in range(5000)])
assert [d["_id"] for d in db.many.find(batch_size=100)] == list(range(5000))
assert [d["_id"] for d in db.many.find({"r": 3}, {"_id": 1}).sort("_id", -1).skip(2).limit(3)] == [4980, 4973, 4966]
assert [d["s"] for d in db.many.find().sort([("r", -1), ("_id", 1)]).limit(2)] == ["6", "13"]
assert db.many.estimated_document_count() == 5000
assert sorted(db.many.distinct("r")) == list(range(7))
cursor = db.many.find(batch_size=10)
next(cursor)
db.many.delete_many({"_id": {"$gte": 2500}})
assert sum(1 for _ in cursor) == 4999, "a cursor keeps its snapshot"
cursor = db.many.find(batch_size=10)
next(cursor)
cursor_id = cursor.cursor_id
cursor.close()
fails(43, lambda: db.command({"getMore": Int64(cursor_id), "collection": "many"}))
fails(40415, lambda: db.command({"find": "many", "filters": {}}))
assert len(list(db.many.find(no_cursor_timeout=True, batch_size=1000))) == 2500
assert len(list(db.many.find({"_id": {"$lt": 3}}, collation={"locale": "simple"}))) == 3
for option in ("skip", "limit", "batchSize"):
    fails(51024, lambda: db.command({"find": "many", option: -1}))
fails(51024, lambda: db.command({"aggregate": "many", "pipeline": [], "cursor": {"batchSize": -1}}))
fails(40415, lambda: db.command({"aggregate": "many", "pipeline": [], "cursor": {"foo": 1}}))
for name in ("system.x", "system.views"):
    fails(73, lambda: db.create_collection(name, check_exists=False))
    fails(73, lambda: db.command({"insert": name, "documents": [{}]}))
fails(73, lambda: db.command({"find": "a$b"}))

# A duplicate key, as programs look for it.
try:
    db.keys.insert_many([{"_id": 1}, {"_id": {"a": "x"}}, {"_id": {"a": "x"}}])
    raise AssertionError("a duplicate was inserted")
except BulkWriteError as error:
    [wrong] = error.details["writeErrors"]
    assert (wrong["index"], wrong["code"], wrong["keyPattern"], wrong["keyValue"]) == (2, 11000, {"_id": 1}, {"_id": {"a": "x"}})
    assert wrong["errmsg"] == f'E11000 duplicate key error collection: {db.name}.keys index: _id_ dup key: {{ _id: {{ a: "x" }} }}'
try:
    db.keys.find_one_and_update({"_id": 1, "b": 7}, {"$set": {"a": 1}}, upsert=True)
    raise AssertionError("a duplicate was upserted")
except OperationFailure as error:
    assert error.code == 11000 and error.details["keyValue"] == {"_id": 1} and "E11000" in str(error), error

for id, shown in (
    (1.5, "1.5"), (None, "null"), (Int64(5), "5"), (True, "true"), ("x", '"x"'), (Decimal128("1.50"), "1.50"), (MinKey(), "MinKey"),
    (ObjectId("65a0b1c2d3e4f50617283940"), "ObjectId('65a0b1c2d3e4f50617283940')"), (Timestamp(1, 2), "Timestamp(1, 2)"),
    (datetime.datetime(2024, 1, 1, tzinfo=UTC), "new Date(1704067200000)"), (Binary(b"x", 5), "BinData(5, 78)"),
    (Binary(b"0123456789abcdef", 4), 'UUID("30313233-3435-3637-3839-616263646566")'), ({"l": [Int64(1), {}]}, "{ l: [ 1, {} ] }"),
):
    [wrong] = db.command({"insert": "keys", "documents": [{"_id": id}, {"_id": id}]})["writeErrors"]
    assert wrong["errmsg"].endswith(f"dup key: {{ _id: {shown} }}"), wrong

# Elements of lists are chosen beside what is computed.
db.lists.insert_one({"_id": 1, "z": 0, "a": [{"x": 2}, {"x": 1}], "b": 5, "c": {"l": [1, 2, 3]}})
for projection, expected in (
    ({"a": {"$slice": 1}, "n": "$b"}, {"_id": 1, "a": [{"x": 2}], "n": 5}),
    ({"n": "$b", "a": {"$elemMatch": {"x": 1}}, "z": 1}, {"_id": 1, "z": 0, "n": 5, "a": [{"x": 1}]}),
    ({"a": {"$elemMatch": {"x": 7}}, "n": "$b"}, {"_id": 1, "n": 5}),
    ({"c.l": {"$slice": -1}, "n": {"$add": ["$b", 1]}}, {"_id": 1, "c": {"l": [3]}, "n": 6}),
    ({"c": {"l": {"$slice": [1, 1]}}, "n": "$b"}, {"_id": 1, "c": {"l": [2]}, "n": 5}),
    ({"a": {"$slice": ["$a", 1]}}, {"_id": 1, "a": [{"x": 2}]}),
):
    for filter in ({}, {"$expr": True}):
        [found] = db.lists.find(filter, projection)
        assert list(found.items()) == list(expected.items()), (projection, found)
fails(28724, lambda: list(db.lists.find({}, {"a": {"$slice": [1, 0]}})))
# No more than a choice of elements leaves all other fields.
assert db.lists.find_one({}, {"c": {"l": {"$slice": 1}}})["c"] == {"l": [1]} and "z" in db.lists.find_one({}, {"c": {"l": {"$slice": 1}}})
fails(59, lambda: db.command("frobnicate"))
fails(26, lambda: db.command("collMod", "nothing", expireAfterSeconds=5))

# Indexes.
assert db.many.create_index("r") == "r_1"
assert db.many.create_index([("s", 1)], expireAfterSeconds=60, background=True) == "s_1"
assert list(db.many.index_information()) == ["_id_", "r_1", "s_1"], db.many.index_information()
assert db.many.index_information()["s_1"]["expireAfterSeconds"] == 60
db.command("collMod", "many", index={"keyPattern": {"s": 1}, "expireAfterSeconds": 100})
assert db.many.index_information()["s_1"]["expireAfterSeconds"] == 100
fails(67, lambda: db.many.create_index("u", unique=True))
assert db.command({"dropIndexes": "many", "index": "r_1"})["nIndexesWas"] == 3
assert db.command({"dropIndexes": "lists", "index": "*"}) == {"nIndexesWas": 1, "msg": "non-_id indexes dropped for collection", "ok": 1.0}
db.keys.drop()
db.lists.drop()
fails(67, lambda: db.fresh.create_index("u", unique=True))
assert "fresh" not in db.list_collection_names()

# A document with a date that is over is absent at once.
db.sessions.create_index("expires", expireAfterSeconds=0)
now = datetime.datetime.now(UTC)
db.sessions.insert_many([{"_id": 1, "expires": now - datetime.timedelta(hours=1)}, {"_id": 2, "expires": now + datetime.timedelta(hours=1)}])
assert [d["_id"] for d in db.sessions.find()] == [2]

# Time series.
base = datetime.datetime.now(UTC).replace(microsecond=0) - datetime.timedelta(minutes=30)
db.create_collection("weather24h", timeseries={"timeField": "timestamp", "metaField": "sensor", "granularity": "hours"}, expireAfterSeconds=86400)
rows = [{"timestamp": base + datetime.timedelta(seconds=i), "sensor": {"site": f"s{i % 3}"}, "temp": i / 2, "n": i} for i in range(1000)]
inserted = db.weather24h.insert_many(rows)
assert len(inserted.inserted_ids) == 1000
found = list(db.weather24h.find({"sensor.site": "s1", "n": {"$lt": 10}}))
assert [(d["n"], d["temp"]) for d in found] == [(1, 0.5), (4, 2.0), (7, 3.5)], found
assert "_id" not in found[0] and found[0]["timestamp"] == base + datetime.timedelta(seconds=1)
db.create_collection("kept", timeseries={"timeField": "t", "ids": "keep"})
kept = db.kept.insert_many([{"t": base}, {"t": base, "_id": "mine"}]).inserted_ids
assert sorted(d["_id"] for d in db.kept.find()) == [str(kept[0]), "mine"]
db.command("collMod", "kept", timeseries={"ids": "drop"})
db.kept.insert_one({"t": base, "v": 1})
assert db.kept.find_one({"v": 1}) == {"t": base, "v": 1}
assert db["kept"].options()["timeseries"]["ids"] == "drop"
db.kept.drop()
assert [d["n"] for d in db.weather24h.find({}, {"n": 1}, batch_size=50)] == list(range(1000))
assert [d["n"] for d in db.weather24h.find().sort("timestamp", -1).limit(3)] == [999, 998, 997]
assert [d["n"] for d in db.weather24h.find().sort("temp", -1).skip(1).limit(2)] == [998, 997]
assert db.weather24h.find_one({"timestamp": base}) == {"timestamp": base, "sensor": {"site": "s0"}, "temp": 0.0, "n": 0}
assert db.weather24h.distinct("sensor.site") == ["s0", "s1", "s2"]
assert db.weather24h.estimated_document_count() == 1000
db.weather24h.create_index([("timestamp", 1)], partialFilterExpression={"sensor.site": {"$eq": "s2"}}, expireAfterSeconds=60)
assert db.weather24h.estimated_document_count() == 667
try:
    db.weather24h.insert_many([{"timestamp": base, "temp": 1.0}, {"timestamp": "noon"}])
    raise AssertionError("a text is no time")
except BulkWriteError as error:
    assert error.details["nInserted"] == 0 and error.details["writeErrors"][0]["index"] == 1, error.details
fails(72, lambda: db.weather24h.update_many({}, {"$set": {"a": 1}}), WriteError)
assert db.weather24h.delete_many({"sensor.site": "s0"}).deleted_count == 334

# A number in a path is an element of a list, and a delete takes what the find finds.
db.create_collection("lists_in_time", timeseries={"timeField": "t", "metaField": "m"})
db.lists_in_time.insert_many([{"t": base, "m": {"tags": ["x", f"y{i}"]}, "i": i, "l": [i, 5]} for i in range(4)])
for filter, expected in (
    ({"l.0": 2}, [2]),
    ({"l.0": {"$ne": 2}}, [0, 1, 3]),
    ({"l.0": {"$exists": False}}, []),
    ({"m.tags.1": "y1"}, [1]),
    ({"m.tags.1": {"$in": ["y1", "x"]}}, [1]),
    ({"m.tags.0": {"$ne": "x"}}, []),
):
    assert sorted(d["i"] for d in db.lists_in_time.find(filter)) == expected, filter
    assert sorted(d["i"] for d in db.lists_in_time.aggregate([{"$match": filter}])) == expected, filter
    assert db.lists_in_time.count_documents(filter) == len(expected), filter
assert db.lists_in_time.delete_many({"l.0": {"$exists": False}}).deleted_count == 0
assert db.lists_in_time.delete_many({"m.tags.1": {"$ne": "y2"}}).deleted_count == 3
assert [d["i"] for d in db.lists_in_time.find()] == [2]
db.lists_in_time.drop()
options = db.weather24h.options()
assert options["timeseries"]["granularity"] == "hours" and options["expireAfterSeconds"] == 86400, options

# The server's state.
status = db.command("serverStatus")
assert status["metrics"]["ttl"]["passes"] >= 0 and status["opcounters"]["insert"] > 6000, status
running = db.command("currentOp")["inprog"]
assert [(op["op"], op["ns"], op["command"]["currentOp"]) for op in running if op["command"].get("currentOp")] == [("command", "shop.$cmd", 1)], running
assert client.admin.command("setParameter", 1, ttlMonitorSleepSecs=5)["was"] == 60
assert client.admin.command("getParameter", 1, ttlMonitorSleepSecs=1)["ttlMonitorSleepSecs"] == 5
assert db.command("collStats", "many")["count"] == 2500
assert db.command("dbStats")["collections"] == 4, db.command("dbStats")
assert client.admin.command("getLog", "startupWarnings")["log"] == []
client.admin.command("renameCollection", "shop.many", to="shop.few")
assert db.few.estimated_document_count() == 2500
db.few.drop()
client.drop_database("shop")
assert client.list_database_names() == []
print("all as expected")
