//! Errors about subqueries that DataFusion cannot plan.

/// What is not supported, and what to write instead, in the place of a message of DataFusion.
pub(super) fn in_words(message: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(part, _)| message.contains(part)).map(|(_, words)| *words)
}

const OUTER: &str = "outer columns may be used only in the WHERE of a subquery or LATERAL table; if it aggregates, only with =; with LIMIT they \
                     cannot be used: write a join with row_number() OVER (PARTITION BY ...)";
const PLACE: &str = "IN, EXISTS or ANY with a subquery in this place, such as the list of a SELECT; count the rows instead: (SELECT count(*) \
                     FROM ... WHERE ...) > 0";
const CLAUSE: &str = "a subquery with columns of the outer query in this clause; compute it in the list of an inner query, and refer to it by \
                      its name";

/// Parts of messages, and what they mean.
const KNOWN: [(&str, &str); 15] = [
    ("logical expression OuterReferenceColumn", OUTER),
    ("logical expression ScalarSubquery", OUTER),
    ("undecorrelated Subquery", OUTER),
    ("Accessing outer reference columns is not allowed", OUTER),
    ("Unsupported Subquery plan", OUTER),
    ("logical expression Exists", PLACE),
    ("logical expression InSubquery", PLACE),
    ("logical expression SetComparison", PLACE),
    ("In/Exist/SetComparison subquery can only be used in", PLACE),
    ("Correlated scalar subquery can only be used in", CLAUSE),
    ("Correlated scalar subquery in the GROUP BY", CLAUSE),
    (
        "Correlated scalar subquery must be aggregated",
        "a subquery for one value that uses columns of the outer query and has no aggregate; write (SELECT max(x) ...), or \
         (SELECT last_value(x ORDER BY t) ...)",
    ),
    (
        "scalar correlated subquery cannot contain non-correlated columns",
        "a subquery for one value that uses columns of the outer query and is grouped by others than it compares with them",
    ),
    (
        "Nested identifiers are not yet supported for OuterReferenceColumn",
        "a member of an object of the outer query in a subquery; name it in an inner query: FROM (SELECT *, sensor.id AS id FROM w) AS w",
    ),
    ("LATERAL syntax is not supported for", "LATERAL after RIGHT JOIN and FULL JOIN; write LEFT JOIN LATERAL"),
];
