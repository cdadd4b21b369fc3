"""The table of docs/from-mongodb.md: asks the server for every name, and says what it takes. Arguments: the server's address, the
page, and `write` to rewrite the table.

A name is not supported if the server answers as it answers a name that nobody has ever heard of, or refuses it by name.
"""

import re
import sys

import pymongo
from pymongo.errors import OperationFailure

client = pymongo.MongoClient(sys.argv[1])
db = client["table"]
db.c.drop()
db.c.insert_one({"_id": 1, "a": 1, "l": [1, 2], "s": "x"})
BEGIN, END = "<!-- what the server says: server/tests/drivers/table.py -->\n", "<!-- end -->\n"
NONE = "nobodyHasHeardOf"


def answer(action, name):
    """What the server says to a name, without the name itself."""
    try:
        action(name)
        return None
    except OperationFailure as error:
        return error.code, re.split(r"; did you mean", error.details["errmsg"].replace(name, "NAME"))[0]


def stage(name):
    list(db.c.aggregate([{name: {}}]))


def accumulator(name):
    list(db.c.aggregate([{"$group": {"_id": None, "r": {name: 1 if name != "$count" else {}}}}]))


def window(name):
    list(db.c.aggregate([{"$setWindowFields": {"sortBy": {"a": 1}, "output": {"r": {name: {}}}}}]))


def expression(name):
    list(db.c.aggregate([{"$project": {"r": {name: "$a"}}}]))


def query(name):
    top = ["$and", "$or", "$nor", "$expr", "$sampleRate", "$where", "$text", "$comment", "$jsonSchema"]
    list(db.c.find({name: [{"a": 1}]} if name in top else {"a": {name: 1}}))


def update(name):
    db.c.update_one({}, {name: {"n": 1}})


VALUES = {
    "expireAfterSeconds": 60, "partialFilterExpression": {"b": 1}, "unique": True, "sparse": True, "hidden": True, "background": True,
    "collation": {"locale": "de"}, "weights": {"a": 1}, "wildcardProjection": {"a": 1}, "storageEngine": {}, "bits": 26, "min": -1.0,
    "max": 1.0, "default_language": "english", "language_override": "l", "2dsphereIndexVersion": 3, "textIndexVersion": 3, "v": 2,
    "name": "named",
}


def index_option(name):
    db.drop_collection("i")
    index = {"key": {"a": 1}, "name": "a_1"} | {name: VALUES.get(name, 1)}
    db.command("createIndexes", "i", indexes=[index])


def kind_of_index(name):
    db.drop_collection("i")
    db.command("createIndexes", "i", indexes=[{"key": {"a": int(name) if name in ("1", "-1") else name}, "name": "n"}])


OPTIONS = {
    "timeseries": {"timeField": "t"}, "expireAfterSeconds": 60, "capped": True, "size": 4096, "max": 10, "validator": {"a": 1},
    "validationLevel": "strict", "validationAction": "warn", "viewOn": "c", "pipeline": [], "collation": {"locale": "de"},
    "clusteredIndex": {"key": {"_id": 1}, "unique": True}, "changeStreamPreAndPostImages": {"enabled": True},
    "storageEngine": {}, "indexOptionDefaults": {}, "encryptedFields": {},
}


def collection_option(name):
    db.drop_collection("o")
    needs = {"expireAfterSeconds": {"timeseries": {"timeField": "t"}}, "size": {"capped": True}, "max": {"capped": True, "size": 4096}}
    db.command({"create": "o"} | needs.get(name, {}) | {name: OPTIONS.get(name, 1)})


def exactly(action):
    """For options, whose probes are valid: whatever is refused is not supported."""
    return lambda name: answer(action, name) is None


def known_command(name):
    return name in commands


def by_words(action, none):
    """For names whose probes need not be valid: supported unless the answer has the words of that to a name that does not exist."""
    unknown = answer(action, none)
    words = re.search(r"\S+ \S*NAME\S*( \S+)?", unknown[1]).group()
    return lambda name: words not in (answer(action, name) or (0, ""))[1]


commands = set(client.admin.command("listCommands")["commands"])
KINDS = [
    ("commands", known_command, """insert update delete find findAndModify getMore killCursors count distinct aggregate explain mapReduce
        bulkWrite create drop collMod renameCollection createIndexes dropIndexes listIndexes listCollections listDatabases dropDatabase
        collStats dbStats dataSize validate compact convertToCapped cloneCollectionAsCapped reIndex hello ping buildInfo hostInfo
        serverStatus currentOp killOp profile top connectionStatus getLog getCmdLineOpts getParameter setParameter listCommands
        whatsmyuri fsync shutdown startSession endSessions killSessions refreshSessions commitTransaction abortTransaction saslStart
        saslContinue logout createUser dropUser usersInfo createRole replSetGetStatus replSetInitiate addShard enableSharding
        geoSearch planCacheClear createSearchIndexes"""),
    ("stages", by_words(stage, "$" + NONE), """$match $project $addFields $set $unset $group $sort $limit $skip $count $sortByCount $unwind
        $replaceRoot $replaceWith $bucket $bucketAuto $setWindowFields $densify $fill $lookup $graphLookup $unionWith $facet $sample
        $redact $collStats $indexStats $planCacheStats $out $merge $geoNear $search $changeStream"""),
    ("accumulators", by_words(accumulator, "$" + NONE), """$sum $avg $min $max $first $last $count $push $addToSet $stdDevPop $stdDevSamp
        $mergeObjects $median $percentile $top $topN $bottom $bottomN $firstN $lastN $minN $maxN $accumulator"""),
    ("window functions, beside the accumulators", by_words(window, "$" + NONE), """$rank $denseRank $documentNumber $shift $derivative
        $integral $expMovingAvg $locf $linearFill $covariancePop $covarianceSamp"""),
    ("expressions", by_words(expression, "$" + NONE), """$abs $add $ceil $divide $exp $floor $ln $log $log10 $mod $multiply
        $pow $round $sqrt $subtract $trunc $sin $cos $tan $asin $acos $atan $atan2 $sinh $cosh $tanh $asinh $acosh $atanh
        $degreesToRadians $radiansToDegrees $bitAnd $and $or $not $cmp $eq $ne $gt $gte $lt $lte $cond $ifNull $switch $let $literal
        $arrayElemAt $arrayToObject $concatArrays $filter $first $firstN $in $indexOfArray $isArray $last $lastN $map $maxN $minN
        $objectToArray $range $reduce $reverseArray $size $slice $sortArray $zip $setUnion $setIntersection $setDifference $setEquals
        $setIsSubset $concat $indexOfBytes $indexOfCP $ltrim $rtrim $trim $regexFind $regexFindAll $regexMatch $replaceOne
        $replaceAll $split $strcasecmp $strLenBytes $strLenCP $substr $substrBytes $substrCP $toLower $toUpper $dateAdd $dateDiff
        $dateFromParts $dateFromString $dateSubtract $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $hour
        $isoDayOfWeek $isoWeek $isoWeekYear $millisecond $minute $month $second $week $year $convert $isNumber $toBool $toDate
        $toDecimal $toDouble $toInt $toLong $toObjectId $toString $type $tsSecond $tsIncrement $binarySize $bsonSize $mergeObjects
        $getField $setField $unsetField $rand $function $meta"""),
    ("filters", by_words(query, "$" + NONE), """$eq $ne $gt $gte $lt $lte $in $nin $and $or $nor $not $exists $type $all $size $elemMatch
        $regex $mod $expr $sampleRate $where $text $jsonSchema $geoWithin $geoIntersects $near $bitsAllSet $bitsAnyClear"""),
    ("updates", by_words(update, "$" + NONE), """$set $unset $inc $mul $min $max $rename $setOnInsert $currentDate $push $addToSet $pull $pop
        $pullAll $bit"""),
    ("index options", exactly(index_option), """name expireAfterSeconds partialFilterExpression background v unique sparse hidden collation
        weights wildcardProjection storageEngine"""),
    ("kinds of indexes", exactly(kind_of_index), "1 -1 hashed text 2d 2dsphere"),
    ("options of collections", exactly(collection_option), """timeseries expireAfterSeconds capped validator viewOn collation clusteredIndex
        changeStreamPreAndPostImages"""),
]


def listed(names):
    return ", ".join(f"`{name}`" for name in names)


lines = ["| | supported | not supported |", "| --- | --- | --- |"]
for kind, is_supported, names in KINDS:
    assert not is_supported(("$" if names.split()[0].startswith("$") else "") + NONE), kind
    yes = [name for name in names.split() if is_supported(name)]
    no = [name for name in names.split() if name not in yes]
    lines.append(f"| {kind} | {listed(yes)} | {listed(no)} |")
found = "\n".join(lines) + "\n"
with open(sys.argv[2], encoding="utf-8") as file:
    page = file.read()
before, rest = page.split(BEGIN)
kept, after = rest.split(END)
if sys.argv[3:] == ["write"]:
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(before + BEGIN + found + END + after)
else:
    for ours, theirs in zip(kept.splitlines(), found.splitlines()):
        assert ours == theirs, f"the page says\n{ours}\nthe server says\n{theirs}"
    assert kept == found, "lines are missing (run the test with EBBTIDE_BLESS=1)"
print("all as the page says")
