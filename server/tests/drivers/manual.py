"""The examples of MongoDB's manual on expiry, with pymongo. Argument: the server's address."""

import datetime
import sys
import time

import pymongo
from pymongo.errors import OperationFailure

UTC = datetime.timezone.utc
client = pymongo.MongoClient(sys.argv[1], tz_aware=True)
db = client["manual"]
assert client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)["ok"] == 1


def ago(seconds):
    return datetime.datetime.now(UTC) - datetime.timedelta(seconds=seconds)


def wait_for(count, collection):
    """The deadline is long for a busy machine; the sweeper runs every second."""
    deadline = time.monotonic() + 60
    while collection.count_documents({}) != count:
        assert time.monotonic() < deadline, f"{collection.name} still has {collection.count_documents({})} documents, not {count}"
        time.sleep(0.1)


def refused(code, action):
    try:
        action()
    except OperationFailure as error:
        assert error.code == code, error
        return str(error)
    raise AssertionError(f"not refused with {code}")


# Set up automatic removal for time series collections.
timeseries = {"timeField": "timestamp", "metaField": "sensor", "granularity": "hours"}
weather = db.create_collection("weather24h", timeseries=timeseries, expireAfterSeconds=86400)
sensor = "40.761873, -73.984287"
weather.insert_many([
    {"timestamp": ago(2 * 86400), "sensor": sensor, "temp": 11}, {"timestamp": ago(7200), "sensor": sensor, "temp": 12},
    {"timestamp": ago(7200), "sensor": "elsewhere", "temp": 13}, {"timestamp": ago(60), "sensor": sensor, "temp": 14},
])
assert sorted(weather.distinct("temp")) == [12, 13, 14]
only = {"sensor": {"$eq": sensor}}
# The call with two documents of options, as a shell sends it.
two = {"key": {"timestamp": 1}, "name": "timestamp_1", "partialFilterExpression": only}
told = refused(14, lambda: db.command("createIndexes", "weather24h", indexes=[two], commitQuorum={"expireAfterSeconds": 3600}))
assert "into one" in told, told
assert weather.create_index([("timestamp", 1)], partialFilterExpression=only, expireAfterSeconds=3600) == "timestamp_1"
assert sorted(weather.distinct("temp")) == [13, 14]
refused(72, lambda: weather.create_index([("timestamp", 1)], expireAfterSeconds=3600))
db.command("collMod", "weather24h", expireAfterSeconds="off")
assert "expireAfterSeconds" not in weather.options()

# Expire documents after a number of seconds, and at a clock time.
db.log_events.create_index("createdAt", expireAfterSeconds=10)
db.log_events.insert_many([{"createdAt": ago(0), "logEvent": 1}, {"createdAt": ago(8), "logEvent": 2}, {"logEvent": 3}])
wait_for(2, db.log_events)
wait_for(1, db.log_events)
assert db.log_events.distinct("logEvent") == [3]
db.clock_events.create_index("expireAt", expireAfterSeconds=0)
db.clock_events.insert_one({"expireAt": ago(-1), "logEvent": 2, "logMessage": "Success!"})
wait_for(0, db.clock_events)

# A non-TTL index becomes a TTL index, and its value changes.
db.tickets.create_index("lastModifiedDate")
db.tickets.insert_many([{"lastModifiedDate": ago(90)}, {"lastModifiedDate": ago(1000)}])
for seconds, before, left in [(100, None, 1), (80, 100, 0)]:
    index = {"keyPattern": {"lastModifiedDate": 1}, "expireAfterSeconds": seconds}
    changed = db.command("collMod", "tickets", index=index)
    assert (changed.get("expireAfterSeconds_old"), changed["expireAfterSeconds_new"]) == (before, seconds), changed
    wait_for(left, db.tickets)

# What the TTL monitor did: the sweeper has deleted what was absent before.
assert db.command("currentOp")["ok"] == 1
deadline = time.monotonic() + 60
while True:
    ttl = db.command("serverStatus")["metrics"]["ttl"]
    # One measurement by the collection's own seconds, one by the index, three documents, two tickets.
    if ttl["passes"] > 0 and ttl["deletedDocuments"] >= 5:
        break
    assert time.monotonic() < deadline, ttl
    time.sleep(0.1)
print("all as expected")
