//! Commands as they are typed into a POSIX shell.

/// Returns a word as a shell reads it: quoted, unless no shell would read it otherwise.
///
/// ```
/// assert_eq!(model::quote_word("src/lib.rs"), "src/lib.rs");
/// assert_eq!(model::quote_word("it's $HOME"), r"'it'\''s $HOME'");
/// assert_eq!(model::quote_word(""), "''");
/// ```
pub fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a program and its arguments as they are typed.
pub fn shown_command(argv: &[String]) -> String {
    argv.iter().map(|word| quote_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_command_as_it_was() {
        let argv = ["sh", "-c", "it's $X", "", "a=b", "naïve", "~"].map(str::to_owned);
        assert_eq!(shown_command(&argv), r"sh -c 'it'\''s $X' '' a=b 'naïve' '~'");
    }
}
