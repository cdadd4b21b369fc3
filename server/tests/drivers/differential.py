"""Generated finds, updates and pipelines, asked of two servers: results and error codes must be the same.

Arguments: the server's address, that of a mongod 6.0, the number of cases, the seed.
"""

import datetime
import random
import sys

import pymongo
from bson import Decimal128, Int64, Timestamp, encode
from bson import decode as strictly_decoded
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

ours = pymongo.MongoClient(sys.argv[1], document_class=RawBSONDocument)["diff"]
theirs = pymongo.MongoClient(sys.argv[2], document_class=RawBSONDocument)["diff"]
cases, seed = int(sys.argv[3]), int(sys.argv[4])
kinds = sys.argv[5].split(",") if len(sys.argv) > 5 else ["find", "update", "expression", "pipeline", "series", "write", "decimal", "let", "operator", "nested"]
rng = random.Random(seed)
UTC = datetime.timezone.utc


def date():
    return datetime.datetime(2000, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=rng.randrange(-10**11, 10**12))


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
TEXTS_OF_DATES = ["2024-02-29", "2024-02-30", "2024-02", "2024/2/9", "20240229", "20240229T101112Z", "2024-02-29T10:11Z", "2024-02-29 10:11:12.1239 +0130",
                  "2024-02-29T10:11+18", "2024-02-29T10:11:12+25:00", "2024-02-29T24:00:00Z", "2024-02-29T10:11:60Z", "2024-02-29T10", "2024-02-29T10:11:12 UTC", "2024", ""]
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
        lambda: {"$arrayToObject": rng.choice(["$l", [[["a", "$n"], ["b", "$s"], ["a", 1]]], [[{"k": "a", "v": "$n"}, {"v": 1, "k": rng.choice(["b", "", 2])}]],
                                               [[["a", 1], {"k": "b", "v": 2}]], [[{"k": "a", "v": 1}, ["b", 2]]], [[["a", 1, 2]]], [[{"k": "a", "x": 1}]]])},
        lambda: {"$getField": rng.choice(["n", {"field": "x", "input": "$a"}, {"field": "x"}, {"input": "$a"}, {"name": "x"}])},
        lambda: {rng.choice(["$toInt", "$toLong", "$toDouble", "$toString", "$toBool"]): sub()},
        lambda: {rng.choice(["$year", "$month", "$dayOfMonth", "$dayOfYear", "$dayOfWeek", "$hour", "$minute", "$second", "$millisecond", "$week", "$isoWeek", "$isoWeekYear", "$isoDayOfWeek"]): rng.choice([when(), {"date": when(), "timezone": rng.choice(ZONES)}])},
        lambda: {"$dateTrunc": {"date": when(), "unit": rng.choice(UNITS), "binSize": rng.choice([1, 1, 2, 3, 7]), "timezone": rng.choice(ZONES), "startOfWeek": rng.choice(["monday", "Sunday", "fri"])}},
        lambda: {"$dateToString": {"date": when(), "format": rng.choice(["%Y-%m-%dT%H:%M:%S.%LZ", "%G-W%V-%u %j %U %w %z %Z %%"]), "timezone": rng.choice(ZONES)}},
        lambda: {rng.choice(["$dateAdd", "$dateSubtract"]): {"startDate": when(), "unit": rng.choice(UNITS), "amount": rng.randrange(-19, 20), "timezone": rng.choice(ZONES)}},
        lambda: {"$dateDiff": {"startDate": when(), "endDate": "$t", "unit": rng.choice(UNITS), "timezone": rng.choice(ZONES)}},
        lambda: {"$dateToString": {"date": rng.choice(["$t", "$none", "$n"]), "format": rng.choice(["%Y", "%d", "$none", "$s", "%"]), "timezone": rng.choice(ZONES + ["+24", "-99:99", "+1", "$none", "Nowhere"]), "onNull": sub()}},
        lambda: {"$dateTrunc": {"date": "$t", "unit": rng.choice(UNITS + ["eon"]), "startOfWeek": rng.choice([None, "$none", "$s", "monday"])}},
        lambda: {"$dateDiff": {"startDate": "$t", "endDate": date(), "unit": rng.choice(UNITS + ["eon"]), "startOfWeek": rng.choice([None, "$none", "$s", "monday"])}},
        lambda: {rng.choice(["$dateAdd", "$dateSubtract"]): {"startDate": "$t", "unit": rng.choice(UNITS), "amount": {"$literal": Int64(rng.choice([2**63 - 1, -(2**63), 10**17]))}}},
        lambda: {"$hour": {"date": when(), "timezone": rng.choice(["$none", "$s"])}}, lambda: {"$toDate": rng.choice(TEXTS_OF_DATES)},
        lambda: {rng.choice(["$round", "$trunc"]): [rng.choice([2.345, 2.675, 1.005, 0.285, -7.5, 12345, "$n", "$s", None]), rng.choice([1, 2, "$none", 1.5, "$s", 101])]},
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


def several():
    return rng.choice([
        lambda: {rng.choice(["$firstN", "$lastN", "$minN", "$maxN"]): {"input": rng.choice(["$v", "$q", "$x"]), "n": rng.randrange(1, 5)}},
        lambda: {rng.choice(["$top", "$bottom"]): {"output": rng.choice(["$v", ["$x", "$g"]]), "sortBy": {rng.choice(["x", "t"]): rng.choice([1, -1])}}},
        lambda: {rng.choice(["$topN", "$bottomN"]): {"n": rng.randrange(1, 4), "output": "$q", "sortBy": {"x": rng.choice([1, -1])}}},
        lambda: {rng.choice(["$sum", "$avg", "$min", "$max", "$first", "$last", "$push"]): rng.choice(["$v", "$q", "$x", 1])},
    ])()


def window():
    low, high = sorted([rng.randrange(-4, 5), rng.randrange(-4, 5)])
    return rng.choice([
        lambda: {}, lambda: {"window": {"documents": [low, high]}}, lambda: {"window": {"documents": ["unbounded", "current"]}},
        lambda: {"window": {"documents": [rng.choice(["unbounded", "current"]), "unbounded"]}},
        lambda: {"window": {"range": [low * 3, high * 3.5]}}, lambda: {"window": {"range": ["unbounded", high]}},
        lambda: {"window": {"range": [low, high], "unit": rng.choice(["day", "hour", "month", "week"])}},
    ])()


def windowed():
    function = rng.choice([
        lambda: {**several(), **window()}, lambda: {**several(), **window()}, lambda: {rng.choice(["$rank", "$denseRank", "$documentNumber"]): {}},
        lambda: {"$shift": {"output": "$v", "by": rng.randrange(-3, 4), **rng.choice([{}, {"default": "none"}])}},
        lambda: {"$derivative": {"input": rng.choice(["$q", "$x", "$t", "$v"]), **rng.choice([{}, {"unit": "hour"}])}, **window()},
        lambda: {"$integral": {"input": rng.choice(["$q", "$q", "$x", "$v"]), **rng.choice([{}, {"unit": "day"}])}, **window()},
        lambda: {"$expMovingAvg": {"input": "$q", **rng.choice([{"N": 3}, {"alpha": 0.25}])}},
        lambda: {"$locf": "$v"}, lambda: {"$linearFill": "$v"},
        lambda: {rng.choice(["$covariancePop", "$covarianceSamp"]): rng.choice([["$q", "$x"], ["$q", "$v"], ["$x", "$none"], ["$q"], "$l", 1]), **window()},
    ])()
    return {"$setWindowFields": {**rng.choice([{}, {"partitionBy": "$g"}, {"partitionBy": {"$mod": ["$_id", 2]}}]),
                                 **rng.choice([{"sortBy": {"x": 1}}, {"sortBy": {"t": 1}}, {"sortBy": {"x": -1}}, {"sortBy": {"_id": 1}}, {}]), "output": {"r": function}}}


def densified():
    by_time = rng.random() < 0.5
    at = lambda: datetime.datetime(2020, 1, 1, tzinfo=UTC) + datetime.timedelta(hours=rng.randrange(0, 900))
    # Bounds of one's own make documents below them there in partitions that begin below.
    partition = rng.choice([{}, {"partitionByFields": ["g"]}])
    bounds = rng.choice([lambda: "full", lambda: "partition", lambda: "full" if partition else [at(), at()] if by_time else [rng.randrange(-5, 30), rng.randrange(20, 90)]])()
    step = rng.choice([1, 2, 12]) if by_time else rng.choice([1, 3, 0.5, 7])
    return {"$densify": {"field": "t" if by_time else "x", **partition,
                         "range": {"step": step, "bounds": bounds, **({"unit": rng.choice(["hour", "day", "month"])} if by_time else {})}}}


def filled():
    output = rng.choice([
        lambda: {"v": {"method": rng.choice(["locf", "linear"])}}, lambda: {"v": {"value": rng.choice([0, "$q", None])}},
        lambda: {"v": {"method": "locf"}, "q": {"method": "linear"}}, lambda: {"v": {"value": {"$add": ["$q", 1]}}, "z.y": {"value": 1}},
    ])()
    return {"$fill": {**rng.choice([{}, {"partitionBy": {"k": "$g"}}, {"partitionByFields": ["g"]}]), **rng.choice([{"sortBy": {"x": 1}}, {"sortBy": {"t": 1}}, {}]), "output": output}}


def bucketed():
    return {"$bucketAuto": {"groupBy": rng.choice(["$x", "$q", "$v", "$g", "$none", {"$mod": ["$q", 4]}, "q", {}, {"a": "$q"}, "$"]), "buckets": rng.choice([1, 2, 3, 5, 7, 60, 4.0, Int64(2), 0, -1, 1.5, "2", None]),
                            **rng.choice([{}, {}, {"output": {"n": several(), "m": {"$sum": 1}}}, {"output": {}}, {"output": 1}, {"what": 1}])}}


def sorted_by(**fields):
    """A sort that also decides between documents of several collections with one _id."""
    return {"$sort": {**fields, "t": 1, "s": 1}}


def within(depth=1):
    """Stages of a pipeline within a stage, which compute nothing that could fail."""
    return [rng.choice([
        lambda: {"$match": query(1)}, lambda: {"$project": {"a": 1, "n": 1}}, lambda: {"$limit": rng.randrange(1, 5)}, lambda: {"$skip": rng.randrange(3)},
        lambda: rng.choice([sorted_by(_id=-1), sorted_by(n=1, _id=1), sorted_by(n=-1, _id=1)]), lambda: {"$count": "n"}, lambda: {"$unset": "l"}, lambda: {"$unwind": "$l"},
        lambda: {"$set": {"k": "$s"}}, lambda: {"$replaceWith": {"_id": "$_id", "w": "$a"}},
        lambda: nested_stage(depth - 1) if depth else {"$limit": 3},
    ])() for _ in range(rng.randrange(3))]


def nested_stage(depth=1):
    """Stages with pipelines of their own. Sorted first, so that limits choose the same documents."""
    inside = lambda: [sorted_by(_id=1)] + within(depth)
    variables = rng.choice([{}, {"x": "$n"}, {"x": "$a", "y": "$s"}, {"x": {"k": "$n"}}, {"x": None}])
    name = lambda: rng.choice(["$$x", "$$x", "$$x.k", "$$y", "$$z"])
    compared = lambda: {"$match": {"$expr": {rng.choice(["$eq", "$ne", "$gt", "$lte"]): [rng.choice(["$n", "$a", "$q", "$_id"]), name()]}}}
    seen = lambda: rng.choice([lambda: [compared()], lambda: [compared(), {"$project": {"n": 1, "v": name()}}], lambda: [{"$set": {"v": name()}}, {"$limit": 3}], lambda: inside()])()
    equal = rng.choice([{}, {}, {"localField": rng.choice(["n", "a", "l", "none"]), "foreignField": rng.choice(["n", "q", "a", "_id", "none"])}, {"localField": "n"}])
    return rng.choice([
        lambda: {"$redact": redaction()},
        lambda: {"$facet": {facet: inside() for facet in rng.sample(["p", "q", "r"], rng.randrange(1, 3))}},
        lambda: {"$facet": rng.choice([{}, 1, {"p": 1}, {"p": [1]}, {"p": [{}]}, {"p": []}, {"p.q": []}, {"$p": []}, {"p": [{rng.choice(["$facet", "$out", "$merge", "$collStats", "$indexStats", "$nothing"]): {}}]}])},
        lambda: {"$unionWith": rng.choice([lambda: rng.choice(["w", "c", "nothing"]), lambda: {"coll": rng.choice(["w", "c", "nothing"]), "pipeline": inside()}])()},
        lambda: {"$unionWith": rng.choice([1, {}, {"coll": 1}, {"coll": "w", "pipeline": 1}, {"coll": "w", "x": 1}, {"coll": "w", "pipeline": [{"$out": "o"}]}, {"coll": "w", "pipeline": [{"$merge": "o"}]}])},
        lambda: {"$lookup": {"from": rng.choice(["w", "c", "nothing"]), "as": rng.choice(["j", "o.j"]), "pipeline": [sorted_by(_id=1)] + seen(), **equal, **rng.choice([{}, {"let": variables}, {"let": variables}])}},
        lambda: {"$lookup": {"from": "w", "as": "j", **rng.choice([{"let": {"x": 1}}, {"pipeline": 1}, {"pipeline": [], "let": 1}, {"pipeline": [], "let": {"X": 1}}, {"pipeline": [{"$merge": "o"}]}, {"pipeline": [{"$out": "o"}]}, {"pipeline": [], "localField": 1}])}},
    ])()


def connected():
    """A $graphLookup of one document: there, what one has found decides sometimes what is found for the next. Its results come in no order there."""
    start = rng.choice(["$n", "$l", "$q", "$s", "$_id", "$none", None, 1, {"$add": ["$_id", 1]}, {"$literal": [1, 2.0, "a", None]}, {"$literal": [rng.randrange(40) for _ in range(3)]}])
    graph = {"from": rng.choice(["w", "c", "nothing"]), "startWith": start, "connectFromField": rng.choice(["n", "q", "l", "l.0", "l.x", "a.x", "b.y", "s", "o.p", "x", "_id", "none"]),
             "connectToField": rng.choice(["n", "q", "l", "l.1", "a.x", "s", "o.p", "x", "_id", "none"]), "as": "j",
             **rng.choice([{}, {"maxDepth": rng.choice([0, 1, 2, Int64(3), 1.0])}]), **rng.choice([{}, {"depthField": rng.choice(["d", "z.d", "l.d"])}]),
             **rng.choice([{}, {"restrictSearchWithMatch": rng.choice([{}, query(1), {"$expr": {"$lt": ["$_id", rng.randrange(50)]}}, {"q": {"$gt": 3}, "$comment": "c"}])}])}
    wrong = rng.choice([{"maxDepth": rng.choice([-1, 1.5, "x", None])}, {"depthField": rng.choice(["", "$d", 1])}, {"as": rng.choice(["", "a.", 1, "$x"])}, {"connectFromField": rng.choice(["", "$n", 1])},
                        {"connectToField": rng.choice(["", "a..b", 1])}, {"from": rng.choice(["", 1, ".c", None])}, {"restrictSearchWithMatch": rng.choice([1, {"$foo": 1}, {"$expr": {"$foo": 1}}])}, {"x": 1}])
    if rng.random() < 0.2:
        graph.update(wrong)
    elif rng.random() < 0.1:
        del graph[rng.choice(list(graph))]
    return [{"$graphLookup": graph}, {"$set": {"j": {"$sortArray": {"input": "$j", "sortBy": {"_id": 1}}}}}]


def redaction():
    """The argument of a $redact, which fails for no document."""
    name = lambda: rng.choice(["$x", "$y", "$a", "$n", "$a.x", "$$CURRENT.x", "$$ROOT.n", "$$ROOT._id", "$_id", scalar()])
    condition = lambda: rng.choice([{rng.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): [name(), name()]}, {"$and": [name(), {"$gt": [name(), 1]}]}, {"$isArray": "$a"}, {"$let": {"vars": {"v": name()}, "in": "$$v"}}])
    become = lambda: rng.choice(["$$DESCEND", "$$DESCEND", "$$PRUNE", "$$KEEP"])
    return rng.choice([lambda: {"$cond": [condition(), become(), become()]}, become, lambda: rng.choice(["keep", "descend", {"$literal": "prune"}]),
                       lambda: {"$switch": {"branches": [{"case": condition(), "then": become()}], "default": become()}}, lambda: {"$let": {"vars": {"CURRENT": "$a"}, "in": {"$cond": [condition(), become(), become()]}}}])()


def nested():
    if rng.random() < 0.15:
        return [{"$sort": {"_id": 1}}, {"$skip": rng.randrange(55)}, {"$limit": 1}] + connected()
    if rng.random() < 0.04:
        return [{"$sort": {"_id": 1}}, {"$limit": rng.randrange(1, 20)}, {"$redact": rng.choice(["$a", "$n", 1, None, {}, ["$$KEEP"], "$$DESCEND.x", "$$x", {"$divide": [1, 0]}, {"$foo": 1}])}]
    return [{"$sort": {"_id": 1}}, {"$limit": rng.randrange(1, 20)}, nested_stage()] + rng.choice([[], [], [{"$limit": rng.randrange(1, 30)}], [{"$project": {"l": 0}}], [nested_stage()]])


def fail_apart(made):
    """Whether at least two stages of a pipeline fail by themselves, after those that choose its documents, and each gives one result on both."""
    apart = [[asked(lambda: list(db.c.aggregate(made[:2] + [one]))) for db in (ours, theirs)] for one in made[2:]]
    return sum(here[0] == "error" for here, _ in apart) > 1 and all(same(*results, exact="$set" not in str(made), ordered=True) for results in apart)


def series():
    return rng.choice([
        lambda: [windowed()], lambda: [windowed()], lambda: [densified(), {"$limit": 4000}], lambda: [filled()],
        lambda: [{"$group": {"_id": rng.choice([None, "$g", {"$mod": ["$q", 3]}]), "r": several(), "s": several()}}, {"$sort": {"_id": 1}}],
        lambda: [{"$bucket": {"groupBy": rng.choice(["$x", "$q", "$v", {"$add": ["$q", "$x"]}]), "boundaries": sorted(rng.sample(range(-10, 80), rng.randrange(1, 5))),
                              **rng.choice([{}, {"default": "other"}, {"default": 500}, {"default": 3}]), **rng.choice([{}, {"output": {rng.choice(["n", "n", "_id"]): several()}}])}}],
        lambda: [bucketed()], lambda: [bucketed()],
        lambda: [{"$bucket": {"groupBy": "$q", "boundaries": rng.choice([[1, "a"], [3, 1], [1], "x", [0, 100, 1000]]), "default": -1000}}],
        lambda: [{"$lookup": {"from": rng.choice(["c", "w", "nothing"]), **rng.choice([{"localField": rng.choice(["q", "g", "v", "_id", "none", "o.p", "l"]), "foreignField": rng.choice(["n", "a", "l", "a.x", "none", "g"])}, {"localField": "q", "foreignField": "_id"}]), "as": rng.choice(["r", "o.r"])}}],
        lambda: [{"$sample": {"size": rng.choice([100, 1000, 0, -1, "x"])}}, {"$sort": {"_id": 1}}],
        lambda: [{"$addFields": {"r": {rng.choice(["$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp"]): rng.choice(["$l", ["$q", "$x"], "$q", ["$l", "$q"], "$none"])}}}],
        lambda: rng.choice([[{"$indexStats": {}}, {"$project": {"name": 1, "key": 1}}], [{"$out": "o"}, {"$match": {}}], [{"$merge": "o"}, {"$match": {}}], [{"$sample": {"size": 3}}, {"$count": "n"}]]),
    ])()


def decimal():
    if rng.random() < 0.1:
        return Decimal128(rng.choice(["NaN", "Infinity", "-Infinity", "0", "-0", "0E+10", "0E-20", "1E+6000", "1E-6000"]))
    coefficient = rng.choice([rng.randrange(1000), rng.randrange(10 ** rng.choice([5, 17, 33, 34]))])
    return Decimal128(f"{rng.choice(['', '-'])}{coefficient}E{rng.choice([0, 0, -1, -2, -5, 3, rng.randrange(-40, 20)])}")


def of_decimals():
    """Arithmetic on a decimal128 and another number."""
    other = rng.choice([decimal, lambda: rng.randrange(-20, 20), lambda: Int64(rng.randrange(-10**12, 10**12)), lambda: rng.choice([0.1, 2.5, -3.75, 1e20])])
    pair = [{"$literal": decimal()}, {"$literal": other()}]
    rng.shuffle(pair)
    return rng.choice([
        lambda: {rng.choice(["$add", "$subtract", "$multiply", "$divide", "$mod", "$cmp"]): pair},
        lambda: {rng.choice(["$abs", "$floor", "$ceil"]): {"$literal": decimal()}},
        lambda: {rng.choice(["$round", "$trunc"]): [{"$literal": decimal()}, rng.randrange(-5, 8)]},
        lambda: {rng.choice(["$sum", "$avg", "$min", "$max"]): pair + [{"$literal": other()}]},
    ])()


NUMBERS = [0, 1, -1, 2, 7, 0.5, -0.5, 1.5, -2.75, 100, 1e10, float("inf"), float("-inf"), float("nan"), 2**31, -(2**31) - 1]
TEXTS = ["", "a", "abc abc", "\u00fcn\u00ef a\u00fc", "a,b,c", "Hello\n", "12-34\n", "x\u20acy", "aaaa", "5", "-1.5e3", "1E-7000", "0x1F", "Infinity", "nan", "65a0b1c2d3e4f5061728394a"]
FORMATS = ["%Y-%m-%d", "%d.%m.%Y %H:%M", "%Y-%m-%dT%H:%M:%S.%LZ", "%Y%m%d", "%G-W%V-%u", "%Y-%m-%d %z", "%Y-%m-%d %Z", "%%%Y-%m-%d", "%Y-%m", "%H:%M", "", "%", "%q", "%j", "%b", "x%Y-%m-%d", "%Y-%m-%d %H:%M:%S"]
DATES = TEXTS_OF_DATES + ["2024-02-29T10:11:12.123Z", "2020-W53-7", "2020-W54-1", "2024-02-29 +0130", "2024-02-29 +5:45", "2020W537", "2020-W53", "2021-W53-1", "70-12-31", "69-1-1T9:05", "2024-02-29T9Z", "2024-02-29 GMT-1", "%2024-02-29",
                          "2024-02-29 10:11:12", "2024-02-29 10:11:61", "24-2-9", "10:11", "2024-02-29 Z"]
# Read with a format alone: there these are dates without one too.
FORMATTED_DATES = DATES + ["9.2.2024 7:05", "x2024-02-29"]
APPROXIMATE = ["$sin", "$cos", "$tan", "$asin", "$acos", "$atan", "$atan2", "$sinh", "$cosh", "$tanh", "$asinh", "$acosh", "$atanh", "$log", "$degreesToRadians", "$radiansToDegrees"]


def operator():
    """An operator with operands that are mostly what it takes, and sometimes anything."""
    odd = lambda made: rng.choice(["$none", "$a", "$l", "$s", "$n", "$t", None, {"$literal": value(1)}]) if rng.random() < 0.2 else made()
    number = lambda: odd(lambda: rng.choice(["$n", rng.choice(NUMBERS), Int64(rng.randrange(-5, 100)), rng.randrange(-3, 12)]))
    text = lambda: odd(lambda: rng.choice(["$s", {"$literal": rng.choice(TEXTS)}]))
    listed = lambda: odd(lambda: rng.choice(["$l", "$l", {"$literal": [rng.choice([1, 2, 2.0, 3, Int64(3), "a", "b", None, True, [1], {"x": 1}, {"x": {"y": 2}}, {"x": 2, "y": 1}]) for _ in range(rng.randrange(6))]}]))
    objects = lambda: odd(lambda: rng.choice(["$a", "$b", "$$ROOT", {"x": 1, "y": "$n"}]))
    when = lambda: odd(lambda: "$t")
    zone = lambda: rng.choice([{}, {}, {"timezone": odd(lambda: rng.choice(ZONES + ["GMT", "+00:00", "Nowhere", "-99"]))}])
    some = lambda pairs: {name: made() for name, made in pairs.items() if rng.random() < 0.5}
    instead = lambda: some({"onNull": lambda: rng.choice(["none", "$n", "$none"]), "onError": lambda: rng.choice(["wrong", "$n", "$none", {"$divide": [1, "$zero"]}])})
    part = lambda: odd(lambda: rng.choice([0, 1, 2, 12, 13, 53, 60, -1, 32767, 32768, -32769, 1.5, 2.0, Int64(70)]))
    year = lambda: odd(lambda: rng.choice([1, 1970, 2020, 2024, 9999, 0, 10000, Int64(2021), 2022.0, 1999.5]))
    time = lambda: {**some({"hour": part, "minute": part, "second": part, "millisecond": part}), **zone()}
    pattern = lambda: odd(lambda: {"$literal": rng.choice(["a", "[a-c]+", "(a)(x)?", "b*", "$", "^.", "\\s+", "(\\w)(\\d)?", "", "4$", "\u00fc", "A", "(", "a|(b)", "o\n$", "(?i)H", "\\bc"])})
    n = lambda: odd(lambda: rng.choice([1, 2, 3, 0, -1, 1.5, 2.0, Int64(2)]))
    sort = lambda: rng.choice([1, -1, {"x": 1}, {"x": -1, "y": 1}, {"x.y": 1}, 2, {}, "x", {"x": "a"}, {"": 1}, 1.0])
    index = lambda: odd(lambda: rng.choice([0, 1, 2, 5, 40, -1, 1.5, Int64(1)]))
    return rng.choice([
        lambda: {"$dateFromString": {"dateString": odd(lambda: {"$literal": rng.choice(DATES)}), **zone(), **instead()}},
        lambda: {"$dateFromString": {"dateString": odd(lambda: {"$literal": rng.choice(FORMATTED_DATES)}), "format": odd(lambda: rng.choice(FORMATS)), **zone(), **instead()}},
        lambda: {"$dateFromString": {"dateString": {"$dateToString": {"date": "$t", "format": FORMATS[2]}}, "format": FORMATS[2], **zone()}},
        lambda: {"$dateToParts": {"date": when(), **zone(), **rng.choice([{}, {"iso8601": odd(lambda: rng.choice([True, False]))}])}},
        lambda: {"$dateFromParts": {"year": year(), **some({"month": part, "day": part}), **time()}},
        lambda: {"$dateFromParts": {"isoWeekYear": year(), **some({"isoWeek": part, "isoDayOfWeek": part}), **time()}},
        lambda: {"$dateFromParts": {**some({"year": year, "isoWeekYear": year, "day": part, "isoWeek": part, "x": part}), **time()}},
        lambda: {"$convert": {"input": rng.choice([text, number, when, listed, objects, lambda: "$_id"])(), "to": odd(lambda: rng.choice(["int", "long", "double", "decimal", "string", "bool", "date", "objectId", "object", "missing", "bogus", 16, 2, 1.0, 0, 99, 1.5])), **instead()}},
        lambda: {rng.choice(["$toDecimal", "$toObjectId"]): rng.choice([text, number, when])()},
        lambda: {rng.choice(["$substr", "$substrBytes"]): [text(), index(), rng.choice([index(), -1])]},
        lambda: {rng.choice(["$indexOfCP", "$indexOfBytes"]): [text(), odd(lambda: {"$literal": rng.choice(["a", "", "b", "\u00fc", "abc", "z"])})] + [index() for _ in range(rng.randrange(3))]},
        lambda: {rng.choice(["$replaceOne", "$replaceAll"]): {"input": text(), "find": odd(lambda: {"$literal": rng.choice(["a", "", "bc", "\u00fc"])}), "replacement": odd(lambda: rng.choice(["", "x", "\u20ac"]))}},
        lambda: {rng.choice(["$regexMatch", "$regexFind", "$regexFindAll"]): {"input": text(), "regex": pattern(), **rng.choice([{}, {"options": odd(lambda: rng.choice(["", "i", "m", "s", "x", "im", "q"]))}])}},
        lambda: {"$sortArray": {"input": listed(), "sortBy": sort()}},
        lambda: {"$zip": {"inputs": [listed() for _ in range(rng.randrange(4))], **some({"useLongestLength": lambda: rng.choice([True, True, False, 1]), "defaults": lambda: [rng.choice([0, "$n"]) for _ in range(rng.randrange(3))]})}},
        lambda: {rng.choice(["$setUnion", "$setIntersection"]): [listed() for _ in range(rng.randrange(4))]},
        lambda: {"$setEquals": [listed() for _ in range(rng.randrange(1, 4))]},
        lambda: {rng.choice(["$setDifference", "$setIsSubset"]): [listed(), listed()]},
        lambda: {rng.choice(["$firstN", "$lastN", "$minN", "$maxN"]): {"n": n(), "input": listed()}},
        lambda: {"$setField": {"field": rng.choice(["x", "q", "a.b", {"$literal": "$x"}, "$n", 5, {"$concat": ["x", "y"]}]), "input": objects(), "value": rng.choice(["$n", 1, "$$REMOVE", "$none", {"x": "$s"}])}},
        lambda: {"$unsetField": {"field": rng.choice(["x", "y", {"$const": "a"}]), "input": objects()}},
        lambda: {"$log": [number(), number()]}, lambda: {"$atan2": [number(), number()]}, lambda: {rng.choice(APPROXIMATE): number()},
        lambda: {rng.choice(["$binarySize", "$bsonSize"]): rng.choice([text, objects])()},
        lambda: {rng.choice(["$tsSecond", "$tsIncrement"]): rng.choice([Timestamp(rng.randrange(2**32), rng.randrange(2**32)), when()])},
        lambda: {"$type": {"$rand": rng.choice([{}, [], 1, {"x": 1}, [1]])}},
        # Named arguments that are missing or unknown.
        lambda: {rng.choice(["$dateFromString", "$dateToParts", "$dateFromParts", "$convert", "$regexFind", "$replaceOne", "$sortArray", "$zip", "$firstN", "$minN", "$unsetField"]): rng.choice([
            1, "$a", {}, {"x": 1}, {"input": "$l"}, {"find": "a"}, {"regex": "a"}, {"to": "int"}, {"n": 1}, {"field": "x"}, {"date": "$t", "x": 1}])},
    ])()


def constant():
    return rng.choice([
        scalar, scalar, scalar, lambda: {"k": scalar()}, lambda: [scalar(), scalar()], lambda: {"$add": [1, rng.choice([1, 2.5])]}, lambda: {"$gt": ["$$NOW", 3]},
        lambda: rng.choice(["$$ROOT", "$a", "$$y", "$$z", "$$REMOVE", {"$divide": [1, 0]}, {"$literal": "$a"}]),
    ])()


def seen():
    """An expression that sees constants."""
    name = lambda: rng.choice(["$$x", "$$x", "$$y", "$$z", "$$x.k", "$$y.k"])
    other = lambda: rng.choice([name(), "$" + rng.choice(PATHS), "$n", scalar()])
    return rng.choice([
        lambda: {rng.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$cmp"]): [other(), name()]}, name,
        lambda: {"$in": [other(), {"$ifNull": [rng.choice(["$l", name()]), [name(), 1]]}]}, lambda: {rng.choice(["$add", "$multiply"]): [other(), name()]},
        lambda: {"$let": {"vars": {"x": other()}, "in": [name(), "$$x"]}}, lambda: {"$cond": [name(), other(), name()]},
        lambda: {"$filter": {"input": "$l", "as": rng.choice(["v", "x"]), "cond": {"$lt": [name(), 2]}}}, lambda: {"k": name(), "m": [name()]},
        lambda: {rng.choice(["$and", "$or"]): [{"$gt": [name(), other()]}, {"$ne": ["$a", name()]}]},
    ])()


def steady():
    """One that fails for no document: there it may go before the rest of the filter, and before its errors."""
    made = seen()
    return steady() if any(one in str(made) for one in ("$add", "$multiply", "$in", "$filter")) else made


def with_constants():
    """A command with `let`."""
    values = {name: constant() for name in rng.choice(["x", "xy", "xyz", "zx", "yxz"])}
    if rng.random() < 0.05:
        values[rng.choice(["X", "", "_x", "x1", "NOW", "ü", "a b"])] = 1
    filter, alone = {**(query(1) if rng.random() < 0.5 else {}), "$expr": steady()}, {"$expr": seen()}
    return {**rng.choice([
        lambda: {"find": "c", "filter": rng.choice([filter, alone]), "sort": {"_id": rng.choice([1, -1])}, "projection": rng.choice([{}, {"a": 1}, {"q": seen()}])},
        lambda: {"find": "c", "filter": query(1), "sort": {"_id": 1}, "skip": 3, "projection": {"q": seen(), "a": 1}},
        lambda: {"aggregate": "c", "pipeline": [{"$sort": {"_id": 1}}, {"$match": filter}, {"$set": {"q": seen(), "r": "$$x"}}], "cursor": {}},
        lambda: {"aggregate": "c", "pipeline": [{"$match": filter}, {"$group": {"_id": rng.choice(["$$x", "$s"]), "r": {rng.choice(["$sum", "$max"]): steady()}}}, {"$sort": {"_id": 1}}], "cursor": {}},
        lambda: {"aggregate": "c", "pipeline": [{"$sort": {"_id": 1}}, {"$match": {"a": "$$x"}}, {"$replaceWith": {"q": "$$x", "_id": "$_id"}}], "cursor": {}},
    ])(), "let": values}


def written():
    into = rng.choice(["o", "o", "p"])
    made = [{"$match": {"_id": {"$lt": rng.randrange(0, 40)}}}, {"$project": {"q": 1, "g": 1, "z": {"$add": ["$q", rng.randrange(3)]}}}]
    if rng.random() < 0.3:
        return made + [{"$out": into}]
    return made + [{"$merge": {"into": into, **rng.choice([{}, {"on": "_id"}]),
                               **rng.choice([{}, {"whenMatched": rng.choice(["replace", "merge", "keepExisting", "fail"])}]),
                               **rng.choice([{}, {}, {"whenNotMatched": rng.choice(["insert", "discard", "fail"])}])}}]


def decode(raw):
    """A document, whose dates may lie beyond those of Python."""
    return strictly_decoded(raw, CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO))


def asked(action):
    try:
        return "ok", action()
    except OperationFailure as error:
        # The same mistakes in its other engine: a $switch without a branch that matches, sums and products of what is no number. And
        # operands of $setIsSubset that are no lists, where the second is a constant.
        return "error", {4934200: 40066, 4974201: 16554, 5073102: 14, 17310: 17046, 17311: 17042}.get(error.code, error.code)


def loose(value):
    """Numbers by their value, without the last digits, which of sums are sometimes others there; members in any order. There
    covariances of windows that lose values have errors of some 1e-13 of these."""
    if isinstance(value, dict):
        return sorted((name, loose(member)) for name, member in value.items())
    if isinstance(value, list):
        return [loose(member) for member in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ("number", f"{0.0 if abs(value) <= 1e-11 else float(value):.11g}")
    return (type(value).__name__, str(value))


ASSOCIATIVE = ["$add", "$multiply", "$concat", "$concatArrays", "$setUnion", "$setIntersection"]


def same(a, b, ordered, exact=True):
    if a[0] == "ok" and b[0] == "ok" and isinstance(a[1], list):
        if not exact:
            both = [[str(loose(decode(d.raw))) for d in one[1]] for one in (a, b)]
            return both[0] == both[1] if ordered else sorted(both[0]) == sorted(both[1])
        raw = [[d.raw for d in one[1]] for one in (a, b)]
        return raw[0] == raw[1] if ordered else sorted(raw[0]) == sorted(raw[1])
    return a == b


def sizes(groups):
    """How many documents went into the groups of each key, and whether a key is there more than once."""
    members, keys = {}, [decode(group.raw)["_id"] for group in groups]
    for key, group in zip(keys, groups):
        key = str(loose(key))
        members[key] = members.get(key, 0) + group["m"]
    return members, len({str(key) for key in keys}) < len(keys)


def brief(result, other):
    """The first documents that the other does not have."""
    if result[0] != "ok" or not isinstance(result[1], list):
        return str(result)
    theirs = {d.raw for d in other[1]} if other[0] == "ok" else set()
    return f"{len(result[1])} documents, {[decode(d.raw) for d in result[1] if d.raw not in theirs][:2]}"[:600]


docs = [document(i) for i in range(60)]
for db in (ours, theirs):
    db.c.drop()
    db.c.insert_many(docs)
gaps = [
    {"_id": i, "g": rng.choice("abc"), "x": at, "t": datetime.datetime(2020, 1, 1, tzinfo=UTC) + datetime.timedelta(hours=at * 11 + 1), "q": rng.randrange(-5, 40),
     "l": [rng.randrange(5) for _ in range(rng.randrange(3))], **rng.choice([{}, {"v": None}, {"v": rng.randrange(10)}, {"v": rng.randrange(40) / 4}, {"o": [{"p": i % 7}]}])}
    for i, at in enumerate(rng.sample(range(80), 45))
]
for db in (ours, theirs):
    db.w.drop()
    db.w.insert_many(gaps)
different = left_out = 0
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
            results.append(asked(lambda: list(db.u.find()) + [RawBSONDocument(encode({"modified": outcome[1]}))]) if outcome[0] == "ok" else outcome)
    elif kind == "expression":
        number, made = rng.randrange(60), settled(expression())
        shown = docs[number], made
        results = [asked(lambda: list(db.c.aggregate([{"$match": {"_id": number}}, {"$project": {"r": made}}]))) for db in (ours, theirs)]
    elif kind == "operator":
        number, made = rng.randrange(60), operator()
        shown = docs[number], made
        results = [asked(lambda: list(db.c.aggregate([{"$match": {"_id": number}}, {"$project": {"r": made}}]))) for db in (ours, theirs)]
    elif kind == "let":
        shown = made = with_constants()
        results = [asked(lambda: db.command(made)["cursor"]["firstBatch"]) for db in (ours, theirs)]
        results = [("ok", str(loose(result[1]))) if result[0] == "ok" else result for result in results]
    elif kind == "decimal":
        shown = made = of_decimals()
        results = [asked(lambda: list(db.c.aggregate([{"$match": {"_id": 1}}, {"$project": {"r": made}}]))) for db in (ours, theirs)]
    elif kind == "series":
        shown = made = series()
        results = [asked(lambda: list(db.w.aggregate([{"$sort": {"_id": 1}}] + made if "$indexStats" not in made[0] else made))) for db in (ours, theirs)]
    elif kind == "nested":
        shown = made = nested()
        results = [asked(lambda: list(db.c.aggregate(made))) for db in (ours, theirs)]
    elif kind == "write":
        shown = made = written()
        results = []
        for db in (ours, theirs):
            outcome = asked(lambda: list(db.w.aggregate(made)))
            results.append((outcome[0], outcome[1] or list(db[made[-1]["$out"] if "$out" in made[-1] else made[-1]["$merge"]["into"]].find(sort=[("_id", 1)]))))
    else:
        made = [{"$sort": {"_id": 1}}] + [stage() for _ in range(rng.randrange(1, 4))]
        # There these stages go before what computes, and so before its errors.
        computes = [i for i, one in enumerate(made) if {"$set", "$addFields", "$project", "$replaceWith", "$replaceRoot"} & set(one)]
        made = [one for i, one in enumerate(made) if not {"$match", "$skip", "$limit"} & set(one) or not computes or i < computes[0]]
        # Groups come in no order there.
        if any("$group" in one for one in made):
            at = next(i for i, one in enumerate(made) if "$group" in one)
            made = made[: at + 1]
        shown = made
        results = [asked(lambda: list(db.c.aggregate(made))) for db in (ours, theirs)]
    if kind in ("expression", "operator") and results[0][0] == results[1][0] == "error" and any(f"'{one}'" in str(made) for one in ASSOCIATIVE):
        # There the constants among the operands of these are joined first: of two errors that one is told.
        results[0] = results[1]
    if kind in ("expression", "operator") and [one[0] for one in results] == ["ok", "error"] and any(f"'{one}'" in str(made) for one in ASSOCIATIVE):
        # There a constant is looked at before a missing value, which would be the result.
        nothing = [dict(decode(one.raw)).get("r") for one in results[0][1]] == [None]
        results[0] = results[1] if nothing else results[0]
    if kind == "let" and results[0][0] == results[1][0] == "error" and 17276 in (results[0][1], results[1][1]):
        # Of an unknown variable and another mistake the one is told that is met first.
        results[0] = results[1]
    if kind == "operator" and "$setEquals" in made and sorted([results[0][1], results[1][1]], key=str) == [17044, 5887502]:
        # Which of its two codes a constant that is no list gives depends on how it is written there.
        results[0] = results[1]
    if kind == "nested" and results[0][0] == results[1][0] == "error" and results[0] != results[1] and fail_apart(made):
        # Of several mistakes another one is reported there, where the outline of all stages is looked at before any is read.
        results[0] = results[1]
    outcome = results[1][0]
    counts[kind, outcome] = counts.get((kind, outcome), 0) + 1
    # Of equal numbers of several types one is given, and a field that was left out keeps its place there when it is set again.
    stages = [list(one)[0] for one in made] if kind == "pipeline" else []
    exact = not ("$group" in stages or ({"$project", "$unset", "$unwind"} & set(stages) and {"$set", "$addFields"} & set(stages)) or sum(stages.count(one) for one in ("$set", "$addFields")) > 1 or (kind == "series" and any(one in str(made) for one in ("$densify", "$maxN", "$minN", "$covariance"))) or (kind == "nested" and "$set" in str(made))
                 or (kind == "operator" and next(iter(made)) in APPROXIMATE))
    if same(*results, exact=exact, ordered=kind not in ("pipeline", "series") or not any("$group" in one or "$densify" in one for one in made)):
        continue
    if stages[-1:] == ["$group"] and results[0][0] == results[1][0] == "ok":
        (here, _), (there, is_repeated) = (sizes(result) for _, result in results)
        if is_repeated and here == there:
            # There empty lists that a projection made of numbers are sometimes several keys, not in every run the same.
            left_out += 1
            continue
    if "$unwind" in stages and "'a.x'" in str(made[: stages.index("$unwind")]) and results[0][0] == results[1][0] == "ok":
        # There an empty list that a projection made of numbers is unwound into documents without the field.
        left_out += 1
        continue
    different += 1
    if different <= 40:
        print(f"case {case} ({kind}): {shown}\n  here:  {brief(*results)}\n  there: {brief(*reversed(results))}")


def index_uses():
    """How often each index was used, after each of some commands."""
    one = {"a": 1}
    updates = [pymongo.UpdateOne({"a": n}, {"$set": {"b": n}}) for n in range(2)]
    commands = [
        lambda c: list(c.find(one)), lambda c: list(c.find({"a": {"$gte": 0}}).batch_size(2)), lambda c: list(c.find({"_id": 1})),
        lambda c: list(c.find({"b": 1})), lambda c: c.count_documents(one), lambda c: c.distinct("b", one),
        lambda c: list(c.aggregate([{"$match": one}])), lambda c: c.update_one(one, {"$set": {"b": 4}}), lambda c: c.bulk_write(updates),
        lambda c: c.update_one({"_id": 1}, {"$set": {"b": 5}}), lambda c: c.delete_one({"a": 77}), lambda c: c.insert_one({"_id": 9}),
        lambda c: c.find_one_and_update(one, {"$set": {"b": 6}}), lambda c: c.find(one).explain(), lambda c: c.create_index("b"),
        lambda c: c.drop_index("a_1"), lambda c: c.create_index("a"), lambda c: c.rename("used"),
    ]
    shown = []
    for db in (ours, theirs):
        db.used.drop()
        collection = db.uses
        collection.drop()
        collection.insert_many([{"_id": n, "a": n, "b": n % 2} for n in range(6)])
        collection.create_index("a")
        counted = []
        for command in commands:
            command(collection)
            for name in ("uses", "used"):
                counted.append({one["name"]: one["accesses"]["ops"] for one in db[name].aggregate([{"$indexStats": {}}])})
        shown.append(counted)
    if shown[0] != shown[1]:
        print(f"uses of indexes\n  here:  {shown[0]}\n  there: {shown[1]}")
    return shown[0] == shown[1]


different += not index_uses()
print(f"seed {seed}: {cases} cases, {different} different, {left_out} with lists that a projection there emptied in part; {counts}")
sys.exit(1 if different or left_out > cases / 1000 else 0)
