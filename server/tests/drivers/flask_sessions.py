"""Sessions of Flask in MongoDB, with the TTL index that Flask-Session makes. Argument: the server's address."""

import datetime
import sys
import time

import pymongo
from flask import Flask, session
from flask_session import Session

client = pymongo.MongoClient(sys.argv[1])
client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
app = Flask(__name__)
app.config.update(
    SESSION_TYPE="mongodb", SESSION_MONGODB=client, SESSION_PERMANENT=True,
    PERMANENT_SESSION_LIFETIME=datetime.timedelta(seconds=4),
)
Session(app)


@app.get("/")
def visits():
    session["visits"] = session.get("visits", 0) + 1
    return str(session["visits"])


browser = app.test_client()
assert browser.get("/").text == "1"
assert browser.get("/").text == "2"
sessions = client["flask_session"]["sessions"]
assert sessions.count_documents({}) == 1, client.list_database_names()
assert [index["expireAfterSeconds"] for index in sessions.list_indexes() if "expiration" in index["key"]] == [0]
deadline = time.monotonic() + 60
while sessions.count_documents({}):
    assert time.monotonic() < deadline, "the session does not expire"
    time.sleep(0.1)
browser = app.test_client()
assert browser.get("/").text == "1"
print("all as expected")
