//! What a new user typed, as it was typed: it works, or the answer leads to what does.

use super::cli::{inside, write};
use std::path::Path;

/// What is expected of a command: part of what it prints, on either stream; and whether it succeeds.
enum Expected {
    Gives(&'static str),
    Says(&'static str),
}
use Expected::{Gives, Says};

const CASES: &[(&[&str], Expected)] = &[
    // Names twice, casts and headings.
    (&["sql", "select time, time::date from ireland limit 1"], Gives("time::date")),
    (&["sql", "select temp, temp::int from ireland limit 1"], Gives("temp::int")),
    (&["sql", "select *, temp::int from ireland limit 1"], Gives("temp::int")),
    (&["sql", "select time::date, temp from ireland order by time limit 1"], Gives("time::date")),
    (
        &["sql", "select percentile_cont(0.9) within group (order by temp) from ireland"],
        Gives("within group (order by temp)"),
    ),
    (&["sql", "select sum(n), sum(n::double) from ireland"], Gives("sum(n::double)")),
    (
        &["sql", "select sum(rain) over (order by time rows 1 preceding) from ireland limit 1"],
        Gives("rows 1 preceding"),
    ),
    (&["sql", "select time + interval '36 hours' from ireland limit 1"], Gives("time + interval '36 hours'")),
    // Zones.
    (&["sql", "set time zone 'Europe/Dublin'"], Says("to_char(time AT TIME ZONE 'Europe/Dublin'")),
    (
        &["sql", "select time at time zone 'Europe/Dublin' as local from ireland where station = 'ork' order by time"],
        Gives("2013-06-01T00:00:00+01:00"),
    ),
    (&["sql", "set timezone='Europe/Dublin'"], Says("date_bin('1 day', time, 'Europe/Dublin')")),
    (&["sql", "set timezone='Europe/Nowhere'"], Says("there is no time zone 'Europe/Nowhere'")),
    // Times.
    (&["sql", "select count(*) from ireland where time > 2013-06-01"], Says("'2013-06-01'")),
    (&["sql", "--format", "csv", "select count(*) as n from ireland where time >= '2013-06'"], Gives("n\n2\n")),
    (&["sql", "--format", "csv", "select timestamp '2024-05-05 05:00' as t"], Gives("2024-05-05T05:00:00")),
    (&["sql", "--format", "csv", "select year(time) as y from ireland limit 1"], Gives("2013")),
    (&["sql", "--format", "csv", "select date(time) as d from ireland limit 1"], Gives("2013-0")),
    (&["sql", "--format", "csv", "select strftime(time, '%Y') as y from ireland limit 1"], Gives("2013")),
    // Names of other databases.
    (&["sql", "select * from ireland where station = \"EWR\""], Says("in single quotes: 'EWR'")),
    (&["sql", "select percentile(temp, 0.9) from ireland"], Gives("percentile(temp, 0.9)")),
    (&["sql", "select width_bucket(temp, 0, 10, 5) from ireland limit 1"], Gives("width_bucket")),
    (&["sql", "select histogram(temp, 2) from ireland"], Gives("\"count\":")),
    (&["sql", "select mode(station) from ireland"], Gives("dub")),
    (&["sql", "select max_by(station, temp) from ireland"], Gives("dub")),
    (&["sql", "select time_bucket_gapfill('1 hour', time) from ireland"], Says("date_bin_gapfill")),
    (&["sql", "--format", "csv", "select 2^3 as x"], Gives("8.0")),
    (&["sql", "select n + 9223372036854775807 from ireland where n > 0"], Says("verflow")),
    // Rows and columns.
    (&["sql", "from ireland"], Gives("station")),
    (&["sql", "from ireland where temp > 5"], Gives("dub")),
    (&["sql", "select * from wide unpivot (temp for station in (a, b))"], Gives("station")),
    (&["sql", "unpivot wide on a, b into name station value temp"], Gives("station")),
    (&["sql", "pivot ireland on station using avg(temp) group by year(time)"], Gives("ork")),
    (&["sql", "summarize ireland"], Gives("median")),
    (&["sql", "select station, temp from ireland limit 1 by station"], Says("QUALIFY row_number() OVER")),
    (
        &["sql", "select temp, count(*) from ireland group by station"],
        Says("neither in GROUP BY nor within an aggregate"),
    ),
    (&["sql", "select count(*) from ireland tablesample (1 percent)"], Says("TABLESAMPLE")),
    (&["sql", "select count(*) from ireland prewhere temp < 0"], Says("write WHERE")),
    (&["sql", "select avg(station) from ireland"], Says("numbers are wanted")),
    (&["sql", "show functions like 'date_bin%'"], Gives("date_bin_gapfill")),
    (
        &["sql", "explain select avg(temp) from ireland where time > '2013-01-02'"],
        Gives("the engine answers avg(temp)"),
    ),
    (&["sql", "explain select temp from ireland where station = 'dub'"], Gives("1 bucket is skipped")),
    (&["sql", "explain select a from wide"], Gives("1 of 1 bucket, in 1 of 1 segment and in memory; about 1 row\n")),
    (&["sql", "explain select a from wide where a > 100"], Gives("1 bucket is skipped")),
    (&["sql", "explain plan select temp from ireland"], Gives("BucketScanExec")),
    // Retention.
    (&["sql", "alter collection wide set retention 10 years"], Says("EXPIRE AFTER")),
    (&["sql", "alter collection wide set expireAfterSeconds=2147483647"], Gives("collection wide changed")),
    (&["sql", "alter collection wide expire off"], Gives("collection wide changed")),
    // Files.
    (
        &["sql", "select s.name, avg(temp) from ireland i join 'stations.csv' s on s.id = i.station group by s.name"],
        Gives("Dublin"),
    ),
    (&["sql", "select name from read_csv('stations.csv', delim = ';') where lat > 52"], Gives("Dublin")),
    (&["sql", "select name from 'nothing.csv'"], Says("there is no file 'nothing.csv'")),
    // Without any database.
    (&["--db", "none", "sql", "from 'stations.csv' where lat > 52"], Gives("Dublin")),
    (&["--db", "none", "sql", "summarize 'stations.csv'"], Gives("lat")),
    (&["--db", "none", "sql", "with a as (select * from read_csv('stations.csv')) select count(*) from a"], Gives("2")),
    (&["--db", "none", "sql", "select 1 + 1"], Gives("2")),
    (
        &["--db", "none", "sql", "select s.name from 'stations.csv' s join ireland i on i.station = s.id"],
        Says("there is no database at none"),
    ),
    (&["--db", "none", "export", "from 'stations.csv' where lat > 52", "-o", "-"], Gives("Dublin")),
    (&["--db", "none", "export", "ireland", "-o", "-"], Says("there is no database at none")),
    (&["--db", "none", "export", "select * from ireland", "-o", "-"], Says("there is no database at none")),
    (&["--db", "none", "sql", "pivot 'stations.csv' on id using sum(lat)"], Gives("53.4")),
    (&["--db", "none", "sql", "unpivot 'stations.csv' on lat into name what value height"], Gives("height")),
    (&["--db", "none", "sql", "pivot ireland on station using sum(temp)"], Says("there is no database at none")),
    (&["--db", "none", "sql", "explain plan select * from ireland"], Says("there is no database at none")),
    (&["--db", "none", "sql", "selec 1"], Says("did you mean SELECT?")),
    (&["sql", "select nam from 'stations.csv'"], Says("did you mean 'name'?")),
    (&["sql", "summarize 'stations.csv'"], Gives("lat")),
    // What lasts: each of these is a program run of its own.
    (&["sql", "create view warm as select time, station from ireland where temp > 11"], Gives("view warm created")),
    (&["sql", "--format", "csv", "select count(*) as n from warm"], Gives("n\n2\n")),
    (
        &["sql", "create table cold as select * from ireland where temp < 6"],
        Gives("collection cold created with 2 measurements"),
    ),
    (&["sql", "describe cold"], Gives("meta")),
    (
        &["sql", "create collection bare as select station from ireland"],
        Gives("created with 4 documents: an ordinary collection"),
    ),
    (&["sql", "copy collection ireland to eire"], Gives("collection eire created with 4 measurements")),
    (&["sql", "alter collection eire rename field temp to t"], Gives("field temp of eire is named t now")),
    (&["sql", "alter table eire rename column t to temperature"], Gives("is named temperature now")),
    (&["sql", "alter collection eire drop field rain"], Gives("field rain of eire dropped")),
    (&["sql", "alter collection eire drop column temperatur"], Says("did you mean 'temperature'?")),
    (&["sql", "alter collection eire rename field time to t"], Says("is the timeField")),
    (&["sql", "alter collection eire add column x int"], Says("fields need no declaration")),
    (&["sql", "alter collection eire rename to island"], Gives("collection eire is named island now")),
    (&["sql", "--format", "csv", "select min(temperature) as t from island"], Gives("t\n4.5\n")),
    (&["sql", "drop collection island"], Gives("dropped")),
    (&["sql", "create external table st stored as csv location 'stations.csv'"], Gives("gone when the session ends")),
    (&["dump", "all"], Gives("collections")),
    (&["--db", "other", "restore", "all"], Gives("restored")),
    (&["--db", "other", "sql", "--format", "csv", "select count(*) as n from warm"], Gives("n\n2\n")),
    (&["sql", "drop view warm"], Gives("view warm dropped")),
    (&["sql", "select * from warm"], Says("does not exist")),
    // The command line.
    (&["sql", "help"], Says("ebbtide sql --help")),
    (&["export", "irland", "-o", "-"], Says("collection 'irland' does not exist; did you mean 'ireland'?")),
    (&["export", "nonexist", "-o", "-"], Says("collection 'nonexist' does not exist")),
    (&["sql", "q.sql"], Says("ebbtide sql --file q.sql")),
    (&["sql", "-f", "q.sql"], Gives("42")),
    (&["sql", "--file", "q.sql", "--format", "csv"], Gives("42")),
    (&["sql", "-f", "ebbtide-data"], Says("nor a file of statements")),
    (&["sql", "-f", "cvs", "select 1"], Says("did you mean 'csv'?")),
    (&["sql", "select time, temp from ireland", "--chart", "c.svg"], Gives("chart written to c.svg")),
    (
        &["sql", "select time, temp from ireland", "--chart=d.svg", "--title", "Two stations"],
        Gives("chart written to d.svg"),
    ),
    (&["sweep", "--dry-run", "--now", "+7d"], Gives("")),
    (&["status", "--now", "+7d"], Gives("ireland")),
    (&["sql", "--now", "+1 week", "select now() > '2026-01-01' as later"], Gives("true")),
    (&["sql", "--now", "tomorrow", "select 1"], Says("+7d is a week from now")),
    (&["dump", "-c", "wide", "backup"], Gives("1 collection")),
    (&["restore", "backup", "--as", "again"], Gives("again: 1 measurement\n")),
    (&["sql", "select * from again"], Gives("2013")),
];

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn what_a_new_user_typed_works_or_leads_to_what_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(
        folder,
        "ireland.csv",
        "time,station,temp,rain,n\n2013-01-01T00:00:00Z,dub,5.5,0.5,1\n2013-05-31T23:00:00Z,ork,4.5,0.1,2\n\
         2013-06-01T00:00:00Z,dub,12.5,0,3\n2013-06-01T00:00:00Z,ork,11.5,0,4\n",
    );
    write(folder, "wide.csv", "time,a,b\n2013-01-01T00:00:00Z,1.5,2.5\n");
    write(folder, "stations.csv", "id;name;lat\ndub;Dublin;53.4\nork;Cork;51.8\n");
    write(folder, "q.sql", "-- the answer\nSELECT 40 + 2 AS n;\n");
    for args in
        [&["import", "-c", "ireland", "ireland.csv", "--meta", "station"][..], &["import", "-c", "wide", "wide.csv"]]
    {
        let made = inside(folder, args, "");
        assert_eq!(made.code, 0, "{args:?}: {}", made.stderr);
    }
    let mut wrong = Vec::new();
    for (args, expected) in CASES {
        let output = inside(folder, args, "");
        let all = format!("{}{}", output.stdout, output.stderr);
        let (fits, part) = match expected {
            Gives(part) => (output.code == 0, part),
            Says(part) => (output.code != 0, part),
        };
        let is_dump = all.contains("Ident {") || all.contains("unsupported ast node");
        if !fits || !all.contains(part) || is_dump {
            wrong.push(format!("{} is expected to have {part:?} in\n{all}", args.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read(folder, "d.svg").contains("Two stations"));
}
