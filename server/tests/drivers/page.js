// The retention page in a browser: `node page.js URL FOLDER` with the address of a server of one empty database without accounts.
// Makes a small data set through POST /sql, uses the page as people do, and puts pictures into the folder. Needs playwright-core and
// Chromium, whose path is in CHROMIUM if it is not /usr/bin/chromium.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { chromium } = require('playwright-core');

const [url, folder] = process.argv.slice(2);
if (!url || !folder) {
  console.error('usage: node page.js URL FOLDER');
  process.exit(2);
}
fs.mkdirSync(folder, { recursive: true });

const HOUR = 3600000;
const DAY = 24 * HOUR;

async function sql(statement) {
  const reply = await fetch(new URL('/sql?format=json', url), {
    method: 'POST', headers: { 'X-Ebbtide': '1', 'Content-Type': 'text/plain' }, body: statement,
  });
  const text = await reply.text();
  assert.equal(reply.status, 200, `${statement.slice(0, 200)}: ${text}`);
  return JSON.parse(text);
}

const rows = (list) => list.map((row) => `(${row.join(', ')})`).join(', ');
const time = (millis) => `'${new Date(millis).toISOString()}'`;

/** Series by the hour, counted back from half an hour ago, so that no measurement comes to a limit during the test. */
async function prepare() {
  assert.deepEqual(await sql('SHOW COLLECTIONS'), [], 'the database is not empty');
  const now = Date.parse((await sql('SELECT now() AS now'))[0].now);
  const back = (hours) => now - hours * HOUR + HOUR / 2;
  const sensors = ['roof', 'cellar', 'quay', '<img src=x onerror=alert(1)>'];
  await sql("CREATE COLLECTION weather WITH (timeField = 'time', metaField = 'sensor') EXPIRE AFTER 30 DAYS");
  await sql("CREATE TTL INDEX quay_week ON weather (time) EXPIRE AFTER 7 DAYS WHERE sensor = 'quay'");
  await sql("CREATE TTL INDEX too_long ON weather (time) EXPIRE AFTER 90 DAYS WHERE sensor IN ('roof', 'cellar')");
  for (const sensor of sensors) {
    const hours = sensor === 'quay' ? 24 * 6 : 24 * 25;
    const list = Array.from({ length: hours }, (_, at) => [time(back(at + 1)), `'${sensor}'`, (12 + 8 * Math.sin(at / 3.8)).toFixed(2)]);
    await sql(`INSERT INTO weather (time, sensor, temp) VALUES ${rows(list)}`);
  }
  await sql(`INSERT INTO weather (time, sensor, temp) VALUES ${rows(Array.from({ length: 24 * 6 }, (_, at) => [time(back(24 * 31 + at)), "'roof'", '7.5']))}`);
  await sql("CREATE LADDER ON weather (STEP '1 hour' FOR 90 DAYS, STEP '1 day' FOREVER)");
  await sql(`CREATE HOLD case42 ON weather WHERE sensor = 'cellar' TO ${time(now - 20 * DAY)} REASON 'storm damage of 2 November'`);

  await sql("CREATE COLLECTION plant WITH (timeField = 'at', metaField = 'tags') EXPIRE AFTER 14 DAYS");
  await sql(`INSERT INTO plant (at, tags, load) VALUES ${rows(Array.from({ length: 240 }, (_, at) =>
    [time(back(at + 1)), `{site: '${at % 2 ? 'north' : 'south'}', unit: ${1 + (at % 3)}}`, (40 + (at % 17)).toFixed(1)]))}`);
  await sql("INSERT INTO plant (at, tags, load) VALUES ('1969-12-31T23:00:00Z', {site: 'north', unit: 1}, 1.0), ('2040-01-01T00:00:00Z', {site: 'north', unit: 2}, 2.0)");

  await sql('CREATE COLLECTION sessions EXPIRE ITEMS AFTER 12 HOURS');
  await sql(`INSERT INTO sessions (_id, user_name, seen) VALUES ${rows(Array.from({ length: 60 }, (_, at) =>
    [`'s${at}'`, `'user ${at % 7}'`, `TIMESTAMP ${time(now - at * HOUR / 10)}`]))}`);
  await sql('CREATE TTL INDEX by_seen ON sessions (seen) EXPIRE AFTER 2 DAYS');

  await sql("CREATE COLLECTION \"Archive \"\"A\"\"\" WITH (timeField = 'time')");
  await sql(`INSERT INTO "Archive ""A""" (time, level) VALUES ${rows(Array.from({ length: 100 }, (_, at) => [time(back((at + 1) * 60)), String(at)]))}`);

  await sql("CREATE COLLECTION gone WITH (timeField = 'time', metaField = 'door') EXPIRE AFTER 1 DAYS");
  await sql(`INSERT INTO gone (time, door, opened) VALUES ${rows(Array.from({ length: 72 }, (_, at) => [time(back(at + 1)), "'north'", String(at % 5)]))}`);
  await sql("CREATE HOLD tagged ON gone WHERE door = '<img src=x onerror=alert(1)>' REASON '<b>bold</b>'");
  await sql('SWEEP');
}

/** The cells of a rule's row on the page, by the titles of their columns. */
async function ruleRow(page, collection, rule) {
  const card = page.locator(`article[data-collection="${collection}"]`);
  const row = card.locator('tbody tr').filter({ has: page.locator('th', { hasText: rule }) });
  assert.equal(await row.count(), 1, `${collection} ${rule}`);
  return row.locator('td[data-label]').evaluateAll((cells) => Object.fromEntries(cells.map((cell) => [cell.dataset.label, cell.innerText.replace(/\s+/g, ' ')])));
}

async function checkRules(page) {
  const own = await ruleRow(page, 'weather', 'own lifetime');
  assert.match(own.Lifetime, /^30 days 2,592,000 s$/);
  assert.match(own.Measurements, /^1,800 /);
  assert.equal(own['Due now'], '0');
  assert.equal(own.State, 'active');
  const quay = await ruleRow(page, 'weather', 'quay_week');
  assert.equal(quay.Takes, "sensor = 'quay'");
  assert.match(quay.Lifetime, /^7 days/);
  assert.match(quay.Measurements, /^144 /);
  assert.match(quay['Next expiry'], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ in (23 hours|1 day)$/);
  assert.equal((await ruleRow(page, 'weather', 'too_long')).State, 'no effect');
  const weather = await page.locator('article[data-collection="weather"]').innerText();
  assert.match(weather, /Order of decision: quay_week, then own lifetime/);
  assert.match(weather, /too_long has no effect/);

  const plant = await ruleRow(page, 'plant', 'own lifetime');
  assert.equal(plant.State, 'suspended');
  assert.equal(plant['Next expiry'], 'held back');
  assert.match(await page.locator('#alerts').innerText(), /Nothing expires in plant\s+It holds 2 measurements before 1970 or after 2038/);

  assert.match((await ruleRow(page, 'sessions', 'item lifetime')).Lifetime, /^12 hours/);
  assert.match((await ruleRow(page, 'sessions', 'by_seen')).Takes, /^seen/);
  assert.match(await page.locator('article').filter({ hasText: 'Archive "A"' }).innerText(), /No rule: nothing expires/);

  const ladders = await page.locator('#ladders-body').innerText();
  assert.match(ladders, /1 hour\s+90 days/);
  assert.match(ladders, /1 day\s+for ever/);
  const holds = await page.locator('#holds-body').innerText();
  assert.match(holds, /case42[^]*sensor = 'cellar'[^]*storm damage of 2 November/);
  assert.ok(holds.includes("door = '<img src=x onerror=alert(1)>'") && holds.includes('<b>bold</b>'), holds);
  assert.equal(await page.locator('main img, main b:text-is("bold")').count(), 0, 'texts of the database are no HTML');
  assert.match(await page.locator('#sweeps-body').innerText(), /gone[^]*1 day/);
}

async function checkForecast(page) {
  const bars = page.locator('#forecast-body .bars');
  await bars.focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  assert.match(await page.locator('.readout').innerText(), /^\d{4}-\d\d-\d\d: [\d,]+ rows \(/);
  await page.getByText('14 days', { exact: true }).click();
  assert.equal(await page.locator('#forecast-body .bar').count(), 14);
  await page.getByText('30 days', { exact: true }).first().click();
  await page.locator('#forecast-body summary').click();
  const listed = await page.locator('#forecast-body tbody td[data-label="Rule"]').allInnerTexts();
  assert.ok(listed.includes('weather: quay_week') && listed.includes('weather: own lifetime'), String(listed));
  assert.ok(!listed.some((rule) => rule.startsWith('plant')), 'a suspended collection drops nothing');
  await page.locator('#forecast-body summary').click();
}

const ready = (page, seconds) => page.waitForFunction((s) => document.getElementById('what-if-body').dataset.seconds === String(s), seconds);

/** A shorter lifetime on the slider: the counts of its dry run are those of EXPLAIN EXPIRY. */
async function checkSlider(page) {
  await page.locator('#what-if-rule').selectOption(JSON.stringify(['weather', 'collection']));
  await ready(page, 2592000);
  assert.match(await page.locator('#what-if-body').innerText(), /the rule as it is/);
  await page.locator('#what-if-slider').focus();
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('ArrowLeft');
  const seconds = 864000;
  await ready(page, seconds);
  assert.match(await page.locator('#what-if-value').innerText(), /^10 days$/);
  const planned = await sql(`EXPLAIN EXPIRY FOR weather WITH (expireAfterSeconds = ${seconds})`);
  const total = planned.reduce((sum, row) => sum + row.measurements, 0);
  assert.ok(total > 700, String(total));
  const row = (await page.locator('#what-if-body tbody tr').first().innerText()).replace(/\s+/g, ' ');
  assert.ok(row.includes(`${total.toLocaleString('en-US')} more`), row);
  assert.match(await page.locator('#what-if-body').innerText(), /1,080 measurements would be hidden at once/);
  assert.equal((await sql('SHOW TTL FOR weather'))[0].expire_after_seconds, 2592000, 'a dry run changes nothing');

  await page.locator('#what-if-rule').selectOption(JSON.stringify(['weather', 'quay_week']));
  await ready(page, 604800);
  await page.locator('#what-if-slider').focus();
  for (let n = 0; n < 3; n += 1) await page.keyboard.press('ArrowLeft');
  await ready(page, 345600);
  assert.match(await page.locator('#what-if-body').innerText(), /144 measurements match the rule[^]*48 measurements would be hidden at once/);
}

/** Presses Tab until `selector` has the focus. */
async function tabTo(page, selector) {
  for (let n = 0; n < 80; n += 1) {
    if (await page.evaluate((s) => document.activeElement?.matches(s) ?? false, selector)) {
      assert.ok(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== 'none'), `${selector}: no visible focus`);
      return;
    }
    await page.keyboard.press('Tab');
  }
  assert.fail(`Tab does not come to ${selector}`);
}

/** The lifetime of plant, by keyboard alone: first the dry run, then the confirmation. */
async function changeByKeyboard(page) {
  await page.evaluate(() => document.activeElement?.blur());
  await tabTo(page, '[data-key="change plant collection"]');
  await page.keyboard.press('Enter');
  await page.locator('#change[open]').waitFor();
  assert.equal(await page.locator('#change-confirm').isVisible(), false, 'nothing to confirm before a dry run');
  await tabTo(page, '#life-amount');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('3');
  await page.keyboard.press('Enter');
  await page.locator('#change-confirm').waitFor({ state: 'visible' });
  assert.match(await page.locator('#change-result').innerText(), /ALTER COLLECTION "plant" EXPIRE AFTER 3 DAYS/);
  assert.equal((await sql('SHOW TTL FOR plant'))[0].expire_after_seconds, 1209600, 'not yet confirmed');
  await tabTo(page, '#life-amount');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('5');
  assert.equal(await page.locator('#change-confirm').isVisible(), false, 'other fields need another dry run');
  await page.keyboard.press('Enter');
  await page.locator('#change-confirm').waitFor({ state: 'visible' });
  await tabTo(page, '#change-confirm');
  await page.keyboard.press('Enter');
  await page.locator('#change').waitFor({ state: 'hidden' });
  await page.locator('#status', { hasText: 'Done' }).waitFor();
  assert.equal((await sql('SHOW TTL FOR plant'))[0].expire_after_seconds, 432000);
  assert.match((await ruleRow(page, 'plant', 'own lifetime')).Lifetime, /^5 days/);
}

async function confirmed(page) {
  await page.getByRole('button', { name: 'Dry run', exact: true }).click();
  await page.locator('#change-confirm').waitFor({ state: 'visible' });
  const shown = await page.locator('#change-result').innerText();
  await confirm(page);
  return shown;
}

/** Confirms what the dialog shows and waits until the page has read the rules again. The dialog closes first: until then the line about the change before this one still stands. */
async function confirm(page) {
  await page.locator('#change-confirm').click();
  await page.locator('#change').waitFor({ state: 'hidden' });
  await page.locator('#status', { hasText: 'Done' }).waitFor();
}

async function makeAndRemove(page) {
  await page.locator('[data-key="rule weather"]').click();
  await page.locator('#rule-name').fill('roof "3d"');
  await page.locator('#condition-value').fill('roof');
  await page.locator('#life-amount').fill('3');
  assert.match(await confirmed(page), /600 measurements match the rule[^]*528 measurements would be hidden at once/);
  let rules = await sql('SHOW TTL FOR weather');
  assert.deepEqual(rules.map(({ rule, expire_after_seconds: e }) => [rule, e]).filter(([rule]) => rule === 'roof "3d"'), [['roof "3d"', 259200]]);

  await page.locator('button[data-key^="remove weather roof"]').click();
  await page.locator('#change-confirm').waitFor({ state: 'visible' });
  assert.match(await page.locator('#change-result').innerText(), /528 measurements would be visible again/);
  await confirm(page);
  rules = await sql('SHOW TTL FOR weather');
  assert.equal(rules.length, 3);

  await page.locator('[data-key="rule plant"]').click();
  await page.locator('#rule-name').fill('unit_two');
  await page.locator('#condition-path').fill('tags.unit');
  await page.locator('#condition-value').fill('2');
  await page.locator('#life-amount').fill('1');
  assert.match(await confirmed(page), /While plant is suspended nothing expires/);
  assert.equal((await ruleRow(page, 'plant', 'unit_two')).Takes, 'tags.unit = 2');

  await page.locator('[data-key="index sessions"]').click();
  await page.locator('#rule-name').fill('by_user');
  await page.locator('#rule-field').fill('user_name');
  await page.locator('#life-amount').fill('1');
  await page.getByRole('button', { name: 'Dry run', exact: true }).click();
  await page.locator('#change-error').filter({ hasText: /\S/ }).waitFor();
  assert.equal(await page.locator('#change-confirm').isVisible(), false, 'no dry run, no change');
  await page.keyboard.press('Escape');
  await page.locator('#change').waitFor({ state: 'hidden' });

  await page.locator('[data-key="change sessions items"]').click();
  await page.locator('#life-amount').fill('6');
  await confirmed(page);
  assert.match((await ruleRow(page, 'sessions', 'item lifetime')).Lifetime, /^6 hours/);

  await page.locator('[data-key="change sessions items"]').click();
  await page.getByLabel('Only documents with a ttl of their own').check();
  assert.match(await confirmed(page), /EXPIRE ITEMS$/);
  assert.match((await ruleRow(page, 'sessions', 'item lifetime')).Lifetime, /^by the item/);

  await page.locator('#sweep').click();
  await page.locator('#change-confirm').waitFor({ state: 'visible' });
  assert.match(await page.locator('#change-result').innerText(), /A sweep would drop nothing now/);
  await page.keyboard.press('Escape');

  await page.locator('button[data-key^="lifetime Archive"]').click();
  await page.locator('#life-amount').fill('400');
  await confirmed(page);
  assert.equal((await sql('SHOW TTL FOR "Archive ""A"""'))[0].expire_after_seconds, 34560000);
}

async function pictures(browser, problems) {
  for (const width of [1280, 390]) {
    for (const colorScheme of ['light', 'dark']) {
      const context = await browser.newContext({ viewport: { width, height: width === 390 ? 844 : 900 }, colorScheme, reducedMotion: 'reduce' });
      const page = await open(context, problems);
      const [wide, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
      assert.ok(wide <= shown, `the page is ${wide} px wide on a screen of ${shown}`);
      await page.locator('#what-if-rule').selectOption(JSON.stringify(['weather', 'collection']));
      await page.locator('#what-if-slider').fill(String(await page.locator('#what-if-slider').inputValue() - 3));
      await ready(page, 864000);
      await page.evaluate(() => { document.activeElement?.blur(); scrollTo(0, 0); });
      await page.screenshot({ path: path.join(folder, `page-${width}-${colorScheme}.png`), fullPage: true });
      await page.locator('#what-if-change').click();
      await page.getByRole('button', { name: 'Dry run', exact: true }).click();
      await page.locator('#change-confirm').waitFor({ state: 'visible' });
      const dialog = await page.locator('#change').evaluate((one) => [one.scrollWidth, one.clientWidth]);
      assert.ok(dialog[0] <= dialog[1], `the dialog is ${dialog} px wide`);
      await page.screenshot({ path: path.join(folder, `dialog-${width}-${colorScheme}.png`) });
      await context.close();
    }
  }
}

async function open(context, problems) {
  const page = await context.newPage();
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`)));
  page.on('console', (message) => { if (message.type() === 'error' && !/status of 400/.test(message.text())) problems.push(message.text()); });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => { if (new URL(request.url()).origin !== new URL(url).origin) problems.push(`asked ${request.url()}`); });
  await page.goto(url);
  await page.locator('body[data-ready]').waitFor();
  return page;
}

(async () => {
  await prepare();
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  const problems = [];
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    const page = await open(context, problems);
    await checkRules(page);
    await checkForecast(page);
    await checkSlider(page);
    await pictures(browser, problems);
    await changeByKeyboard(page);
    await makeAndRemove(page);
    assert.deepEqual(problems, [], 'the console has errors');
  } finally {
    await browser.close();
  }
  console.log('ok');
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
