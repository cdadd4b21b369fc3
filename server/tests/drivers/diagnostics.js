// The profiler and what runs, in mongosh.
const assert = require("assert");

db = db.getSiblingDB("diagnostics");
const status = db.getProfilingStatus();
assert.strictEqual(`${status.was} ${status.slowms} ${status.sampleRate} ${status.ok}`, "0 100 1 1");
db.setProfilingLevel(2, { slowms: 50 });
assert.strictEqual(db.getProfilingStatus().was, 2);
db.orders.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 1 }]);
db.orders.find({ n: 1 }).toArray();
const records = db.system.profile.find({ ns: "diagnostics.orders" }).sort({ ts: -1 }).toArray();
assert.strictEqual(records.map((record) => record.op).sort().join(), "insert,query");
const query = records.find((record) => record.op === "query");
assert.strictEqual(query.nreturned, 2);
assert.strictEqual(query.planSummary, "COLLSCAN");
assert.ok(query.ts instanceof Date && query.appName.startsWith("mongosh"), query.appName);
assert.strictEqual(db.system.profile.countDocuments({ op: "insert" }), 1);
db.setProfilingLevel(0);
db.system.profile.drop();
assert.strictEqual(db.system.profile.countDocuments(), 0);

const own = db.currentOp(true).inprog.find((operation) => operation.command.aggregate === 1);
assert.strictEqual(own.op, "command");
assert.strictEqual(own.ns, "admin.$cmd.aggregate");
assert.strictEqual(db.killOp(own.opid).ok, 1);
assert.ok(db.adminCommand({ top: 1 }).totals["diagnostics.orders"].insert.count === 1);
