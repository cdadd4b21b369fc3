"""Logins and roles of MongoDB's Python driver. Arguments: the server's address, whether it has TLS ("" or a CA file)."""

import sys

import pymongo
from bson import Int64
from pymongo.errors import ConfigurationError, OperationFailure

address, ca = sys.argv[1], sys.argv[2]
tls = {"tls": True, "tlsCAFile": ca} if ca else {}


def client(**options):
    return pymongo.MongoClient(address, serverSelectionTimeoutMS=10000, **tls, **options)


def fails(code, action):
    try:
        action()
    except OperationFailure as error:
        assert error.code == code, (error.code, code, error)
        return error
    raise AssertionError(f"no error {code}")


# Without a login a handshake is all there is.
stranger = client()
assert stranger.admin.command("ping")["ok"] == 1.0
error = fails(13, lambda: stranger.shop.orders.find_one())
assert error.details["codeName"] == "Unauthorized" and "requires authentication" in str(error), error
fails(13, stranger.list_database_names)
status = stranger.admin.command("connectionStatus")["authInfo"]
assert status == {"authenticatedUsers": [], "authenticatedUserRoles": []}, status

# Each role may do what the ones before it may, and more.
admin = client(username="ada", password="pass of ada \u2168")
admin.shop.create_collection("orders")
admin.shop.orders.create_index("at", expireAfterSeconds=3600)
status = admin.admin.command("connectionStatus")["authInfo"]
assert status["authenticatedUsers"] == [{"user": "ada", "db": "admin"}], status
assert status["authenticatedUserRoles"] == [{"role": "admin", "db": "admin"}], status

writer = client(username="wim, of=the team", password="w", authSource="shop")
writer.shop.orders.insert_one({"_id": 1, "n": 1})
writer.shop.fresh.insert_one({"_id": 1})
assert writer.shop.orders.update_one({"_id": 1}, {"$inc": {"n": 1}}).modified_count == 1
fails(13, lambda: writer.shop.orders.drop())
fails(13, lambda: writer.shop.orders.create_index("x"))

reader = client(username="rea", password="r", authMechanism="SCRAM-SHA-256")
assert reader.shop.orders.find_one() == {"_id": 1, "n": 2}
assert reader.shop.orders.count_documents({}) == 1
error = fails(13, lambda: reader.shop.orders.insert_one({"_id": 2}))
assert "needs the role write" in str(error), error
fails(13, lambda: list(reader.shop.orders.aggregate([{"$out": "copy"}])))
# A cursor is its account's alone.
writer.shop.orders.insert_many([{"_id": n} for n in range(10, 20)])
cursor = reader.shop.orders.find(batch_size=2)
next(cursor)
fails(13, lambda: admin.shop.command({"getMore": Int64(cursor.cursor_id), "collection": "orders"}))
fails(13, lambda: admin.shop.command({"killCursors": "orders", "cursors": [Int64(cursor.cursor_id)]}))
assert len(list(cursor)) == 10
# A password is compared in its normal form, and the login of a driver may be with the long exchange at the end.
client(username="ada", password="pass of ada IX").shop.orders.find_one()

# A refused login is the same whatever was wrong.
wrong = [("ada", "wrong"), ("rea", "w"), ("nobody", "r"), ("ADA", "pass of ada \u2168")]
said = {str(fails(18, lambda: client(username=n, password=p).shop.orders.find_one())) for n, p in wrong}
assert len(said) == 1, said
for mechanism in ("SCRAM-SHA-1", "PLAIN"):
    options = {"authMechanism": mechanism}
    if mechanism == "PLAIN":
        options["authSource"] = "$external"
    fails(334, lambda: client(username="ada", password="x", **options).shop.orders.find_one())

counted = reader.admin.command("serverStatus")["security"]["authentication"]["mechanisms"]["SCRAM-SHA-256"]
counted = counted["authenticate"]
assert counted["successful"] >= 4 and counted["received"] - counted["successful"] == len(wrong), counted
print("ok")
