//! From the syntax of PCRE to that of the crate `regex`, with the meaning that MongoDB gives it: `\d`, `\w` and `\s` are
//! ASCII, `$` also holds before a line feed at the end, braces and brackets that mean nothing are themselves.
//!
//! Two things differ: with the option m, `^` also holds after a line feed that ends the text; and what follows a `$` that
//! holds before the last line feed, in the same pattern, cannot look at that line feed.

/// What a translation cannot say, for messages.
const NOT_SUPPORTED: &str = "is not supported: matching takes linear time, without back-references, look-around, atomic \
                             groups, possessive quantifiers, conditions, recursion and verbs";

/// The names of POSIX classes.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

const SPACE: &str = r"\t\n\x0B\x0C\r\x20";
const HORIZONTAL: &str = r"\t\x20\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
const VERTICAL: &str = r"\n\x0B\x0C\r\x{85}\x{2028}\x{2029}";

/// Holds at the end and before a line feed at the end. PCRE does not take that line feed into the match; here a group takes it, which
/// is cut off the match.
const END: &str = r"(\n?\z)";

/// A translated pattern.
pub(super) struct Translated {
    pub(super) text: String,
    /// For each group of the translation, whether it is one of the pattern. The others are ends.
    pub(super) groups: Vec<bool>,
}

/// Translates a pattern; `Err` says what is not supported.
pub(super) fn translate(pattern: &str, multi_line: bool, extended: bool) -> Result<Translated, String> {
    let mode = Mode { multi_line, extended };
    let mut translation = Translation {
        rest: pattern.chars().collect(),
        at: 0,
        out: String::new(),
        groups: Vec::new(),
        mode,
        outer: Vec::new(),
    };
    translation.run()?;
    Ok(Translated { text: translation.out, groups: translation.groups })
}

/// The options that change what a character means to the translation.
#[derive(Clone, Copy)]
struct Mode {
    multi_line: bool,
    extended: bool,
}

struct Translation {
    rest: Vec<char>,
    at: usize,
    out: String,
    groups: Vec<bool>,
    mode: Mode,
    /// The modes of the groups around.
    outer: Vec<Mode>,
}

fn unsupported(what: &str) -> String {
    format!("{what} {NOT_SUPPORTED}")
}

impl Translation {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = text.chars().enumerate().all(|(i, c)| self.rest.get(self.at + i) == Some(&c));
        if is_next {
            self.at += text.chars().count();
        }
        is_next
    }

    fn run(&mut self) -> Result<(), String> {
        let mut is_after_quantifier = false;
        while let Some(c) = self.next() {
            let was_after_quantifier = std::mem::take(&mut is_after_quantifier);
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                ')' => {
                    self.mode = self.outer.pop().unwrap_or(self.mode);
                    self.out.push(')');
                }
                '$' if !self.mode.multi_line => self.end(),
                '+' if was_after_quantifier => return Err(unsupported("a possessive quantifier")),
                '*' | '+' => {
                    self.out.push(c);
                    is_after_quantifier = true;
                }
                '?' => {
                    self.out.push(c);
                    is_after_quantifier = !was_after_quantifier;
                }
                '{' => match self.repetition() {
                    Some(repetition) => {
                        self.out.push_str(&repetition);
                        is_after_quantifier = true;
                    }
                    None => self.out.push_str(r"\{"),
                },
                '}' | ']' => self.literal(c),
                '#' if self.mode.extended => while self.next().is_some_and(|c| c != '\n') {},
                c => self.out.push(c),
            }
        }
        Ok(())
    }

    /// `$` and `\Z`.
    fn end(&mut self) {
        self.out.push_str(END);
        self.groups.push(false);
    }

    /// Opens a group of the pattern.
    fn open_group(&mut self, outer: Mode) {
        self.outer.push(outer);
        self.out.push('(');
        self.groups.push(true);
    }

    /// A character as itself, also where white space is ignored.
    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!(r"\x{{{:X}}}", u32::from(c)));
        }
    }

    /// What follows a brace, if it is a number of repetitions.
    fn repetition(&mut self) -> Option<String> {
        let length = self.rest[self.at..].iter().position(|c| *c == '}')?;
        let inner: String = self.rest[self.at..self.at + length].iter().collect();
        let (least, most) = inner.split_once(',').unwrap_or((&inner, ""));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if least.is_empty() || !is_number(least) || !is_number(most) {
            return None;
        }
        self.at += length + 1;
        Some(format!("{{{inner}}}"))
    }

    /// An escape outside a class.
    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.next() else { return Err("it ends with a backslash".to_owned()) };
        if let Some((set, is_negated)) = set_of(c) {
            // Without case: the long s and the Kelvin sign are no letters of ASCII.
            self.out.push_str(&format!("(?-i:[{}{set}])", if is_negated { "^" } else { "" }));
            return Ok(());
        }
        match c {
            'b' => self.out.push_str(r"(?-u:\b)"),
            'B' => self.out.push_str(r"(?-u:\B)"),
            'A' => self.out.push_str(r"\A"),
            'z' => self.out.push_str(r"\z"),
            'Z' => self.end(),
            'N' => self.out.push_str(r"[^\n]"),
            'R' => self.out.push_str(&format!(r"(?:\r\n|[{VERTICAL}])")),
            'Q' => {
                while !self.take(r"\E") {
                    let Some(c) = self.next() else { break };
                    self.literal(c);
                }
            }
            'E' => {}
            'p' | 'P' => {
                self.out.push_str("(?-i:");
                self.property(c);
                self.out.push(')');
            }
            '1'..='9' | 'g' | 'k' => return Err(unsupported(&format!(r"the back-reference \{c}"))),
            _ => {
                let c = self.character(c)?;
                self.literal(c);
            }
        }
        Ok(())
    }

    /// A Unicode property: `\pL`, `\p{Lu}`.
    fn property(&mut self, c: char) {
        self.out.push('\\');
        self.out.push(c);
        let Some(first) = self.next() else { return };
        self.out.push(first);
        // The name in braces means no repetition and is no part of a class.
        let mut last = first;
        while first == '{' && last != '}' {
            let Some(c) = self.next() else { return };
            self.out.push(c);
            last = c;
        }
    }

    /// The character that an escape stands for, in and outside of classes.
    fn character(&mut self, c: char) -> Result<char, String> {
        Ok(match c {
            'a' => '\u{7}',
            'e' => '\u{1B}',
            'f' => '\u{C}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'x' if self.take("{") => self.code(16, 8, Some('}'))?,
            'x' => self.code(16, 2, None)?,
            'o' if self.take("{") => self.code(8, 8, Some('}'))?,
            '0' => self.code(8, 2, None)?,
            'c' => match self.next() {
                Some(c @ ' '..='~') => char::from(u8::try_from(c.to_ascii_uppercase()).unwrap_or(b'@') ^ 0x40),
                _ => return Err(r"\c needs a character after it".to_owned()),
            },
            c if c.is_ascii_alphanumeric() => return Err(unsupported(&format!(r"the escape \{c}"))),
            c => c,
        })
    }

    /// The character whose code follows, in at most `digits` digits.
    fn code(&mut self, radix: u32, digits: usize, end: Option<char>) -> Result<char, String> {
        let mut code = 0u32;
        for _ in 0..digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            code = code.saturating_mul(radix).saturating_add(digit);
            self.at += 1;
        }
        if end.is_some() && self.next() != end {
            return Err("the code of a character lacks its closing brace".to_owned());
        }
        char::from_u32(code).ok_or_else(|| format!("{code:#x} is no character"))
    }

    /// What follows an opening parenthesis.
    fn group(&mut self) -> Result<(), String> {
        let outer = self.mode;
        if self.take("*") {
            return Err(unsupported("a verb such as (*UCP)"));
        }
        if !self.take("?") {
            self.open_group(outer);
            return Ok(());
        }
        if self.take("#") {
            while self.next().is_some_and(|c| c != ')') {}
            return Ok(());
        }
        for (start, what) in [
            ("=", "look-ahead"),
            ("!", "look-ahead"),
            ("<=", "look-behind"),
            ("<!", "look-behind"),
            (">", "an atomic group"),
            ("|", "a group that resets numbers"),
            ("(", "a condition"),
            ("P=", "a back-reference"),
            ("P>", "recursion"),
            ("&", "recursion"),
            ("R", "recursion"),
            ("+", "recursion"),
            ("C", "a call-out"),
        ] {
            if self.take(start) {
                return Err(unsupported(what));
            }
        }
        if self.take("P<") || self.take("<") || self.take("'") {
            // Names mean nothing without references to them.
            while self.next().is_some_and(|c| !matches!(c, '>' | '\'')) {}
            self.open_group(outer);
            return Ok(());
        }
        self.options(outer)
    }

    /// `(?i)` or `(?i:...)`.
    fn options(&mut self, outer: Mode) -> Result<(), String> {
        self.out.push_str("(?");
        let mut is_on = true;
        while let Some(c) = self.next() {
            match c {
                ':' => {
                    self.outer.push(outer);
                    self.out.push(':');
                    return Ok(());
                }
                ')' => {
                    // They hold until the group around ends.
                    self.out.push(')');
                    return Ok(());
                }
                '-' => is_on = false,
                'm' => self.mode.multi_line = is_on,
                'x' => self.mode.extended = is_on,
                'i' | 's' => {}
                '0'..='9' => return Err(unsupported("recursion")),
                other => return Err(unsupported(&format!("the option '{other}' in (?{other})"))),
            }
            self.out.push(c);
        }
        Err("a group is not closed".to_owned())
    }

    /// A class, after its opening bracket.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.take("^") {
            self.out.push('^');
        }
        // Whether what comes before can begin a range, and whether it has begun one.
        let (mut can_begin, mut is_range) = (false, false);
        let mut is_first = true;
        while let Some(c) = self.next() {
            let could_begin = std::mem::take(&mut can_begin);
            let was_range = std::mem::take(&mut is_range);
            match c {
                ']' if !is_first => {
                    self.out.push(']');
                    return Ok(());
                }
                '-' if could_begin && self.is_end_of_range() => {
                    self.out.push('-');
                    is_range = true;
                }
                '[' if self.take(":") => self.posix()?,
                '[' if matches!(self.peek(), Some('.' | '=')) => return Err(unsupported("a collating element")),
                '\\' => can_begin = self.escape_in_class()? && !was_range,
                c => {
                    self.literal(c);
                    can_begin = !was_range;
                }
            }
            is_first = false;
        }
        Err("a class is not closed: ']' is missing".to_owned())
    }

    /// Whether what follows a hyphen is a character that can end a range.
    fn is_end_of_range(&self) -> bool {
        match self.peek() {
            None | Some(']') => false,
            Some('[') => self.rest.get(self.at + 1) != Some(&':'),
            Some('\\') => self.rest.get(self.at + 1).is_some_and(|c| set_of(*c).is_none() && !matches!(c, 'p' | 'P')),
            Some(_) => true,
        }
    }

    /// `[:alpha:]`, after its colon.
    fn posix(&mut self) -> Result<(), String> {
        let mut name = String::new();
        while !self.take(":]") {
            match self.next() {
                Some(c) if c.is_ascii_lowercase() || c == '^' => name.push(c),
                _ => return Err("a class such as [:alpha:] is not closed".to_owned()),
            }
        }
        if !POSIX_CLASSES.contains(&name.trim_start_matches('^')) {
            return Err(format!("the class [:{name}:] is not known; classes are {}", POSIX_CLASSES.join(", ")));
        }
        self.out.push_str(&format!("[:{name}:]"));
        Ok(())
    }

    /// An escape in a class. Whether it is one character.
    fn escape_in_class(&mut self) -> Result<bool, String> {
        let Some(c) = self.next() else { return Err("it ends with a backslash".to_owned()) };
        if let Some((set, is_negated)) = set_of(c) {
            self.out.push_str(&if is_negated { format!("[^{set}]") } else { set.to_owned() });
            return Ok(false);
        }
        match c {
            'p' | 'P' => {
                self.property(c);
                return Ok(false);
            }
            'b' => self.literal('\u{8}'),
            'E' => return Ok(false),
            'Q' => {
                while !self.take(r"\E") {
                    let Some(c) = self.next() else { break };
                    self.literal(c);
                }
            }
            '1'..='7' => {
                self.at -= 1;
                let c = self.code(8, 3, None)?;
                self.literal(c);
            }
            _ => {
                let c = self.character(c)?;
                self.literal(c);
            }
        }
        Ok(true)
    }
}

/// The characters of an escape that stands for a set, and whether it stands for all others.
fn set_of(c: char) -> Option<(&'static str, bool)> {
    let set = match c.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => SPACE,
        'h' => HORIZONTAL,
        'v' => VERTICAL,
        _ => return None,
    };
    Some((set, c.is_ascii_uppercase()))
}
