"""Results of Celery's tasks in MongoDB: upserts, a plain index, groups, clean-up by deletes. Argument: the server's address."""

import datetime
import sys
import uuid

import pymongo
from celery import Celery, states

address = sys.argv[1]
app = Celery("tasks", broker="memory://", backend=address + "celery")
app.conf.result_expires = 60
backend = app.backend


@app.task
def add(a, b):
    return a + b


one, other = str(uuid.uuid4()), str(uuid.uuid4())
backend.store_result(one, None, states.STARTED)
assert backend.get_state(one) == states.STARTED
backend.store_result(one, {"sum": 3}, states.SUCCESS)
backend.store_result(other, ValueError("no"), states.FAILURE)
assert app.AsyncResult(one).get(timeout=30) == {"sum": 3}
assert app.AsyncResult(other).state == states.FAILURE
assert isinstance(app.AsyncResult(other).result, ValueError)
group = app.GroupResult(id=str(uuid.uuid4()), results=[app.AsyncResult(one)])
group.save()
assert [result.get(timeout=30) for result in app.GroupResult.restore(group.id)] == [{"sum": 3}]
kept = pymongo.MongoClient(address)["celery"]
assert kept["celery_taskmeta"].count_documents({}) == 2, kept.list_collection_names()
assert any("date_done" in index["key"] for index in kept["celery_taskmeta"].list_indexes())
# What is older than result_expires goes with the clean-up that celery beat starts.
long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=120)
kept["celery_taskmeta"].update_one({"_id": other}, {"$set": {"date_done": long_ago}})
backend.cleanup()
assert [d["_id"] for d in kept["celery_taskmeta"].find()] == [one]
app.AsyncResult(one).forget()
assert kept["celery_taskmeta"].count_documents({}) == 0
group.delete()
print("all as expected")
