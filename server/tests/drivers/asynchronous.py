"""pymongo's asynchronous client and motor. Argument: the server's address."""

import asyncio
import sys

from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient


async def both(client):
    items = client["asynchronous"]["items"]
    await items.drop()
    await asyncio.gather(*(items.insert_one({"_id": n, "n": n % 7}) for n in range(200)))
    assert await items.count_documents({"n": 3}) == 29
    assert [d["_id"] async for d in items.find({"n": 0}).sort("_id", -1).limit(2)] == [196, 189]
    counted = items.aggregate([{"$group": {"_id": "$n", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    counted = await counted if asyncio.iscoroutine(counted) else counted
    assert [(d["_id"], d["count"]) async for d in counted][0] == (0, 29)
    await asyncio.gather(*(items.update_one({"_id": 0}, {"$inc": {"n": 1}}) for _ in range(50)))
    assert (await items.find_one({"_id": 0}))["n"] == 50


async def main():
    async with AsyncMongoClient(sys.argv[1]) as client:
        await both(client)
    await both(AsyncIOMotorClient(sys.argv[1]))
    print("all as expected")


asyncio.run(main())
