//! Calls whose arguments a function does not take, for which DataFusion reports an internal error.

/// The function, and what is wrong.
pub(super) fn in_words(message: &str) -> Option<(&str, String)> {
    let (before, rest) = message.split_once("' failed to match any signature")?;
    let (_, name) = before.rsplit_once("Function '")?;
    if let Some((_, counts)) = rest.split_once("' expects ")
        && let Some((wanted, given)) = counts.split_once(" arguments but received ")
    {
        let given: String = given.chars().take_while(char::is_ascii_digit).collect();
        let plural = if wanted == "1" { "" } else { "s" };
        return Some((name, format!("{name} takes {wanted} argument{plural}, not {given}")));
    }
    let kind = rest.split_once("(DataType: ")?.1;
    let what = match kind.split(['(', ')']).next().unwrap_or_default() {
        "Timestamp" | "Date32" | "Date64" => "a time",
        "Interval" => "an interval",
        "Time32" | "Time64" => "a time of a day",
        "List" | "LargeList" | "FixedSizeList" => "a list",
        "Struct" => "an object",
        "Binary" | "LargeBinary" | "BinaryView" => "a binary value",
        _ => "of another type",
    };
    Some((name, format!("{name}: argument 1 is {what}, for which there is no {name}")))
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn the_arguments_are_described() {
        let of =
            |rest: &str| in_words(&format!("Function 'avg' failed to match any signature, errors: {rest}")).unwrap().1;
        let time = "Function 'sum' failed to match any signature, errors: Error during planning: Function 'sum' requires Decimal, but received Date (DataType: Date32).,";
        assert_eq!(in_words(time).unwrap().1, "sum: argument 1 is a time, for which there is no sum");
        let two = of("Error during planning: Function 'avg' expects 1 arguments but received 2,Error during planning:");
        assert_eq!(two, "avg takes 1 argument, not 2");
        assert_eq!(in_words("something else"), None);
    }
}
