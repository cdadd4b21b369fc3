//! Places that are within each other. A program that cleans a table up removes all that its log does not name, in folders within its
//! own too, so each table and each copy needs a folder in which there is nothing else.

use super::ArchivePlaces;
use crate::error::{Error, Result};
use crate::ladder::name::named;
use crate::state::State;
use ebbtide_ttl::Code;
use std::path::{Component, Path, PathBuf};

/// Refuses a folder that is within that of the database or has it, or is within that of a table or a copy; and a place in object storage that
/// cannot be opened.
pub(crate) fn check_folder(database: &Path, url: &str) -> Result<()> {
    let Some(place) = url.strip_prefix("file://").map(|path| resolved(Path::new(path))) else {
        return check_parts(url);
    };
    let database = resolved(database);
    let found = if place.starts_with(&database) {
        format!("is in the folder of the database, {}", database.display())
    } else if database.starts_with(&place) {
        format!("has the folder of the database, {}, in it", database.display())
    } else {
        let has = |folder: &&Path| folder.join("_delta_log").is_dir() || folder.join("epochs/0000000001").is_file();
        match place.ancestors().skip(1).find(has) {
            Some(folder) => in_folder(&folder.display().to_string()),
            None => return Ok(()),
        }
    };
    Err(refused(url, &found))
}

/// Refuses a place in object storage without a bucket, or whose path has empty parts, `.` or `..`.
fn check_parts(url: &str) -> Result<()> {
    let place = url.split_once("://").map_or("", |(_, place)| place);
    let (bucket, path) = place.split_once('/').unwrap_or((place, ""));
    let path = path.trim_end_matches('/');
    let wrong = if bucket.is_empty() {
        "it names no bucket or container"
    } else if !path.is_empty() && path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "its path has an empty part, '.' or '..'"
    } else {
        return Ok(());
    };
    Err(Error::new(Code::InvalidOptions, format!("{url} is not allowed as a place: {wrong}")))
}

/// Refuses a place in object storage that is within a table or a copy. The store may take long to answer.
pub(crate) fn check_above(places: &dyn ArchivePlaces, url: &str) -> Result<()> {
    match places.above(url) {
        Some(folder) => Err(refused(url, &in_folder(&folder))),
        None => Ok(()),
    }
}

fn in_folder(folder: &str) -> String {
    format!("is in a folder with a table or a copy, {folder}")
}

/// Refuses a new place that is another one of the database, is within one or has one.
pub(crate) fn check_places(state: &State, url: &str) -> Result<()> {
    for collection in state.collections.values() {
        let published = collection.publication.as_ref().map(|record| record.url.as_str());
        for other in collection.archives().map(|archive| archive.url).chain(published) {
            let (new, present) = (without_links(url), without_links(other));
            if is_within(&new, &present) || is_within(&present, &new) {
                let (name, _) = named(state, &collection.name);
                let found =
                    format!("and {other}, where collection '{name}' has a table, are one folder or one in the other");
                return Err(refused(url, &found));
            }
        }
    }
    Ok(())
}

fn refused(url: &str, found: &str) -> Error {
    let what = format!("{url} {found}: name a folder in which there is nothing else");
    Error::new(Code::InvalidOptions, what)
}

/// The URL of a place; that of a folder without links and `..`.
fn without_links(url: &str) -> String {
    let folder = url.strip_prefix("file://").map(|path| resolved(Path::new(path)));
    folder.map_or_else(|| url.to_owned(), |folder| format!("file://{}", folder.display()))
}

/// Whether a place is another one or in it.
fn is_within(inner: &str, outer: &str) -> bool {
    let rest = inner.trim_end_matches('/').strip_prefix(outer.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path without links and `..`. What does not exist yet is taken by its name.
fn resolved(path: &Path) -> PathBuf {
    let mut ancestors = path.ancestors().map(|part| if part.as_os_str().is_empty() { Path::new(".") } else { part });
    let Some((part, mut found)) = ancestors.find_map(|part| Some((part, part.canonicalize().ok()?))) else {
        return path.to_owned();
    };
    for component in path.strip_prefix(part).unwrap_or(path).components() {
        match component {
            Component::ParentDir => drop(found.pop()),
            Component::Normal(name) => found.push(name),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_each_other_by_their_parts() {
        for (inner, outer, is) in [
            ("s3://b/a", "s3://b/a", true),
            ("s3://b/a/", "s3://b/a", true),
            ("s3://b/a/x", "s3://b/a/", true),
            ("s3://b/ab", "s3://b/a", false),
            ("s3://b/a", "s3://b/a/x", false),
            ("s3://b/a", "s3://b", true),
            ("gs://b/a", "s3://b/a", false),
        ] {
            assert_eq!(is_within(inner, outer), is, "{inner} {outer}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "links and folders of a real file system")]
    fn folders_are_compared_without_links() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["db", "table/_delta_log", "copy/epochs", "other"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::write(at("copy/epochs/0000000001"), "").unwrap();
        std::os::unix::fs::symlink(at("db"), at("link")).unwrap();
        for (place, what) in [
            ("db", "is in the folder of the database"),
            ("db/x/y", "is in the folder of the database"),
            ("link/x", "is in the folder of the database"),
            ("other/../db/x", "is in the folder of the database"),
            ("none/../db", "is in the folder of the database"),
            ("", "in it"),
            ("table/x", "is in a folder with a table or a copy"),
            ("copy/x/y", "is in a folder with a table or a copy"),
        ] {
            let error = check_folder(&at("db"), &format!("file://{}", at(place).display())).unwrap_err();
            assert!(error.to_string().contains(what), "{place}: {error}");
        }
        for place in ["db2", "table", "copy", "other", "other/x", "none/x"] {
            check_folder(&at("db"), &format!("file://{}", at(place).display())).unwrap();
        }
        check_folder(&at("db"), &format!("s3://bucket{}", at("db").display())).unwrap();
        let url = |path: &str| without_links(&format!("file://{}", at(path).display()));
        assert!(is_within(&url("link/x"), &url("db")) && is_within(&url("none/../db"), &url("db/")));
        assert!(!is_within(&url("other"), &url("db")));
    }

    #[test]
    fn a_place_in_object_storage_has_a_bucket_and_a_plain_path() {
        for url in ["s3://bucket", "s3://bucket/", "az://container/a b/c/", "gs://bucket/..a/b..c"] {
            check_folder(Path::new("/db"), url).unwrap();
        }
        for (url, what) in [
            ("s3:///a", "it names no bucket or container"),
            ("s3://bucket//a", "its path has an empty part"),
            ("s3://bucket/a//b", "its path has an empty part"),
            ("az://container/a/../b", "'.' or '..'"),
            ("gs://bucket/./a", "'.' or '..'"),
        ] {
            let error = check_folder(Path::new("/db"), url).unwrap_err();
            assert!(error.to_string().contains(what), "{url}: {error}");
        }
    }
}
