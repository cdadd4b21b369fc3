"""The profiler, currentOp, killOp and top with MongoDB's Python driver. Argument: the server's address."""

import datetime
import sys
import threading
import time

import pymongo
from pymongo.errors import OperationFailure

client = pymongo.MongoClient(sys.argv[1], appname="diagnostics", serverSelectionTimeoutMS=10000)
db = client.shop
profile = db["system.profile"]


def until(what, tries=600):
    for _ in range(tries):
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it does not come")


# Nothing is recorded before it is asked for.
db.orders.insert_many([{"_id": n, "n": n % 10} for n in range(1000)])
db.orders.create_index("n")
assert profile.count_documents({}) == 0
assert db.command("profile", 2, slowms=20, sampleRate=0.5) == {"was": 0, "slowms": 100, "sampleRate": 1.0, "ok": 1.0}
assert db.command("profile", -1) == {"was": 2, "slowms": 20, "sampleRate": 0.5, "ok": 1.0}
try:
    db.command("profile", 1, sampleRate=2)
    raise AssertionError("a rate above 1")
except OperationFailure as error:
    assert error.code == 2, error

db.orders.insert_many([{"_id": n} for n in range(2000, 2003)])
list(db.orders.find({"n": 3}, batch_size=60))
db.orders.find_one({"_id": 5})
db.orders.update_many({"n": 3}, {"$set": {"x": 1}})
db.orders.delete_many({"_id": {"$gte": 2000}})
db.orders.aggregate([{"$match": {"n": 4}}, {"$count": "c"}])
try:
    db.orders.find_one({"$where": "1"})
except OperationFailure:
    pass
seen = list(profile.find({"ns": "shop.orders"}))
what = [(r["op"], r.get("planSummary"), r.get("nreturned", r.get("ninserted", r.get("nModified", r.get("ndeleted"))))) for r in seen]
assert what == [
    ("insert", None, 3), ("query", "IXSCAN { n: 1 }", 60), ("getmore", None, 40), ("query", "IDHACK", 1),
    ("update", "IXSCAN { n: 1 }", 100), ("remove", "COLLSCAN", 3), ("command", "IXSCAN { n: 1 }", 1), ("query", None, None),
], what
first, last = seen[0], seen[-1]
assert first["appName"] == "diagnostics" and first["client"] == "127.0.0.1" and first["user"] == "", first
assert isinstance(first["ts"], datetime.datetime) and first["millis"] >= 0 and first["command"]["insert"] == "orders", first
assert last["errName"] == "BadValue" and last["errCode"] == 2, last
assert seen[1]["cursorid"] and seen[2]["cursorExhausted"], seen[1:3]
# The records are read like a collection.
assert profile.count_documents({"op": "query"}) >= 3
assert set(profile.distinct("op")) >= {"insert", "query", "getmore", "update", "remove", "command"}
newest = profile.find({}, {"op": 1, "ts": 1, "_id": 0}).sort("ts", -1).limit(2).to_list()
assert len(newest) == 2 and set(newest[0]) == {"op", "ts"} and newest[0]["ts"] >= newest[1]["ts"], newest
grouped = {g["_id"]: g["n"] for g in profile.aggregate([{"$group": {"_id": "$op", "n": {"$sum": 1}}}])}
assert grouped["insert"] == 1 and grouped["remove"] == 1, grouped

# What the sweeper deletes is recorded too.
db.sessions.create_index("at", expireAfterSeconds=0)
db.sessions.insert_many([{"at": datetime.datetime(2001, 1, 1)} for _ in range(7)])
client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
swept = until(lambda: profile.find_one({"desc": "TTLMonitor"}))
assert (swept["op"], swept["ns"], swept["ndeleted"], swept["command"]["rule"]) == ("remove", "shop.sessions", 7, "at_1"), swept
assert db.command("profile", 0)["was"] == 2
count = profile.count_documents({})
db.orders.find_one()
assert profile.count_documents({}) == count
profile.drop()
assert profile.count_documents({}) == 0 and db.list_collection_names(filter={"name": "system.profile"}) == []

# A command that takes long ends when it is told to.
slow = {"$reduce": {"input": {"$range": [0, 20000]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}
ended = []


def run(action):
    try:
        action()
        ended.append(None)
    except OperationFailure as error:
        ended.append((error.code, error.details["codeName"]))


pipeline = [{"$project": {"r": slow}}, {"$group": {"_id": None, "r": {"$sum": "$r"}}}]
thread = threading.Thread(target=run, args=[lambda: list(db.orders.aggregate(pipeline))])
thread.start()
running = until(lambda: [op for op in client.admin.command("currentOp")["inprog"] if op["ns"] == "shop.orders"])
operation = running[0]
assert operation["op"] == "command" and operation["active"] and operation["appName"] == "diagnostics", operation
assert operation["microsecs_running"] >= 0 and operation["client"].startswith("127.0.0.1:"), operation
assert client.admin.command("killOp", op=operation["opid"]) == {"info": "attempting to kill op", "ok": 1.0}
thread.join()
assert ended == [(11601, "Interrupted")], ended
# Everything else goes on.
assert db.orders.count_documents({}) == 1000

totals = client.admin.command("top")["totals"]
assert totals["note"] == "all times in microseconds"
orders = totals["shop.orders"]
assert orders["insert"]["count"] == 2 and orders["remove"]["count"] == 1 and orders["getmore"]["count"] == 1, orders
assert orders["total"]["time"] > 0 and orders["total"]["count"] == orders["readLock"]["count"] + orders["writeLock"]["count"], orders
print("ok")
