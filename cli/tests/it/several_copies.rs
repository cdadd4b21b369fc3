//! Copies of several databases, queried as one: `ebbtide sql --follow` given several times.

use crate::cli::inside;
use crate::workers::{NOW, Shipped, THEN, Worker, addresses, agree, tsbs, weather};
use serde_json::json;

/// Three databases, each with the weather of one station and the hosts of one region, also archived.
fn parts() -> Vec<Shipped> {
    let part = |(station, region): (&str, &str)| {
        let weather = format!("DELETE FROM weather WHERE station <> '{station}'");
        let hosts = format!("DELETE FROM cpu WHERE tags.region <> '{region}'");
        Shipped::new().with_what_is_left_by(&[&weather, &hosts])
    };
    [("EWR", "r0"), ("JFK", "r1"), ("LGA", "r2")].map(part).into()
}

#[test]
fn several_copies_answer_what_one_with_all_rows_does_with_workers_and_without() {
    let (whole, parts) = (Shipped::with_everything(Shipped::new()), parts());
    let mut statements = tsbs("cpu");
    statements.extend(tsbs("archived('old_cpu')"));
    statements.extend(weather("weather"));
    statements.extend(weather("archived('old')"));
    statements.push(
        "SELECT count(*) AS n FROM weather UNION ALL SELECT count(*) FROM old UNION ALL SELECT count(*) FROM archived('old') \
         ORDER BY n"
            .to_owned(),
    );
    statements.push(
        "SELECT a.station, count(*) AS n, sum(b.temp) FROM weather a JOIN weather b ON a.station <> b.station AND a.time = b.time \
         GROUP BY a.station ORDER BY a.station"
            .to_owned(),
    );
    statements
        .push("SELECT name, sum(measurements) AS n FROM ebbtide.collections GROUP BY name ORDER BY name".to_owned());
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let one = whole.ask(&statements, NOW, &[]).unwrap();

    let [first, others @ ..] = parts.as_slice() else { panic!() };
    let mut args: Vec<&str> = others.iter().flat_map(|other| ["--follow", other.url.as_str()]).collect();
    let alone = first.ask(&statements, NOW, &args).unwrap();
    for ((statement, one), several) in statements.iter().zip(&one).zip(alone) {
        agree(statement, one.clone(), several);
    }
    let allowed: Vec<&str> = parts.iter().flat_map(|part| ["--allow", part.url.as_str()]).collect();
    // Each number of workers answers every second statement, which takes half of the time.
    for (count, offset) in [(2, 0), (4, 1)] {
        let workers: Vec<Worker> = (0..count).map(|_| Worker::start(first.path(), &allowed)).collect();
        let named = addresses(&workers);
        let (statements, one): (Vec<&str>, Vec<_>) =
            statements.iter().copied().zip(one.iter().cloned()).skip(offset).step_by(2).unzip();
        let shared = first.ask(&statements, NOW, &[args.as_slice(), &["--workers", &named]].concat()).unwrap();
        for ((statement, one), several) in statements.iter().zip(one).zip(shared) {
            agree(statement, one, several);
        }
    }
    // A worker that may not read one of the copies is an error, not an answer without its rows.
    let workers = [Worker::start(first.path(), &allowed[..4])];
    let named = addresses(&workers);
    args.extend(["--workers", &named]);
    let error = first.ask(&["SELECT station, sum(temp) FROM weather GROUP BY station"], NOW, &args).unwrap_err();
    assert!(error.contains(&format!("it may not read {}", parts[2].url)), "{error}");
}

/// A database with one row of a door.
fn door(name: &str) -> Shipped {
    let shipped = Shipped::new();
    shipped.sql("CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')");
    shipped.sql(&format!("INSERT INTO doors (t, door, opened) VALUES ('2024-06-01T10:00:00Z', '{name}', 1)"));
    shipped.ship();
    shipped
}

#[test]
fn the_replicas_of_several_copies_are_kept_and_follow_each_its_own() {
    let (front, back) = (door("front"), door("back"));
    let ask = |first: &Shipped, second: &Shipped| {
        let args = ["--db", "kept", "sql", "--follow", &first.url, "--follow", &second.url, "--format", "csv"];
        let output = inside(front.path(), &[&args[..], &["SELECT door FROM doors ORDER BY door"]].concat(), "");
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout
    };
    assert_eq!(ask(&front, &back), "door\nback\nfront\n");
    back.sql("INSERT INTO doors (t, door, opened) VALUES ('2024-06-01T10:00:00Z', 'cellar', 1)");
    back.ship();
    assert_eq!(ask(&back, &front), "door\nback\ncellar\nfront\n");
    assert_eq!(front.path().join("kept").read_dir().unwrap().count(), 2);
}

#[test]
fn workers_widen_what_differs_between_the_copies_and_share_what_only_some_have() {
    let (front, back, empty) = (door("front"), door("back"), Shipped::new());
    back.sql("INSERT INTO doors (t, door, opened, locked) VALUES ('2024-06-01T11:00:00Z', 'back', 1.5, true)");
    back.sql("FLUSH");
    back.ship();
    empty.sql("CREATE COLLECTION other WITH (timeField = 't')");
    empty.ship();
    let urls = [&front, &back, &empty].map(|shipped| shipped.url.as_str());
    let allowed: Vec<&str> = urls.iter().flat_map(|url| ["--allow", url]).collect();
    let workers: Vec<Worker> = (0..2).map(|_| Worker::start(front.path(), &allowed)).collect();
    let named = addresses(&workers);
    let others = ["--follow", urls[1], "--follow", urls[2]];
    let statements = [
        "SELECT door, opened, locked FROM doors WHERE opened > 0.5 ORDER BY door, opened",
        "SELECT door, sum(opened) AS opened, count(locked) AS locked FROM doors GROUP BY door ORDER BY door",
        "SELECT * FROM latest('doors') ORDER BY door",
    ];
    let alone = front.ask(&statements, THEN, &others).unwrap();
    assert_eq!(
        alone[1],
        [json!({"door": "back", "opened": 2.5, "locked": 1}), json!({"door": "front", "opened": 1.0, "locked": 0})]
    );
    let shared = front.ask(&statements, THEN, &[&others[..], &["--workers", &named]].concat()).unwrap();
    assert_eq!(shared, alone);
    let follow = [&["sql", "--follow", urls[0]][..], &others, &["--workers", &named]].concat();
    let plan = front.run(&[&follow[..], &["EXPLAIN PLAN SELECT door, sum(opened) FROM doors GROUP BY door"]].concat());
    assert!(plan.contains("tasks=2") && plan.contains("ebbtide_widened") && plan.contains("EmptyExec"), "{plan}");
}

#[test]
fn a_copy_that_is_given_twice_or_cannot_be_read_is_an_error() {
    let front = door("front");
    let failed = |url: &str| {
        let args = ["sql", "--follow", &front.url, "--follow", url, "SELECT count(*) FROM doors"];
        let output = inside(front.path(), &args, "");
        assert_ne!(output.code, 0, "{}", output.stdout);
        output.stderr
    };
    let twice = failed(&format!("{}/", front.url));
    assert!(twice.contains("its rows would count twice"), "{twice}");
    let nowhere = format!("file://{}/nowhere", front.path().display());
    assert!(failed(&nowhere).contains(&nowhere), "{}", failed(&nowhere));
}
