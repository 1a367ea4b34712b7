//! Values that a line gives to names, in any language.

/// The longest name and value, in bytes.
const MAX_NAME: usize = 100;
const MAX_VALUE: usize = 500;

/// A value that a line gives to a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) is_quoted: bool,
}

/// Returns what a line assigns: `name = "value"`, `"name": 'value'`, `NAME=value`, `name => value`, `name: value`.
pub(super) fn assignments(line: &str) -> Vec<Assignment<'_>> {
    let is_sign = |c: char| matches!(c, '=' | ':' | '>');
    let in_name = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut found: Vec<Assignment<'_>> = Vec::new();
    let mut done = 0;
    // The name before the last colon, and where that is.
    let mut typed: Option<(usize, &str)> = None;
    for (at, sign) in line.match_indices(['=', ':']) {
        if at < done {
            continue;
        }
        let before = line[..at].trim_end().trim_end_matches(['"', '\'', '`', ']', '?', '!']);
        let rest = line[at..].trim_start_matches(is_sign);
        done = line.len() - rest.len();
        let length = before.chars().rev().take_while(in_name).take(MAX_NAME).count();
        let mut name = before[before.len() - length..].trim_matches(['.', '-']);
        match typed {
            // The name has a type: `let password: &str = "…"`.
            Some((colon, of))
                if sign == "=" && !line[colon..at].contains(['"', '\'', '`', ',', ';', '(', '{', '/']) =>
            {
                name = of;
            }
            _ if sign == ":" && !name.is_empty() => typed = Some((at, name)),
            _ => {}
        }
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
        let (value, is_quoted) = match quote {
            Some(quote) => (rest[1..].split(quote).next().unwrap_or_default(), true),
            None => {
                (rest.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';')).next().unwrap_or_default(), false)
            }
        };
        if !name.is_empty() && !value.is_empty() && value.len() <= MAX_VALUE {
            found.push(Assignment { name, value, is_quoted });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_of_many_languages_are_found() {
        for (line, name, value, is_quoted) in [
            ("SMTP_PASSWORD = \"vT9q-a\"", "SMTP_PASSWORD", "vT9q-a", true),
            ("  \"api-key\": 'k1', // x", "api-key", "k1", true),
            ("export TOKEN=abc", "TOKEN", "abc", false),
            ("  :secret => `s`", "secret", "s", true),
            ("password := \"p\"", "password", "p", true),
            ("config['token'] = \"t\"", "token", "t", true),
            ("db.password: p1 # c", "db.password", "p1", false),
        ] {
            assert_eq!(assignments(line), [Assignment { name, value, is_quoted }], "{line}");
        }
        let typed = assignments("let password: &str = \"p\";");
        assert_eq!(typed[1], Assignment { name: "password", value: "p", is_quoted: true });
        assert_eq!(assignments("= ==: \u{e4}=\"x\""), []);
    }
}
