// MongoDB's driver for Node. Argument: the server's address.

const assert = require("assert");
const { MongoClient } = require("mongodb");

async function main() {
    const client = await new MongoClient(process.argv[2]).connect();
    const db = client.db("node");
    const base = Date.now() - 3_600_000;
    const weather = await db.createCollection("weather", { timeseries: { timeField: "t", metaField: "m" }, expireAfterSeconds: 86400 });
    await weather.insertMany(Array.from({ length: 3000 }, (_, n) => ({ t: new Date(base + n), m: { s: n % 3 }, v: n / 2 })));
    const cursor = weather.find({ "m.s": 1 }, { batchSize: 100 });
    let last = -1;
    for await (const { v } of cursor) {
        assert.ok(v > last);
        last = v;
    }
    assert.strictEqual(last, 2998 / 2);
    const groups = await weather.aggregate([{ $group: { _id: "$m.s", most: { $max: "$v" } } }, { $sort: { _id: 1 } }]).toArray();
    assert.deepStrictEqual(groups.map((one) => one.most), [1498.5, 1499, 1499.5]);
    const items = db.collection("items");
    const written = await items.bulkWrite([
        { insertOne: { document: { _id: 1, n: 1 } } }, { updateOne: { filter: { _id: 1 }, update: { $inc: { n: 1 } } } },
        { updateOne: { filter: { _id: 2 }, update: { $set: { n: 9 } }, upsert: true } }, { deleteOne: { filter: { _id: 2 } } },
    ]);
    assert.deepStrictEqual([written.insertedCount, written.modifiedCount, written.upsertedCount, written.deletedCount], [1, 1, 1, 1]);
    await assert.rejects(items.insertOne({ _id: 1 }), { code: 11000 });
    assert.deepStrictEqual(await items.findOneAndUpdate({ _id: 1 }, { $set: { n: 3 } }, { returnDocument: "after" }), { _id: 1, n: 3 });
    await assert.rejects(async () => (await items.watch().next()), (error) => [40324, 40573].includes(error.code));
    const session = client.startSession();
    await assert.rejects(session.withTransaction(() => items.insertOne({}, { session })), (error) => error.originalError.code === 20);
    await session.endSession();
    await client.close();
    console.log("all as expected");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
