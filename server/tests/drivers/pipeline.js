// As pipeline.py, with MongoDB's driver for Node; it writes measurements as well, each with a number of its own.

const { MongoClient, MongoNetworkError, MongoServerSelectionError } = require("mongodb");

const [address, name] = process.argv.slice(2);
const DUPLICATE = 11000;
const pause = (millis) => new Promise((done) => setTimeout(done, millis));
let stopped = false;
process.stdin.on("end", () => (stopped = true)).resume();

// Whether the connection was lost, so that nobody knows whether the write is stored; insertMany wraps the error.
const isLost = (error) =>
    // A socket's own error comes as it is if it fails while a command is written, or at the first connection.
    error.syscall === "write" || error.syscall === "connect" ||
    [error, error.errorResponse].some((one) => one instanceof MongoNetworkError || one instanceof MongoServerSelectionError);

async function untilDone(write) {
    for (;;) {
        try {
            return await write();
        } catch (error) {
            if (error.code === DUPLICATE) return null;
            if (!isLost(error)) throw error;
            await pause(20);
        }
    }
}

async function main() {
    const client = await untilDone(() => new MongoClient(address, { serverSelectionTimeoutMS: 60_000 }).connect());
    const db = client.db("load");
    const EXISTS = 48;
    const timeseries = { timeField: "t", metaField: "m" };
    await untilDone(() => db.createCollection("measurements", { timeseries }).catch((error) => {
        if (error.code !== EXISTS) throw error;
    }));
    for (let number = 0; !stopped; number += 8) {
        const _id = `${name}-${number}`;
        await untilDone(() => db.collection("events").insertOne({ _id, n: number }));
        console.log(_id);
        const many = Array.from({ length: 7 }, (_, i) => ({ _id: `${name}-${number + i + 1}`, n: number + i + 1 }));
        await untilDone(() => db.collection("events").insertMany(many, { ordered: false }));
        console.log(many.map((one) => one._id).join("\n"));
        // Sent once: acknowledged or not, it may be there at most once.
        const t = new Date(1_700_000_000_000 + number);
        try {
            await db.collection("measurements").insertOne({ t, m: name, n: number });
            console.log(`measured-${name}-${number}`);
        } catch (error) {
            if (!isLost(error)) throw error;
        }
    }
    await client.close();
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
