// The examples of MongoDB's manual on expiry, as they are typed into mongosh.
//
//     mongosh --quiet --norc ADDRESS manual.js

const assert = require("assert");
const comesTo = (name, count) => {
    // The deadline is long for a busy machine; the sweeper runs every second.
    for (let tries = 0; tries < 600; tries++) {
        if (db.getCollection(name).countDocuments({}) === count) return;
        sleep(100);
    }
    assert.fail(`${name} still has ${db.getCollection(name).countDocuments({})} documents, not ${count}`);
};
const refused = (code, action) => {
    try {
        action();
    } catch (error) {
        assert.strictEqual(error.code, code, error.message);
        return error.message;
    }
    assert.fail(`not refused with ${code}`);
};
// Lists of the shell and of the script have different prototypes.
const same = (found, expected) => assert.strictEqual(EJSON.stringify(found), EJSON.stringify(expected));
const ago = (seconds) => new Date(Date.now() - 1000 * seconds);
db = db.getSiblingDB("manual");
assert.strictEqual(db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 1 }).ok, 1);

// Set up automatic removal for time series collections.
db.createCollection("weather24h", {
    timeseries: { timeField: "timestamp", metaField: "sensor", granularity: "hours" },
    expireAfterSeconds: 86400,
});
const sensor = "40.761873, -73.984287";
db.weather24h.insertMany([
    { timestamp: ago(2 * 86400), sensor, temp: 11 },
    { timestamp: ago(7200), sensor, temp: 12 },
    { timestamp: ago(7200), sensor: "elsewhere", temp: 13 },
    { timestamp: ago(60), sensor, temp: 14 },
]);
const temperatures = () => db.weather24h.distinct("temp");
same(temperatures(), [12, 13, 14]);
db.runCommand({ collMod: "weather24h", expireAfterSeconds: 604801 });
assert.strictEqual(db.getCollectionInfos({ name: "weather24h" })[0].options.expireAfterSeconds, 604801);
db.runCommand({ collMod: "weather24h", expireAfterSeconds: "off" });
assert.strictEqual("expireAfterSeconds" in db.getCollectionInfos({ name: "weather24h" })[0].options, false);

// A partial TTL index on the meta field, in one document of options and, by mistake, in two.
const partial = { partialFilterExpression: { sensor: { $eq: sensor } }, expireAfterSeconds: 3600 };
const told = refused(14, () => db.weather24h.createIndex({ timestamp: 1 }, { partialFilterExpression: partial.partialFilterExpression }, { expireAfterSeconds: 3600 }));
assert.match(told, /two option documents.*into one/);
same(db.weather24h.getIndexes(), []);
assert.strictEqual(db.weather24h.createIndex({ timestamp: 1 }, partial), "timestamp_1");
assert.strictEqual(db.weather24h.getIndexes()[0].expireAfterSeconds, 3600);
same(temperatures().filter((temp) => temp !== 11), [13, 14]);
// On all measurements the time field takes no TTL index, as there.
refused(72, () => db.weather24h.createIndex({ timestamp: 1 }, { expireAfterSeconds: 3600 }));

// Expire documents after a number of seconds; documents without the date do not expire, a list goes by its earliest.
assert.strictEqual(db.log_events.createIndex({ createdAt: 1 }, { expireAfterSeconds: 10 }), "createdAt_1");
db.log_events.insertOne({ createdAt: new Date(), logEvent: 2, logMessage: "Success!" });
db.log_events.insertOne({ createdAt: ago(8), logEvent: 3, logMessage: "Success!" });
db.log_events.insertOne({ logEvent: 4 });
db.log_events.insertOne({ createdAt: [new Date(Date.now() + 1e9), ago(8)], logEvent: 5 });
comesTo("log_events", 2);
same(db.log_events.distinct("logEvent"), [2, 4]);

// Expire documents at a clock time.
db.clock_events.createIndex({ expireAt: 1 }, { expireAfterSeconds: 0 });
db.clock_events.insertOne({ expireAt: new Date(Date.now() + 1500), logEvent: 2, logMessage: "Success!" });
assert.strictEqual(db.clock_events.countDocuments({}), 1);
comesTo("clock_events", 0);

// A filter on documents.
db.eventlog.createIndex({ lastModifiedDate: 1 }, { expireAfterSeconds: 3600, partialFilterExpression: { level: "debug" } });
db.eventlog.insertMany([
    { lastModifiedDate: ago(4000), level: "debug" },
    { lastModifiedDate: ago(4000), level: "error" },
]);
comesTo("eventlog", 1);
db.eventlog.drop();
assert.strictEqual(db.eventlog.createIndex({ lastModifiedDate: 1 }, { expireAfterSeconds: 3600 }), "lastModifiedDate_1");
db.eventlog.insertMany([{ lastModifiedDate: ago(4000) }, { lastModifiedDate: ago(1000) }]);
comesTo("eventlog", 1);

// Convert a non-TTL index into a TTL index, and change the value of one.
db.tickets.createIndex({ lastModifiedDate: 1 });
db.tickets.insertMany([{ lastModifiedDate: ago(90) }, { lastModifiedDate: ago(1000) }]);
let changed = db.runCommand({ collMod: "tickets", index: { keyPattern: { lastModifiedDate: 1 }, expireAfterSeconds: 100 } });
same([Number(changed.expireAfterSeconds_old ?? -1), Number(changed.expireAfterSeconds_new), changed.ok], [-1, 100, 1]);
comesTo("tickets", 1);
changed = db.runCommand({ collMod: "tickets", index: { keyPattern: { lastModifiedDate: 1 }, expireAfterSeconds: 80 } });
same([Number(changed.expireAfterSeconds_old ?? -1), Number(changed.expireAfterSeconds_new), changed.ok], [100, 80, 1]);
comesTo("tickets", 0);

// Restrictions: one field, not _id, no NaN.
refused(67, () => db.tickets.createIndex({ a: 1, b: 1 }, { expireAfterSeconds: 5 }));
refused(197, () => db.tickets.createIndex({ _id: 1 }, { expireAfterSeconds: 5 }));
refused(67, () => db.tickets.createIndex({ a: 1 }, { expireAfterSeconds: NaN }));
refused(67, () => db.tickets.createIndex({ a: 1 }, { expireAfterSeconds: -1 }));

// The bucket that ends at 18:29:59 with 300 seconds: it goes at 18:34:59, but here no measurement is seen beyond its own 300
// seconds, unless the collection has the expiry of MongoDB. The bucket's times are moved to now.
const span = 4;
const start = 1000 * span * (Math.floor(Date.now() / 1000 / span) + 1) - 300000;
const buckets = { timeField: "t", metaField: "m", bucketMaxSpanSeconds: span, bucketRoundingSeconds: span };
db.createCollection("exact", { timeseries: buckets, expireAfterSeconds: 300 });
db.createCollection("whole", { timeseries: { ...buckets, expiry: "bucket" }, expireAfterSeconds: 300 });
for (const name of ["exact", "whole"]) {
    db.getCollection(name).insertMany([{ t: new Date(start), m: 1 }, { t: new Date(start + 1000 * span - 1000), m: 1 }]);
}
const seen = { exact: [], whole: [] };
while (!("0" in seen.exact && "0" in seen.whole) && Date.now() < start + 360000) {
    for (const name of ["exact", "whole"]) {
        const before = Date.now();
        const count = db.getCollection(name).find().toArray().length;
        // For each count the time after which it was seen first, and before which it was seen last.
        const times = (seen[name][count] ??= { first: Date.now() });
        times.last = before;
    }
    sleep(50);
}
assert.ok(seen.exact[0].first >= start + 1000 * span - 1000 + 300000, JSON.stringify(seen));
if (seen.exact[2]) assert.ok(seen.exact[2].last <= start + 300000, JSON.stringify(seen));
if (seen.exact[1]) assert.ok(seen.exact[1].last <= start + 1000 * span - 1000 + 300000, JSON.stringify(seen));
assert.ok(seen.whole[0].first >= start + 1000 * span + 300000, JSON.stringify(seen));
assert.ok(!(1 in seen.whole), "a bucket goes as one");

// What the TTL monitor does.
const operations = db.currentOp();
assert.strictEqual(operations.ok, 1);
assert.ok(Array.isArray(operations.inprog));
assert.ok(Array.isArray([...db.getSiblingDB("admin").aggregate([{ $currentOp: {} }]).toArray()]));
const ttl = db.serverStatus().metrics.ttl;
assert.ok(ttl.passes > 0 && ttl.deletedDocuments >= 10, JSON.stringify(ttl));
print("all as expected");
