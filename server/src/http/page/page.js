// The page of `ebbtide serve`: which rule takes what and when. It asks for everything with POST /sql, and no other host. What
// comes from the database is only ever inserted as text.
'use strict';

// ---------------------------------------------------------------- Elements

const $ = (id) => document.getElementById(id);

/** An element: `h('td.n', {title: 'x'}, 'text', other)`. Texts become text nodes. */
function h(what, attributes, ...children) {
  const [tag, ...classes] = what.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === 'on') for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table of `rows`; a column is {title, of, n, kind}. In `cards` its rows become cards on a narrow screen. */
function table(caption, columns, rows, { cards = true, idle } = {}) {
  const cell = (column, row, first) => {
    const attributes = first ? { scope: 'row' } : { 'data-label': column.title || null };
    return h((first ? 'th' : 'td') + (column.kind ? `.${column.kind}` : ''), attributes, first ? column.of(row) : h('div', {}, column.of(row)));
  };
  const head = columns.map((column) =>
    h(`th${column.kind === 'n' ? '.n' : ''}`, { scope: 'col' }, column.title || h('span.unseen', {}, 'Actions')));
  return h('div.scroll', { role: 'region', 'aria-label': caption },
    h(`table.${cards ? 'cards' : 'tight'}`, {}, h('caption.unseen', {}, caption), h('thead', {}, h('tr', {}, head)),
      h('tbody', {}, rows.map((row) =>
        h(`tr${idle?.(row) ? '.idle' : ''}`, {}, columns.map((column, at) => cell(column, row, at === 0)))))));
}

/** Lets the keyboard scroll the tables that are wider than their place, and only these. */
function reach() {
  for (const place of document.querySelectorAll('.scroll')) {
    if (place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight) place.tabIndex = 0;
    else place.removeAttribute('tabindex');
  }
}

function button(text, run, kind = 'small', key = null) {
  return h(`button.${kind}`, { type: 'button', 'data-key': key, on: { click: run } }, text);
}

// ---------------------------------------------------------------- Numbers, times, lengths of time

const grouped = new Intl.NumberFormat('en-US');
const count = (n) => grouped.format(n ?? 0);

function bytes(n) {
  let value = n ?? 0;
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(Math.abs(value) < 9.95 ? 1 : 0) : value} ${units[unit]}`;
}

/** A number for an axis: 1,200 is 1.2k. */
function brief(n) {
  if (n < 1000) return String(n);
  const [divisor, unit] = n < 1e6 ? [1e3, 'k'] : n < 1e9 ? [1e6, 'M'] : [1e9, 'G'];
  return `${Number((n / divisor).toFixed(1))}${unit}`;
}

const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;

const UNITS = [['year', 31536000], ['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]];

/** A length of time in words, exact: 90000 is "1 day 1 hour". Years only if they are whole. */
function duration(seconds) {
  if (seconds === null || seconds === undefined) return 'for ever';
  if (seconds === 0) return '0 seconds';
  if (seconds % 604800 === 0 && seconds < 2419200 && seconds > 604800) return `${seconds / 604800} weeks`;
  let left = seconds;
  const parts = [];
  for (const [unit, size] of UNITS) {
    if (unit === 'year' && seconds % size) continue;
    const n = Math.floor(left / size);
    left -= n * size;
    if (n) parts.push(`${n} ${unit}${n === 1 ? '' : 's'}`);
  }
  return parts.join(' ');
}

/** About how long ago or ahead: the largest unit alone. */
function about(milliseconds) {
  const seconds = Math.abs(milliseconds) / 1000;
  const [unit, size] = UNITS.find(([, each]) => seconds >= each) ?? UNITS[4];
  const n = Math.floor(seconds / size);
  const words = `${n} ${unit}${n === 1 ? '' : 's'}`;
  return milliseconds < 0 ? `${words} ago` : `in ${words}`;
}

/** A time as ISO 8601 in UTC, to the second. */
const iso = (time) => (time ? String(time).replace(/\.\d+Z$/, 'Z') : '');
const day = (time) => String(time).slice(0, 10);

/** Milliseconds since 1970 of a time of the server, also of years that Date.parse refuses. */
function millis(time) {
  const parsed = Date.parse(time);
  if (!Number.isNaN(parsed)) return parsed;
  return String(time).startsWith('-') ? -8.64e15 : 8.64e15;
}

/** A time with how far it is from the server's now. */
function when(time) {
  if (!time) return h('span.empty', {}, 'never');
  const away = Math.abs(millis(time) - page.now) < 8e15 ? about(millis(time) - page.now) : '';
  return [h('time', { datetime: time }, iso(time)), h('span.sub', {}, away)];
}

// ---------------------------------------------------------------- SQL

const quoted = (name) => `"${String(name).replaceAll('"', '""')}"`;
const path = (name) => String(name).split('.').map(quoted).join('.');
const text = (value) => `'${String(value).replaceAll("'", "''")}'`;
/** A text of the user that is a number, true or false stays one; the rest is quoted. */
function literal(value) {
  const trimmed = value.trim();
  if (/^-?\d+(\.\d+)?$/.test(trimmed) || /^(true|false)$/i.test(trimmed)) return trimmed;
  return text(trimmed.replace(/^'(.*)'$/s, '$1'));
}

/** The filter of a rule as a condition of SQL; null if it has no such form. */
function condition(filter) {
  const value = (v) => {
    if (typeof v === 'number' || typeof v === 'boolean') return String(v);
    if (typeof v === 'string') return text(v);
    if (v && typeof v === 'object' && typeof v.$date === 'string') return `TIMESTAMP ${text(v.$date)}`;
    throw new Error('no literal');
  };
  const signs = { $eq: '=', $gt: '>', $gte: '>=', $lt: '<', $lte: '<=' };
  const clause = (name, test) => {
    if (test === null) return `${path(name)} IS NULL`;
    const operators = typeof test === 'object' && !Array.isArray(test) && !test.$date ? Object.entries(test) : [['$eq', test]];
    return operators.map(([operator, operand]) => {
      if (signs[operator]) return operand === null ? `${path(name)} IS NULL` : `${path(name)} ${signs[operator]} ${value(operand)}`;
      if (operator === '$in') return `${path(name)} IN (${operand.map(value).join(', ')})`;
      if (operator === '$exists' && operand === true) return `${path(name)} IS NOT NULL`;
      throw new Error('no such operator');
    }).join(' AND ');
  };
  const all = (document) => {
    const parts = Object.entries(document).map(([name, test]) => {
      if (name === '$and' || name === '$or') return `(${test.map(all).join(name === '$and' ? ' AND ' : ' OR ')})`;
      return clause(name, test);
    });
    if (!parts.length) throw new Error('empty');
    return parts.join(' AND ');
  };
  try {
    const written = all(JSON.parse(filter));
    return /^\([^()]*\)$/.test(written) ? written.slice(1, -1) : written;
  } catch {
    return null;
  }
}

/** A condition as people read it: without quotation marks around plain names. */
const plainly = (sql) => sql.replace(/"([a-z_][a-z0-9_]*)"/g, '$1');
const filterText = (filter) => { const sql = condition(filter); return sql === null ? filter : plainly(sql); };

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

/** The rows that a statement gives, or {message}. */
async function sql(statement, { signal, db = page.db } = {}) {
  const parameters = new URLSearchParams({ format: 'json' });
  if (db) parameters.set('db', db);
  const headers = { 'X-Ebbtide': '1', 'Content-Type': 'text/plain' };
  const login = sessionStorage.getItem('ebbtide.login');
  if (login) headers.Authorization = `Basic ${login}`;
  let response;
  try {
    // Without credentials of the browser it shows no login of its own.
    response = await fetch(`/sql?${parameters}`, { method: 'POST', headers, body: statement, signal, credentials: 'omit' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refused(0, 'The server does not answer.');
  }
  const body = await response.text();
  let reply;
  try { reply = JSON.parse(body); } catch { reply = { error: body.trim() }; }
  if (response.ok) {
    const told = response.headers.get('X-Ebbtide-Message');
    if (told && Array.isArray(reply)) reply.told = told;
    return reply;
  }
  if (response.status === 401) {
    askLogin(login ? 'This name and password were refused.' : '');
    throw new Refused(401, 'Sign in to see this database.');
  }
  throw new Refused(response.status, reply.error || `The server answered with status ${response.status}.`);
}

const first = async (statement, options) => (await sql(statement, options))[0] ?? {};
const interval = (seconds) => `INTERVAL '${Math.round(seconds)} seconds'`;

// ---------------------------------------------------------------- What the page knows

const page = {
  db: new URLSearchParams(location.search).get('db'),
  now: Date.now(),
  collections: [], rules: [], indexes: [], sweeps: [], holds: [], ladders: [], parameters: {}, ages: [], coming: [], due: [],
  held: null,
  baseline: new Map(),
  touched: 0,
  /** How long the last reading took, and when it ended. */
  took: 0,
  read: 0,
};

const collectionOf = (name) => page.collections.find((one) => one.name === name);
const isSeries = (collection) => collection.time_field !== null;
const isSuspended = (collection) => collection.state.startsWith('suspended');
const things = (collection) => (isSeries(collection) ? 'measurement' : 'document');
const ruleName = (rule) => ({ collection: 'own lifetime', items: 'item lifetime', size: 'size limit' }[rule] ?? rule);
const rowsOf = (rows) => rows.reduce((sum, row) => sum + row.measurements, 0);
const bytesOf = (rows) => rows.reduce((sum, row) => sum + row.bytes, 0);
const bucketsOf = (rows) => rows.reduce((sum, row) => sum + row.buckets, 0);

/** What a sweep would drop: now or some seconds from now, by the present rules or proposed ones. */
function explain(name, { after = 0, proposed = '', signal } = {}) {
  const at = after ? ` AT ${text(new Date(page.now + after * 1000).toISOString())}` : '';
  return sql(`EXPLAIN EXPIRY FOR ${quoted(name)}${at}${proposed ? ` WITH (${proposed})` : ''}`, { signal });
}

const AGES = [['1 hour', '1 hours'], ['1 day', '1 days'], ['7 days', '7 days'], ['30 days', '30 days'], ['90 days', '90 days'], ['1 year', '365 days']];
const AGE_NAMES = ['up to 1 hour', 'to 1 day', 'to 7 days', 'to 30 days', 'to 90 days', 'to 1 year', 'older', 'in the future'];
const FUTURE = 7;
/** Documents are counted by age one by one: only in collections up to so many. */
const DOCUMENTS_BY_AGE = 1000000;
const YEAR = 366;

const bandOf = (time) => `CASE WHEN ${time} > now() THEN ${FUTURE} ${AGES.map(([, span], at) =>
  `WHEN ${time} > now() - INTERVAL '${span}' THEN ${at}`).join(' ')} ELSE ${AGES.length} END`;

/** Documents of a collection by the age of their last write. */
async function agesOfDocuments({ name, measurements, bytes: size }) {
  if (measurements === 0 || measurements > DOCUMENTS_BY_AGE) return [];
  const rows = await sql(`SELECT ${bandOf('_ts')} AS band, count(*) AS measurements FROM ${quoted(name)} GROUP BY 1`);
  return rows.map((row) => ({ ...row, collection: name, bytes: Math.round((size * row.measurements) / measurements) }));
}

/** Rows with the same values of `keys`, added up. */
function summed(rows, keys) {
  const sums = new Map();
  for (const row of rows) {
    const key = JSON.stringify(keys.map((name) => row[name]));
    const sum = sums.get(key) ?? { ...Object.fromEntries(keys.map((name) => [name, row[name]])), measurements: 0, buckets: 0, bytes: 0 };
    for (const one of ['measurements', 'buckets', 'bytes']) sum[one] += row[one] ?? 0;
    sums.set(key, sum);
  }
  return [...sums.values()];
}

/** What is forecast less what is due already. */
function without(rows, due) {
  return rows.map((row) => {
    const gone = due.find((one) => one.collection === row.collection && one.rule === row.rule && one.day === row.day);
    const less = (key) => Math.max(0, row[key] - (gone?.[key] ?? 0));
    return { ...row, measurements: less('measurements'), bytes: less('bytes'), buckets: less('buckets') };
  }).filter((row) => row.measurements || row.bytes);
}

async function load() {
  const [clock, collections, rules, indexes, sweeps, holds, ladders, parameters, buckets] = await Promise.all([
    first('SELECT now() AS now'),
    sql('SHOW COLLECTIONS'),
    sql('SHOW TTL'),
    sql('SHOW INDEXES'),
    sql('SELECT * FROM ebbtide.sweeps ORDER BY at DESC LIMIT 200'),
    sql('SHOW HOLDS'),
    sql('SHOW LADDERS'),
    sql('SHOW PARAMETERS'),
    // One reading of the buckets for both: what is stored by age, and what goes on which day.
    sql(`SELECT collection, rule, ${bandOf('last_time')} AS band, CASE WHEN expires_at > now() AND expires_at < now() + INTERVAL '${YEAR} days' ` +
      "THEN date_trunc('day', expires_at) END AS day, count(*) AS buckets, sum(measurements) AS measurements, sum(bytes) AS bytes " +
      'FROM ebbtide.buckets GROUP BY 1, 2, 3, 4'),
  ]);
  page.now = millis(clock.now);
  const called = (name) => (rows) => rows.map((row) => ({ ...row, collection: name }));
  const stored = collections.filter((one) => one.bytes > 0);
  const ruled = stored.filter((one) => isSeries(one) || rules.some((rule) => rule.collection === one.name));
  const [due, comingDocuments, agesDocuments] = await Promise.all([
    Promise.all(ruled.map(({ name }) => explain(name).then(called(name)))),
    Promise.all(ruled.filter((one) => !isSeries(one)).map(({ name }) => explain(name, { after: YEAR * 86400 }).then(called(name)))),
    Promise.all(stored.filter((one) => !isSeries(one)).map(agesOfDocuments)),
  ]);
  const stopped = new Set(collections.filter(isSuspended).map(({ name }) => name));
  Object.assign(page, {
    collections, rules, indexes, sweeps, holds, ladders,
    parameters: Object.fromEntries(parameters.map(({ parameter, value }) => [parameter, value])),
    ages: summed([...buckets, ...agesDocuments.flat()], ['collection', 'band']),
    due: due.flat(),
    coming: [...summed(buckets.filter((row) => row.day && !stopped.has(row.collection)), ['collection', 'rule', 'day']), ...without(comingDocuments.flat(), due.flat())],
    held: /^the sweeper is held: ([^;]*)/.exec(rules.told ?? '')?.[1] ?? null,
  });
  page.baseline.clear();
}

// ---------------------------------------------------------------- The top of the page

function say(message, kind = '') {
  $('status').className = `status ${kind}`;
  $('status').textContent = message;
}

const explained = (error) =>
  (error.status === 403 && /role/.test(error.message) ? `You may not do this: ${error.message}. Sign in with another account.` : error.message);

/** What stands at the top: alerts and the sums. */
function showTop() {
  $('clock').textContent = `Server time ${new Date(page.now).toISOString().replace(/\.\d+Z$/, 'Z')}`;
  $('sign-out').hidden = !sessionStorage.getItem('ebbtide.login');
  const alerts = [];
  if (page.held) {
    alerts.push(h('div.alert', {}, h('div', {}, h('strong', {}, 'The clock guard holds all sweeps'),
      `${sentence(page.held)} Nothing is dropped until the clock is right again or somebody confirms it.`),
    button('Review the clock …', confirmClock, 'main', 'clock')));
  }
  if (page.parameters.ttlMonitorEnabled === 'false') {
    alerts.push(h('div.alert', {}, h('div', {}, h('strong', {}, 'The sweeper is switched off'),
      'Expired data is hidden, but its space is not freed: the parameter ttlMonitorEnabled is false.'),
    button('Switch it on …', switchOn, 'small', 'switch-on')));
  }
  for (const collection of page.collections.filter(isSuspended)) {
    const n = /\d+/.exec(collection.state)?.[0];
    alerts.push(h('div.alert', {}, h('div', {}, h('strong', {}, `Nothing expires in ${collection.name}`),
      `It holds ${plural(Number(n), 'measurement')} before 1970 or after 2038-01-19, which suspends all of its rules: such times often come ` +
      'from a wrong clock. Expiry resumes when the last of them is deleted, or when the option outOfRange is set to expire.'),
    button('See them …', () => showOutOfRange(collection), 'small', `suspended ${collection.name}`)));
  }
  $('alerts').replaceChildren(...alerts);

  const active = page.rules.filter((rule) => rule.next_expiry && !rule.state.startsWith('suspended'));
  const next = active.sort((a, b) => millis(a.next_expiry) - millis(b.next_expiry))[0];
  const last = page.sweeps[0];
  const of = (what, big, small) => h('div.tile', {}, h('dt', {}, what), h('dd.big', {}, big), h('dd.quiet', {}, small));
  const stored = page.collections.reduce((sum, one) => sum + one.measurements, 0);
  const size = page.collections.reduce((sum, one) => sum + one.bytes, 0);
  $('tiles').replaceChildren(
    of('Stored', bytes(size), `${count(stored)} visible rows in ${plural(page.collections.length, 'collection')}`),
    of('Due now', count(rowsOf(page.due)), `rows, ${bytes(bytesOf(page.due))}, at the next sweep`),
    next ? of('Next to expire', about(millis(next.next_expiry) - page.now).replace(/.* ago/, 'now'), `${next.collection}, ${ruleName(next.rule)}`)
      : of('Next to expire', 'never', 'no rule has anything to take'),
    last ? of('Last drop', about(Math.min(-1000, millis(last.at) - page.now)), `${count(last.measurements)} rows of ${last.collection}`)
      : of('Last drop', 'none', 'no sweep has dropped anything yet'));
}

// ---------------------------------------------------------------- Rules

function state(of) {
  const stopped = of.startsWith('suspended');
  return h(`span.badge.${of.startsWith('active') ? 'active' : 'stopped'}`, {}, stopped ? 'suspended' : of);
}

/** A rule of a collection with its place in the order in which rules decide. */
function ordered(name) {
  const rules = page.rules.filter((rule) => rule.collection === name);
  return rules.sort((a, b) => a.expire_after_seconds - b.expire_after_seconds || (a.rule === 'collection' ? -1 : 1));
}

function whatItTakes(rule, collection) {
  if (rule.rule === 'collection') return 'all measurements';
  if (rule.rule === 'items') return rule.expire_after_seconds === -1 ? 'documents with a ttl of their own' : 'all documents, counted from their last write';
  const index = page.indexes.find((one) => one.collection === rule.collection && one.name === rule.rule);
  const where = rule.filter ? h('code', {}, filterText(rule.filter)) : 'documents with this date';
  return isSeries(collection) ? where : [h('code', {}, index?.key ?? ''), h('span.sub', {}, rule.filter ? where : 'all documents with this date')];
}

function ruleTable(collection, rules) {
  const noun = isSeries(collection) ? 'Measurements' : 'Documents';
  const life = (rule) => (rule.expire_after_seconds < 0 ? 'by the item' : duration(rule.expire_after_seconds));
  const columns = [
    { title: 'Rule', of: (rule) => ruleName(rule.rule) },
    { title: 'Takes', kind: 'text', of: (rule) => whatItTakes(rule, collection) },
    { title: 'Lifetime', kind: 'time', of: (rule) => [h('b', {}, life(rule)), rule.expire_after_seconds < 0 ? null : h('span.sub', {}, `${count(rule.expire_after_seconds)} s`)] },
    { title: noun, kind: 'n', of: (rule) => [count(rule.measurements), rule.buckets ? h('span.sub', {}, `${bytes(rule.bytes)}, ${plural(rule.buckets, 'bucket')}`) : null] },
    { title: 'Due now', kind: 'n', of: (rule) => [count(rule.due_measurements), rule.due_buckets ? h('span.sub', {}, plural(rule.due_buckets, 'bucket')) : null] },
    { title: 'Next expiry', kind: 'time', of: (rule) => (rule.state.startsWith('suspended') ? h('span.empty', {}, 'held back') : when(rule.next_expiry)) },
    { title: 'State', of: (rule) => (isBeaten(rule, rules) ? h('span.badge.kind', {}, 'no effect') : state(rule.state)) },
    { title: '', of: (rule) => h('div.actions', {},
      button('Change …', () => changeRule(rule), 'small', `change ${rule.collection} ${rule.rule}`),
      button('Remove …', () => removeRule(rule), 'small', `remove ${rule.collection} ${rule.rule}`)) },
  ];
  return table(`Rules of ${collection.name}`, columns, rules, { idle: (rule) => rule.buckets === 0 && rule.measurements === 0 });
}

/** Whether the collection's own lifetime is not longer, so that a rule decides nothing. */
function isBeaten(rule, rules) {
  const own = rules.findIndex((one) => one.rule === 'collection');
  return own >= 0 && rules.indexOf(rule) > own;
}

/** Who wins, in one sentence. */
function decision(collection, rules) {
  if (rules.length < 2) return null;
  if (!isSeries(collection)) return 'Of several rules that take a document, the one with the earliest instant decides.';
  const idle = rules.filter((rule) => isBeaten(rule, rules));
  const names = rules.filter((rule) => !idle.includes(rule)).map((rule) => ruleName(rule.rule));
  return [names.length > 1 ? `Order of decision: ${names.join(', then ')}. ` : '',
    idle.length ? `${idle.map((rule) => rule.rule).join(', ')} ${idle.length > 1 ? 'have' : 'has'} no effect: the collection’s lifetime is not longer.` : ''].join('');
}

function showRules() {
  const isBare = (collection) => !page.rules.some((rule) => rule.collection === collection.name);
  const listed = [...page.collections].sort((a, b) => isBare(a) - isBare(b) || a.name.localeCompare(b.name));
  const cards = listed.map((collection) => {
    const rules = ordered(collection.name);
    const series = isSeries(collection);
    const facts = series
      ? [`${count(collection.measurements)} measurements`, bytes(collection.bytes), plural(collection.buckets, 'bucket'),
        collection.first_time ? `${iso(collection.first_time)} to ${iso(collection.last_time)}` : 'empty',
        collection.expiry === 'bucket' ? 'mode bucket: visible until dropped' : null]
      : [`${count(collection.measurements)} documents`, bytes(collection.bytes)];
    const buttons = [];
    const own = rules.some((rule) => rule.rule === (series ? 'collection' : 'items'));
    if (!own) buttons.push(button('Set a lifetime …', () => changeRule({ collection: collection.name, rule: series ? 'collection' : 'items', expire_after_seconds: null }), 'small', `lifetime ${collection.name}`));
    if (!series) buttons.push(button('Add a TTL index …', () => newDocumentIndex(collection), 'small', `index ${collection.name}`));
    else if (collection.meta_field) buttons.push(button('Add a rule for some series …', () => newRule(collection), 'small', `rule ${collection.name}`));
    return h('article.card.collection', { 'data-collection': collection.name },
      h('header', {}, h('h3', {}, collection.name), h('span.badge.kind', {}, series ? 'time series' : 'documents'),
        isSuspended(collection) ? h('span.badge.stopped', {}, collection.state) : null,
        h('p.facts', {}, facts.filter(Boolean).join(' · '))),
      rules.length ? ruleTable(collection, rules) : h('p.empty.order', {}, 'No rule: nothing expires.'),
      h('p.order', {}, decision(collection, rules)),
      h('div.buttons', {}, buttons));
  });
  $('rules-body').replaceChildren(...(cards.length ? cards : [h('p.card.empty', {}, 'There is no collection yet.')]));
}

// ---------------------------------------------------------------- Stored, by age

function showAges() {
  const rows = page.collections.map((collection) => {
    const bands = AGE_NAMES.map((_, band) => page.ages.find((row) => row.collection === collection.name && row.band === band));
    return { collection, bands, total: collection.bytes, known: bands.some(Boolean) };
  }).filter((row) => row.total > 0);
  if (!rows.length) return $('stored-body').replaceChildren(h('p.empty', {}, 'Nothing is stored.'));
  const band = (row) => row.bands.map((one, at) => {
    if (!one) return null;
    const part = h(`i.a${at}`, { title: `${AGE_NAMES[at]}: ${bytes(one.bytes)}` });
    part.style.flexGrow = one.bytes;
    return part;
  });
  const used = AGE_NAMES.map((name, at) => ({ name, at })).filter(({ at }) => rows.some((row) => row.bands[at]));
  const cell = (at) => (row) => (row.bands[at] ? [bytes(row.bands[at].bytes), h('span.sub', {}, `${count(row.bands[at].measurements)} rows`)] : '');
  const kept = isOpen('stored-body');
  $('stored-body').replaceChildren(
    h('div.ages', { 'aria-hidden': 'true' }, rows.map((row) => h('div.age-row', {}, h('b', {}, row.collection.name),
      h('div.band', {}, row.known ? band(row) : null), h('span.n', {}, bytes(row.total))))),
    h('ul.legend', { 'aria-hidden': 'true' }, used.map(({ name, at }) => h('li', {}, h(`i.a${at}`), name))),
    h('details', { open: kept }, h('summary', { 'data-key': 'ages' }, 'As a table'),
      table('What is stored, by collection and age', [{ title: 'Collection', of: (row) => row.collection.name },
        ...used.map(({ name, at }) => ({ title: name, kind: 'n', of: cell(at) }))], rows)));
}

/** Whether the details within were open before they are drawn again. */
const isOpen = (id) => $(id).querySelector('details')?.open ?? false;

// ---------------------------------------------------------------- Forecast

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

/** A round number that is not below `most`, for the top of an axis. */
function ceiling(most) {
  if (most <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 4, 5, 8, 10].map((n) => n * power).find((n) => n >= most && (n >= 4 || Number.isInteger(n))) ?? 10 * power;
}

function showForecast() {
  const days = Number(chosen('days'));
  const unit = chosen('unit');
  const width = days > 90 ? 7 : 1;
  const start = Math.floor(page.now / 86400000);
  const bins = Array.from({ length: Math.ceil(days / width) }, (_, at) => ({ at, from: start + at * width, parts: new Map() }));
  const label = (row) => `${row.collection}: ${ruleName(row.rule)}`;
  const put = (bin, row) => {
    const part = bin.parts.get(label(row)) ?? { measurements: 0, bytes: 0, buckets: 0 };
    for (const key of ['measurements', 'bytes', 'buckets']) part[key] += row[key];
    bin.parts.set(label(row), part);
  };
  for (const row of page.due) put(bins[0], row);
  for (const row of page.coming) {
    const bin = bins[Math.floor((millis(row.day) / 86400000 - start) / width)];
    if (bin) put(bin, row);
  }
  const sums = new Map();
  for (const bin of bins) for (const [name, part] of bin.parts) sums.set(name, (sums.get(name) ?? 0) + part[unit]);
  const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  const color = (name) => Math.min(names.indexOf(name), 7);
  const total = (bin) => [...bin.parts.values()].reduce((sum, part) => sum + part[unit], 0);
  const amount = (n) => (unit === 'bytes' ? bytes(n) : count(n));
  const span = (bin) => {
    const from = new Date(bin.from * 86400000).toISOString().slice(0, 10);
    return width > 1 ? `7 days from ${from}` : bin.at === 0 ? `${from}, with what is due now` : from;
  };
  if (!names.length) {
    return $('forecast-body').replaceChildren(h('p.empty', {}, `Nothing of what is stored goes within ${days === 365 ? 'a year' : `${days} days`}.`));
  }
  const top = ceiling(Math.max(...bins.map(total)));
  const words = (bin) => (bin.parts.size
    ? `${span(bin)}: ${amount(total(bin))}${unit === 'bytes' ? '' : ' rows'} (${names.filter((name) => bin.parts.has(name)).map((name) => `${name} ${amount(bin.parts.get(name)[unit])}`).join('; ')})`
    : `${span(bin)}: nothing`);
  const readout = h('p.readout', { 'aria-live': 'polite' }, 'Point at a bar, or use the arrow keys, to read it.');
  const drawn = bins.map((bin) => h('div.bar', { on: { pointerenter: () => choose(bin.at) } }, [...names].reverse().filter((name) => bin.parts.has(name)).map((name) => {
    const part = h(`i.c${color(name)}`);
    part.style.height = `${(100 * bin.parts.get(name)[unit]) / top}%`;
    if (!bin.parts.get(name)[unit]) part.style.minHeight = '0';
    return part;
  })));
  let at = -1;
  const choose = (which) => {
    at = Math.max(0, Math.min(bins.length - 1, which));
    drawn.forEach((bar, index) => bar.classList.toggle('chosen', index === at));
    readout.textContent = words(bins[at]);
  };
  const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 7, PageUp: -7, Home: -1e9, End: 1e9 };
  const bars = h('div.bars', {
    tabindex: '0', role: 'group', 'data-key': 'bars',
    'aria-label': `Forecast by day and rule, ${bins.length} bars. Use the arrow keys to read them; the table below has the same.`,
    on: {
      keydown: (event) => {
        if (!(event.key in steps)) return;
        event.preventDefault();
        choose(at + steps[event.key]);
      },
    },
  }, drawn);
  const lines = [0.25, 0.5, 0.75].map((part) => { const line = h('hr', { 'aria-hidden': 'true' }); line.style.bottom = `${100 * part}%`; return line; });
  const marks = [0, 0.25, 0.5, 0.75].map((part) => {
    const bin = bins[Math.floor(part * bins.length)];
    const mark = h('span', {}, new Date(bin.from * 86400000).toISOString().slice(5, 10));
    mark.style.left = part ? `${(100 * (bin.at + 0.5)) / bins.length}%` : '0';
    return mark;
  });
  const axis = [1, 0.75, 0.5, 0.25, 0].map((part) => h('span', {}, unit === 'bytes' ? bytes(top * part) : brief(top * part)));
  const listed = bins.filter((bin) => bin.parts.size);
  const kept = isOpen('forecast-body');
  $('forecast-body').replaceChildren(
    h('div.chart', {}, h('div.axis', { 'aria-hidden': 'true' }, axis), h('div.plot', {}, lines, bars), h('div.days', { 'aria-hidden': 'true' }, marks)),
    readout,
    h('ul.legend', {}, names.slice(0, 8).map((name, index) => h('li', {}, h(`i.c${index}`, { 'aria-hidden': 'true' }),
      index === 7 && names.length > 8 ? `${names.length - 7} other rules` : `${name}, ${amount(sums.get(name))}`))),
    h('details', { open: kept }, h('summary', { 'data-key': 'forecast' }, 'As a table'),
      table('What sweeps will drop, by day and rule', [
        { title: width > 1 ? '7 days from' : 'Day', kind: 'time', of: ([bin]) => span(bin).replace('7 days from ', '').replace(/,.*/, '') },
        { title: 'Rule', kind: 'text', of: ([, name]) => name },
        { title: 'Rows', kind: 'n', of: ([, , part]) => count(part.measurements) },
        { title: 'Bytes', kind: 'n', of: ([, , part]) => bytes(part.bytes) },
        { title: 'Buckets', kind: 'n', of: ([, , part]) => count(part.buckets) },
      ], listed.flatMap((bin) => [...bin.parts].map(([name, part]) => [bin, name, part])))));
}

// ---------------------------------------------------------------- Dry runs of a rule

const HORIZONS = [['at once', 0], ['within 1 day', 86400], ['within 7 days', 604800], ['within 30 days', 2592000], ['within 90 days', 7776000], ['within 1 year', 31536000]];

/** The baseline of a dry run, kept until the next refresh. */
function kept(key, make) {
  if (!page.baseline.has(key)) {
    const made = make();
    page.baseline.set(key, made);
    made.catch(() => page.baseline.delete(key));
  }
  return page.baseline.get(key);
}

/** What would go of a collection by each horizon, as its rules are and with another lifetime of its own: EXPLAIN EXPIRY both times. */
async function dryRunOwn(name, seconds, signal) {
  const collection = collectionOf(name);
  const key = isSeries(collection) ? 'expireAfterSeconds' : 'defaultTTL';
  const proposed = `${key} = ${seconds === null ? 'off' : seconds}`;
  const sums = (rows) => ({ rows: rowsOf(rows), bytes: bytesOf(rows), buckets: bucketsOf(rows) });
  const present = kept(`own ${name}`, () => Promise.all(HORIZONS.map(async ([, after]) => sums(await explain(name, { after })))));
  const then = Promise.all(HORIZONS.map(async ([, after]) => sums(await explain(name, { after, proposed, signal }))));
  const facts = {};
  if (isSeries(collection) && collection.expiry === 'exact' && !isSuspended(collection)) {
    const time = quoted(collection.time_field);
    const old = page.rules.find((rule) => rule.collection === name && rule.rule === 'collection')?.expire_after_seconds;
    if (seconds !== null && (old === undefined || seconds < old)) {
      facts.hidden = (await first(`SELECT count(*) AS n FROM ${quoted(name)} WHERE ${time} <= now() - ${interval(seconds)}`, { signal })).n;
    } else if (old !== undefined && (seconds === null || seconds > old)) {
      const kind = seconds === null ? '' : ` AND ${time} > now() - ${interval(seconds)}`;
      facts.back = (await first(`SELECT count(*) AS n FROM expired(${text(name)}) WHERE expired_by = 'collection'${kind}`, { signal })).n;
    }
  }
  const [before, after] = await Promise.all([present, then]);
  return { facts, rows: HORIZONS.map(([label], at) => ({ label, before: before[at], after: after[at] })), counts: 'dropped', noun: things(collection) };
}

/** The same of a TTL index, which EXPLAIN EXPIRY cannot propose: counts of what is visible now and matches. */
async function dryRunIndex(name, { field, where, old, seconds, rule }, signal) {
  const collection = collectionOf(name);
  const time = path(field);
  const own = isSeries(collection) ? collection.expire_after_seconds : null;
  const least = (...lives) => { const given = lives.filter((life) => life !== null && life !== undefined); return given.length ? Math.min(...given) : null; };
  const [before, after] = [least(old, own), least(seconds, own)];
  const gone = (life, at) => (life === null ? '0' : `count(*) FILTER (WHERE ${time} <= now() + ${interval(at)} - ${interval(life)})`);
  const columns = HORIZONS.flatMap(([, at], index) => [`${gone(before, at)} AS b${index}`, `${gone(after, at)} AS a${index}`]);
  const found = await first(`SELECT count(*) AS n, ${columns.join(', ')} FROM ${quoted(name)}${where ? ` WHERE ${where}` : ''}`, { signal });
  const facts = { matching: found.n };
  if (isSuspended(collection)) Object.keys(found).forEach((key) => { if (key !== 'n') found[key] = 0; });
  else if (after !== null && (before === null || after < before)) facts.hidden = found.a0;
  else if (isSeries(collection) && old !== null && (after === null || after > before)) {
    const since = after === null ? '' : ` AND ${time} > now() - ${interval(after)}`;
    facts.back = (await first(`SELECT count(*) AS n FROM expired(${text(name)}) WHERE expired_by = ${text(rule)}${since}`, { signal })).n;
  }
  return {
    facts, counts: 'expired', noun: things(collection),
    rows: HORIZONS.map(([label], at) => ({ label, before: { rows: found[`b${at}`] }, after: { rows: found[`a${at}`] } })),
  };
}

/** How many more or fewer go, in words. */
function difference(row) {
  const by = row.after.rows - row.before.rows;
  return by === 0 ? 'no change' : `${count(Math.abs(by))} ${by > 0 ? 'more' : 'fewer'}`;
}

/** A dry run as sentences and a table. */
function shown(run, { now, then, name }) {
  const { facts, rows, noun } = run;
  const many = (n) => h('b', {}, plural(n, noun));
  const list = [];
  if (isSuspended(collectionOf(name))) list.push(h('li', {}, `While ${name} is suspended nothing expires in it, whatever its rules say.`));
  if (facts.matching !== undefined) list.push(h('li', {}, many(facts.matching), ' match the rule and are visible now.'));
  if (facts.hidden !== undefined) list.push(h('li', {}, many(facts.hidden), ' would be hidden at once; a sweep then drops them for good.'));
  const keeping = page.holds.filter((hold) => hold.collection === name && !hold.lifted_at).map((hold) => hold.name);
  if (keeping.length && facts.hidden) list.push(h('li', {}, `What ${keeping.length > 1 ? 'the holds' : 'the hold'} ${keeping.join(', ')} ${keeping.length > 1 ? 'cover' : 'covers'} is hidden too, but not dropped.`));
  if (facts.back !== undefined) list.push(h('li', {}, many(facts.back), ' would be visible again.'));
  const most = Math.max(1, ...rows.map((row) => Math.abs(row.after.rows - row.before.rows)));
  const change = (row) => {
    const by = row.after.rows - row.before.rows;
    const bar = h(`i.${by > 0 ? 'up' : 'down'}`);
    bar.style.width = `${(50 * Math.abs(by)) / most}%`;
    return [h(`span${by > 0 ? '.more' : by < 0 ? '.less' : ''}`, {}, difference(row)), h('span.diff', { 'aria-hidden': 'true' }, bar)];
  };
  const amount = (one) => [count(one.rows), one.bytes === undefined ? null : h('span.sub', {}, bytes(one.bytes))];
  return [
    list.length ? h('ul', {}, list) : null,
    table(`${run.counts === 'dropped' ? 'Dropped by sweeps' : 'Expired through this rule or the collection’s'}, ${now} and ${then}`, [
      { title: run.counts === 'dropped' ? 'Dropped' : 'Expired', of: (row) => row.label },
      { title: now, kind: 'n', of: (row) => amount(row.before) },
      { title: then, kind: 'n', of: (row) => amount(row.after) },
      { title: 'Difference', kind: 'n', of: change },
    ], rows, { cards: false }),
  ].filter(Boolean);
}

/** What a rule takes, for `dryRunIndex`. */
function indexOf(rule) {
  const collection = collectionOf(rule.collection);
  const index = page.indexes.find((one) => one.collection === rule.collection && one.name === rule.rule);
  const where = rule.filter ? condition(rule.filter) : null;
  if (rule.filter && where === null) throw new Error(`The filter of ${rule.rule} has no form in SQL, so there is no dry run of it here.`);
  return { field: isSeries(collection) ? collection.time_field : index.key.replace(/ DESC$/, ''), where, old: rule.expire_after_seconds, rule: rule.rule };
}

const isOwn = (rule) => rule.rule === 'collection' || rule.rule === 'items';

/** The dry run of another lifetime of a rule; null: none. */
function dryRun(rule, seconds, signal) {
  return isOwn(rule) ? dryRunOwn(rule.collection, seconds, signal) : dryRunIndex(rule.collection, { ...indexOf(rule), seconds }, signal);
}

// ---------------------------------------------------------------- What if

const STOPS = [60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 345600, 432000, 518400, 604800, 864000, 1209600, 1814400, 2592000,
  3888000, 5184000, 7776000, 10368000, 15552000, 23328000, 31536000, 63072000, 94608000, 157680000, 315360000];

const whatIf = { stops: [], rule: null, running: null, timer: 0 };
const keyOf = (rule) => JSON.stringify([rule.collection, rule.rule]);

function showWhatIf() {
  const rules = page.rules.filter((rule) => rule.expire_after_seconds >= 0);
  const select = $('what-if-rule');
  const before = select.value;
  $('what-if-form').hidden = !rules.length;
  if (!rules.length) return $('what-if-body').replaceChildren(h('p.empty', {}, 'There is no rule with a lifetime yet.'));
  select.replaceChildren(...rules.map((rule) => h('option', { value: keyOf(rule) }, `${rule.collection}: ${ruleName(rule.rule)}`)));
  if (rules.some((rule) => keyOf(rule) === before)) select.value = before;
  startWhatIf(before === select.value);
}

/** Sets the slider to the rule's present lifetime, or leaves it where it was. */
function startWhatIf(keep) {
  const rule = page.rules.find((one) => keyOf(one) === $('what-if-rule').value);
  const slider = $('what-if-slider');
  const at = whatIf.stops[Number(slider.value)];
  const isSame = keep && whatIf.rule?.expire_after_seconds === rule.expire_after_seconds;
  whatIf.rule = rule;
  whatIf.stops = [...new Set([...STOPS, rule.expire_after_seconds])].sort((a, b) => a - b);
  slider.max = whatIf.stops.length - 1;
  slider.value = whatIf.stops.indexOf(isSame && at !== undefined ? at : rule.expire_after_seconds);
  moved(0);
}

function moved(delay) {
  const seconds = whatIf.stops[Number($('what-if-slider').value)];
  const isNow = seconds === whatIf.rule.expire_after_seconds;
  $('what-if-value').textContent = `${duration(seconds)}${isNow ? ' (as it is)' : ''}`;
  $('what-if-slider').setAttribute('aria-valuetext', duration(seconds));
  clearTimeout(whatIf.timer);
  whatIf.running?.abort();
  if (isNow) {
    $('what-if-body').replaceChildren(h('p.empty.headline', {}, 'This is the rule as it is.'));
    $('what-if-body').classList.remove('busy');
    $('what-if-body').dataset.seconds = seconds;
    return;
  }
  $('what-if-body').classList.add('busy');
  $('what-if-body').dataset.seconds = '';
  whatIf.timer = setTimeout(() => runWhatIf(seconds), delay);
}

async function runWhatIf(seconds) {
  const { rule } = whatIf;
  const running = new AbortController();
  whatIf.running = running;
  const body = $('what-if-body');
  try {
    const run = await dryRun(rule, seconds, running.signal);
    if (running.signal.aborted) return;
    const [now, then] = [`now: ${duration(rule.expire_after_seconds)}`, `with ${duration(seconds)}`];
    body.replaceChildren(...shown(run, { now, then, name: rule.collection }));
    $('what-if-said').textContent = `With ${duration(seconds)}: ${run.rows.map((row) => `${row.label} ${difference(row)}`).join(', ')}.`;
    reach();
  } catch (error) {
    if (error.name === 'AbortError' || running.signal.aborted) return;
    body.replaceChildren(h('p.error', {}, explained(error)));
  }
  body.classList.remove('busy');
  body.dataset.seconds = seconds;
}

// ---------------------------------------------------------------- Sweeps, ladders, holds

function showSweeps() {
  const { ttlMonitorEnabled, ttlMonitorSleepSecs } = page.parameters;
  $('sweeps-note').textContent = ttlMonitorEnabled === 'false' ? 'The sweeper is switched off.'
    : `A sweep runs every ${duration(Number(ttlMonitorSleepSecs)).replace(/^1 /, '')}. The latest that dropped something:`;
  const kept = isOpen('sweeps-body');
  const columns = [
    { title: 'At', kind: 'time', of: (row) => when(row.at) },
    { title: 'Collection', kind: 'text', of: (row) => row.collection },
    { title: 'Rule', kind: 'text', of: (row) => [ruleName(row.rule), row.expire_after_seconds === null ? null : h('span.sub', {}, duration(row.expire_after_seconds))] },
    { title: 'Older than', kind: 'time', of: (row) => iso(row.cutoff) },
    { title: 'Rows', kind: 'n', of: (row) => count(row.measurements) },
    { title: 'Buckets', kind: 'n', of: (row) => count(row.buckets) },
    { title: 'Bytes', kind: 'n', of: (row) => bytes(row.bytes) },
  ];
  const [recent, rest] = [page.sweeps.slice(0, 8), page.sweeps.slice(8)];
  $('sweeps-body').replaceChildren(...(recent.length ? [table('Recent sweeps', columns, recent),
    rest.length ? h('details', { open: kept }, h('summary', { 'data-key': 'sweeps' }, `${rest.length} earlier`), table('Earlier sweeps', columns, rest)) : '']
    : [h('p.empty', {}, 'No sweep has dropped anything yet.')]));
}

function showLadders() {
  $('ladders-body').replaceChildren(page.ladders.length ? table('Ladders', [
    { title: 'Collection', of: (row) => row.collection },
    { title: 'Bins of', of: (row) => duration(row.step_seconds) },
    { title: 'Kept', of: (row) => duration(row.expire_after_seconds) },
    { title: 'Fields', kind: 'text', of: (row) => row.fields ?? 'all' },
    { title: 'Stored bins', kind: 'n', of: (row) => [count(row.bins), h('span.sub', {}, bytes(row.bytes))] },
    { title: 'From', kind: 'time', of: (row) => iso(row.first_bin) },
    { title: 'To', kind: 'time', of: (row) => iso(row.last_bin) },
    { title: 'Next expiry', kind: 'time', of: (row) => when(row.next_expiry) },
  ], page.ladders) : h('p.empty', {}, 'There is no ladder. CREATE LADDER makes one.'));
}

function showHolds() {
  const columns = [
    { title: 'Hold', of: (row) => row.name },
    { title: 'Collection', kind: 'text', of: (row) => row.collection },
    { title: 'Covers', kind: 'text', of: (row) => [row.filter ? h('code', {}, filterText(row.filter)) : 'all series',
      row.from_time || row.to_time ? h('span.sub', {}, `${row.from_time ? `from ${iso(row.from_time)} ` : ''}${row.to_time ? `to ${iso(row.to_time)}` : ''}`) : null] },
    { title: 'Reason', kind: 'text', of: (row) => row.reason },
    { title: 'Rows', kind: 'n', of: (row) => count(row.measurements) },
    { title: 'Made', kind: 'time', of: (row) => when(row.made_at) },
    { title: 'State', of: (row) => (row.lifted_at ? [h('span.badge.kind', {}, 'lifted'), h('span.sub', {}, iso(row.lifted_at))] : h('span.badge.active', {}, 'in force')) },
  ];
  const rows = [...page.holds].sort((a, b) => (a.lifted_at ? 1 : 0) - (b.lifted_at ? 1 : 0));
  $('holds-body').replaceChildren(rows.length ? table('Holds', columns, rows, { idle: (row) => row.lifted_at })
    : h('p.empty', {}, 'There is no hold. CREATE HOLD makes one.'));
}

// ---------------------------------------------------------------- Changes: a dry run first, then a button that confirms

const change = { spec: null, ready: null };

/**
 * Opens the dialog of a change. `spec`: title, note, fields, `read()` that gives {sql, say, dry} or throws what is wrong with the
 * fields, and the word on the button that confirms. A result belongs to the fields as they were: a change of them takes it away.
 */
function openChange(spec) {
  change.spec = spec;
  $('change-title').textContent = spec.title;
  $('change-note').textContent = spec.note ?? '';
  $('change-fields').replaceChildren(...(spec.fields ?? []));
  $('change-confirm').textContent = spec.confirm ?? 'Confirm the change';
  $('change-confirm').className = spec.isDrop ? 'danger' : 'main';
  $('change-try').textContent = spec.look ?? 'Dry run';
  $('change-try').hidden = Boolean(spec.isShown);
  $('change-cancel').textContent = spec.isShown ? 'Close' : 'Cancel';
  forgetResult();
  $('change').showModal();
  if (!spec.fields?.length) tryChange();
}

function forgetResult() {
  change.ready = null;
  $('change-error').textContent = '';
  $('change-result').replaceChildren();
  $('change-confirm').hidden = true;
}

async function tryChange() {
  const { spec } = change;
  forgetResult();
  try {
    const ready = spec.read();
    $('change-try').disabled = true;
    const result = await ready.dry();
    if (change.spec !== spec) return;
    $('change-result').replaceChildren(h('h3', {}, spec.heading ?? 'Dry run: nothing has changed yet'), ...result,
      ready.sql ? h('pre', {}, h('code', {}, ready.sql)) : '');
    if (ready.sql || ready.run) {
      change.ready = ready;
      $('change-confirm').hidden = false;
    }
    reach();
    $('change-result').focus();
    $('change-result').scrollIntoView({ block: 'nearest' });
  } catch (error) {
    if (change.spec === spec) $('change-error').textContent = explained(error);
  } finally {
    $('change-try').disabled = false;
  }
}

async function confirmChange() {
  const { ready, spec } = change;
  if (!ready) return;
  $('change-confirm').disabled = true;
  try {
    const done = ready.run ? await ready.run() : (await sql(ready.sql)).message;
    $('change').close();
    say('Changed; reading the rules again …');
    await refresh();
    say(`Done: ${done}.`, 'good');
  } catch (error) {
    if (change.spec === spec) $('change-error').textContent = explained(error);
  } finally {
    $('change-confirm').disabled = false;
  }
}

/** Fields for a lifetime: an amount and a unit. */
function lifetimeFields(seconds) {
  const [unit, size] = [['days', 86400], ['hours', 3600], ['minutes', 60], ['seconds', 1]].find(([, each]) => seconds !== null && seconds % each === 0 && seconds > 0) ?? ['days', 86400];
  const amount = h('input', { type: 'number', min: '0', step: '1', inputmode: 'numeric', required: true, id: 'life-amount', value: seconds === null ? '' : String(seconds / size) });
  const units = [['seconds', 1], ['minutes', 60], ['hours', 3600], ['days', 86400], ['weeks', 604800], ['years', 31536000]];
  const select = h('select', { id: 'life-unit' }, units.map(([name]) => h('option', { value: name, selected: name === unit }, name)));
  const read = () => {
    const n = Number(amount.value);
    if (amount.value.trim() === '' || !Number.isInteger(n) || n < 0) throw new Error('The lifetime is a whole number, such as 30.');
    const total = n * units.find(([name]) => name === select.value)[1];
    if (total > 2147483647) throw new Error('The longest lifetime is 2,147,483,647 seconds, some 68 years.');
    return { seconds: total, sql: `${n} ${select.value.toUpperCase()}` };
  };
  return { row: h('div.row', {}, h('label.field', {}, 'Lifetime', amount), h('label.field', {}, 'Unit', select)), read };
}

/** Changes or sets the lifetime of a rule. `proposed`: seconds to begin with. */
function changeRule(rule, proposed = rule.expire_after_seconds) {
  const life = lifetimeFields(proposed !== null && proposed >= 0 ? proposed : null);
  const now = rule.expire_after_seconds === null ? 'now: for ever' : rule.expire_after_seconds < 0 ? 'now: by the item' : `now: ${duration(rule.expire_after_seconds)}`;
  const onlyOwn = h('input', { type: 'checkbox', id: 'life-own', checked: rule.expire_after_seconds < 0 && rule.expire_after_seconds !== null });
  openChange({
    title: isOwn(rule) ? `Lifetime of ${rule.rule === 'items' ? 'documents in ' : ''}${rule.collection}` : `Lifetime of the rule ${rule.rule} on ${rule.collection}`,
    note: rule.rule === 'items' ? 'Counted from the last write of a document. A document with a ttl of its own keeps to that.'
      : rule.rule === 'collection' ? 'For all measurements that no shorter rule takes.' : rule.filter ? `For ${filterText(rule.filter)}.` : '',
    fields: [life.row, rule.rule === 'items' ? h('label.check', {}, onlyOwn, 'Only documents with a ttl of their own') : null].filter(Boolean),
    read() {
      if (onlyOwn.checked) {
        const statement = `ALTER COLLECTION ${quoted(rule.collection)} EXPIRE ITEMS`;
        return { sql: statement, dry: async () => shown(await dryRunOwn(rule.collection, -1), { now, then: 'by the item', name: rule.collection }) };
      }
      const { seconds, sql: words } = life.read();
      if (rule.rule === 'items' && seconds === 0) throw new Error('Documents live for at least 1 second.');
      const statement = rule.rule === 'collection' ? `ALTER COLLECTION ${quoted(rule.collection)} EXPIRE AFTER ${words}`
        : rule.rule === 'items' ? `ALTER COLLECTION ${quoted(rule.collection)} EXPIRE ITEMS AFTER ${words}`
          : `ALTER TTL INDEX ${quoted(rule.rule)} ON ${quoted(rule.collection)} EXPIRE AFTER ${words}`;
      return { sql: statement, dry: async () => shown(await dryRun(rule, seconds), { now, then: `with ${duration(seconds)}`, name: rule.collection }) };
    },
  });
}

function removeRule(rule) {
  const name = rule.collection;
  const statement = rule.rule === 'collection' ? `ALTER COLLECTION ${quoted(name)} EXPIRE OFF`
    : rule.rule === 'items' ? `ALTER COLLECTION ${quoted(name)} EXPIRE ITEMS OFF`
      : `DROP TTL INDEX ${quoted(rule.rule)} ON ${quoted(name)}`;
  openChange({
    title: isOwn(rule) ? `Remove the lifetime of ${name}` : `Remove the rule ${rule.rule} from ${name}`,
    confirm: 'Remove the rule', isDrop: true, look: 'Dry run again',
    read: () => ({
      sql: statement,
      dry: async () => shown(await dryRun(rule, null), { now: rule.expire_after_seconds < 0 ? 'now: by the item' : `now: ${duration(rule.expire_after_seconds)}`, then: 'without the rule', name }),
    }),
  });
}

/** Fields for a condition: a path, a comparison and a value, or a condition of SQL. */
function conditionFields(paths, { isOptional = false } = {}) {
  const known = h('datalist', { id: 'condition-paths' }, paths.map((one) => h('option', { value: one })));
  const field = h('input', { id: 'condition-path', list: 'condition-paths', value: paths[0] ?? '', autocomplete: 'off', spellcheck: 'false' });
  const sign = h('select', { id: 'condition-sign' }, ['=', '<', '<=', '>', '>=', 'IN', 'IS NOT NULL'].map((one) => h('option', {}, one)));
  const value = h('input', { id: 'condition-value', autocomplete: 'off', spellcheck: 'false' });
  const free = h('input', { id: 'condition-sql', autocomplete: 'off', spellcheck: 'false' });
  sign.addEventListener('change', () => { value.disabled = sign.value === 'IS NOT NULL'; });
  const box = h('fieldset', {}, h('legend', {}, isOptional ? 'Only those where (may be empty)' : 'Series where'), known,
    h('div.row', {}, h('label.field', {}, 'Field', field), h('label.field', {}, 'Comparison', sign), h('label.field', {}, 'Value', value)),
    h('details', {}, h('summary', {}, 'Write the condition in SQL'),
      h('label.field', {}, 'Condition', free, h('small', {}, 'With =, <, <=, >, >=, IN, IS NOT NULL, AND, OR. It is used instead of the fields above.'))));
  const read = () => {
    const written = free.value.trim();
    if (written) return written;
    if (isOptional && value.value.trim() === '' && sign.value !== 'IS NOT NULL') return null;
    if (!field.value.trim()) throw new Error('Name the field of the condition.');
    const name = path(field.value.trim());
    if (sign.value === 'IS NOT NULL') return `${name} IS NOT NULL`;
    if (value.value.trim() === '') throw new Error('Give the value of the condition.');
    if (sign.value === 'IN') return `${name} IN (${value.value.split(',').filter((one) => one.trim()).map(literal).join(', ')})`;
    return `${name} ${sign.value} ${literal(value.value)}`;
  };
  return { box, read };
}

const named = (input) => {
  const name = input.value.trim();
  if (!name) throw new Error('Give the rule a name.');
  return name;
};

async function newRule(collection) {
  const meta = collection.meta_field;
  let paths = [meta];
  try {
    const some = await sql(`SELECT DISTINCT ${quoted(meta)} AS meta FROM ${quoted(collection.name)} LIMIT 20`);
    const within = some.flatMap((row) => (row.meta && typeof row.meta === 'object' && !Array.isArray(row.meta) ? Object.keys(row.meta).map((key) => `${meta}.${key}`) : []));
    if (within.length) paths = [...new Set(within)];
  } catch (error) {
    if (error.status === 401) return;
  }
  const name = h('input', { id: 'rule-name', autocomplete: 'off', spellcheck: 'false', required: true });
  const where = conditionFields(paths);
  const life = lifetimeFields(null);
  openChange({
    title: `A rule for some series of ${collection.name}`,
    note: `The condition is about ${meta}. A rule only shortens: with a longer lifetime than the collection’s it has no effect.`,
    fields: [h('label.field', {}, 'Name', name), where.box, life.row],
    confirm: 'Make the rule',
    read() {
      const [index, test, { seconds, sql: words }] = [named(name), where.read(), life.read()];
      return {
        sql: `CREATE TTL INDEX ${quoted(index)} ON ${quoted(collection.name)} (${quoted(collection.time_field)}) EXPIRE AFTER ${words} WHERE ${test}`,
        dry: async () => shown(await dryRunIndex(collection.name, { field: collection.time_field, where: test, old: null, seconds, rule: index }),
          { now: 'now', then: `with ${duration(seconds)}`, name: collection.name }),
      };
    },
  });
}

async function newDocumentIndex(collection) {
  let columns = [];
  try { columns = await sql(`DESCRIBE ${quoted(collection.name)}`); } catch (error) { if (error.status === 401) return; }
  const dates = columns.filter((one) => one.role === 'field' && one.type.startsWith('timestamp')).map((one) => one.column);
  const others = columns.filter((one) => one.role === 'field').map((one) => one.column);
  const name = h('input', { id: 'rule-name', autocomplete: 'off', spellcheck: 'false', required: true });
  const field = h('input', { id: 'rule-field', list: 'rule-fields', value: dates[0] ?? '', autocomplete: 'off', spellcheck: 'false', required: true });
  const where = conditionFields(others, { isOptional: true });
  const life = lifetimeFields(null);
  openChange({
    title: `A TTL index on ${collection.name}`,
    note: 'A document expires so long after the date in this field. A document without a date there never expires through the index.',
    fields: [h('label.field', {}, 'Name', name), h('label.field', {}, 'Field with the date', field, h('datalist', { id: 'rule-fields' }, dates.map((one) => h('option', { value: one })))), where.box, life.row],
    confirm: 'Make the index',
    read() {
      const [index, test, { seconds, sql: words }] = [named(name), where.read(), life.read()];
      const key = field.value.trim();
      if (!key) throw new Error('Name the field with the date.');
      return {
        sql: `CREATE TTL INDEX ${quoted(index)} ON ${quoted(collection.name)} (${path(key)}) EXPIRE AFTER ${words}${test ? ` WHERE ${test}` : ''}`,
        dry: async () => shown(await dryRunIndex(collection.name, { field: key, where: test, old: null, seconds, rule: index }),
          { now: 'now', then: `with ${duration(seconds)}`, name: collection.name }),
      };
    },
  });
}

/** What a sweep now would drop, by collection and rule. */
async function dueNow() {
  const all = await Promise.all(page.collections.map(async ({ name }) => (await explain(name)).map((row) => ({ ...row, collection: name }))));
  const rows = summed(all.flat(), ['collection', 'rule']);
  return rows.length ? [h('p', {}, 'A sweep would drop ', h('b', {}, plural(rowsOf(rows), 'row')), `, ${plural(bucketsOf(rows), 'bucket')}, ${bytes(bytesOf(rows))}, for good.`),
      table('What a sweep would drop now', [
        { title: 'Collection', of: (row) => row.collection },
        { title: 'Rule', kind: 'text', of: (row) => ruleName(row.rule) },
        { title: 'Rows', kind: 'n', of: (row) => count(row.measurements) },
        { title: 'Buckets', kind: 'n', of: (row) => count(row.buckets) },
        { title: 'Bytes', kind: 'n', of: (row) => bytes(row.bytes) },
      ], rows, { cards: false })] : [h('p', {}, 'A sweep would drop nothing now.')];
}

async function runSweep() {
  const [counts] = await sql('SWEEP');
  if (!counts.passes) {
    page.held = 'the wall clock jumped ahead';
    showTop();
    throw new Error('The clock guard held the sweep: nothing was dropped. Close this dialog and review the clock.');
  }
  return dropped(counts);
}

function dropped(counts) {
  return `the sweep dropped ${plural(counts.deleted_documents, 'row')}, ${plural(counts.deleted_buckets, 'bucket')}, ${bytes(counts.deleted_bytes)}`;
}

function sweepNow() {
  openChange({
    title: 'Sweep now', note: 'What has expired is hidden already; a sweep frees its space.', confirm: 'Sweep', isDrop: true, look: 'Dry run again',
    read: () => ({ sql: 'SWEEP', run: runSweep, dry: async () => await dueNow() }),
  });
}

/** Lets the sweeper go on after a jump of the clock, and sweeps. */
async function acceptClock() {
  await sql('CONFIRM CLOCK');
  return await runSweep();
}

function confirmClock() {
  const sure = h('input', { type: 'checkbox', id: 'clock-sure' });
  openChange({
    title: 'Confirm the clock', note: `${sentence(page.held)} Confirm only if the server’s time is right: what a sweep drops then does not come back.`,
    fields: [h('label.check', {}, sure, 'I have compared the server’s time with another clock, and it is right.')],
    look: 'Show what it would drop', confirm: 'Confirm and sweep', isDrop: true, heading: 'If the clock is confirmed',
    read: () => {
      if (!sure.checked) throw new Error('Compare the clock first, and say so above.');
      return {
        dry: async () => {
          const [clock, due] = await Promise.all([first('SELECT now() AS now'), dueNow()]);
          const away = Math.round((millis(clock.now) - Date.now()) / 1000);
          return [h('ul', {}, h('li', {}, 'The server’s time is ', h('b', {}, iso(clock.now)), '.'),
            h('li', {}, Math.abs(away) < 5 ? 'It agrees with this browser’s.' : `It is ${duration(Math.abs(away))} ${away > 0 ? 'ahead of' : 'behind'} this browser’s.`)), ...due];
        },
        run: async () => `the clock is confirmed; ${await acceptClock()}`,
      };
    },
  });
}

function switchOn() {
  openChange({
    title: 'Switch the sweeper on', note: 'It drops what has expired, once a minute unless set otherwise.', confirm: 'Switch it on', look: 'Look again',
    read: () => ({ sql: 'SET PARAMETER ttlMonitorEnabled = true', dry: async () => await dueNow() }),
  });
}

function showOutOfRange(collection) {
  const time = quoted(collection.time_field);
  const range = `${time} < TIMESTAMP '1970-01-01T00:00:00Z' OR ${time} >= TIMESTAMP '2038-01-19T03:14:08Z'`;
  openChange({
    title: `Times out of range in ${collection.name}`, note: 'These suspend expiry. To delete or to keep them is for you to decide:',
    isShown: true, heading: 'The first of them', fields: [],
    read: () => ({
      dry: async () => {
        const rows = await sql(`SELECT * FROM ${quoted(collection.name)} WHERE ${range} ORDER BY ${time} LIMIT 20`);
        const names = Object.keys(rows[0] ?? {}).slice(0, 5);
        const cell = (value) => (value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value));
        return [rows.length ? table('Measurements out of range', names.map((name) => ({ title: name, kind: name === collection.time_field ? 'time' : 'text', of: (row) => cell(row[name]) })), rows, { cards: false })
          : h('p', {}, 'None of them is visible.'),
        h('pre', {}, h('code', {}, `DELETE FROM ${quoted(collection.name)}\nWHERE ${range};\n-- or:\nALTER COLLECTION ${quoted(collection.name)} SET outOfRange = 'expire';`))];
      },
    }),
  });
}

// ---------------------------------------------------------------- Login

function askLogin(problem) {
  $('login-error').textContent = problem;
  if ($('login').open) return;
  if ($('change').open) $('change').close();
  $('login').showModal();
}

function signIn(event) {
  event.preventDefault();
  const bytesOfLogin = new TextEncoder().encode(`${$('login-name').value}:${$('login-password').value}`);
  sessionStorage.setItem('ebbtide.login', btoa(String.fromCharCode(...bytesOfLogin)));
  $('login-password').value = '';
  $('login').close();
  start();
}

function signOut() {
  sessionStorage.removeItem('ebbtide.login');
  location.reload();
}

// ---------------------------------------------------------------- Refreshing

/** Draws everything; what has the focus keeps it. */
function show() {
  const key = document.activeElement?.dataset?.key;
  showTop();
  showRules();
  showAges();
  showForecast();
  showWhatIf();
  showSweeps();
  showLadders();
  showHolds();
  reach();
  if (key) document.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

let refreshing = null;

function refresh() {
  refreshing ??= (async () => {
    $('refresh').disabled = true;
    try {
      const began = Date.now();
      await load();
      Object.assign(page, { took: Date.now() - began, read: Date.now() });
      show();
      document.body.dataset.ready = 'true';
      say('');
    } catch (error) {
      say(explained(error), 'bad');
    } finally {
      $('refresh').disabled = false;
      refreshing = null;
    }
  })();
  return refreshing;
}

const REFRESH_EVERY = 30000;

/** Whether somebody is in the middle of something, or reading a large database would keep the server busy. */
function isInUse() {
  return document.hidden || $('change').open || $('login').open || $('what-if').contains(document.activeElement) || Date.now() - page.touched < REFRESH_EVERY || Date.now() - page.read < 20 * page.took;
}

/** The names of the databases; none if the server has one only, or no list is needed. */
async function databases() {
  try {
    await sql('SELECT 1 AS one', { db: null });
    return [];
  } catch (error) {
    if (error.status !== 400) throw error;
    const names = /names one of (.*)$/s.exec(error.message)?.[1];
    if (!names) throw error;
    return names.trim().split(', ');
  }
}

async function start() {
  try {
    const names = await databases();
    if (names.length) {
      if (!names.includes(page.db)) [page.db] = names;
      $('database').replaceChildren(...names.map((name) => h('option', { selected: name === page.db }, name)));
      $('database-choice').hidden = false;
    } else {
      page.db = null;
    }
  } catch (error) {
    if (error.status === 401) return;
    return say(explained(error), 'bad');
  }
  await refresh();
}

$('database').addEventListener('change', () => {
  page.db = $('database').value;
  history.replaceState(null, '', `?${new URLSearchParams({ db: page.db })}`);
  refresh();
});
$('refresh').addEventListener('click', refresh);
$('sign-out').addEventListener('click', signOut);
$('sweep').addEventListener('click', sweepNow);
$('login-form').addEventListener('submit', signIn);
$('login').addEventListener('cancel', (event) => event.preventDefault());
$('change-form').addEventListener('submit', (event) => { event.preventDefault(); if (!change.spec.isShown) tryChange(); });
$('change-form').addEventListener('input', forgetResult);
$('change-cancel').addEventListener('click', () => $('change').close());
$('change-confirm').addEventListener('click', confirmChange);
$('change').addEventListener('close', () => { change.spec = null; change.ready = null; });
$('what-if-rule').addEventListener('change', () => startWhatIf(false));
$('what-if-slider').addEventListener('input', () => { page.touched = Date.now(); moved(250); });
$('what-if-change').addEventListener('click', () => changeRule(whatIf.rule, whatIf.stops[Number($('what-if-slider').value)]));
for (const input of document.querySelectorAll('#forecast-days input, #forecast-unit input')) input.addEventListener('change', showForecast);
addEventListener('resize', reach);
document.addEventListener('toggle', reach, true);
setInterval(() => { if (!isInUse()) refresh(); }, REFRESH_EVERY);
start();
