//! Views that leave out what has expired, for those who read a published table after its publisher has stopped: a table has no clock.

use ebbtide::Publication;
use ebbtide::buckets::{FieldType, Schema};
use ebbtide::ttl::{RuleView, Value};

/// A dialect of SQL.
struct Dialect {
    /// The name of the object with the view.
    object: &'static str,
    /// What encloses names.
    quote: char,
    /// Whether a backslash in a text escapes what follows.
    escapes: bool,
    /// Whether it does so in a name.
    escapes_names: bool,
    /// The table of a URL.
    table: fn(&str) -> String,
    /// What to do before a view of a table on Azure's storage is made: its URL does not name the account.
    azure: &'static str,
    /// The instant that lies this many seconds back.
    ago: fn(i64) -> String,
}

const DIALECTS: [Dialect; 3] = [
    Dialect {
        object: "view.duckdb.sql",
        quote: '"',
        escapes: false,
        escapes_names: false,
        table: |url| format!("delta_scan('{}')", path_of(url).replace('\'', "''")),
        azure: "",
        ago: |seconds| format!("now() - to_seconds({seconds})"),
    },
    Dialect {
        object: "view.spark.sql",
        quote: '`',
        escapes: true,
        escapes_names: false,
        table: |url| {
            let url = match (url.strip_prefix("s3://"), url.strip_prefix("az://").map(container_in)) {
                (Some(path), _) => format!("s3a://{path}"),
                (_, Some((container, path))) => format!("abfss://{container}@ACCOUNT.dfs.core.windows.net/{path}"),
                _ => url.to_owned(),
            };
            format!("delta.`{}`", url.replace('`', "``"))
        },
        azure: "-- Put the name of the storage account in place of ACCOUNT.\n",
        ago: |seconds| format!("current_timestamp() - make_dt_interval(0, 0, 0, {seconds})"),
    },
    Dialect {
        object: "view.clickhouse.sql",
        quote: '`',
        escapes: true,
        escapes_names: true,
        table: |url| match (path_of(url), url.strip_prefix("az://").map(container_in)) {
            (path, _) if path.len() < url.len() => format!("deltaLakeLocal('{}')", text_in(path, true)),
            (_, Some((container, path))) => {
                let (container, path) = (text_in(container, true), text_in(path, true));
                format!("deltaLakeAzure(ebbtide, container = '{container}', blob_path = '{path}')")
            }
            (url, None) => format!("deltaLake('{}')", text_in(url, true)),
        },
        azure: "-- The storage account is in a named collection, which is made once:\n\
            -- CREATE NAMED COLLECTION ebbtide AS storage_account_url = 'https://ACCOUNT.blob.core.windows.net', \
            account_name = 'ACCOUNT', account_key = 'KEY';\n",
        ago: |seconds| format!("now64(9) - toIntervalSecond({seconds})"),
    },
];

/// The path of a folder; other URLs as they are.
fn path_of(url: &str) -> &str {
    url.strip_prefix("file://").unwrap_or(url)
}

/// The container and the path of what follows `az://`.
fn container_in(rest: &str) -> (&str, &str) {
    rest.split_once('/').unwrap_or((rest, ""))
}

/// A text between its quotes.
fn text_in(text: &str, escapes: bool) -> String {
    if escapes { text.replace('\\', "\\\\").replace('\'', "\\'") } else { text.replace('\'', "''") }
}

/// The views of a table, by the names of their objects. Rules with conditions on types have no form in SQL: such a view says so.
pub(crate) fn views(url: &str, content: &Publication) -> Vec<(&'static str, String)> {
    DIALECTS.iter().map(|dialect| (dialect.object, dialect.view(url, content))).collect()
}

impl Dialect {
    fn view(&self, url: &str, content: &Publication) -> String {
        let conditions: Option<Vec<String>> =
            content.rules.iter().map(|rule| self.condition(&rule, &content.schema)).collect();
        let Some(conditions) = conditions else {
            return "-- A rule of this collection has a condition that SQL cannot express: read the table only while it is published.\n"
                .to_owned();
        };
        let (name, table) = (self.name(&content.name), (self.table)(url));
        let kept = match conditions.as_slice() {
            [] => String::new(),
            all => format!("\nWHERE {}", all.join("\n  AND ")),
        };
        let azure = if url.starts_with("az://") { self.azure } else { "" };
        format!(
            "-- What has not expired, by the rules of the collection when this file was written. Ebbtide rewrites it when they change.\n\
             {azure}CREATE OR REPLACE VIEW {name} AS\nSELECT * FROM {table}{kept};\n"
        )
    }

    /// What is true of measurements that have not expired by a rule.
    fn condition(&self, rule: &RuleView<'_>, schema: &Schema) -> Option<String> {
        let is_young = format!("{} > {}", self.name(&schema.time), (self.ago)(rule.expire_after_seconds));
        match rule.filter {
            None => Some(is_young),
            Some(filter) => {
                let matches = self.filter(&filter.to_value(), schema)?;
                Some(format!("(NOT coalesce({matches}, false) OR {is_young})"))
            }
        }
    }

    fn filter(&self, filter: &Value, schema: &Schema) -> Option<String> {
        let Value::Object(conditions) = filter else { return None };
        let mut all = Vec::new();
        for (key, value) in conditions {
            all.push(match (key.as_str(), value) {
                ("$and", Value::Array(parts)) => self.joined(parts, " AND ", schema)?,
                ("$or", Value::Array(parts)) => self.joined(parts, " OR ", schema)?,
                (key, _) if key.starts_with('$') => return None,
                (path, Value::Object(tests)) if tests.iter().any(|(name, _)| name.starts_with('$')) => {
                    let tests: Option<Vec<String>> =
                        tests.iter().map(|(operator, value)| self.test(path, operator, value, schema)).collect();
                    format!("({})", tests?.join(" AND "))
                }
                (path, value) => self.test(path, "$eq", value, schema)?,
            });
        }
        Some(if all.is_empty() { "true".to_owned() } else { format!("({})", all.join(" AND ")) })
    }

    fn joined(&self, parts: &[Value], word: &str, schema: &Schema) -> Option<String> {
        let parts: Option<Vec<String>> = parts.iter().map(|part| self.filter(part, schema)).collect();
        Some(format!("({})", parts?.join(word)))
    }

    fn test(&self, path: &str, operator: &str, value: &Value, schema: &Schema) -> Option<String> {
        let Some(ty) = type_at(path, schema) else {
            if is_item(path, schema) {
                return None;
            }
            // No measurement has it: all are null.
            return Some((value.is_null() && operator == "$eq").to_string());
        };
        let place: Vec<String> = path.split('.').map(|name| self.name(name)).collect();
        let place = place.join(".");
        let word = match operator {
            "$exists" => return Some(format!("{place} IS NOT NULL")),
            "$in" => {
                let Value::Array(values) = value else { return None };
                let tests: Option<Vec<String>> =
                    values.iter().map(|value| self.test(path, "$eq", value, schema)).collect();
                return Some(match tests? {
                    none if none.is_empty() => "false".to_owned(),
                    tests => format!("({})", tests.join(" OR ")),
                });
            }
            // A list is null to a rule if an item is.
            "$eq" if value.is_null() => {
                return (!matches!(ty, FieldType::List(_))).then(|| format!("{place} IS NULL"));
            }
            "$eq" => "=",
            "$gt" => ">",
            "$gte" => ">=",
            "$lt" => "<",
            "$lte" => "<=",
            _ => return None,
        };
        let literal = match (ty, value) {
            (FieldType::String, Value::String(text)) => format!("'{}'", text_in(text, self.escapes)),
            (FieldType::Int64 | FieldType::Double, Value::Int(number)) => number.to_string(),
            (FieldType::Int64 | FieldType::Double, Value::Double(number)) if number.is_finite() => {
                format!("{number:?}")
            }
            (FieldType::Bool, Value::Bool(is)) if word == "=" => is.to_string(),
            // A value of another kind is never equal, less or greater.
            (FieldType::String, Value::Int(_) | Value::Double(_) | Value::Bool(_))
            | (FieldType::Int64 | FieldType::Double, Value::String(_) | Value::Bool(_))
            | (FieldType::Bool, Value::String(_) | Value::Int(_) | Value::Double(_)) => {
                return Some("false".to_owned());
            }
            _ => return None,
        };
        Some(format!("{place} {word} {literal}"))
    }

    fn name(&self, name: &str) -> String {
        let (quote, twice) = (self.quote, format!("{0}{0}", self.quote));
        let name = if self.escapes_names { name.replace('\\', "\\\\") } else { name.to_owned() };
        format!("{quote}{}{quote}", name.replace(quote, &twice))
    }
}

/// Whether a path leads to an item of a list in the metas, for which SQL has no form that all programs know.
fn is_item(path: &str, schema: &Schema) -> bool {
    let mut above = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
    above.any(|above| matches!(type_at(above, schema), Some(FieldType::List(_))))
}

/// The type of a member of the metas.
fn type_at<'a>(path: &str, schema: &'a Schema) -> Option<&'a FieldType> {
    let mut names = path.split('.');
    let mut ty = schema.field_type(names.next()?)?;
    for name in names {
        let FieldType::Object(members) = ty else { return None };
        ty = members.iter().find(|(member, _)| member == name).map(|(_, ty)| ty)?;
    }
    Some(ty)
}
