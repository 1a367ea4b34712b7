//! Text from outside, so that it does nothing to a terminal.

use model::is_unprintable;

/// Escapes what could control the terminal, or change the direction of text, and ends of lines.
pub(crate) fn escape_line(text: &str) -> String {
    escape(text, is_unprintable)
}

/// As [`escape_line`], but leaves ends of lines and tabs.
pub(crate) fn escape_text(text: &str) -> String {
    escape(text, |c| is_unprintable(c) && !matches!(c, '\n' | '\t'))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_controls_a_terminal_remains() {
        let hostile = "a\x1b]0;x\x07b\u{9b}31m\u{202e}c\r\n\td\u{7f}";
        assert_eq!(escape_line(hostile), "a\\u{1b}]0;x\\u{7}b\\u{9b}31m\\u{202e}c\\r\\n\\td\\u{7f}");
        assert_eq!(escape_text(hostile), "a\\u{1b}]0;x\\u{7}b\\u{9b}31m\\u{202e}c\\r\n\td\\u{7f}");
        assert_eq!(escape_line("naïve \\ 文"), "naïve \\ 文");
    }
}
