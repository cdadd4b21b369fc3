use super::FileAccess;
use crate::fs::{Fs, RealFs};
use serde_json::{Value as Json, json};
use std::path::Path;

fn folders() -> (tempfile::TempDir, FileAccess) {
    let root = tempfile::tempdir().unwrap();
    for folder in ["shared", "shared/in", "shared-not", "private"] {
        RealFs::new().create_dir(&root.path().join(folder)).unwrap();
    }
    for file in ["shared/in/a.csv", "shared-not/b.csv", "private/c.csv"] {
        RealFs::new().create(&root.path().join(file)).unwrap();
    }
    let access = FileAccess::below(&[root.path().join("private/../shared")]).unwrap();
    (root, access)
}

#[test]
fn only_what_lies_below_a_folder_may_be_named() {
    let (root, access) = folders();
    let may = |path: &str| access.check("a test", &root.path().join(path)).is_ok();
    for path in ["shared", "shared/in/a.csv", "shared/in/../in/a.csv", "shared/new.csv", "shared/new/deep/er.csv"] {
        assert!(may(path), "{path}");
    }
    for path in [
        "private/c.csv",
        "shared-not/b.csv",
        "shared/../private/c.csv",
        "shared/new/../../private/c.csv",
        "shared/..",
        ".",
        "shared/in/a.csv/b",
    ] {
        assert!(!may(path), "{path}");
    }
    assert!(access.check("a test", Path::new("new.csv")).is_err(), "below the folder of the program");
    assert!(FileAccess::All.check("a test", Path::new("/etc/passwd")).is_ok());
}

#[cfg(unix)]
#[test]
fn links_are_followed_before_a_path_is_judged() {
    use std::os::unix::fs::symlink;
    let (root, access) = folders();
    let at = |path: &str| root.path().join(path);
    symlink(at("private"), at("shared/out")).unwrap();
    symlink(at("private/not-yet.csv"), at("shared/dangling.csv")).unwrap();
    symlink(at("shared/in"), at("private/back")).unwrap();
    let may = |path: &str| access.check("a test", &at(path)).is_ok();
    for path in ["shared/out/c.csv", "shared/out/new.csv", "shared/dangling.csv"] {
        assert!(!may(path), "{path}");
    }
    assert!(may("private/back/a.csv"));
}

#[test]
fn commands_are_judged_by_the_folders_that_they_name() {
    let (root, access) = folders();
    let none = FileAccess::below(&[]).unwrap();
    let command = |text: Json| text.as_object().unwrap().clone();
    let url = |folder: &str| format!("file://{}", root.path().join(folder).display());
    for (folder, may) in [("shared/archive", true), ("private/archive", false)] {
        for one in [
            json!({"create": "w", "timeseries": {"timeField": "t"}, "expireInto": url(folder)}),
            json!({"collMod": "w", "expireInto": url(folder)}),
            json!({"collMod": "w", "index": {"name": "i", "expireInto": url(folder)}}),
            json!({"createIndexes": "w", "indexes": [{"name": "i"}, {"name": "j", "expireInto": url(folder)}]}),
            json!({"publish": "w", "to": url(folder)}),
        ] {
            assert_eq!(access.check_command(&command(one.clone())).is_ok(), may, "{one}");
            assert!(none.check_command(&command(one.clone())).is_err(), "{one}");
            assert!(FileAccess::All.check_command(&command(one)).is_ok());
        }
    }
    assert!(none.check_command(&command(json!({"publish": "w", "to": "s3://bucket/x"}))).is_ok());
    assert!(none.check_command(&command(json!({"renameCollection": "w", "to": "file:x"}))).is_ok());
}

#[test]
fn a_folder_that_does_not_exist_is_refused() {
    let (root, _) = folders();
    for path in ["nothing", "private/c.csv"] {
        let error = FileAccess::below(&[root.path().join(path)]).unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
}
