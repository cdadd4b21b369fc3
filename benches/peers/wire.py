"""MongoDB's Python driver for the runner's workload `wire`: both servers get the same documents and pipelines from it.

Each line of standard input is a command in JSON; each answer is one line. `data` is followed by the documents in BSON.
"""

import gc
import json
import math
import sys
import time

import bson
import pymongo
from bson import ObjectId, json_util
from pymongo.errors import AutoReconnect
from pymongo.write_concern import WriteConcern

EXPIRY_SECONDS_MAX = 60  # mongod 6.0 does not delete some old buckets at all, such as those of 2013.
DATABASE, COLLECTION = "bench", "weather"
OPTIONS = {"timeField": "time", "metaField": "station", "granularity": "hours"}
clients, documents = {}, []


def client(uri):
    if uri not in clients:
        clients[uri] = pymongo.MongoClient(uri, serverSelectionTimeoutMS=60_000)
    return clients[uri]


def collection(uri):
    return client(uri)[DATABASE].get_collection(COLLECTION, write_concern=WriteConcern(w=1, j=True))


def timed(action):
    start = time.perf_counter()
    found = action()
    return time.perf_counter() - start, found


def data(rows):
    # Nothing of this is garbage before the end.
    gc.disable()
    for document in bson.decode_file_iter(sys.stdin.buffer):
        documents.append(document)
        if len(documents) == rows:
            break
    return {"driver": pymongo.version, "is_in_c": bson.has_c()}


def batches(size):
    return [documents[at : at + size] for at in range(0, len(documents), size)]


def encode(batch):
    """Seconds for making BSON of all documents, a batch at a time."""
    return timed(lambda: [bson.encode({"documents": some}) for some in batches(batch)] and None)[0]


def insert(uri, batch):
    """Seconds for inserting all documents; the driver gives each an `_id`, as it does for documents of a program."""
    for document in documents:
        document.pop("_id", None)
    client(uri)[DATABASE].create_collection(COLLECTION, timeseries=OPTIONS)
    into, parts = collection(uri), batches(batch)

    def run():
        for part in parts:
            into.insert_many(part)

    return timed(run)[0]


def plain(value):
    """Without what no query asks for: the `_id` that the driver made, which not every server keeps."""
    return {k: v for k, v in value.items() if k != "_id" or not isinstance(v, ObjectId)}


def is_same(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_same(a[k], b[k]) for k in a)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return a == b


def difference(ours, theirs, is_sorted):
    """What differs between two answers; None if nothing does."""
    ours, theirs = [plain(d) for d in ours], [plain(d) for d in theirs]
    if not is_sorted:
        key = lambda d: json_util.dumps([d.get("_id"), d.get("time"), d.get("station")], sort_keys=True)
        ours, theirs = sorted(ours, key=key), sorted(theirs, key=key)
    if len(ours) != len(theirs):
        return f"{len(ours)} documents, {len(theirs)} of the other"
    unequal = ((a, b) for a, b in zip(ours, theirs) if not is_same(a, b))
    return next((f"{a} and {b}" for a, b in unequal), None)


def ask(uris, pipeline, runs):
    """Seconds of each run of a pipeline on each server, with documents and without decoding them; and whether answers agree."""
    stages = json_util.loads(json.dumps(pipeline))
    took, raw, answers = [], [], []
    for uri in uris:
        into = collection(uri)
        answers.append(list(into.aggregate(stages)))
        took.append([timed(lambda: list(into.aggregate(stages)))[0] for _ in range(runs)])
        raw.append([timed(lambda: sum(map(len, into.aggregate_raw_batches(stages))))[0] for _ in range(runs)])
    is_sorted = next(iter(stages[-1])) in ("$sort", "$limit")
    differs = [difference(answers[0], other, is_sorted) for other in answers[1:]]
    return {"took": took, "raw": raw, "rows": len(answers[0]), "differs": next(filter(None, differs), None)}


def round_trips(uri, station, since, runs):
    """Seconds of each `ping` and of each find, in turn."""
    database, into = client(uri)[DATABASE], collection(uri)
    wanted = json_util.loads(json.dumps({"station": station, "time": {"$gte": {"$date": since}}}))
    pings, finds = [], []
    for _ in range(runs):
        pings.append(timed(lambda: database.command("ping"))[0])
        seconds, found = timed(lambda: list(into.find(wanted)))
        finds.append(seconds)
        assert found and all(d["station"] == station for d in found), found
    return {"pings": pings, "finds": finds}


def expire(uri, seconds, left):
    """Seconds until a count shows what expires; None if it does not. A server that keeps buckets as documents is asked for their number, which costs
    it less than a count of measurements."""
    database, into = client(uri)[DATABASE], collection(uri)
    buckets, expected = None, left
    inside = f"system.buckets.{COLLECTION}"
    if inside in database.list_collection_names():
        buckets = database[inside]
        span = next(iter(database.list_collections(filter={"name": COLLECTION})))["options"]["timeseries"]["bucketMaxSpanSeconds"]
        from_id = ObjectId(f"{int(time.time() - seconds - span):08x}{'0' * 16}")
        expected = buckets.count_documents({"_id": {"$gte": from_id}})
    count = buckets.estimated_document_count if buckets is not None else lambda: into.count_documents({})
    start = time.perf_counter()
    database.command("collMod", COLLECTION, expireAfterSeconds=seconds)
    while count() > expected and time.perf_counter() - start < EXPIRY_SECONDS_MAX:
        time.sleep(0.0005)
    took = time.perf_counter() - start
    return {"seconds": took if count() <= expected else None, "rows": into.count_documents({})}


def command(uri, database, body):
    try:
        return json.loads(json_util.dumps(client(uri)[database].command(json_util.loads(json.dumps(body)))))
    except AutoReconnect:
        # A server that was told to shut down.
        clients.pop(uri).close()
        return {}


def main():
    commands = {f.__name__: f for f in (data, encode, insert, ask, round_trips, expire, command)}
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        print(json.dumps(commands[asked.pop("do")](**asked)), flush=True)


main()
