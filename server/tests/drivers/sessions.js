// Sessions of Express in connect-mongo, which makes a TTL index and counts on it. Argument: the server's address.

const assert = require("assert");
const express = require("express");
const session = require("express-session");
const { MongoClient } = require("mongodb");
const { promisify } = require("util");

const pause = (millis) => new Promise((done) => setTimeout(done, millis));

async function main() {
    const { MongoStore } = await import(require.resolve("connect-mongo"));
    const client = await new MongoClient(process.argv[2]).connect();
    await client.db("admin").command({ setParameter: 1, ttlMonitorSleepSecs: 1 });
    const store = MongoStore.create({ client, dbName: "test", ttl: 4 });
    const app = express();
    app.use(session({ secret: "s", resave: false, saveUninitialized: false, store }));
    app.get("/", (request, response) => {
        request.session.visits = (request.session.visits ?? 0) + 1;
        response.json(request.session.visits);
    });
    const listening = await new Promise((done) => {
        const server = app.listen(0, "127.0.0.1", () => done(server));
    });
    const address = `http://127.0.0.1:${listening.address().port}/`;
    const first = await fetch(address);
    assert.strictEqual(await first.json(), 1);
    const cookie = first.headers.get("set-cookie").split(";")[0];
    const visits = async () => (await fetch(address, { headers: { cookie } })).json();
    assert.strictEqual(await visits(), 2);
    const sessions = client.db("test").collection("sessions");
    const ttl = (await sessions.indexes()).find((index) => index.key.expires);
    assert.strictEqual(ttl.expireAfterSeconds, 0);
    assert.strictEqual(await sessions.countDocuments(), 1);
    const { expires } = await sessions.findOne();
    for (let tries = 0; (await sessions.countDocuments()) > 0; tries++) {
        assert.ok(tries < 600, "the session does not expire");
        await pause(100);
    }
    assert.ok(Date.now() >= expires.getTime(), "not before its time");
    assert.strictEqual(await visits(), 1, "a session that expired begins anew");
    const [length, clear] = [store.length, store.clear].map((method) => promisify(method.bind(store)));
    assert.strictEqual(await length(), 1);
    await clear();
    assert.strictEqual(await length(), 0);
    listening.close();
    listening.closeAllConnections();
    await client.close();
    console.log("all as expected");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
