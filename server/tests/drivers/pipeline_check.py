"""Whether what pipeline.py and pipeline.js saw acknowledged is there, and nothing twice. Arguments: the server's address, a file
with a line for each write that was acknowledged."""

import collections
import sys

import pymongo

db = pymongo.MongoClient(sys.argv[1])["load"]
with open(sys.argv[2], encoding="ascii") as file:
    acknowledged = file.read().split()
events = {d["_id"] for d in db.events.find({}, {"_id": 1})}
assert db.events.count_documents({}) == len(events)
counters = {d["_id"]: d["n"] for d in db.counters.find()}
measured = collections.Counter((d["m"], d["n"]) for d in db.measurements.find())
twice = [key for key, count in measured.items() if count > 1]
assert not twice, f"measurements that are there twice: {twice[:5]}"
lost = []
for line in acknowledged:
    kind, *rest = line.rsplit("-", 2)
    if kind == "max":
        is_there = counters.get(rest[0], -1) >= int(rest[1])
    elif kind == "measured":
        is_there = (rest[0], int(rest[1])) in measured
    else:
        is_there = line in events
    if not is_there:
        lost.append(line)
assert acknowledged and not lost, f"{len(lost)} of {len(acknowledged)} acknowledged writes are lost: {lost[:10]}"
print(f"{len(acknowledged)} acknowledged, all there; {len(events)} documents and {len(measured)} measurements")
