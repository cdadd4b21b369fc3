"""A pipeline that goes on through kills of its server: each document has a key, so that a write whose reply was lost can be sent
again. Arguments: the server's address, the pipeline's name.

Prints the key of each write that was acknowledged. Ends when its standard input ends.
"""

import sys
import threading
import time

import pymongo
from pymongo.errors import AutoReconnect, BulkWriteError, DuplicateKeyError

DUPLICATE = 11000
address, name = sys.argv[1:3]
client = pymongo.MongoClient(address, serverSelectionTimeoutMS=60_000)
events, counters = client["load"]["events"], client["load"]["counters"]
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()


def until_done(write):
    """Sends a write again until it is acknowledged; one that is there already was stored before its reply was lost."""
    while True:
        try:
            return write()
        except AutoReconnect:
            time.sleep(0.02)
        except DuplicateKeyError:
            return None
        except BulkWriteError as error:
            if all(one["code"] == DUPLICATE for one in error.details["writeErrors"]):
                return None
            raise


number = 0
while not stopped.is_set():
    one = {"_id": f"{name}-{number}", "n": number}
    until_done(lambda: events.insert_one(one))
    print(one["_id"])
    many = [{"_id": f"{name}-{number + i}", "n": number + i} for i in range(1, 8)]
    until_done(lambda: events.insert_many(many, ordered=False))
    print("\n".join(document["_id"] for document in many))
    # A counter that is set, not added to, can be sent again as well.
    until_done(lambda: counters.update_one({"_id": name}, {"$max": {"n": number}}, upsert=True))
    print(f"max-{name}-{number}", flush=True)
    number += 8
