"""Generated finds, updates and pipelines, asked of two servers: results and error codes must be the same.

Arguments: the server's address, that of a mongod 6.0, the number of cases, the seed.
"""

import datetime
import random
import sys

import pymongo
from bson import Decimal128, Int64, ObjectId, Regex, encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

ours = pymongo.MongoClient(sys.argv[1], document_class=RawBSONDocument)["diff"]
theirs = pymongo.MongoClient(sys.argv[2], document_class=RawBSONDocument)["diff"]
cases, seed = int(sys.argv[3]), int(sys.argv[4])
kinds = sys.argv[5].split(",") if len(sys.argv) > 5 else ["find", "update", "expression", "pipeline"]
rng = random.Random(seed)
UTC = datetime.timezone.utc


def date():
    return datetime.datetime(2000, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=rng.randrange(-10**12, 10**12))


def scalar():
    return rng.choice([
        lambda: rng.randrange(-5, 6), lambda: Int64(rng.randrange(-5, 6)), lambda: rng.choice([0.5, 2.0, -1.5, 1e10, 2.5, -0.0]),
        lambda: rng.choice(["", "a", "B", "ab c", "10", "ü"]), lambda: rng.choice([True, False]), lambda: None, date,
        lambda: 2**31 - rng.randrange(2), lambda: Int64(2**62),
    ])()


def value(depth=2):
    kind = rng.random()
    if depth and kind < 0.15:
        return [value(depth - 1) for _ in range(rng.randrange(4))]
    if depth and kind < 0.3:
        return {name: value(depth - 1) for name in rng.sample("xyz", rng.randrange(3))}
    return scalar()


def document(number):
    fields = {"_id": number}
    for name in rng.sample("abcde", rng.randrange(1, 6)):
        fields[name] = value()
    if rng.random() < 0.8:
        fields["n"] = rng.choice([rng.randrange(-20, 20), rng.random() * 10 - 5, Int64(rng.randrange(-20, 20))])
    if rng.random() < 0.8:
        fields["t"] = date()
    if rng.random() < 0.7:
        fields["l"] = [scalar() for _ in range(rng.randrange(5))]
    if rng.random() < 0.7:
        fields["s"] = rng.choice(["alpha", "Beta", " gamma ", "a,b,c", "", "ünï"])
    return fields


PATHS = ["a", "b", "c", "d", "n", "l", "s", "t", "a.x", "b.y", "a.x.y", "l.0", "a.0"]


def condition(depth=2):
    operand = rng.choice([
        lambda: value(1), lambda: {rng.choice(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"]): scalar()},
        lambda: {rng.choice(["$in", "$nin"]): [scalar() for _ in range(rng.randrange(4))]},
        lambda: {"$exists": rng.choice([True, False])}, lambda: {"$size": rng.randrange(4)},
        lambda: {"$type": rng.choice(["int", "long", "double", "string", "null", "array", "object", "number", "date", "bool"])},
        lambda: {"$mod": [rng.choice([2, 3]), rng.randrange(3)]}, lambda: {"$all": [scalar() for _ in range(rng.randrange(3))]},
        lambda: {"$elemMatch": {rng.choice(["$gt", "$lt"]): scalar()}}, lambda: {"$not": {"$gt": scalar()}},
        lambda: {"$regex": rng.choice(["^a", "b", "A$"]), "$options": rng.choice(["", "i"])},
    ])()
    return {rng.choice(PATHS): operand}


def query(depth=2):
    if depth and rng.random() < 0.25:
        return {rng.choice(["$and", "$or", "$nor"]): [query(depth - 1) for _ in range(rng.randrange(1, 3))]}
    return {k: v for _ in range(rng.randrange(1, 3)) for k, v in condition().items()}


def update():
    path = lambda: rng.choice(["a", "b", "n", "l", "a.x", "b.y", "l.0", "z", "z.w"])
    return {k: v for k, v in [rng.choice([
        lambda: ("$set", {path(): value(1)}), lambda: ("$unset", {path(): 1}), lambda: ("$inc", {path(): rng.choice([1, Int64(2), 0.5])}),
        lambda: ("$mul", {path(): rng.choice([2, 0.5])}), lambda: ("$min", {path(): scalar()}), lambda: ("$max", {path(): scalar()}),
        lambda: ("$push", {rng.choice(["l", "z", "a"]): scalar()}),
        lambda: ("$push", {"l": {"$each": [scalar(), scalar()], "$slice": rng.randrange(-3, 4), "$sort": rng.choice([1, -1])}}),
        lambda: ("$addToSet", {"l": scalar()}), lambda: ("$pop", {"l": rng.choice([1, -1])}), lambda: ("$pull", {"l": scalar()}),
        lambda: ("$rename", {path(): "q"}),
    ])() for _ in range(rng.randrange(1, 3))]}


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "+05:30", "-0300", "Asia/Kolkata"]
UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]


def expression(depth=3):
    if depth == 0 or rng.random() < 0.25:
        return rng.choice(["$" + rng.choice(PATHS), lambda: {"$literal": scalar()}, lambda: scalar()]) if rng.random() < 0.6 else {"$literal": scalar()}
    sub = lambda: settled(expression(depth - 1))
    number = lambda: rng.choice(["$n", "$n", settled(expression(depth - 1)), rng.randrange(-4, 9), 1.5])
    some_list = lambda: rng.choice(["$l", "$l", settled(expression(depth - 1)), [1, "a", 2.0]])
    text = lambda: rng.choice(["$s", "$s", "x", settled(expression(depth - 1))])
    when = lambda: rng.choice(["$t", "$t", "$t", settled(expression(depth - 1))])
    return rng.choice([
        lambda: {rng.choice(["$add", "$multiply", "$concatArrays", "$and", "$or"]): [sub() for _ in range(rng.randrange(1, 4))]},
        lambda: {rng.choice(["$add", "$multiply"]): [number(), number()]},
        lambda: {rng.choice(["$subtract", "$divide", "$mod"]): [number(), number()]},
        lambda: {rng.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$cmp"]): [sub(), sub()]},
        lambda: {rng.choice(["$abs", "$ceil", "$floor", "$sqrt"]): number()},
        lambda: {rng.choice(["$round", "$trunc"]): [number(), rng.randrange(-1, 3)]},
        lambda: {"$pow": [rng.choice(["$n", 2, 3]), rng.choice([0, 1, 2, 3, -1, 0.5])]},
        lambda: {"$cond": [sub(), sub(), sub()]}, lambda: {"$cond": {"if": sub(), "then": sub(), "else": sub()}},
        lambda: {"$ifNull": [sub(), sub()]}, lambda: {"$not": [sub()]},
        lambda: {"$switch": {"branches": [{"case": sub(), "then": sub()}], "default": sub()}},
        lambda: {"$concat": [text(), text()]}, lambda: {rng.choice(["$toLower", "$toUpper"]): text()},
        lambda: {rng.choice(["$strLenCP", "$strLenBytes"]): text()}, lambda: {"$split": [text(), rng.choice([",", "a"])]},
        lambda: {"$substrCP": [text(), rng.randrange(3), rng.randrange(4)]}, lambda: {"$trim": {"input": text()}},
        lambda: {"$size": some_list()}, lambda: {"$isArray": [sub()]}, lambda: {"$arrayElemAt": [some_list(), rng.randrange(-3, 4)]},
        lambda: {rng.choice(["$first", "$last"]): some_list()}, lambda: {"$in": [sub(), some_list()]},
        lambda: {"$slice": [some_list(), rng.randrange(-3, 4)]}, lambda: {"$reverseArray": some_list()},
        lambda: {"$range": [rng.randrange(-3, 4), rng.randrange(-3, 8), rng.choice([1, 2, -1])]},
        lambda: {"$filter": {"input": some_list(), "as": "v", "cond": {rng.choice(["$gt", "$lt"]): ["$$v", scalar()]}}},
        lambda: {"$map": {"input": some_list(), "in": {"$ifNull": ["$$this", rng.choice([0, "$n"])]}}},
        lambda: {"$reduce": {"input": rng.choice(["$l", [1, 2, 3]]), "initialValue": 0, "in": {"$add": ["$$value", 1]}}},
        lambda: {"$let": {"vars": {"v": sub()}, "in": ["$$v", sub()]}}, lambda: {"$type": sub()}, lambda: {"$isNumber": sub()},
        lambda: {"$mergeObjects": [rng.choice(["$a", "$b", {"x": 1}, settled(expression(1))]), {"y": "$n"}]},
        lambda: {"$objectToArray": rng.choice(["$a", "$b"])},
        lambda: {rng.choice(["$toInt", "$toLong", "$toDouble", "$toString", "$toBool"]): sub()},
        lambda: {rng.choice(["$year", "$month", "$dayOfMonth", "$dayOfYear", "$dayOfWeek", "$hour", "$minute", "$second", "$millisecond", "$week", "$isoWeek", "$isoWeekYear", "$isoDayOfWeek"]): rng.choice([when(), {"date": when(), "timezone": rng.choice(ZONES)}])},
        lambda: {"$dateTrunc": {"date": when(), "unit": rng.choice(UNITS), "binSize": rng.choice([1, 1, 2, 3, 7]), "timezone": rng.choice(ZONES), "startOfWeek": rng.choice(["monday", "Sunday", "fri"])}},
        lambda: {"$dateToString": {"date": when(), "format": rng.choice(["%Y-%m-%dT%H:%M:%S.%LZ", "%G-W%V-%u %j %U %w %z %Z %%"]), "timezone": rng.choice(ZONES)}},
        lambda: {rng.choice(["$dateAdd", "$dateSubtract"]): {"startDate": when(), "unit": rng.choice(UNITS), "amount": rng.randrange(-40, 40), "timezone": rng.choice(ZONES)}},
        lambda: {"$dateDiff": {"startDate": when(), "endDate": "$t", "unit": rng.choice(UNITS), "timezone": rng.choice(ZONES)}},
        lambda: {rng.choice(["x", "y"]): sub()}, lambda: [sub(), sub()],
    ])()


def settled(made):
    return made() if callable(made) else made


def accumulator():
    argument = rng.choice(["$n", "$a", "$l", "$t", 1, {"$ifNull": ["$n", 0]}])
    return {rng.choice(["$sum", "$avg", "$min", "$max", "$first", "$last", "$push", "$stdDevPop", "$stdDevSamp"]): argument}


def stage():
    return rng.choice([
        lambda: {"$match": query()}, lambda: {"$project": {rng.choice(["a", "b", "n", "a.x"]): rng.choice([1, 1, 0, True]), rng.choice(["q", "c", "z.w"]): rng.choice([1, 0, "$n", "$a.x"])}},
        lambda: {"$project": {"_id": rng.choice([0, 1]), "a.x": 1, "q": settled(expression(1))}},
        lambda: {rng.choice(["$addFields", "$set"]): {rng.choice(["a", "q", "a.x", "l.z", "z.w"]): settled(expression(2))}},
        lambda: {"$unset": rng.sample(["a", "b.y", "l", "n"], 2)},
        lambda: {"$group": {"_id": rng.choice([None, "$b", "$n", {"x": "$a", "y": "$s"}]), "r": accumulator(), "m": {"$sum": 1}}},
        lambda: {"$limit": rng.randrange(1, 20)}, lambda: {"$skip": rng.randrange(10)},
        lambda: {"$unwind": rng.choice(["$l", "$a", "$a.x", {"path": "$l", "preserveNullAndEmptyArrays": True, "includeArrayIndex": rng.choice(["i", "z.i"])}])},
        lambda: {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"w": settled(expression(1))}]}},
        lambda: {"$count": "n"}, lambda: {"$replaceRoot": {"newRoot": rng.choice([{"v": "$n", "_id": "$_id"}, "$a"])}},
    ])()


def asked(action):
    try:
        return "ok", action()
    except OperationFailure as error:
        return "error", error.code


def same(a, b, ordered):
    if a[0] == "ok" and b[0] == "ok" and isinstance(a[1], list):
        raw = [[d.raw for d in one[1]] for one in (a, b)]
        return raw[0] == raw[1] if ordered else sorted(raw[0]) == sorted(raw[1])
    return a == b


docs = [document(i) for i in range(60)]
for db in (ours, theirs):
    db.c.drop()
    db.c.insert_many(docs)
different = 0
counts = {}
for case in range(cases):
    kind = kinds[case % len(kinds)]
    if kind == "find":
        filter, sort = query(), [(rng.choice(["a", "n", "l", "s"]), rng.choice([1, -1])), ("_id", 1)]
        shown = filter, sort
        results = [asked(lambda: list(db.c.find(filter).sort(sort))) for db in (ours, theirs)]
    elif kind == "update":
        number, change = rng.randrange(60), update()
        shown = docs[number], change
        results = []
        for db in (ours, theirs):
            db.u.replace_one({"_id": 1}, dict(docs[number], _id=1), upsert=True)
            outcome = asked(lambda: db.u.update_one({"_id": 1}, change).modified_count)
            results.append(asked(lambda: list(db.u.find())) if outcome[0] == "ok" else outcome)
    elif kind == "expression":
        number, made = rng.randrange(60), settled(expression())
        shown = docs[number], made
        results = [asked(lambda: list(db.c.aggregate([{"$match": {"_id": number}}, {"$project": {"r": made}}]))) for db in (ours, theirs)]
    else:
        made = [{"$sort": {"_id": 1}}] + [stage() for _ in range(rng.randrange(1, 4))]
        # Groups come in no order there.
        if any("$group" in one for one in made):
            at = next(i for i, one in enumerate(made) if "$group" in one)
            made = made[: at + 1]
        shown = made
        results = [asked(lambda: list(db.c.aggregate(made))) for db in (ours, theirs)]
    outcome = results[1][0]
    counts[kind, outcome] = counts.get((kind, outcome), 0) + 1
    if not same(*results, ordered=kind != "pipeline" or not any("$group" in one for one in made)):
        different += 1
        if different <= 40:
            print(f"case {case} ({kind}): {shown}\n  here:  {str(results[0])[:600]}\n  there: {str(results[1])[:600]}")
print(f"seed {seed}: {cases} cases, {different} different; {counts}")
sys.exit(1 if different else 0)
